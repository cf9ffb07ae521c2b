"""Nodes that nothing happens to: what they cost the worker, and whether Temporal hears of them at all.

    python -m benchmarks.idle [--nodes 300] [--pods 10] [--minutes 10] [--untagged] [--json FILE]

Kwok renews each node's Lease as a kubelet does. Whether the Leases beat is looked at, and not taken on trust.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.harness import Usage, benchmark, in_sandbox, run
from benchmarks.report import machine
from benchmarks.scale import DEPLOYMENT, costs, node_pool, pods_wait, world
from tenure.apis import labels
from tenure.cli.demo.script import MANIFESTS_FOLDER, NAME
from tenure.cli.exit_codes import exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.probes import calls_since
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_POOLS
from tenure.model.nodeclaim_history import Phase
from tenure.sandbox.environment import Sandbox
from workflows import ids

TYPE: Final = "m6i.large"
"""Two CPUs, of which the pods of a node take all but what is less than one more of them."""
CPU: Final = 1800
"""Thousandths, shared by the pods of a node."""
SAMPLE: Final = 60.0
"""Seconds between two looks."""
AT_ONCE: Final = 32
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SHOWN: Final = ("worker", "planner", "temporal")
app = benchmark()


@dataclass(frozen=True)
class Idle:
    nodes: int
    pods: int
    seconds: float
    """That were looked at."""
    events: int
    """That came to the histories of all NodeClaims together, ..."""
    disturbed: tuple[str, ...]
    """... and to which of these."""
    beating: int
    """Nodes whose Lease was renewed meanwhile."""
    percent: dict[str, float]
    """Of one core, by process."""
    megabytes: dict[str, float]
    """Resident, at most."""
    calls: dict[str, int]
    """To AWS, meanwhile."""


@app.command()
def idle(
    nodes: Annotated[int, typer.Option(min=1, max=2000)] = 300,
    pods: Annotated[int, typer.Option(min=1, max=25, help="On each node.")] = 10,
    minutes: Annotated[float, typer.Option(min=1, max=24 * 60)] = 10,
    calm: Annotated[float, typer.Option(min=0, help="Seconds from the last pod that runs to the first look.")] = 120,
    untagged: Annotated[
        bool, typer.Option("--untagged", help="Leave out the tagging of new instances, which takes two seconds each.")
    ] = False,
    file: Annotated[Path | None, typer.Option("--json", help="Write the figures here too.")] = None,
) -> int:
    """Bring nodes up, leave them alone, and print what that cost. Exit code 1 when a history had an event."""
    found = in_sandbox(world(), partial(_run, nodes, pods, minutes, calm, untagged))
    print(f"Measured on {machine()}")
    print(
        f"{found.nodes} idle nodes with {found.pods} pods for {found.seconds / 60:.1f} min, "
        f"Leases of {found.beating} renewed: {found.events} events in the histories of NodeClaims"
        + (f", of {', '.join(found.disturbed[:5])}" if found.disturbed else "")
    )
    for name in SHOWN:
        print(f"  {name:<9} {found.percent[name]:5.2f} % of one core, {found.megabytes[name]:.0f} MB at most")
    print(f"  AWS calls: {found.calls or 'none'}")
    if file:
        file.write_text(json.dumps({"machine": machine(), "idle": asdict(found)}, indent=2) + "\n")
    return int(bool(found.events))


async def _run(nodes: int, pods: int, minutes: float, calm: float, untagged: bool, sandbox: Sandbox) -> Idle:
    async with SandboxSession(sandbox, deployment=DEPLOYMENT) as stage:
        if untagged:
            await stage.temporal.get_schedule_handle(ids.garbage_collection(sandbox.plan.cluster_name, "tags")).pause()
        await _fill(stage, nodes, pods)
        print(f"calm for {calm:.0f} s ...", file=sys.stderr, flush=True)
        await asyncio.sleep(calm)
        return await _watch(stage, nodes * pods, minutes * 60)


async def _fill(stage: SandboxSession, nodes: int, pods: int) -> None:
    """Raises `CommandFailed`."""
    pool = node_pool()
    one_type = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": [TYPE]}
    pool["spec"]["template"]["spec"]["requirements"].append(one_type)
    await stage.apply(MANIFESTS_FOLDER / "ec2nodeclass.yaml", MANIFESTS_FOLDER / "deployment.yaml")
    await stage.kube.apply(pool)
    for kind in (EC2_NODE_CLASSES, NODE_POOLS):
        await stage.wait_until_resolved(
            partial(stage.why_not_ready, kind.path(NAME)), what=f"{kind.kind} Ready", seconds=60
        )
    asks = [{"name": "pause", "resources": {"requests": {"cpu": f"{CPU // pods}m", "memory": "64Mi"}}}]
    body = {"spec": {"template": {"spec": {"containers": asks}}}}
    path = f"/apis/apps/v1/namespaces/default/deployments/{DEPLOYMENT}"
    await stage.kube.request("PATCH", path, body, "application/strategic-merge-patch+json")
    print(f"{nodes * pods} pods for {nodes} nodes ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    await stage.scale_deployment(nodes * pods)
    await stage.wait_until_resolved(
        partial(pods_wait, stage, nodes * pods), what=f"{nodes * pods} pods Running", seconds=300 + 2 * nodes
    )
    await stage.wait_until_resolved(partial(_unready, stage), what="all nodes Ready", seconds=300)
    print(f"they run after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


async def _unready(stage: SandboxSession) -> str:
    others = [one for one in await stage.nodeclaims.list_running() if one.phase != Phase.READY.value]
    return f"{len(others)} are not, {others[0].name} is in {others[0].phase}" if others else ""


async def _watch(stage: SandboxSession, pods: int, seconds: float) -> Idle:
    lengths, leases, calls = await _lengths(stage), await _leases(stage), await stage.aws.count_calls()
    before, began = costs(stage), time.monotonic()
    most = {name: before[name].rss for name in SHOWN}
    while (left := began + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(SAMPLE, left))
        stage.check()
        now = costs(stage)
        most = {name: max(most[name], now[name].rss) for name in SHOWN}
        _say(before, now, time.monotonic() - began)
    after, took = costs(stage), time.monotonic() - began
    grown = {name: _more(many, lengths.get(name, 0)) for name, many in (await _lengths(stage)).items()}
    renewed = await _leases(stage)
    return Idle(
        nodes=len(lengths),
        pods=pods,
        seconds=round(took, 1),
        events=sum(grown.values()),
        disturbed=tuple(sorted(name for name, more in grown.items() if more)),
        beating=sum(renewed.get(name, moment) != moment for name, moment in leases.items()),
        percent={name: round(100 * (after[name].cpu - before[name].cpu) / took, 2) for name in SHOWN},
        megabytes={name: round(many / 1e6, 1) for name, many in most.items()},
        calls=dict(calls_since(calls, await stage.aws.count_calls())),
    )


def _say(before: Mapping[str, Usage], now: Mapping[str, Usage], took: float) -> None:
    cpu = ", ".join(f"{name} {100 * (now[name].cpu - before[name].cpu) / took:.2f} %" for name in SHOWN)
    print(f"  {took / 60:.1f} min: {cpu}", file=sys.stderr, flush=True)


async def _lengths(stage: SandboxSession) -> dict[str, int]:
    """Events of the history of each NodeClaim's open run."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def length(workflow_id: str) -> int:
        async with turn:
            return (await stage.temporal.get_workflow_handle(workflow_id).describe()).history_length

    lives = await stage.nodeclaims.list_running()
    found = await asyncio.gather(*(length(one.workflow_id) for one in lives))
    return {one.name: many for one, many in zip(lives, found, strict=True)}


def _more(many: int, known: int) -> int:
    """A run that continues another begins anew."""
    return many - known if many >= known else many


async def _leases(stage: SandboxSession) -> dict[str, Any]:
    """When each node's Lease was renewed last."""
    answer = await stage.kube.request("GET", LEASES)
    return {one["metadata"]["name"]: one["spec"].get("renewTime") for one in answer["items"]}


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.idle"))
