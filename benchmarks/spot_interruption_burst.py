"""EC2 interrupts all spot nodes at once: time from its messages to the eviction of the last node's pods.

    python -m benchmarks.spot_interruption_burst [--nodes 500] [--json FILE]

For comparison, the same number of signals that the workflows drop is sent before, on the same Temporal server.
"""

import asyncio
import json
import os
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.harness import benchmark_app, in_sandbox, run
from benchmarks.report import describe_machine
from benchmarks.scale import DEPLOYMENT, create_nodes, sandbox_plan
from tenure.apis.labels import DISRUPTED_TAINT_KEY, PLAN
from tenure.cli.exit_codes import exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.probes import calls_since, format_failed_tasks, read_failed_tasks
from tenure.kube.client.client import KubeClient, connect
from tenure.kube.client.list_watch import Delta, ListWatch
from tenure.kube.client.resources import NODE_CLAIMS, NODES, PODS
from tenure.model.observations import ObservedNodeClaim
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.environment import Sandbox
from workflows.nodeclaim import NodeClaimWorkflow

CALM = 15.0
"""Seconds of idle time before the measurement."""
TIMEOUT_SECONDS = 600.0
AT_ONCE = 64
app = benchmark_app()


@dataclass(frozen=True)
class InterruptionBurst:
    """Durations are seconds since the first message was sent."""

    nodes: int
    signals: float
    """Duration of the same number of dropped signals."""
    sent: float
    """Until the last message was in the queue."""
    read: float
    """Until the queue was empty: every workflow has its message."""
    tainted: float
    """Until the last node had the taint `karpenter.sh/disrupted`."""
    first: float
    """Until the first pod was evicted."""
    median: float
    last: float
    bought: tuple[float, float]
    """Until the first and the last replacement NodeClaim were created."""
    plans: int
    """Number of plans that created them."""
    fleets: int
    """Number of CreateFleet calls."""
    running: float
    """Until as many pods as before were Running elsewhere."""
    failed_tasks: str
    """Failed workflow tasks by type: a bug, or an overloaded machine."""
    load: float


@app.command()
def interruption_burst(
    nodes: Annotated[int, typer.Option(min=1, max=2000, help="Nodes with one pod each.")] = 500,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Also write the results to this file, and the worker's log next to it."),
    ] = None,
) -> int:
    """Interrupt all nodes, and print the result."""
    log = json_file.with_suffix(".log") if json_file else None
    found = in_sandbox(sandbox_plan(), partial(_run, nodes=nodes, log=log))
    print(
        f"{found.nodes} nodes interrupted, load {found.load:.1f}: messages sent in {found.sent:.1f} s, all "
        f"read after {found.read:.1f} s; last node tainted after {found.tainted:.1f} s; pods evicted after "
        f"{found.first:.1f} s (first), {found.median:.1f} s (median), {found.last:.1f} s (last); replacements "
        f"created after {found.bought[0]:.1f} to {found.bought[1]:.1f} s, {found.plans} plans, {found.fleets} fleets; "
        f"all Running elsewhere after {found.running:.1f} s. Same number of dropped signals: {found.signals:.1f} s"
    )
    if found.failed_tasks:
        print(found.failed_tasks)
    if json_file:
        json_file.write_text(json.dumps({"machine": describe_machine(), "storm": asdict(found)}, indent=2) + "\n")
    return 0


async def _run(sandbox: Sandbox, nodes: int, log: Path | None) -> InterruptionBurst:
    queue = {"INTERRUPTION_QUEUE": sandbox.plan.cluster_name}
    async with SandboxSession(sandbox, deployment=DEPLOYMENT, settings=queue) as session:
        await create_nodes(session, nodes)
        await asyncio.sleep(CALM)
        signals = await _measure_signals(session)
        await asyncio.sleep(CALM)
        client = await connect(str(sandbox.kubeconfig))
        try:
            return await _measure_interruption(session, client, nodes, signals)
        finally:
            await client.close()
            if log:
                shutil.copyfile(sandbox.logs / "worker.log", log)


async def _measure_signals(session: SandboxSession) -> float:
    """Send one signal per workflow, which drops it: the observation in it is older than the known one."""
    semaphore, nodeclaims = asyncio.Semaphore(AT_ONCE), await session.nodeclaims.list_running()

    async def send_signal(workflow_id: str) -> None:
        async with semaphore:
            await session.temporal.get_workflow_handle(workflow_id).signal(
                NodeClaimWorkflow.observe, ObservedNodeClaim()
            )

    began = time.monotonic()
    await asyncio.gather(*(send_signal(one.workflow_id) for one in nodeclaims))
    return round(time.monotonic() - began, 2)


async def _measure_interruption(
    session: SandboxSession, client: KubeClient, nodes: int, signals: float
) -> InterruptionBurst:
    evictions, new_nodeclaims, taints = _PodEvictions(client), _NewNodeClaims(client), _DisruptedTaints(client)
    instances, calls = (
        [one.instance_id for one in await session.nodeclaims.list_running()],
        await session.aws.count_calls(),
    )
    async with evictions, new_nodeclaims, taints:
        control = AwsControl(session.sandbox.aws_endpoint)
        began = time.monotonic()
        await asyncio.to_thread(_interrupt_all, control, instances)
        sent = time.monotonic() - began
        read = asyncio.create_task(_wait_until_read(session, control))
        await session.wait_until_resolved(
            lambda: evictions.why_not_evicted(nodes), what="all pods evicted", seconds=TIMEOUT_SECONDS
        )
        load = os.getloadavg()[0]
        await session.wait_until_resolved(
            lambda: taints.why_not_tainted(nodes), what="all nodes tainted", seconds=TIMEOUT_SECONDS
        )
        await session.wait_until_resolved(
            lambda: evictions.why_not_replaced(nodes), what="all pods Running elsewhere", seconds=TIMEOUT_SECONDS
        )
        running = time.monotonic() - began
        fleets = calls_since(calls, await session.aws.count_calls()).get("ec2:CreateFleet", 0)
    times = sorted(at - began for at in evictions.evicted_at.values())
    created = sorted(round(at - began, 2) for at, _ in new_nodeclaims.created.values())
    return InterruptionBurst(
        nodes=nodes,
        signals=signals,
        sent=round(sent, 2),
        read=round(await read - began, 2),
        tainted=round(max(taints.tainted_at.values()) - began, 2),
        first=round(times[0], 2),
        median=round(statistics.median(times), 2),
        last=round(times[-1], 2),
        bought=(created[0], created[-1]),
        plans=len({plan for _, plan in new_nodeclaims.created.values()}),
        fleets=fleets,
        running=round(running, 1),
        failed_tasks=format_failed_tasks(await read_failed_tasks(session.worker.metrics_port)),
        load=load,
    )


def _interrupt_all(control: AwsControl, instances: Sequence[str]) -> None:
    """Send only warnings: instances are not terminated, so that the benchmark measures only the drain."""
    for one in instances:
        control.interrupt_spot(one, warn_only=True)


async def _wait_until_read(session: SandboxSession, control: AwsControl) -> float:
    """The time at which the queue is empty."""

    async def why_not_empty() -> str:
        queued = await asyncio.to_thread(control.count_queued_messages)
        return f"{queued} messages are in the queue" if queued else ""

    await session.wait_until_resolved(why_not_empty, what="all messages read", seconds=TIMEOUT_SECONDS)
    return time.monotonic()


class _DisruptedTaints:
    """The time at which each node received its taint."""

    def __init__(self, client: KubeClient) -> None:
        self._watch = ListWatch(client, NODES, self._on_nodes, time.monotonic)
        self.tainted_at: dict[str, float] = {}

    async def __aenter__(self) -> "_DisruptedTaints":
        self._task = asyncio.create_task(self._watch.run())
        await self._watch.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def why_not_tainted(self, count: int) -> str:
        return "" if len(self.tainted_at) >= count else f"{len(self.tainted_at)} of {count} nodes are tainted"

    def _on_nodes(self, deltas: list[Delta]) -> None:
        for node in (delta.object for delta in deltas):
            if any(one["key"] == DISRUPTED_TAINT_KEY for one in node["spec"].get("taints", ())):
                self.tainted_at.setdefault(node["metadata"]["name"], time.monotonic())


class _PodEvictions:
    """Pods that existed at the start, and the time of each eviction."""

    def __init__(self, client: KubeClient) -> None:
        selector = {"labelSelector": f"app={DEPLOYMENT}"}
        self._watch = ListWatch(client, PODS, self._on_pods, time.monotonic, params=selector)
        self._before: set[str] | None = None
        self._running: set[str] = set()
        self.evicted_at: dict[str, float] = {}

    async def __aenter__(self) -> "_PodEvictions":
        self._task = asyncio.create_task(self._watch.run())
        await self._watch.synced.wait()
        self._before = set(self._running)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def why_not_evicted(self, count: int) -> str:
        return "" if len(self.evicted_at) >= count else f"{len(self.evicted_at)} of {count} pods are evicted"

    async def why_not_replaced(self, count: int) -> str:
        new = len(self._running - (self._before or set()))
        return "" if new >= count else f"{new} of {count} new pods are Running"

    def _on_pods(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            pod = delta.object
            uid, is_terminating = pod["metadata"]["uid"], delta.is_deleted or "deletionTimestamp" in pod["metadata"]
            if is_terminating and self._before and uid in self._before:
                self.evicted_at.setdefault(uid, time.monotonic())
            if is_terminating or pod.get("status", {}).get("phase") != "Running":
                self._running.discard(uid)
            else:
                self._running.add(uid)


class _NewNodeClaims:
    """NodeClaims that are created inside the context: time and plan."""

    def __init__(self, client: KubeClient) -> None:
        self._watch = ListWatch(client, NODE_CLAIMS, self._on_nodeclaims, time.monotonic)
        self._before: set[str] = set()
        self.created: dict[str, tuple[float, str]] = {}

    async def __aenter__(self) -> "_NewNodeClaims":
        self._task = asyncio.create_task(self._watch.run())
        await self._watch.synced.wait()
        self._before, self.created = set(self.created), {}
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _on_nodeclaims(self, deltas: list[Delta]) -> None:
        for metadata in (delta.object["metadata"] for delta in deltas):
            if metadata["name"] not in self._before:
                plan = metadata.get("annotations", {}).get(PLAN, "")
                self.created.setdefault(metadata["name"], (time.monotonic(), plan))


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.spot_interruption_burst"))
