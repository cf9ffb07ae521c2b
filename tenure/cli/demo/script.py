"""What happens in the demo, act by act, told by a screen and noted as facts for `demo_checks.py`.

What has to be true for the demo to have shown what it says it shows. Every broken rule is one line.
"""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from temporalio.client import WorkflowFailureError

from tenure.apis.labels import NODEPOOL
from tenure.cli.demo.screen import Screen
from tenure.cli.demo.timeline import LifeStory, calls_table, timeline
from tenure.cli.exit_codes import DONE, FAILED
from tenure.cli.sandbox.environment import Stage, View
from tenure.cli.sandbox.probes import line_of, read_failed_tasks
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODE_POOLS, NODES
from tenure.model.nodeclaim_state import Phase


@dataclass
class Facts:
    """Filled in while the demo runs; what was never filled in counts as not shown."""

    asked: int = 0
    """Pods."""
    ran: int = 0
    """Most pods that ran at one time."""
    nodes: int = 0
    """Lives that ended with a story told to its end."""
    joined: int = 0
    """Of these, the ones that came to Ready."""
    launched: int = 0
    terminated: int = 0
    left: dict[str, list[str]] = field(default_factory=dict)
    """Kind to the names of what is still there."""
    failed: list[str] = field(default_factory=list)
    """Workflows that did not end as completed, and calls that IAM refused."""
    worker_exit: int | None = None


def broken(facts: Facts, *, kept: bool = False) -> list[str]:
    """Empty when all is as it should be. `kept`: the worker, the pool and its class are meant to be there."""
    lines = []
    if not facts.asked or facts.ran != facts.asked:
        lines.append(f"pods: {facts.ran} of {facts.asked} were Running at once")
    if not facts.nodes or facts.joined != facts.nodes:
        lines.append(f"nodes: {facts.joined} of {facts.nodes} lives came to Ready")
    if not facts.launched or facts.launched != facts.terminated:
        lines.append(f"instances: {facts.launched} launched, {facts.terminated} terminated")
    if facts.launched < facts.nodes:
        lines.append(f"instances: {facts.launched} launched for {facts.nodes} nodes")
    lines += [f"left over: {kind}: {', '.join(names)}" for kind, names in sorted(facts.left.items()) if names]
    lines += [f"went wrong: {line}" for line in facts.failed]
    if not kept and facts.worker_exit != 0:
        lines.append(f"worker: ended with {facts.worker_exit}, not with 0")
    return lines


MANIFESTS_FOLDER = Path(__file__).parent / "manifests"
MANIFESTS = tuple(MANIFESTS_FOLDER / name for name in ("ec2nodeclass.yaml", "nodepool.yaml", "deployment.yaml"))
PATIENCE = 180.0
"""Seconds for an act, beyond the boot delay."""
NAME = "default"
"""Of the NodePool and the EC2NodeClass in `examples/`."""


@dataclass(frozen=True)
class Options:
    pods: int
    boot_seconds: float
    keep: bool
    tell: int
    """A pipe for the exit code, when somebody waits for it."""
    began: float
    """When the command started, on the monotonic clock."""
    deployment: str = "inflate"


class Demo:
    def __init__(self, stage: Stage, options: Options, screen: Screen) -> None:
        self._stage, self._options, self._screen = stage, options, screen
        self._facts = Facts(asked=options.pods)
        self._note = ""
        self._zero = datetime.now(UTC)
        self._first_node = 0.0

    async def run(self) -> int:
        """The exit code. Raises `Failed` when an act does not come to its end."""
        await self._prepare()
        await self._up()
        await self._down()
        if not self._options.keep:
            await self._clear()
        stories = await self._stories()
        calls = await self._count()
        if not self._options.keep:
            await self._leave()
        self._tell(stories, calls)
        return self._verdict()

    async def _prepare(self) -> None:
        stage, screen = self._stage, self._screen
        screen.say(f"The worker is ready after {time.monotonic() - self._options.began:.1f} s")
        screen.say(f"Temporal UI: {stage.sandbox.temporal_ui}")
        screen.act("NodePool, EC2NodeClass and Deployment, from examples/")
        await stage.apply(*MANIFESTS)
        for kind in (EC2_NODE_CLASSES, NODE_POOLS):
            path = kind.path(NAME)
            await stage.settled(partial(stage.ready, path), what=f"{kind.kind} {NAME} Ready", seconds=60)
            screen.say(f"{kind.kind} {NAME} is Ready")

    async def _up(self) -> None:
        pods, stage = self._options.pods, self._stage
        self._screen.act(f"Scale the Deployment from 0 to {pods}")
        self._zero = datetime.now(UTC)
        stage.pods.forget()
        began = time.monotonic()
        await stage.scale(pods)
        await stage.until(
            lambda view: view.pods.running == pods and all(life.phase == Phase.READY.value for life in view.lives),
            what=f"{pods} pods Running on nodes that are Ready",
            seconds=PATIENCE + self._options.boot_seconds,
            show=self._show,
        )
        self._facts.ran = stage.pods.most
        took = stage.pods.most_at - began
        self._screen.say(
            f"{pods} pods Running {took:.1f} s after scaling: {took - self._options.boot_seconds:.1f} s beyond the "
            f"boot delay of {self._options.boot_seconds:g} s"
        )
        self._screen.say(f"First node Ready {self._first_node:.1f} s after the start of this command")

    async def _down(self) -> None:
        self._screen.act("Scale the Deployment to 0")
        await self._stage.scale(0)
        await self._stage.until(
            lambda view: not view.pods.total and not any(life.open for life in view.lives),
            what="every node drained and gone",
            seconds=PATIENCE,
            show=self._show,
        )

    async def _clear(self) -> None:
        """The objects go, and with them what stands for them in EC2 and in Temporal."""
        stage = self._stage
        self._screen.act("Delete the Deployment, the NodePool and the EC2NodeClass")
        await stage.delete(f"/apis/apps/v1/namespaces/default/deployments/{self._options.deployment}")
        for kind in (NODE_POOLS, EC2_NODE_CLASSES):
            await stage.delete(kind.path(NAME))
            await stage.settled(partial(stage.names, kind.path()), what=f"{kind.kind} {NAME} gone", seconds=60)
            self._screen.say(f"{kind.kind} {NAME} is gone")

    async def _stories(self) -> list[LifeStory]:
        """Of every life; one that failed is noted as such."""
        stories = []
        for life in await self._stage.lives.all():
            if life.status != "COMPLETED":
                self._facts.failed.append(f"{life.workflow_id} is {life.status}")
                continue
            try:
                stories.append(LifeStory(life, await self._stage.lives.outcome(life)))
            except WorkflowFailureError as failed:
                self._facts.failed.append(f"{life.workflow_id}: {failed.cause}")
        self._facts.nodes = len(stories)
        self._facts.joined = sum(any(step.phase is Phase.READY for step in one.outcome.story) for one in stories)
        return stories

    async def _count(self) -> dict[str, int]:
        """Instances, and whatever is left of a node in the cluster and in EC2."""
        stage, facts = self._stage, self._facts
        instances = await stage.aws.instances()
        facts.launched, facts.terminated = instances.launched, instances.terminated
        facts.failed += [f"IAM refused {action}" for action in await stage.aws.denied()]
        facts.left["NodeClaims"] = await stage.names(NODE_CLAIMS.path())
        facts.left["Nodes"] = await stage.names(NODES.path(), NODEPOOL)
        if not self._options.keep:
            templates = await stage.aws.launch_templates()
            facts.left["launch templates"] = [f"{templates} not deleted"] if templates else []
        self._note = line_of(await read_failed_tasks(stage.worker.metrics_port))
        return await stage.aws.calls()

    async def _leave(self) -> None:
        self._facts.left["open workflows"] = await self._stage.dismiss()
        self._facts.worker_exit = await self._stage.worker.finish()

    def _show(self, view: View) -> None:
        if not self._first_node and any(life.phase == Phase.READY.value for life in view.lives):
            self._first_node = time.monotonic() - self._options.began
        self._screen.show(view)

    def _tell(self, stories: list[LifeStory], calls: dict[str, int]) -> None:
        screen, facts = self._screen, self._facts
        screen.act("What happened")
        screen.clear()
        screen.console.print(timeline(stories, start=self._zero))
        screen.console.print(calls_table(calls))
        screen.say(f"Instances: {facts.launched} launched, {facts.terminated} terminated")
        if self._note:
            screen.say(self._note)

    def _verdict(self) -> int:
        screen, wrong = self._screen, broken(self._facts, kept=self._options.keep)
        for line in wrong:
            screen.say(f"FAILED  {line}")
        if not wrong:
            screen.say(f"All of it really happened, in {time.monotonic() - self._options.began:.0f} s.")
        screen.say(f"Temporal UI: {self._stage.sandbox.temporal_ui}")
        return FAILED if wrong else DONE


async def stay(stage: Stage) -> None:
    """Until the user has seen enough. Raises `PartFailed` when a part ends by itself."""
    while True:
        stage.check()
        await asyncio.sleep(1)
