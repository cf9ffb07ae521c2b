"""A month of a NodePool whose pods come and go, while much goes wrong: what happens, and what the watch says of it.

`vigil.py` looks at the nodes. Faults are what the ports answer, and what befalls nodes, pool, watch and worker; it is
killed in `tests/chaos`.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.model.errors import BadInput, Conflict, Fault, Throttled, TryLater
from tenure.model.provider_results import NodeState
from tenure.model.signals import Pause, Resume
from tests.scenarios.month_watch import POLICY, Place, Watch
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import state_of
from tests.support.workflows.lives import pool
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

A_MOMENT: Final = timedelta(seconds=5)
AT_ONCE: Final = timedelta(minutes=10)
SOON: Final = timedelta(minutes=5)
MOST_MOMENTS: Final = 60
HALF: Final = 0.5
"""Of all calls fail while faults are due."""
TROUBLE: Final = 0.4
"""Of all rounds something goes wrong with a node in, beside its pods' coming and going."""
LONG: Final = 6
"""Hours that a pause lasts at most."""
FOR_GOOD: Final = 0.02
"""Of these are such that no repeat helps."""
PASSING: Final[tuple[Callable[[], Fault], ...]] = (
    lambda: TryLater("the API server is not there"),
    lambda: Throttled("too many requests"),
    lambda: Conflict("the object has been modified"),
)


class Chance(dict[str, list[Fault | None]]):
    """What a fake looks into before each of its calls: a fault, while such are due."""

    def __init__(self, roll: Callable[[], Fault | None]) -> None:
        super().__init__()
        self._roll = roll
        self._drawn: list[Fault | None] = []

    def get(self, name: str, default: Any = None) -> list[Fault | None]:
        self._drawn = [self._roll()]
        return self._drawn

    def __getitem__(self, name: str) -> list[Fault | None]:
        return self._drawn


class Month:
    """Each call of `step` is one round of events; time passes between them in the test."""

    def __init__(
        self, fake: World, skipping: WorkflowEnvironment, *, seed: int, places: int, restarts: float = 0.0
    ) -> None:
        """`restarts`: the share of rounds in which the worker is restarted. Then it must remember no workflows, since
        this server waits for a worker that is gone, to give it the tasks of those that it remembered."""
        self.fake, self.skipping, self.dice = fake, skipping, random.Random(seed)
        self._restarts = restarts
        self.places = [Place(number) for number in range(places)]
        self.budget, self.after = "100%", "30s"
        self.paused: datetime | None = None
        self.due = 0
        self._worker = AsyncExitStack()
        self.kinds: Counter[str] = Counter()
        """Of faults."""
        self.ends: Counter[str] = Counter()
        """Of nodes: what they went for."""
        self.changed: datetime | None = None
        """When something last befell nodes or pool."""
        self.watch = Watch(fake, self.places, self.dice, lambda: self.after)

    @property
    def faults(self) -> int:
        return self.kinds.total()

    @asynccontextmanager
    async def playing(self) -> AsyncIterator["Month"]:
        async with self._worker:
            await self._worker.enter_async_context(self.fake.working())
            await self._begin()
            yield self

    async def _restart(self) -> None:
        """The worker stops, whatever is under way, and another one begins with nothing in its cache."""
        self.kinds["restart"] += 1
        await self._worker.aclose()
        await self._worker.enter_async_context(self.fake.working())

    async def _begin(self) -> None:
        self.watch.pool = await pool(self.fake, budgets=[{"nodes": self.budget}], consolidateAfter=self.after)
        fake = self.fake
        for port in (fake.claims, fake.nodes, fake.pods, fake.pools, fake.instances, fake.fleet):
            port.faults = Chance(self._roll)

    def _roll(self) -> Fault | None:
        if self.faults >= self.due or self.dice.random() < HALF:
            return None
        fault = BadInput("nobody knows why") if self.dice.random() < FOR_GOOD else self.dice.choice(PASSING)()
        self.kinds[type(fault).__name__] += 1
        return fault

    async def now(self) -> datetime:
        return await self.skipping.get_current_time()

    async def passes(self, time: timedelta, looked: Callable[[], Awaitable[bool]]) -> None:
        """In parts, since the server does not answer for longer than half a minute; in each the watch tells what is
        new, and then `looked` is called, which says whether to look again soon."""
        part = AT_ONCE
        while time > timedelta(0):
            await self.skipping.sleep(min(time, part))
            time -= part
            await self.watch.tell()
            await self.skipping.sleep(A_MOMENT)
            part = SOON if await looked() else AT_ONCE

    async def step(self, due: int) -> None:
        """Something happens to every place, perhaps to the pool too, and `due` faults in all are owed."""
        self.due = due
        now = self.changed = await self.now()
        for place in self.places:
            if place.name not in self.fake.claims.found:
                await self._launch(place, now)
            else:
                await self._befall(place, now)
        if self.dice.random() < HALF:
            event = self.dice.choice((self._change_pool, self._pause_pool))
            self.kinds[event.__name__] += 1
            await event(now)
        if self.dice.random() < self._restarts:
            await self._restart()
        await self.settle()

    async def settle(self) -> None:
        """The watch tells what changed, until nothing does any more."""
        calm = 0
        for _ in range(MOST_MOMENTS):
            calm = 0 if await self.watch.tell() else calm + 1
            if calm == 3:
                return
            await self.skipping.sleep(A_MOMENT)

    async def _launch(self, place: Place, now: datetime) -> None:
        if place.handle is not None:
            self.ends[(await state_of(place.handle)).disruption] += 1
        place.lives += 1
        place.empty_since, place.held, place.paused, place.told = None, False, None, {}
        claim = self.fake.claims.add(place.name, born=now)
        place.handle = await self.fake.start(claim, policy=f"{POLICY}/{self.after}")

    async def _befall(self, place: Place, now: datetime) -> None:
        node = self.watch.node(place)
        if node is None or place.handle is None:
            return
        usual: tuple[Callable[..., Awaitable[None]], ...] = (self._leave, self._leave, self._come)
        trouble = (self._unseen, self._flap, self._hold, self._pause, self._delete, self._delete_node, self._die)
        await self.dice.choice(usual)(place, node, now)
        if self.dice.random() < TROUBLE:
            event = self.dice.choice(trouble)
            self.kinds[event.__name__] += 1
            await event(place, node, now)

    async def _leave(self, place: Place, node: NodeState, now: datetime) -> None:
        self.fake.pods.by_node.pop(node.name, None)
        place.empty_since = place.empty_since or now

    async def _come(self, place: Place, node: NodeState, now: datetime) -> None:
        await self._unseen(place, node, now)
        place.empty_since = None

    async def _unseen(self, place: Place, node: NodeState, now: datetime) -> None:
        """A pod that the watch does not tell of."""
        if not self.fake.pods.by_node.get(node.name):
            self.fake.pods.place(node.name, f"pod-{place.name}")

    async def _flap(self, place: Place, node: NodeState, now: datetime) -> None:
        self.fake.nodes.change(node.name, ready=not node.ready)

    async def _hold(self, place: Place, node: NodeState, now: datetime) -> None:
        place.held = not place.held
        marks = {labels.DO_NOT_DISRUPT: "true"} if place.held else {}
        self.fake.nodes.change(node.name, annotations=marks)

    async def _pause(self, place: Place, node: NodeState, now: datetime) -> None:
        if place.paused and place.paused > now:
            place.paused = None
            await self.watch.signal(place, NodeClaimWorkflow.resume_disruption, Resume(by="ops"))
        else:
            place.paused = now + timedelta(hours=self.dice.uniform(0.1, LONG))
            await self.watch.signal(place, NodeClaimWorkflow.pause_disruption, self._until(place.paused))

    async def _delete(self, place: Place, node: NodeState, now: datetime) -> None:
        """By hand."""
        claim = self.fake.claims.found[place.name]
        claim["metadata"].setdefault("deletionTimestamp", now.isoformat())

    async def _delete_node(self, place: Place, node: NodeState, now: datetime) -> None:
        self.fake.nodes.change(node.name, deleting=True)

    async def _die(self, place: Place, node: NodeState, now: datetime) -> None:
        """Somebody terminates the instance; its kubelet falls silent."""
        self.fake.instances.running.pop(node.provider_id.rpartition("/")[2], None)
        self.fake.nodes.change(node.name, ready=False)

    async def _change_pool(self, now: datetime) -> None:
        self.budget = self.dice.choice(("100%", "100%", "10%", "1", "0"))
        self.after = self.dice.choice(("30s", "30s", "30s", "10m", "Never"))
        marks = self.fake.pools.found["default"].metadata.annotations
        self.fake.pools.add("default", disruption={"budgets": [{"nodes": self.budget}], "consolidateAfter": self.after})
        self.fake.pools.mark("default", marks)
        self.watch.generation += 1

    async def _pause_pool(self, now: datetime) -> None:
        if self.paused and self.paused > now:
            self.paused = None
            await self.watch.pool.signal(NodePoolWorkflow.resume_disruption, Resume(by="ops"))
        else:
            self.paused = now + timedelta(hours=self.dice.uniform(0.1, LONG))
            await self.watch.pool.signal(NodePoolWorkflow.pause_disruption, self._until(self.paused))

    def _until(self, until: datetime) -> Pause:
        return Pause(by="ops", reason="upgrade", until=until)
