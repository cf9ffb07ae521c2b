"""Latency of `tenure get` and `tenure why`, including the start of the process.

    python -m benchmarks.cli_latency [--nodes 1000] [--runs 5] [--json FILE]

It runs only Temporal's dev server, with one workflow per node that has real search attributes. `get` needs no worker.
For `why`, a fake worker answers for the workflow and the planner's host, so that only the command is measured.
"""

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from benchmarks.harness import benchmark_app, in_sandbox, run
from benchmarks.report import describe_machine
from tenure.cli.exit_codes import exit_process
from tenure.model.launch import LaunchedInstance
from tenure.model.nodeclaim.history import NodeClaimExplanation
from tenure.model.nodeclaim.state import NodeClaimIdentity, NodeClaimState, Phase, Step
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.sandbox.spec import Plan
from workflows import ids, search_attributes, visibility
from workflows.cluster_watch import DisruptionPreviewWorkflow
from workflows.current_details import explain_nodeclaim

CLUSTER: Final = "asked"
AT_ONCE: Final = 50
QUERIED_NODE: Final = 1
"""The only node on the fake worker's task queue; the others would keep it busy."""
ZONES: Final = ("us-west-2a", "us-west-2b", "us-west-2c")
PHASES: Final = (Phase.READY,) * 7 + (Phase.LAUNCH, Phase.INITIALIZATION, Phase.DRAIN)
app = benchmark_app()


@workflow.defn(name="NodeClaim")
class IdleNodeClaim:
    """A NodeClaim workflow that only answers queries."""

    @workflow.init
    def __init__(self, state: NodeClaimState) -> None:
        self._state = state

    @workflow.run
    async def run(self, state: NodeClaimState) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def explain(self) -> NodeClaimExplanation:
        return explain_nodeclaim(self._state)


@activity.defn(name="preview_disruption")
async def preview_nothing(request: DisruptionPreviewRequest) -> DisruptionStatus:
    return DisruptionStatus(messages=(f"{request.name} is eligible, but its disruption would save nothing",))


def state_of(number: int, now: datetime, *, cluster: str = CLUSTER, **more: Any) -> NodeClaimState:
    """Pool, zone and phase vary with `number`; every tenth node is overdue."""
    name, since = f"web-{number:05}", now - timedelta(minutes=number % 600)
    phase = PHASES[number % len(PHASES)]
    known = phase is not Phase.LAUNCH
    launched = LaunchedInstance(
        claim_uid=f"{number:08x}",
        provider_id=f"aws:///{ZONES[number % 3]}/i-{number:017x}",
        instance_type="m6i.2xlarge",
        zone=ZONES[number % 3],
        capacity_type="spot" if number % 2 else "on-demand",
        image_id="ami-1",
        price=0.384,
    )
    fields: dict[str, Any] = {
        "identity": NodeClaimIdentity(
            cluster=cluster, name=name, uid=f"{number:08x}", created=since, pool=f"pool-{number % 5}"
        ),
        "phase": phase,
        "since": since,
        "deadline": None if phase is Phase.READY else since + timedelta(minutes=30),
        "overdue": phase is Phase.DRAIN,
        "blocked_by": "PodDisruptionBudget default/web allows 0" if phase is Phase.DRAIN else "",
        "blocked_code": "PodDisruptionBudget" if phase is Phase.DRAIN else "",
        "node_name": f"ip-10-0-{number // 256}-{number % 256}.us-west-2.compute.internal" if known else "",
        "launched": launched if known else None,
        "history": (
            Step(phase=Phase.LAUNCH, at=since, cause="created"),
            Step(phase=phase, at=since, cause="generated"),
        ),
    }
    return NodeClaimState(**{**fields, **more})


async def start(client: Client, states: Iterable[NodeClaimState], *, queue: str = "no-worker") -> None:
    """Start a workflow with the search attributes of each state. No worker polls the default `queue`."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def start_one(state: NodeClaimState) -> None:
        identity = state.identity
        pairs = [SearchAttributePair(search_attributes.NODE_POOL, identity.pool)]
        pairs += [
            SearchAttributePair(one.key, one.value)
            for one in visibility.nodeclaim_attributes(state).values()
            if one.value
        ]
        async with limit:
            await client.start_workflow(
                "NodeClaim",
                state,
                id=ids.nodeclaim(identity.cluster, identity.name, identity.uid),
                task_queue=queue,
                search_attributes=TypedSearchAttributes(pairs),
            )

    await asyncio.gather(*map(start_one, states))


async def wait_until_visible(client: Client, cluster: str, number: int) -> None:
    """Wait until visibility lists `number` workflows."""
    prefix = f"WorkflowId STARTS_WITH '{cluster}/nodeclaim/'"
    while (await client.count_workflows(prefix)).count < number:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.2)


@dataclass(frozen=True)
class CommandTime:
    """Seconds of one command in its own process."""

    wall: float
    cpu: float
    """CPU seconds, which depend less on the load of the machine."""


def time_command(address: str, *arguments: str) -> CommandTime:
    """Raises CalledProcessError if the command fails."""
    before, began = _children_cpu_seconds(), time.perf_counter()
    environment = os.environ | {"TEMPORAL_ADDRESS": address, "CLUSTER_NAME": CLUSTER}
    subprocess.run([sys.executable, "-m", "tenure", *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    return CommandTime(time.perf_counter() - began, _children_cpu_seconds() - before)


def _children_cpu_seconds() -> float:
    """CPU seconds of child processes that have exited."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def measure_commands(address: str, nodes: int, runs: int) -> dict[str, list[CommandTime]]:
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    now = datetime.now(UTC)
    await start(client, (state_of(number, now) for number in range(nodes) if number != QUERIED_NODE))
    await start(client, [state_of(QUERIED_NODE, now)], queue=ids.task_queue(CLUSTER))
    await wait_until_visible(client, CLUSTER, nodes)
    found = {
        "tenure version": ("version",),
        "tenure get": ("get",),
        "tenure get -o json": ("get", "-o", "json"),
        "tenure get --overdue": ("get", "--overdue"),
    }
    took = {
        name: await asyncio.to_thread(_time_repeatedly, runs, address, *arguments) for name, arguments in found.items()
    }
    queues = (ids.task_queue(CLUSTER), ids.plan_queue(CLUSTER))
    runner = UnsandboxedWorkflowRunner()
    main = Worker(
        client, task_queue=queues[0], workflows=[IdleNodeClaim, DisruptionPreviewWorkflow], workflow_runner=runner
    )
    async with main, Worker(client, task_queue=queues[1], activities=[preview_nothing]):
        took["tenure why"] = await asyncio.to_thread(_time_repeatedly, runs, address, "why", f"web-{QUERIED_NODE:05}")
    return took


def _time_repeatedly(runs: int, address: str, *arguments: str) -> list[CommandTime]:
    time_command(address, *arguments)
    return [time_command(address, *arguments) for _ in range(runs)]


@app.command()
def cli_latency(
    nodes: Annotated[int, typer.Option(min=2)] = 1000,
    runs: Annotated[int, typer.Option(min=1)] = 5,
    file: Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.")] = None,
) -> None:
    plan = Plan(parts=("temporal",), manifests=(), cluster_name=CLUSTER)
    took = in_sandbox(plan, lambda sandbox: measure_commands(sandbox.temporal_address, nodes, runs))
    out = Console(highlight=False)
    out.print(f"Measured on {describe_machine()}, {nodes} nodes, load {os.getloadavg()[0]:.1f}")
    for name, ones in took.items():
        walls, cpu = [one.wall for one in ones], statistics.median(one.cpu for one in ones)
        out.print(
            f"{name:<24} median {statistics.median(walls):.2f} s, best {min(walls):.2f} s, worst {max(walls):.2f} s; "
            f"CPU {cpu:.2f} s"
        )
    if file:
        figures = {name: [asdict(one) for one in ones] for name, ones in took.items()}
        file.write_text(json.dumps({"machine": describe_machine(), "nodes": nodes, "took": figures}, indent=2) + "\n")


if __name__ == "__main__":
    exit_process(run(app, "asking"))
