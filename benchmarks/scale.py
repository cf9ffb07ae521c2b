"""End to end: time from `kubectl scale` until all pods are Running, and until no node is left, and resource usage.

    python -m benchmarks.scale [--steps 100,500,1000,0] [--fresh] [--temporal postgres] [--json FILE]

The environment is that of Karpenter's results: nodes of at most 8 vCPU, instances pending for 1 s, boot 2 s, shutdown
2 s. Disruption is WhenEmpty after 0 s with a budget of 100 %, and the batch window is the default.

`create_nodes` creates nodes with one pod each, for benchmarks on existing nodes.
"""

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from benchmarks.harness import Usage, benchmark_app, children_of, in_sandbox, measure_usage, run
from benchmarks.report import Step, as_json, report
from tenure.apis import labels
from tenure.apis.labels import NODEPOOL
from tenure.cli.demo.script import MANIFESTS_FOLDER, NAME
from tenure.cli.exit_codes import CommandFailed, UsageError, exit_process
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.probes import calls_since, read_failed_tasks
from tenure.cli.sandbox.probes import format_failed_tasks as line_of_failures
from tenure.cli.sandbox.worker_process import RBAC, aws_arguments
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODE_POOLS, NODES
from tenure.model.garbage_collection import TaskSelection
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import CRDS, Plan, Temporals
from workflows import ids

TIMEOUT_SECONDS = 300.0
"""Seconds for one step."""
DEPLOYMENT = "inflate"
app = benchmark_app()


@app.command()
def scale(
    steps: Annotated[str, typer.Option(help="Comma-separated numbers of pods.")] = "100,500,1000,0",
    fresh: Annotated[bool, typer.Option("--fresh", help="Scale to 0 pods before each size.")] = False,
    temporal: Annotated[Temporals, typer.Option(help="Dev server, or server with PostgreSQL.")] = "dev",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> int:
    """Scale a Deployment and print durations and usage."""
    sizes = sizes_of(steps, fresh=fresh)
    taken, remarks = in_sandbox(sandbox_plan(temporal), partial(_run, sizes=sizes))
    report(taken, fresh=fresh, remarks=remarks)
    if json_file:
        json_file.write_text(json.dumps(as_json(taken, remarks=remarks), indent=2) + "\n")
    return 0


def sizes_of(steps: str, *, fresh: bool) -> list[int]:
    """Parse `100,500,0`. The result ends with 0; `fresh` inserts a 0 after each size. Raises `UsageError`."""
    try:
        sizes = [int(part) for part in steps.split(",")]
    except ValueError:
        raise UsageError(f"--steps {steps!r}: expected comma-separated numbers of pods, e.g. 100,500,0") from None
    if any(not 0 <= size <= 10_000 for size in sizes) or not any(sizes):
        raise UsageError(f"--steps {steps!r}: write numbers from 0 to 10000, at least one of them above 0")
    sequence = [step for size in sizes if size for step in (size, 0)] if fresh else sizes
    if any(0 < after <= before for before, after in pairwise(sequence)):
        raise UsageError(f"--steps {steps!r}: each number must be greater than the previous one, or 0")
    return sequence if sequence[-1] == 0 else [*sequence, 0]


def sandbox_plan(temporal: Temporals = "dev") -> Plan:
    """`examples/` select subnets and security groups by this cluster name."""
    return Plan(
        cluster_name="demo",
        temporal=temporal,
        manifests=(CRDS, RBAC),
        aws_arguments=("--pending-seconds=1", "--shutting-down-seconds=2", *aws_arguments()),
        node_arguments=("--boot-seconds=2",),
    )


def node_pool() -> dict[str, Any]:
    """The NodePool of the demo without limits; empty nodes are deleted at once."""
    pool: dict[str, Any] = yaml.safe_load((MANIFESTS_FOLDER / "nodepool.yaml").read_text())
    pool["spec"].pop("limits", None)
    pool["spec"]["disruption"] = {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "0s",
        "budgets": [{"nodes": "100%"}],
    }
    return pool


async def _run(sandbox: Sandbox, sizes: list[int]) -> tuple[list[Step], str]:
    """The steps, and remarks."""
    async with SandboxSession(sandbox, deployment=DEPLOYMENT) as session:
        bench = Bench(session)
        await bench.prepare()
        before = store_size(sandbox)
        taken = [await bench.run_step(size) for size in sizes]
        remarks = line_of_failures(await read_failed_tasks(session.worker.metrics_port))
        remarks = "\n".join(filter(None, (remarks, line_of_store(store_size(sandbox) - before, taken))))
        await bench.clean_up()
        return taken, remarks


def store_size(sandbox: Sandbox) -> int:
    """Bytes of Temporal's databases in PostgreSQL, with indexes; 0 with the dev server."""
    return sandbox.temporal_server.size() if sandbox.plan.temporal == "postgres" else 0


def line_of_store(grown: int, taken: Sequence[Step]) -> str:
    nodeclaim_count = sum(len(step.events) for step in taken)
    if not grown or not nodeclaim_count:
        return ""
    return (
        f"PostgreSQL grew by {grown / 2**20:.1f} MiB with {nodeclaim_count} NodeClaims: "
        f"{grown / 2**10 / nodeclaim_count:.0f} KiB each"
    )


class Bench:
    """Runs the steps. CPU seconds and calls are those of a step; memory is the value at its end."""

    def __init__(self, session: SandboxSession) -> None:
        self._session = session
        self._pods = 0
        self._reported_ids: set[str] = set()

    async def prepare(self) -> None:
        session = self._session
        await session.apply(MANIFESTS_FOLDER / "ec2nodeclass.yaml", MANIFESTS_FOLDER / "deployment.yaml")
        await session.kube.apply(node_pool())
        for kind in (EC2_NODE_CLASSES, NODE_POOLS):
            await session.wait_until_resolved(
                partial(session.why_not_ready, kind.path(NAME)), what=f"{kind.kind} Ready", seconds=60
            )

    async def run_step(self, pods: int) -> Step:
        """Raises `CommandFailed` if the step does not complete in time."""
        before, calls = process_usage(self._session), await self._session.aws.count_calls()
        print(f"{self._pods} -> {pods} pods ...", file=sys.stderr, flush=True)
        seconds = await (self._scale_up(pods) if pods > self._pods else self._scale_down())
        after = process_usage(self._session)
        nodes = len(await self._session.list_names(NODES.path(), NODEPOOL))
        ended = await self._list_newly_completed()
        taken = Step(
            begin=self._pods,
            end=pods,
            seconds=seconds,
            nodes=nodes or len(ended),
            calls=calls_since(calls, await self._session.aws.count_calls()),
            cost={name: Usage(usage.cpu - before[name].cpu, usage.rss) for name, usage in after.items()},
            events=[nodeclaim.events for nodeclaim in ended],
        )
        print(f"  {seconds:.1f} s, {taken.nodes} nodes", file=sys.stderr, flush=True)
        self._pods = pods
        return taken

    async def clean_up(self) -> None:
        """Delete everything. Raises `CommandFailed` if something remains."""
        session = self._session
        for kind in (NODE_POOLS, EC2_NODE_CLASSES):
            await session.delete(kind.path(NAME))
            await session.wait_until_resolved(
                partial(session.list_names, kind.path()), what=f"{kind.kind} deleted", seconds=60
            )
        if still := await session.terminate_open_workflows():
            raise CommandFailed(f"workflows are still open: {', '.join(still)}")
        if code := await session.worker.stop_gracefully():
            raise CommandFailed(f"the worker exited with code {code}")

    async def _scale_up(self, pods: int) -> float:
        session = self._session
        session.pods.reset_peak()
        began = time.monotonic()
        await session.scale_deployment(pods)
        while session.pods.most < pods:
            if time.monotonic() > began + TIMEOUT_SECONDS:
                raise CommandFailed(f"{pods} pods Running: {session.pods.count_pods()} after {TIMEOUT_SECONDS:g} s")
            session.check()
            await session.pods.wait_for_change(1.0)
        return session.pods.most_at - began

    async def _scale_down(self) -> float:
        """Scale to 0 pods, and wait until no node remains."""
        began = time.monotonic()
        await self._session.scale_deployment(0)
        await self._session.wait_until_resolved(self._find_remaining, what="nothing left", seconds=TIMEOUT_SECONDS)
        return time.monotonic() - began

    async def _find_remaining(self) -> str:
        """A remaining object, or an empty text. Cheap checks first."""
        session = self._session
        for kind in (NODE_CLAIMS, NODES):
            found = await session.list_names(kind.path(), NODEPOOL, limit=1)
            if found:
                return f"{kind.kind} {found[0]}"
        if running := await session.nodeclaims.list_running():
            return f"{len(running)} open NodeClaim workflows"
        instances = await session.aws.count_instances()
        left = instances.launched - instances.terminated
        return f"{left} instances" if left else ""

    async def _list_newly_completed(self) -> list[NodeClaimSummary]:
        """NodeClaims that completed since the last call."""
        nodeclaims = await self._session.nodeclaims.list_all("ExecutionStatus != 'Running'")
        fresh = [
            nodeclaim
            for nodeclaim in nodeclaims
            if not nodeclaim.open and nodeclaim.workflow_id not in self._reported_ids
        ]
        self._reported_ids |= {nodeclaim.workflow_id for nodeclaim in fresh}
        return fresh


def process_usage(session: SandboxSession) -> dict[str, Usage]:
    """CPU seconds since the start and current memory, by process."""
    groups = {part.name: [part.pid] for part in session.sandbox.processes}
    taken = measure_usage(groups | {"worker": [session.worker.pid], "planner": children_of(session.worker.pid)})
    # The worker's process tree includes its planner: subtract it, so that both add up to the tree.
    worker, planner = taken["worker"], taken["planner"]
    return taken | {"worker": Usage(worker.cpu - planner.cpu, worker.rss - planner.rss)}


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.scale"))


ONE_POD_EACH = "m6i.large"
"""Two CPUs. A pod of the demo requests more than half of the allocatable CPU."""


async def pause_tagging(session: SandboxSession) -> None:
    """So that tags of new nodes do not add to the measured calls."""
    collector = session.temporal.get_workflow_handle(ids.garbage_collection(session.sandbox.plan.cluster_name))
    await collector.signal("pause_task", TaskSelection(task="tags"))


async def create_nodes(session: SandboxSession, nodes: int) -> None:
    """Create nodes with one pod each. Raises `CommandFailed`."""
    pool = node_pool()
    one_type = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": [ONE_POD_EACH]}
    pool["spec"]["template"]["spec"]["requirements"].append(one_type)
    await session.apply(MANIFESTS_FOLDER / "ec2nodeclass.yaml", MANIFESTS_FOLDER / "deployment.yaml")
    await session.kube.apply(pool)
    for kind in (EC2_NODE_CLASSES, NODE_POOLS):
        await session.wait_until_resolved(
            partial(session.why_not_ready, kind.path(NAME)), what=f"{kind.kind} Ready", seconds=60
        )
    print(f"{nodes} nodes ...", file=sys.stderr, flush=True)
    await session.scale_deployment(nodes)
    await session.wait_until_resolved(
        partial(pods_wait, session, nodes), what=f"{nodes} pods Running", seconds=120 + nodes
    )


async def pods_wait(session: SandboxSession, count: int) -> str:
    pods = session.pods.count_pods()
    return "" if pods.running == pods.total == count else str(pods)
