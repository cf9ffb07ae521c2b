"""A pool that a roll-out goes through, as activities find it, and a workflow at work on it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tenure.model.observations import PoolSeen
from tenure.model.rollout import Gate, GateAnswer, PinAsked, RolloutAsked, RolloutSeen, RolloutTold
from tenure.model.signals import PermitAsked
from tenure.model.workflow_states import PoolState
from tests.support.fakes.rolling_workflow import RollingWorkflow
from workflows.runner import OrderedWorkflowRunner

QUEUE = "rolling"


@dataclass
class RollingPool:
    """What activities find, and what they were told."""

    found: RolloutSeen = field(default_factory=RolloutSeen)
    answer: GateAnswer = field(default_factory=lambda: GateAnswer(outcome="passed", value=0))
    told: list[RolloutTold] = field(default_factory=list)
    pinned: list[PinAsked] = field(default_factory=list)
    looks: int = 0
    gates: list[str] = field(default_factory=list)
    blind: bool = False
    """Looks fail."""
    held: asyncio.Event | None = None
    """Looks wait for it."""

    @activity.defn
    async def look_at_rollout(self, asked: RolloutAsked) -> RolloutSeen:
        self.looks += 1
        if self.held:
            await self.held.wait()
        if self.blind:
            raise ApplicationError("the API server is away", non_retryable=True)
        return self.found.model_copy(update={"kept": self.told[-1].kept if self.told else ""})

    @activity.defn
    async def ask_gate(self, gate: Gate) -> GateAnswer:
        self.gates.append(gate.name)
        return self.answer

    @activity.defn
    async def tell_rollout(self, told: RolloutTold) -> None:
        self.told.append(told)

    @activity.defn
    async def pin_images(self, asked: PinAsked) -> bool:
        self.pinned.append(asked)
        return True

    def see(self, **found: object) -> None:
        self.found = self.found.model_copy(update=found)

    def go(self, *uids: str) -> None:
        """These are gone, and a new node stands for each."""
        left = tuple(one for one in self.found.drifted if one not in uids)
        new = self.found.new + len(uids)
        self.see(drifted=left, new=new, ready=new)

    def events(self) -> list[str]:
        return [news.reason for one in self.told for news in one.news]


@dataclass
class Rolling:
    """A pool, and its workflow at work."""

    pool: RollingPool
    handle: WorkflowHandle[RollingWorkflow, None]

    async def state(self) -> PoolState:
        return await self.handle.query(RollingWorkflow.state)

    async def words(self) -> str:
        return await self.handle.query(RollingWorkflow.words)

    async def wish(self, *uids: str, since: datetime) -> None:
        for uid in uids:
            asked = PermitAsked(claim_name=uid, claim_uid=uid, workflow_id="w", reason="Drifted", since=since)
            await self.handle.signal(RollingWorkflow.asked, asked)

    async def has_permits(self, count: int) -> bool:
        return len((await self.state()).permits) == count

    async def says(self, words: str) -> bool:
        return words in await self.words()

    async def told(self, reason: str) -> bool:
        return reason in self.pool.events()


@asynccontextmanager
async def rolling(client: Client, seen: PoolSeen, pool: RollingPool) -> AsyncIterator[Rolling]:
    activities: list[Callable[..., Any]] = [pool.look_at_rollout, pool.ask_gate, pool.tell_rollout, pool.pin_images]
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[RollingWorkflow],
        activities=activities,
        workflow_runner=OrderedWorkflowRunner(),
    ):
        state = PoolState(cluster="c", name="web", seen=seen)
        handle = await client.start_workflow(RollingWorkflow.run, state, id="c/nodepool/web", task_queue=QUEUE)
        yield Rolling(pool, handle)
