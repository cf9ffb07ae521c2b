"""The steps of the demo, and the conditions that prove each step."""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from temporalio.client import WorkflowFailureError

from tenure.apis.labels import NODEPOOL
from tenure.cli.demo.screen import Screen
from tenure.cli.demo.timeline import CompletedNodeClaim, calls_table, timeline_table
from tenure.cli.exit_codes import DONE, FAILED
from tenure.cli.sandbox.environment import ClusterView, SandboxSession
from tenure.cli.sandbox.probes import failed_tasks, format_failed_tasks, read_metrics, unused_nodes
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODE_POOLS, NODES
from tenure.model.nodeclaim.state import Phase


@dataclass
class Facts:
    """Collected while the demo runs. A value that stays at its default counts as a failure."""

    requested_pods: int = 0
    max_running_pods: int = 0
    """Most pods that were Running at one time."""
    nodes: int = 0
    """NodeClaims whose workflow completed."""
    joined: int = 0
    """Of these, the ones that became Ready."""
    launched: int = 0
    terminated: int = 0
    unused: int = 0
    """Nodes that no pod used that they were launched for."""
    remaining: dict[str, list[str]] = field(default_factory=dict)
    """Names of remaining objects by kind."""
    failed: list[str] = field(default_factory=list)
    """Workflows that did not complete, and calls that IAM denied."""
    worker_exit: int | None = None


def find_failures(facts: Facts, *, retained: bool = False) -> list[str]:
    """`retained`: the worker, the NodePool and its class are expected to remain."""
    lines = []
    if not facts.requested_pods or facts.max_running_pods != facts.requested_pods:
        lines.append(f"pods: {facts.max_running_pods} of {facts.requested_pods} were Running at once")
    if not facts.nodes or facts.joined != facts.nodes:
        lines.append(f"nodes: {facts.joined} of {facts.nodes} became Ready")
    if not facts.launched or facts.launched != facts.terminated:
        lines.append(f"instances: {facts.launched} launched, {facts.terminated} terminated")
    if facts.launched < facts.nodes:
        lines.append(f"instances: {facts.launched} launched for {facts.nodes} nodes")
    if facts.unused:
        lines.append(f"nodes: {facts.unused} deleted without any pod that a node was launched for")
    lines += [f"not deleted: {kind}: {', '.join(names)}" for kind, names in sorted(facts.remaining.items()) if names]
    lines += [f"failed: {line}" for line in facts.failed]
    if not retained and facts.worker_exit != 0:
        lines.append(f"worker: exit code {facts.worker_exit}, expected 0")
    return lines


MANIFESTS_FOLDER = Path(__file__).parent / "manifests"
MANIFESTS = tuple(MANIFESTS_FOLDER / name for name in ("ec2nodeclass.yaml", "nodepool.yaml", "deployment.yaml"))
STEP_TIMEOUT_SECONDS = 180.0
"""In addition to the boot delay."""
NAME = "default"
"""Name of the NodePool and of the EC2NodeClass in `examples/`."""


@dataclass(frozen=True)
class Options:
    pods: int
    boot_seconds: float
    retain: bool
    exit_code_fd: int
    """Pipe for the exit code; -1 for none."""
    began: float
    """Start of the command on the monotonic clock."""
    deployment: str = "inflate"


class Demo:
    def __init__(self, session: SandboxSession, options: Options, screen: Screen) -> None:
        self._session, self._options, self._screen = session, options, screen
        self._facts = Facts(requested_pods=options.pods)
        self._failed_tasks_line = ""
        self._zero = datetime.now(UTC)
        self._first_node = 0.0

    async def run(self) -> int:
        """The exit code. Raises `CommandFailed` if a step does not complete."""
        await self._apply_examples()
        await self._scale_up()
        await self._scale_down()
        if not self._options.retain:
            await self._delete_objects()
        completed = await self._collect_completed()
        calls = await self._count_resources()
        if not self._options.retain:
            await self._stop_worker()
        self._print_report(completed, calls)
        return self._print_conclusion()

    async def _apply_examples(self) -> None:
        session, screen = self._session, self._screen
        screen.print_line(f"The worker is ready after {time.monotonic() - self._options.began:.1f} s")
        screen.print_line(f"Temporal UI: {session.sandbox.temporal_ui}")
        screen.print_heading("NodePool, EC2NodeClass and Deployment, from examples/")
        await session.apply(*MANIFESTS)
        for kind in (EC2_NODE_CLASSES, NODE_POOLS):
            path = kind.path(NAME)
            await session.wait_until_resolved(
                partial(session.why_not_ready, path), what=f"{kind.kind} {NAME} Ready", seconds=60
            )
            screen.print_line(f"{kind.kind} {NAME} is Ready")

    async def _scale_up(self) -> None:
        pods, session = self._options.pods, self._session
        self._screen.print_heading(f"Scale the Deployment from 0 to {pods}")
        self._zero = datetime.now(UTC)
        session.pods.reset_peak()
        began = time.monotonic()
        await session.scale_deployment(pods)
        await session.wait_until(
            lambda view: (
                view.pods.running == pods and all(nodeclaim.phase == Phase.READY.value for nodeclaim in view.nodeclaims)
            ),
            what=f"{pods} pods Running on nodes that are Ready",
            seconds=STEP_TIMEOUT_SECONDS + self._options.boot_seconds,
            on_view=self._update_screen,
        )
        self._facts.max_running_pods = session.pods.most
        took = session.pods.most_at - began
        self._screen.print_line(
            f"{pods} pods Running {took:.1f} s after scaling: {took - self._options.boot_seconds:.1f} s beyond the "
            f"boot delay of {self._options.boot_seconds:g} s"
        )
        self._screen.print_line(f"First node Ready {self._first_node:.1f} s after the start of this command")

    async def _scale_down(self) -> None:
        self._screen.print_heading("Scale the Deployment to 0")
        await self._session.scale_deployment(0)
        await self._session.wait_until(
            lambda view: not view.pods.total and not any(nodeclaim.open for nodeclaim in view.nodeclaims),
            what="every node drained and deleted",
            seconds=STEP_TIMEOUT_SECONDS,
            on_view=self._update_screen,
        )

    async def _delete_objects(self) -> None:
        session = self._session
        self._screen.print_heading("Delete the Deployment, the NodePool and the EC2NodeClass")
        await session.delete(f"/apis/apps/v1/namespaces/default/deployments/{self._options.deployment}")
        for kind in (NODE_POOLS, EC2_NODE_CLASSES):
            await session.delete(kind.path(NAME))
            await session.wait_until_resolved(
                partial(session.list_names, kind.path()), what=f"{kind.kind} {NAME} deleted", seconds=60
            )
            self._screen.print_line(f"{kind.kind} {NAME} is deleted")

    async def _collect_completed(self) -> list[CompletedNodeClaim]:
        completed = []
        for nodeclaim in await self._session.nodeclaims.list_all():
            if nodeclaim.status != "COMPLETED":
                self._facts.failed.append(f"{nodeclaim.workflow_id} is {nodeclaim.status}")
                continue
            try:
                completed.append(CompletedNodeClaim(nodeclaim, await self._session.nodeclaims.fetch_outcome(nodeclaim)))
            except WorkflowFailureError as failed:
                self._facts.failed.append(f"{nodeclaim.workflow_id}: {failed.cause}")
        self._facts.nodes = len(completed)
        self._facts.joined = sum(any(step.phase is Phase.READY for step in one.outcome.history) for one in completed)
        return completed

    async def _count_resources(self) -> dict[str, int]:
        """Also collect remaining resources of nodes. Returns the AWS calls by action."""
        session, facts = self._session, self._facts
        instances = await session.aws.count_instances()
        facts.launched, facts.terminated = instances.launched, instances.terminated
        facts.failed += [f"IAM denied {action}" for action in await session.aws.list_denied_actions()]
        facts.remaining["NodeClaims"] = await session.list_names(NODE_CLAIMS.path())
        facts.remaining["Nodes"] = await session.list_names(NODES.path(), NODEPOOL)
        if not self._options.retain:
            templates = await session.aws.launch_templates()
            facts.remaining["launch templates"] = [f"{templates} not deleted"] if templates else []
        metrics = await read_metrics(session.worker.metrics_port)
        facts.unused = sum(unused_nodes(metrics).values())
        self._failed_tasks_line = format_failed_tasks(failed_tasks(metrics))
        return await session.aws.count_calls()

    async def _stop_worker(self) -> None:
        self._facts.remaining["open workflows"] = await self._session.terminate_open_workflows()
        self._facts.worker_exit = await self._session.worker.stop_gracefully()

    def _update_screen(self, view: ClusterView) -> None:
        if not self._first_node and any(nodeclaim.phase == Phase.READY.value for nodeclaim in view.nodeclaims):
            self._first_node = time.monotonic() - self._options.began
        self._screen.update(view)

    def _print_report(self, completed: list[CompletedNodeClaim], calls: dict[str, int]) -> None:
        screen, facts = self._screen, self._facts
        screen.print_heading("Summary")
        screen.clear()
        screen.console.print(timeline_table(completed, start=self._zero))
        screen.console.print(calls_table(calls))
        screen.print_line(f"Instances: {facts.launched} launched, {facts.terminated} terminated")
        if self._failed_tasks_line:
            screen.print_line(self._failed_tasks_line)

    def _print_conclusion(self) -> int:
        screen, failures = self._screen, find_failures(self._facts, retained=self._options.retain)
        for line in failures:
            screen.print_line(f"FAILED  {line}")
        if not failures:
            screen.print_line(f"Completed in {time.monotonic() - self._options.began:.0f} s.")
        screen.print_line(f"Temporal UI: {self._session.sandbox.temporal_ui}")
        return FAILED if failures else DONE


async def wait_until_interrupted(session: SandboxSession) -> None:
    """Raises `PartFailed` if a part exits unexpectedly."""
    while True:
        session.check()
        await asyncio.sleep(1)
