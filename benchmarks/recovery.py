"""Kill and restart the worker: time to its first decision, and unnecessary writes about existing nodes.

    python -m benchmarks.recovery [--nodes 500] [--restarts 2] [--json FILE]

A pod that needs a node is created at the time of the kill. The first decision is the NodeClaim for it. For a minute
after that, the proxy counts the worker's writes to the API server, and the benchmark counts history events. The tagging
of new instances by garbage collection, one per second for minutes, is paused.
"""

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import benchmark_app, in_sandbox, run
from benchmarks.report import describe_machine
from benchmarks.scale import DEPLOYMENT, create_nodes, pause_tagging, pods_wait, sandbox_plan
from tenure.cli.exit_codes import exit_process
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.cli.sandbox.environment import SandboxSession
from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tenure.sandbox.environment import Sandbox

CALM = 15.0
QUIET = 60.0
"""CALM: seconds of idle time before the kill. QUIET: seconds of counting after the pod runs."""
AT_ONCE = 16
app = benchmark_app()


@dataclass(frozen=True)
class Recovery:
    """Durations are seconds since the start of the new worker, directly after the kill."""

    nodes: int
    ready: float
    """Until its readiness probe succeeded."""
    decided: float
    """Until the NodeClaim for the new pod existed."""
    running: float
    """Until the pod was Running."""
    writes: dict[str, int]
    """Number of write requests to the API server, by method and kind."""
    needless: list[str]
    """Writes about NodeClaims and Nodes that did not change."""
    events: int
    """New history events of NodeClaims that did not change."""
    load: float
    """Load average of the machine over one minute."""


@app.command()
def recovery(
    nodes: Annotated[int, typer.Option(min=1, max=2000, help="Existing nodes.")] = 500,
    restarts: Annotated[int, typer.Option(min=1, max=20, help="Number of kills.")] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> int:
    """Kill and restart the worker, and print the result."""
    found = in_sandbox(sandbox_plan(), partial(_run, nodes=nodes, restarts=restarts))
    if json_file:
        figures = {"machine": describe_machine(), "recoveries": [asdict(one) for one in found]}
        json_file.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if any(one.needless for one in found) else 0


async def _run(sandbox: Sandbox, nodes: int, restarts: int) -> list[Recovery]:
    async with SandboxSession(sandbox, deployment=DEPLOYMENT, through_proxy=True) as session:
        await pause_tagging(session)
        await create_nodes(session, nodes)
        await asyncio.sleep(CALM)
        found = []
        for number in range(restarts):
            found.append(await _measure_recovery(session, nodes + number))
            _print_result(found[-1])
        return found


async def _measure_recovery(session: SandboxSession, nodes: int) -> Recovery:
    claims, machines = (
        await session.list_names(NODE_CLAIMS.path(), limit=0),
        await session.list_names(NODES.path(), limit=0),
    )
    nodeclaims = await session.nodeclaims.list_running()
    events, written = await _count_events(session, nodeclaims), len(session.sandbox.written)
    session.kill_worker()
    began = time.monotonic()
    worker = await session.replace_worker()
    starting = asyncio.create_task(worker.start())
    await session.scale_deployment(nodes + 1)
    await session.wait_until_resolved(partial(why_claims_missing, session, nodes + 1), what="a NodeClaim", seconds=120)
    decided = time.monotonic() - began
    await session.wait_until_resolved(partial(pods_wait, session, nodes + 1), what="the pod Running", seconds=120)
    running = time.monotonic() - began
    await starting
    await asyncio.sleep(QUIET)
    new_writes = session.sandbox.written[written:]
    return Recovery(
        nodes=nodes,
        ready=worker.seconds_to_healthy,
        decided=decided,
        running=running,
        writes=dict(Counter(map(request_kind, new_writes)).most_common()),
        needless=[line for line in new_writes if {*line.split("/")} & {*claims, *machines}],
        events=await _count_events(session, nodeclaims) - events,
        load=os.getloadavg()[0],
    )


def request_kind(line: str) -> str:
    """`PATCH /apis/karpenter.sh/v1/nodeclaims/one/status` becomes `PATCH nodeclaims/status`."""
    method, _, path = line.partition(" ")
    parts = path.strip("/").split("/")[2 if path.startswith("/api/") else 3 :]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return f"{method} {'/'.join([parts[0], *parts[2:]])}"


async def _count_events(session: SandboxSession, nodeclaims: list[NodeClaimSummary]) -> int:
    """Total history length of these NodeClaims."""
    semaphore = asyncio.Semaphore(AT_ONCE)

    async def count_one(nodeclaim: NodeClaimSummary) -> int:
        async with semaphore:
            return (await session.temporal.get_workflow_handle(nodeclaim.workflow_id).describe()).history_length

    return sum(await asyncio.gather(*map(count_one, nodeclaims)))


async def count_claims(session: SandboxSession) -> int:
    """Number of NodeClaims. Lists one; the API server counts the others."""
    response = await session.kube.request("GET", NODE_CLAIMS.path() + "?limit=1")
    return len(response.get("items") or ()) + int(response["metadata"].get("remainingItemCount") or 0)


async def why_claims_missing(session: SandboxSession, count: int) -> str:
    """Empty if there are `count` NodeClaims."""
    found = await count_claims(session)
    return "" if found >= count else f"{found} NodeClaims"


def _print_result(one: Recovery) -> None:
    print(
        f"{one.nodes} nodes, load {one.load:.1f}: worker ready {one.ready:.1f} s after its start, first decision "
        f"after {one.decided:.1f} s, its pod Running after {one.running:.1f} s"
    )
    print(f"  all writes: {', '.join(f'{count} {kind}' for kind, count in one.writes.items())}")
    print(f"  about unchanged objects: {len(one.needless)} writes, {one.events} history events", flush=True)
    for line in one.needless[:5]:
        print(f"    {line}")


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.recovery"))
