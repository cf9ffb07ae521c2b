"""Idle nodes: their cost for the worker, and the number of history events and Temporal actions that they cause.

    python -m benchmarks.idle [--nodes 300] [--pods 10] [--minutes 10] [--untagged] [--json FILE]

Kwok renews the Lease of each node like a kubelet. The benchmark verifies that the Leases are renewed.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from prometheus_client.parser import text_string_to_metric_families
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from benchmarks.harness import Usage, benchmark_app, in_sandbox, run
from benchmarks.report import describe_machine
from benchmarks.scale import DEPLOYMENT, node_pool, pause_tagging, pods_wait, process_usage, sandbox_plan
from tenure.apis import labels
from tenure.cli.demo.script import MANIFESTS_FOLDER, NAME
from tenure.cli.exit_codes import exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.probes import calls_since, read_metrics
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_POOLS
from tenure.model.nodeclaim.history import Phase
from tenure.sandbox.environment import Sandbox

TYPE: Final = "m6i.large"
"""Two CPUs. The pods of a node leave less than the request of one more pod."""
CPU: Final = 1800
"""Millicores, shared by the pods of a node."""
DAY_SECONDS: Final = 24 * 3600.0
SAMPLE: Final = 60.0
"""Seconds between two samples."""
AT_ONCE: Final = 32
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PROCESSES: Final = ("worker", "planner", "temporal")
app = benchmark_app()


@dataclass(frozen=True)
class Idle:
    nodes: int
    pods: int
    seconds: float
    """Duration of the measurement."""
    events: int
    """New events in the histories of all NodeClaim workflows."""
    disturbed: tuple[str, ...]
    """NodeClaims with new events."""
    beating: int
    """Number of nodes whose Lease was renewed."""
    percent: dict[str, float]
    """CPU usage by process, in percent of one core."""
    megabytes: dict[str, float]
    """Peak resident memory by process."""
    calls: dict[str, int]
    """Calls to AWS by action."""
    actions: dict[str, dict[str, int]]
    """By workflow type: Temporal actions by kind, and history events."""
    heartbeats: int

    @property
    def actions_a_day(self) -> float:
        kinds = (count for one in self.actions.values() for kind, count in one.items() if kind != "events")
        return (sum(kinds) + self.heartbeats) * DAY_SECONDS / self.seconds


@app.command()
def idle(
    nodes: Annotated[int, typer.Option(min=1, max=2000)] = 300,
    pods: Annotated[int, typer.Option(min=1, max=25, help="Pods per node.")] = 10,
    minutes: Annotated[float, typer.Option(min=1, max=24 * 60)] = 10,
    calm: Annotated[float, typer.Option(min=0, help="Seconds to wait after all pods run.")] = 120,
    untagged: Annotated[
        bool, typer.Option("--untagged", help="Skip the tagging of new instances, which takes two seconds each.")
    ] = False,
    file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> int:
    """Create nodes, leave them idle, and print their cost. Exit code 1 if a history has new events."""
    found = in_sandbox(sandbox_plan(), partial(_run, nodes, pods, minutes, calm, untagged))
    print(f"Measured on {describe_machine()}")
    print_idle(found)
    if file:
        file.write_text(json.dumps({"machine": describe_machine(), "idle": asdict(found)}, indent=2) + "\n")
    return int(bool(found.events))


def print_idle(found: Idle) -> None:
    print(
        f"{found.nodes} idle nodes with {found.pods} pods for {found.seconds / 60:.1f} min, "
        f"Leases of {found.beating} renewed: {found.events} events in the histories of NodeClaims"
        + (f", of {', '.join(found.disturbed[:5])}" if found.disturbed else "")
    )
    for name in PROCESSES:
        print(f"  {name:<9} {found.percent[name]:5.2f} % of one core, at most {found.megabytes[name]:.0f} MB")
    print(f"  AWS calls: {found.calls or 'none'}")
    for kind, counts in sorted(found.actions.items()):
        print(f"  {kind}: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    print(f"  {found.heartbeats} heartbeats; {found.actions_a_day:.0f} Temporal actions a day")


async def _run(nodes: int, pods: int, minutes: float, calm: float, untagged: bool, sandbox: Sandbox) -> Idle:
    async with SandboxSession(sandbox, deployment=DEPLOYMENT) as session:
        if untagged:
            await pause_tagging(session)
        await create_idle_nodes(session, nodes, pods)
        print(f"calm for {calm:.0f} s ...", file=sys.stderr, flush=True)
        await asyncio.sleep(calm)
        return await watch_idle(session, nodes * pods, minutes * 60)


async def create_idle_nodes(session: SandboxSession, nodes: int, pods: int, cpu: int = CPU) -> None:
    """`cpu`: millicores, shared by the pods of a node. Raises `CommandFailed`."""
    pool = node_pool()
    one_type = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": [TYPE]}
    pool["spec"]["template"]["spec"]["requirements"].append(one_type)
    await session.apply(MANIFESTS_FOLDER / "ec2nodeclass.yaml", MANIFESTS_FOLDER / "deployment.yaml")
    await session.kube.apply(pool)
    for kind in (EC2_NODE_CLASSES, NODE_POOLS):
        await session.wait_until_resolved(
            partial(session.why_not_ready, kind.path(NAME)), what=f"{kind.kind} Ready", seconds=60
        )
    containers = [{"name": "pause", "resources": {"requests": {"cpu": f"{cpu // pods}m", "memory": "64Mi"}}}]
    body = {"spec": {"template": {"spec": {"containers": containers}}}}
    path = f"/apis/apps/v1/namespaces/default/deployments/{DEPLOYMENT}"
    await session.kube.request("PATCH", path, body, "application/strategic-merge-patch+json")
    print(f"{nodes * pods} pods for {nodes} nodes ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    await session.scale_deployment(nodes * pods)
    await session.wait_until_resolved(
        partial(pods_wait, session, nodes * pods), what=f"{nodes * pods} pods Running", seconds=300 + 2 * nodes
    )
    await session.wait_until_resolved(partial(_why_not_ready, session), what="all nodes Ready", seconds=300)
    print(f"pods Running and nodes Ready after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


async def _why_not_ready(session: SandboxSession) -> str:
    others = [one for one in await session.nodeclaims.list_running() if one.phase != Phase.READY.value]
    return f"{len(others)} nodes are not Ready, such as {others[0].name} in {others[0].phase}" if others else ""


async def watch_idle(session: SandboxSession, pods: int, seconds: float) -> Idle:
    cluster = session.sandbox.plan.cluster_name
    lengths, leases, calls = (
        await _history_lengths(session),
        await _lease_renewals(session),
        await session.aws.count_calls(),
    )
    heartbeats, since = await count_heartbeats(session), datetime.now(UTC)
    before, began = process_usage(session), time.monotonic()
    most = {name: before[name].rss for name in PROCESSES}
    while (remaining := began + seconds - time.monotonic()) > 0:
        await asyncio.sleep(min(SAMPLE, remaining))
        session.check()
        now = process_usage(session)
        most = {name: max(most[name], now[name].rss) for name in PROCESSES}
        _print_progress(before, now, time.monotonic() - began)
    after, took = process_usage(session), time.monotonic() - began
    grown = {
        name: _new_events(length, lengths.get(name, 0)) for name, length in (await _history_lengths(session)).items()
    }
    renewed = await _lease_renewals(session)
    return Idle(
        nodes=len(lengths),
        pods=pods,
        seconds=round(took, 1),
        events=sum(grown.values()),
        disturbed=tuple(sorted(name for name, more in grown.items() if more)),
        beating=sum(renewed.get(name, renewed_at) != renewed_at for name, renewed_at in leases.items()),
        percent={name: round(100 * (after[name].cpu - before[name].cpu) / took, 2) for name in PROCESSES},
        megabytes={name: round(rss / 1e6, 1) for name, rss in most.items()},
        calls=dict(calls_since(calls, await session.aws.count_calls())),
        actions={
            kind: dict(+counts)
            for kind, counts in (await count_actions(session.temporal, cluster, since)).items()
            if +counts
        },
        heartbeats=await count_heartbeats(session) - heartbeats,
    )


def _print_progress(before: Mapping[str, Usage], now: Mapping[str, Usage], took: float) -> None:
    cpu = ", ".join(f"{name} {100 * (now[name].cpu - before[name].cpu) / took:.2f} %" for name in PROCESSES)
    print(f"  {took / 60:.1f} min: {cpu}", file=sys.stderr, flush=True)


async def _history_lengths(session: SandboxSession) -> dict[str, int]:
    """History length of the open run by NodeClaim."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def fetch_length(workflow_id: str) -> int:
        async with limit:
            return (await session.temporal.get_workflow_handle(workflow_id).describe()).history_length

    nodeclaims = await session.nodeclaims.list_running()
    found = await asyncio.gather(*(fetch_length(one.workflow_id) for one in nodeclaims))
    return {one.name: length for one, length in zip(nodeclaims, found, strict=True)}


def _new_events(length: int, known: int) -> int:
    """After continue-as-new, the history starts again at zero events."""
    return length - known if length >= known else length


async def _lease_renewals(session: SandboxSession) -> dict[str, Any]:
    """Last renewal of each node's Lease."""
    response = await session.kube.request("GET", LEASES)
    return {one["metadata"]["name"]: one["spec"].get("renewTime") for one in response["items"]}


# --- billable actions, by Temporal Cloud's list (docs/decisions/temporal-cost.md) ---

ACTIONS: Final = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "starts",
    EventType.EVENT_TYPE_TIMER_STARTED: "timers",
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: "activities",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signals",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search attributes",
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED: "memos",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
}
"""Events that are one action each. Retries of activities are counted with their start, from the attempt."""
HEARTBEAT: Final = "RecordActivityTaskHeartbeat"


async def count_actions(temporal: Client, cluster: str, since: datetime) -> dict[str, Counter[str]]:
    """By workflow type: actions in histories since then."""
    found: dict[str, Counter[str]] = {}
    async for execution in temporal.list_workflows(f"WorkflowId STARTS_WITH '{cluster}/'"):
        if execution.close_time and execution.close_time < since:
            continue
        counts = found.setdefault(execution.workflow_type, Counter())
        handle = temporal.get_workflow_handle(execution.id, run_id=execution.run_id)
        async for event in handle.fetch_history_events():
            if event.event_time.ToDatetime(UTC) >= since:
                if name := ACTIONS.get(event.event_type):
                    counts[name] += 1
                counts["retries"] += max(0, event.activity_task_started_event_attributes.attempt - 1)
                counts["events"] += 1
    return found


async def count_heartbeats(session: SandboxSession) -> int:
    """Recorded heartbeats of the worker's activities, since its start."""
    text = await read_metrics(session.worker.metrics_port)
    return int(
        sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "temporal_request" and sample.labels.get("operation") == HEARTBEAT
        )
    )


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.idle"))
