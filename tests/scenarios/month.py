"""A month of a NodePool whose pods come and go, while much goes wrong: what happens, and what the watch says of it.

`test_000_month.py` looks at the nodes. Faults are what the ports answer, and what befalls nodes and pool;
the worker is killed in `tests/chaos`.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from model import labels
from model.base import Message
from model.faults import BadInput, Conflict, Fault, Throttled, TryLater
from model.messages import Pause, Resume
from model.observations import PoolSeen
from model.outcomes import NodeState
from tests.fakes.worker import World
from tests.workflows.eventually import Handle
from tests.workflows.lives import pool
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

POLICY: Final = "WhenEmpty"
A_MOMENT: Final = timedelta(seconds=5)
AT_ONCE: Final = timedelta(minutes=10)
MOST_MOMENTS: Final = 60
HALF: Final = 0.5
"""Of all calls fail while faults are due."""
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


@dataclass
class Place:
    """A node of the pool, and the next one when it is gone."""

    number: int
    lives: int = 0
    handle: Handle | None = None
    empty_since: datetime | None = None
    held: bool = False
    """By the annotation do-not-disrupt."""
    paused: datetime | None = None
    """Until then."""
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"n{self.number}-{self.lives}"


class Month:
    """Each call of `step` is one round of events; time passes between them in the test."""

    def __init__(self, fake: World, skipping: WorkflowEnvironment, *, seed: int, places: int) -> None:
        self.fake, self.skipping, self.dice = fake, skipping, random.Random(seed)
        self.places = [Place(number) for number in range(places)]
        self.budget, self.after = "100%", "30s"
        self.paused: datetime | None = None
        self.faults = self.due = 0
        self._pool: Any = None
        self._seen = 1

    @asynccontextmanager
    async def playing(self) -> AsyncIterator["Month"]:
        async with self.fake.working():
            await self._begin()
            yield self

    async def _begin(self) -> None:
        self._pool = await pool(self.fake, budgets=[{"nodes": self.budget}], consolidateAfter=self.after)
        fake = self.fake
        for port in (fake.claims, fake.nodes, fake.pods, fake.pools, fake.instances, fake.fleet):
            port.faults = Chance(self._roll)

    def _roll(self) -> Fault | None:
        if self.faults >= self.due or self.dice.random() < HALF:
            return None
        self.faults += 1
        return BadInput("nobody knows why") if self.dice.random() < FOR_GOOD else self.dice.choice(PASSING)()

    async def now(self) -> datetime:
        return await self.skipping.get_current_time()

    async def passes(self, time: timedelta) -> None:
        """In parts: the server is asked for each, and does not answer for longer than half a minute."""
        while time > timedelta(0):
            await self.skipping.sleep(min(time, AT_ONCE))
            time -= AT_ONCE

    async def step(self, due: int) -> None:
        """Something happens to every place, perhaps to the pool too, and `due` faults in all are owed."""
        self.due = due
        now = await self.now()
        for place in self.places:
            if place.name not in self.fake.claims.found:
                await self._launch(place, now)
            else:
                await self._befall(place, now)
        if self.dice.random() < HALF:
            self.faults += 1
            await self.dice.choice((self._change_pool, self._pause_pool))(now)
        await self.settle()

    async def settle(self) -> None:
        """The watch tells what changed, until nothing does any more."""
        calm = 0
        for _ in range(MOST_MOMENTS):
            news = [await self._tell(place) for place in self.places]
            calm = 0 if any(news) else calm + 1
            if calm == 3:
                return
            await self.skipping.sleep(A_MOMENT)

    async def _launch(self, place: Place, now: datetime) -> None:
        place.lives += 1
        place.empty_since, place.held, place.paused, place.told = None, False, None, {}
        claim = self.fake.claims.add(place.name, born=now)
        place.handle = await self.fake.start(claim, policy=f"{POLICY}/{self.after}")

    async def _befall(self, place: Place, now: datetime) -> None:
        node = self.node(place)
        if node is None or place.handle is None:
            return
        usual: tuple[Callable[..., Awaitable[None]], ...] = (self._leave, self._leave, self._come)
        trouble = (self._unseen, self._flap, self._hold, self._pause, self._delete, self._delete_node, self._die)
        if self.dice.random() < 2 * HALF / 3:
            await self.dice.choice(usual)(place, node, now)
        else:
            self.faults += 1
            await self.dice.choice(trouble)(place, node, now)

    def node(self, place: Place) -> NodeState | None:
        claim = self.fake.claims.found.get(place.name)
        wanted = claim["status"].get("providerID") if claim else None
        return next((one for one in self.fake.nodes.found.values() if wanted and one.provider_id == wanted), None)

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
            await self._signal(place, NodeClaimWorkflow.resume_disruption, Resume(by="ops"))
        else:
            place.paused = now + timedelta(hours=self.dice.uniform(0.1, 12))
            await self._signal(place, NodeClaimWorkflow.pause_disruption, self._until(place.paused))

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
        self.fake.pools.add("default", disruption={"budgets": [{"nodes": self.budget}], "consolidateAfter": self.after})
        self._seen += 1
        await self._pool.signal(NodePoolWorkflow.seen, PoolSeen(number=self._seen, generation=self._seen))

    async def _pause_pool(self, now: datetime) -> None:
        if self.paused and self.paused > now:
            self.paused = None
            await self._pool.signal(NodePoolWorkflow.resume_disruption, Resume(by="ops"))
        else:
            self.paused = now + timedelta(hours=self.dice.uniform(0.1, 12))
            await self._pool.signal(NodePoolWorkflow.pause_disruption, self._until(self.paused))

    def _until(self, until: datetime) -> Pause:
        return Pause(by="ops", reason="upgrade", until=until)

    async def _tell(self, place: Place) -> bool:
        """What the watch would say of it, when that is news. Instances that run join and become Ready."""
        claim = self.fake.claims.found.get(place.name)
        if place.handle is None or (claim is None and place.told == {"exists": False}):
            return False
        said = {"exists": False} if claim is None else self._digest(place, claim)
        if said == place.told:
            return False
        place.told = said
        await self._signal(place, NodeClaimWorkflow.seen, self.fake.observe(**said))
        return True

    async def _signal(self, place: Place, signal: Any, message: Message) -> None:
        """A life may just have ended; then its NodeClaim is gone too."""
        assert place.handle is not None
        try:
            await place.handle.signal(signal, message)
        except RPCError as error:
            assert error.status is RPCStatusCode.NOT_FOUND and place.name not in self.fake.claims.found, place

    def _digest(self, place: Place, claim: dict[str, Any]) -> dict[str, Any]:
        node = self.node(place) or self._join(place, claim)
        policy = f"{POLICY}/{self.after}"
        if node is None:
            return {"deleting": "deletionTimestamp" in claim["metadata"], "policy": policy}
        return {
            "deleting": "deletionTimestamp" in claim["metadata"] or node.deleting,
            "node_name": node.name,
            "node_count": 1,
            "node_ready": node.ready,
            "boot_id": node.boot_id,
            "empty": place.empty_since is not None,
            "empty_since": place.empty_since,
            "do_not_disrupt": place.held,
            "policy": policy,
        }

    def _join(self, place: Place, claim: dict[str, Any]) -> NodeState | None:
        provider = claim["status"].get("providerID", "")
        known = place.told.get("node_name")
        if known or provider.rpartition("/")[2] not in self.fake.instances.running:
            return None
        return self.fake.nodes.join(f"node-{place.name}", provider)
