"""Three nodes for the screenshots: one Ready, one with a startup taint, one whose blocked drain is overdue."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from temporalio.service import RPCError

from tenure.apis.labels import STARTUP_TAINTS_EXIST
from tenure.cli.exit_codes import CommandFailed
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.cli.sandbox.environment import ClusterView, SandboxSession
from tenure.cli.sandbox.worker_process import RBAC, aws_arguments
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.blockers import SLOW
from tenure.model.nodeclaim.history import Phase
from tenure.sandbox.spec import CRDS, Plan
from tools.docs.reference import QUERIES

CLUSTER: Final = "demo"
MANIFESTS: Final = (
    Path(__file__).parents[2] / "examples" / "ec2nodeclass.yaml",
    Path(__file__).with_name("world.yaml"),
)
DEPLOYMENT: Final = "shop"
TAINT: Final = "example.com/network-agent"
STEP_TIMEOUT_SECONDS: Final = 240.0


def plan() -> Plan:
    """`examples/` select subnets and security groups by this cluster name."""
    return Plan(
        cluster_name=CLUSTER,
        manifests=(CRDS, RBAC),
        aws_arguments=aws_arguments(),
        node_arguments=("--boot-seconds=2",),
    )


@dataclass(frozen=True)
class Nodes:
    draining: NodeClaimSummary
    starting: NodeClaimSummary
    ready: NodeClaimSummary


async def prepare_nodes(session: SandboxSession) -> Nodes:
    """Bring nodes to these states. Raises `CommandFailed` if they do not reach them."""
    await session.apply(*MANIFESTS)
    view = await session.wait_until(
        _is_prepared, what="two nodes Ready, and one with a startup taint", seconds=STEP_TIMEOUT_SECONDS
    )
    first = min((one for one in view.nodeclaims if one.phase == Phase.READY.value), key=lambda one: one.name)
    await session.delete(NODE_CLAIMS.path(first.name))
    view = await session.wait_until(
        lambda now: any(one.overdue and one.name == first.name for one in now.nodeclaims),
        what=f"the drain of {first.name} overdue",
        seconds=STEP_TIMEOUT_SECONDS,
    )
    by_phase = {one.phase: one for one in view.nodeclaims}
    return Nodes(
        draining=by_phase[Phase.DRAIN.value],
        starting=by_phase[Phase.INITIALIZATION.value],
        ready=by_phase[Phase.READY.value],
    )


def _is_prepared(view: ClusterView) -> bool:
    ready = [one for one in view.nodeclaims if one.phase == Phase.READY.value]
    return len(ready) == 2 and any(one.blocked_by in (STARTUP_TAINTS_EXIST, SLOW) for one in view.nodeclaims)


async def count_query_matches(session: SandboxSession) -> dict[str, int]:
    """Number of workflows that match each documented query. Raises `CommandFailed` if Temporal rejects a query."""
    found = {}
    for what, query in QUERIES:
        try:
            found[what] = (await session.temporal.count_workflows(query)).count
        except RPCError as error:
            raise CommandFailed(f"{what}: {query}: {error.message}") from error
    return found
