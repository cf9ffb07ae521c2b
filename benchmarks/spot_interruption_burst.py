"""EC2 takes all spot nodes back at once: how long from its messages until the pods of the last node are told to go.

    python -m benchmarks.spot_interruption_burst [--nodes 500] [--json FILE]

Beside it, on the same Temporal server and just before: as many bare signals, to the same workflows, which drop them.
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

from benchmarks.harness import benchmark, in_sandbox, run
from benchmarks.report import machine
from benchmarks.scale import DEPLOYMENT, fill, world
from tenure.apis.labels import PLAN
from tenure.cli.exit_codes import exit_process
from tenure.cli.sandbox.environment import SandboxSession
from tenure.cli.sandbox.probes import calls_since, format_failed_tasks, read_failed_tasks
from tenure.kube.client.client import KubeClient, connect
from tenure.kube.client.list_watch import Delta, ListWatch
from tenure.kube.client.resources import NODE_CLAIMS, PODS
from tenure.model.observations import ObservedNodeClaim
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.environment import Sandbox
from workflows.nodeclaim import NodeClaimWorkflow

CALM = 15.0
"""Seconds before it, in which nothing happens."""
PATIENCE = 600.0
AT_ONCE = 64
app = benchmark()


@dataclass(frozen=True)
class Storm:
    """Seconds since the first message was sent."""

    nodes: int
    signals: float
    """Until the server had taken as many bare signals, since the first of them."""
    sent: float
    """Until the last message was in the queue."""
    first: float
    """Until the first pod was told to go, ..."""
    median: float
    last: float
    """... half of them, and the last."""
    bought: tuple[float, float]
    """Until the first and the last NodeClaim in their place was made, ..."""
    plans: int
    """... by so many plans, ..."""
    fleets: int
    """... with so many calls of CreateFleet."""
    running: float
    """Until as many pods as before were Running elsewhere."""
    failed_tasks: str
    """Workflow tasks that failed, by type: the machine was too busy, or it is a bug."""
    load: float


@app.command()
def storm(
    nodes: Annotated[int, typer.Option(min=1, max=2000, help="Nodes, of a pod each.")] = 500,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures here too, the worker's log beside it.")
    ] = None,
) -> int:
    """Interrupt all nodes, and print what came of it."""
    log = json_file.with_suffix(".log") if json_file else None
    found = in_sandbox(world(), partial(_run, nodes=nodes, log=log))
    print(
        f"{found.nodes} nodes interrupted, load {found.load:.1f}: messages sent in {found.sent:.1f} s; pods told to "
        f"go after {found.first:.1f} s (first), {found.median:.1f} s (median), {found.last:.1f} s (last); replacements "
        f"made after {found.bought[0]:.1f} to {found.bought[1]:.1f} s, {found.plans} plans, {found.fleets} fleets; "
        f"all Running elsewhere after {found.running:.1f} s. As many bare signals: {found.signals:.1f} s"
    )
    if found.failed_tasks:
        print(found.failed_tasks)
    if json_file:
        json_file.write_text(json.dumps({"machine": machine(), "storm": asdict(found)}, indent=2) + "\n")
    return 0


async def _run(sandbox: Sandbox, nodes: int, log: Path | None) -> Storm:
    queue = {"INTERRUPTION_QUEUE": sandbox.plan.cluster_name}
    async with SandboxSession(sandbox, deployment=DEPLOYMENT, settings=queue) as stage:
        await fill(stage, nodes)
        await asyncio.sleep(CALM)
        signals = await _signal(stage)
        await asyncio.sleep(CALM)
        client = await connect(str(sandbox.kubeconfig))
        try:
            return await _interrupt(stage, client, nodes, signals)
        finally:
            await client.close()
            if log:
                shutil.copyfile(sandbox.logs / "worker.log", log)


async def _signal(stage: SandboxSession) -> float:
    """An observation that is older than what is known is dropped by whoever is told of it."""
    room, lives = asyncio.Semaphore(AT_ONCE), await stage.nodeclaims.list_running()

    async def tell(workflow_id: str) -> None:
        async with room:
            await stage.temporal.get_workflow_handle(workflow_id).signal(NodeClaimWorkflow.observe, ObservedNodeClaim())

    began = time.monotonic()
    await asyncio.gather(*(tell(one.workflow_id) for one in lives))
    return round(time.monotonic() - began, 2)


async def _interrupt(stage: SandboxSession, client: KubeClient, nodes: int, signals: float) -> Storm:
    leaving, coming = _Leaving(client), _Coming(client)
    instances, calls = [one.instance_id for one in await stage.nodeclaims.list_running()], await stage.aws.count_calls()
    async with leaving, coming:
        control = AwsControl(stage.sandbox.aws_endpoint)
        began = time.monotonic()
        await asyncio.to_thread(_interrupt_all, control, instances)
        sent = time.monotonic() - began
        await stage.wait_until_resolved(lambda: leaving.lacks(nodes), what="all pods told to go", seconds=PATIENCE)
        load = os.getloadavg()[0]
        await stage.wait_until_resolved(
            lambda: leaving.waits(nodes), what="all pods Running elsewhere", seconds=PATIENCE
        )
        running = time.monotonic() - began
        fleets = calls_since(calls, await stage.aws.count_calls()).get("ec2:CreateFleet", 0)
    moments = sorted(moment - began for moment in leaving.told.values())
    made = sorted(round(moment - began, 2) for moment, _ in coming.made.values())
    return Storm(
        nodes=nodes,
        signals=signals,
        sent=round(sent, 2),
        first=round(moments[0], 2),
        median=round(statistics.median(moments), 2),
        last=round(moments[-1], 2),
        bought=(made[0], made[-1]),
        plans=len({plan for _, plan in coming.made.values()}),
        fleets=fleets,
        running=round(running, 1),
        failed_tasks=format_failed_tasks(await read_failed_tasks(stage.worker.metrics_port)),
        load=load,
    )


def _interrupt_all(control: AwsControl, instances: Sequence[str]) -> None:
    """They stay, so that what is measured is the drain."""
    for one in instances:
        control.interrupt_spot(one, warn_only=True)


class _Leaving:
    """Pods that were there when it was entered, and when each was told to go."""

    def __init__(self, client: KubeClient) -> None:
        selector = {"labelSelector": f"app={DEPLOYMENT}"}
        self._watch = ListWatch(client, PODS, self._hear, time.monotonic, params=selector)
        self._before: set[str] | None = None
        self._running: set[str] = set()
        self.told: dict[str, float] = {}

    async def __aenter__(self) -> "_Leaving":
        self._task = asyncio.create_task(self._watch.run())
        await self._watch.synced.wait()
        self._before = set(self._running)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def lacks(self, count: int) -> str:
        return "" if len(self.told) >= count else f"{len(self.told)} of {count} pods were"

    async def waits(self, count: int) -> str:
        new = len(self._running - (self._before or set()))
        return "" if new >= count else f"{new} of {count} new pods are"

    def _hear(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            pod = delta.object
            uid, going = pod["metadata"]["uid"], delta.gone or "deletionTimestamp" in pod["metadata"]
            if going and self._before and uid in self._before:
                self.told.setdefault(uid, time.monotonic())
            if going or pod.get("status", {}).get("phase") != "Running":
                self._running.discard(uid)
            else:
                self._running.add(uid)


class _Coming:
    """NodeClaims that were made since it was entered: when, and by which plan."""

    def __init__(self, client: KubeClient) -> None:
        self._watch = ListWatch(client, NODE_CLAIMS, self._hear, time.monotonic)
        self._before: set[str] = set()
        self.made: dict[str, tuple[float, str]] = {}

    async def __aenter__(self) -> "_Coming":
        self._task = asyncio.create_task(self._watch.run())
        await self._watch.synced.wait()
        self._before, self.made = set(self.made), {}
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _hear(self, deltas: list[Delta]) -> None:
        for metadata in (delta.object["metadata"] for delta in deltas):
            if metadata["name"] not in self._before:
                plan = metadata.get("annotations", {}).get(PLAN, "")
                self.made.setdefault(metadata["name"], (time.monotonic(), plan))


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.spot_interruption_burst"))
