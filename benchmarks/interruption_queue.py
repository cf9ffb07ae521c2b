"""Read a queue in which two thirds of the messages are duplicates or about instances without a NodeClaim.

    python -m benchmarks.interruption_queue [--nodes 500] [--messages 15000] [--distinct 10] [--kill] [--json FILE]

All messages are in the queue before a worker reads it. The measurement starts when the worker is ready, and ends when
the queue is empty. Then every node must have received all of its messages. With --kill, the worker is killed when half
of the messages are left, and the measurement continues.
"""

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.harness import benchmark_app, in_sandbox, run
from benchmarks.report import describe_machine
from benchmarks.scale import DEPLOYMENT, create_nodes, pause_tagging, sandbox_plan
from tenure.cli.demo.script import NAME
from tenure.cli.exit_codes import exit_process
from tenure.cli.nodes.events import NodeEventReader
from tenure.cli.sandbox.environment import SandboxSession
from tenure.sandbox.aws.admin.client import AwsControl
from tenure.sandbox.environment import Sandbox

Json = dict[str, Any]
CALM: Final = 15.0
"""Seconds of idle time before the measurement."""
TIMEOUT_SECONDS: Final = 600.0
SENDERS: Final = 8
POLICY: Final[Json] = {
    "apiVersion": "tenure.sh/v1alpha1",
    "kind": "LifecyclePolicy",
    "metadata": {"name": NAME},
    "spec": {
        "nodePoolSelector": {"names": [NAME]},
        "interruption": {"scheduledChange": {"action": "notify"}},
    },
}
"""Nodes are not disrupted, so that the benchmark only measures reading."""
app = benchmark_app()


@dataclass(frozen=True)
class Flood:
    nodes: int
    messages: int
    distinct: int
    """Distinct events per node."""
    killed: bool
    emptied: float
    """Seconds until the queue was empty, after the worker was ready."""
    known: float
    """Seconds until all NodeClaim workflows showed all of their events."""
    signals: float
    """Average number of signals per NodeClaim workflow, including repeats after a kill."""
    load: float


@app.command()
def flood(
    nodes: Annotated[int, typer.Option(min=1, max=2000)] = 500,
    messages: Annotated[int, typer.Option(min=3)] = 15_000,
    distinct: Annotated[int, typer.Option(min=1, max=10, help="Distinct events per node.")] = 10,
    kill: Annotated[bool, typer.Option("--kill", help="Kill the worker when half of the messages are left.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> int:
    """Fill the queue, let a worker read it, and print the result."""
    found = in_sandbox(sandbox_plan(), partial(_run, nodes=nodes, messages=messages, distinct=distinct, kill=kill))
    print(
        f"{found.messages} messages for {found.nodes} nodes, {found.distinct} distinct events each, "
        f"{'worker killed at half, ' if found.killed else ''}load {found.load:.1f}: queue empty after "
        f"{found.emptied:.1f} s, all events known after {found.known:.1f} s, {found.signals:.1f} signals per node"
    )
    if json_file:
        json_file.write_text(json.dumps({"machine": describe_machine(), "flood": asdict(found)}, indent=2) + "\n")
    return 0


async def _run(sandbox: Sandbox, nodes: int, messages: int, distinct: int, kill: bool) -> Flood:
    queue = {"INTERRUPTION_QUEUE": sandbox.plan.cluster_name}
    async with SandboxSession(sandbox, deployment=DEPLOYMENT, settings=queue) as session:
        await pause_tagging(session)
        await create_nodes(session, nodes)
        await session.kube.apply(POLICY)
        await asyncio.sleep(CALM)
        events = list(
            _generate_events([one.instance_id for one in await session.nodeclaims.list_running()], messages, distinct)
        )
        await session.worker.stop_gracefully()
        control = AwsControl(sandbox.aws_endpoint)
        await asyncio.to_thread(_send, control, events)
        return await _read(session, control, nodes, events, distinct, kill=kill)


def _generate_events(instances: Sequence[str], messages: int, distinct: int) -> Iterator[Json]:
    """A third about the nodes, a third duplicates, a third about unknown instances; in random order."""
    starts = [datetime.now(UTC).replace(microsecond=0) + timedelta(days=2, hours=hour) for hour in range(distinct)]
    events = [_make_event(one, start) for start in starts for one in instances]
    foreign = [_make_event(f"i-{number:017x}", starts[0]) for number in range(messages // 3)]
    own = [events[number % len(events)] for number in range(messages - len(foreign))]
    mixed = own + foreign
    random.Random(0).shuffle(mixed)
    yield from mixed


def _make_event(instance: str, starts: datetime) -> Json:
    """An AWS Health event as EventBridge sends it (reference karpenter-aws 5.1)."""
    when = starts.strftime("%a, %d %b %Y %H:%M:%S GMT")
    detail = {
        "eventArn": f"arn:aws:health:us-west-2::event/EC2/{instance}/{starts.timestamp():.0f}",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "statusCode": "upcoming",
        "startTime": when,
        "affectedEntities": [{"entityValue": instance}],
    }
    return {
        "version": "0",
        "id": f"{instance}-{starts.timestamp():.0f}",
        "detail-type": "AWS Health Event",
        "source": "aws.health",
        "account": "000000000000",
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": "us-west-2",
        "resources": [f"arn:aws:ec2:us-west-2:000000000000:instance/{instance}"],
        "detail": detail,
    }


def _send(control: AwsControl, events: Sequence[Json]) -> None:
    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(control.send_message, events))


async def _read(
    session: SandboxSession, control: AwsControl, nodes: int, events: Sequence[Json], distinct: int, *, kill: bool
) -> Flood:
    before = await _count_signals(session)
    worker = await session.replace_worker()
    await worker.start()
    began = time.monotonic()
    if kill:
        half = partial(_at_most, control, len(events) // 2)
        await session.wait_until_resolved(half, what="half of the messages read", seconds=TIMEOUT_SECONDS)
        worker.kill()
        await (await session.replace_worker()).start()
    await session.wait_until_resolved(partial(_at_most, control, 0), what="the queue empty", seconds=TIMEOUT_SECONDS)
    emptied = time.monotonic() - began
    load = os.getloadavg()[0]
    expected = Counter(
        one["detail"]["affectedEntities"][0]["entityValue"] for one in {s["id"]: s for s in events}.values()
    )
    await session.wait_until_resolved(
        partial(_why_incomplete, session, expected), what="all events known", seconds=TIMEOUT_SECONDS
    )
    known = time.monotonic() - began
    return Flood(
        nodes=nodes,
        messages=len(events),
        distinct=distinct,
        killed=kill,
        emptied=round(emptied, 1),
        known=round(known, 1),
        signals=round((await _count_signals(session) - before) / nodes, 1),
        load=load,
    )


async def _at_most(control: AwsControl, count: int) -> str:
    left = await asyncio.to_thread(control.count_queued_messages)
    return "" if left <= count else f"{left} messages are queued"


async def _why_incomplete(session: SandboxSession, expected: Counter[str]) -> str:
    """Empty if each NodeClaim workflow has all of its event records."""
    nodeclaim_events = await NodeEventReader(session.temporal, session.sandbox.plan.cluster_name).list_node_events(
        datetime.now(UTC)
    )
    found = {one.nodeclaim.instance_id: len(one.records) for one in nodeclaim_events}
    mine = {one.instance_id for one in await session.nodeclaims.list_running()}
    short = [one for one in mine if found.get(one, 0) != expected[one]]
    return f"{len(short)} of {len(mine)} nodes lack events" if short else ""


async def _count_signals(session: SandboxSession) -> int:
    """Number of signals with AWS events to the workflows of all nodes."""
    semaphore = asyncio.Semaphore(SENDERS)

    async def count_one(workflow_id: str) -> int:
        async with semaphore:
            events = (await session.temporal.get_workflow_handle(workflow_id).fetch_history()).events
            return sum(
                one.workflow_execution_signaled_event_attributes.signal_name == "interruption_events" for one in events
            )

    return sum(await asyncio.gather(*(count_one(one.workflow_id) for one in await session.nodeclaims.list_running())))


if __name__ == "__main__":
    exit_process(run(app, "benchmarks.interruption_queue"))
