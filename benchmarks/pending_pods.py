"""Thousands of pending pods at once: time to their plan, their NodeClaims, their instances, and until all run.

    python -m benchmarks.pending_pods [--nodes 1000] [--existing 500] [--pods 10] [--json FILE]

The pods are created while no worker runs, and kube-scheduler tries all of them. The worker then finds them in its first
list, and plans them together. At the end there is one instance for each NodeClaim, and no more NodeClaims than planned.
With `--existing 500`, the number of nodes doubles.
"""

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.existing_nodes import NAMESPACED, create_pod, run_at_once
from benchmarks.harness import benchmark_app, in_sandbox, run
from benchmarks.idle import CPU, create_idle_nodes
from benchmarks.recovery import count_claims, why_claims_missing
from benchmarks.report import describe_machine
from benchmarks.scale import DEPLOYMENT, process_usage, sandbox_plan
from tenure.apis import labels
from tenure.cli.exit_codes import CommandFailed, exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.sandbox.environment import Sandbox

TIMEOUT_SECONDS = 1800.0
PAUSE_SECONDS = 2.0
"""Between lists of all NodeClaims."""
app = benchmark_app()


@dataclass(frozen=True)
class Result:
    """Durations are seconds since the worker was ready, unless stated otherwise."""

    pods: int
    ready: float
    """From the start of the worker until it was ready."""
    plan: float
    """Duration of the plan in the planner."""
    first: float
    """Until the first NodeClaim existed."""
    written: float
    """Until all NodeClaims existed."""
    launched: float
    """Until all instances were launched."""
    running: float
    """Until all pods were Running."""
    tagged: float
    """Until all instances had their tags, which garbage collection writes."""
    nodeclaims: int
    instances: int
    """NodeClaims and instances at the end."""
    megabytes: dict[str, float]
    """Memory of the worker and of the planner at the end."""


@app.command()
def pending_pods(
    nodes: Annotated[int, typer.Option(min=1, max=2000, help="Nodes at the end.")] = 1000,
    existing: Annotated[int, typer.Option(min=1, help="Those of them that exist before, with their pods.")] = 1,
    pods: Annotated[int, typer.Option(min=1, max=25, help="Pods per node.")] = 10,
    file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> int:
    """Create the pods, start the worker, and print the result. Exit code 1 if a node was bought twice."""
    print(f"Measured on {describe_machine()}", flush=True)
    found = in_sandbox(sandbox_plan(), partial(_run, nodes, existing, pods))
    for name, value in asdict(found).items():
        print(f"  {name:<10} {value}")
    if file:
        file.write_text(json.dumps({"machine": describe_machine(), "result": asdict(found)}, indent=2) + "\n")
    return int(found.nodeclaims != nodes or found.instances != nodes)


async def _run(nodes: int, existing: int, pods: int, sandbox: Sandbox) -> Result:
    """The pods of existing nodes belong to the Deployment, and the other pods have no owner."""
    async with SandboxSession(sandbox, deployment=DEPLOYMENT) as session:
        await create_idle_nodes(session, existing, pods)
        session.kill_worker()
        count = (nodes - existing) * pods
        await run_at_once(partial(create_pod, session, {}, cpu=f"{CPU // pods}m") for _ in range(count))
        await _wait(session, partial(_count_untried, session), "kube-scheduler tries all pods")
        began = time.monotonic()
        worker = await session.replace_worker()
        await worker.start()
        ready = time.monotonic()

        async def reach(what: str, find_problem: Any) -> float:
            await _wait(session, find_problem, what)
            return round(time.monotonic() - ready, 1)

        first, written, launched, running, tagged = await asyncio.gather(
            reach("a NodeClaim", partial(why_claims_missing, session, existing + 1)),
            reach("all NodeClaims", partial(why_claims_missing, session, nodes)),
            reach("all instances", partial(_missing_instances, session, nodes)),
            reach("all pods Running", partial(_find_pending, session)),
            reach("all instances tagged", partial(_find_untagged, session, nodes)),
        )
        usage = process_usage(session)
        return Result(
            pods=count,
            ready=round(ready - began, 1),
            plan=_plan_seconds(sandbox.logs / "worker.log"),
            first=first,
            written=written,
            launched=launched,
            running=running,
            tagged=tagged,
            nodeclaims=await count_claims(session),
            instances=(await session.aws.count_instances()).launched,
            megabytes={name: round(usage[name].rss / 1e6) for name in ("worker", "planner")},
        )


async def _wait(session: SandboxSession, find_problem: Any, what: str) -> None:
    await session.wait_until_resolved(find_problem, what=what, seconds=TIMEOUT_SECONDS)


async def _count_untried(session: SandboxSession) -> str:
    query, untried, more = "?fieldSelector=spec.nodeName%3D&limit=500", 0, ""
    while True:
        response = await session.kube.request("GET", f"{NAMESPACED}{query}{more}")
        untried += sum(not one["status"].get("conditions") for one in response["items"])
        if not (token := response["metadata"].get("continue")):
            return f"{untried} pods were not tried" if untried else ""
        more = f"&continue={token}"


async def _find_pending(session: SandboxSession) -> str:
    response = await session.kube.request("GET", f"{NAMESPACED}?fieldSelector=status.phase%3DPending&limit=1")
    return next((f"pod {one['metadata']['name']} is Pending" for one in response["items"]), "")


async def _find_untagged(session: SandboxSession, nodes: int) -> str:
    await asyncio.sleep(PAUSE_SECONDS)
    items = (await session.kube.request("GET", NODE_CLAIMS.path()))["items"]
    tagged = [one for one in items if labels.CLUSTER_NAME_TAGGED in one["metadata"].get("annotations", {})]
    return "" if len(tagged) >= nodes else f"{len(tagged)} of {nodes} instances are tagged"


async def _missing_instances(session: SandboxSession, count: int) -> str:
    found = (await session.aws.count_instances()).launched
    return "" if found >= count else f"{found} of {count} instances"


def _plan_seconds(log: Path) -> float:
    """Of the largest plan in the worker's log."""
    lines = (json.loads(line) for line in log.read_text().splitlines() if '"planned"' in line)
    plans = [(one["created"], one["took"]) for one in lines]
    if not plans:
        raise CommandFailed(f"{log} has no plan")
    return float(max(plans)[1])


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.pending_pods"))
