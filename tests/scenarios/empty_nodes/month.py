"""Simulates a month of a NodePool with changing pods and many faults, and the signals of the watch.

`empty_node_monitor.py` checks the nodes. Faults affect ports, nodes, NodePool, watch and worker. `tests/chaos` kills
the worker.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from tenure.apis import labels
from tenure.model.base import instance_id_of
from tenure.model.errors import BadInput, Conflict, Fault, Throttled, TryLater
from tenure.model.facts import NodeFact
from tenure.model.signals import Pause, Resume
from tests.scenarios.empty_nodes.month_watch import POLICY, FakeWatch, NodeSlot
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import query_state
from tests.support.workflows.nodeclaim_workflows import start_nodepool
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

SETTLE_STEP: Final = timedelta(seconds=5)
AT_ONCE: Final = timedelta(minutes=10)
SOON: Final = timedelta(minutes=5)
MAX_SETTLE_STEPS: Final = 60
HALF: Final = 0.5
"""Share of calls that fail while faults are due."""
FAULT_SHARE: Final = 0.4
"""Share of rounds with a fault of a node, in addition to changes of its pods."""
MAX_PAUSE_HOURS: Final = 6
TERMINAL_FAULT_SHARE: Final = 0.02
RETRYABLE_FAULTS: Final[tuple[Callable[[], Fault], ...]] = (
    lambda: TryLater("the API server is unavailable"),
    lambda: Throttled("too many requests"),
    lambda: Conflict("the object has been modified"),
)


class RandomFaults(dict[str, list[Fault | None]]):
    """The faults of a fake, read before each call: random ones while faults are due."""

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
    """Each call of `step` is one round of events. The test advances the time between rounds."""

    def __init__(self, fake: WorkerHarness, *, seed: int, slots: int, restarts: float = 0.0) -> None:
        """`restarts`: share of rounds with a worker restart. It needs a worker without workflow cache, since this
        server waits for a stopped worker to process the tasks of its cached workflows."""
        self.fake, self.dice = fake, random.Random(seed)
        self._restarts = restarts
        self.slots = [NodeSlot(number) for number in range(slots)]
        self.budget, self.after = "100%", "30s"
        self.paused: datetime | None = None
        self.due = 0
        self._worker = AsyncExitStack()
        self.kinds: Counter[str] = Counter()
        """Number of faults by kind."""
        self.ends: Counter[str] = Counter()
        """Number of deleted nodes by reason."""
        self.changed: datetime | None = None
        """When nodes or NodePool last changed."""
        self.watch = FakeWatch(fake, self.slots, self.dice, lambda: self.after)

    @property
    def fault_count(self) -> int:
        return self.kinds.total()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Month"]:
        async with self._worker:
            await self._worker.enter_async_context(self.fake.running_worker())
            await self._prepare()
            yield self

    async def _restart_worker(self) -> None:
        """Stop the worker and start another one with an empty cache.

        No activity may be running: this server would never release its time lock, and hours would pass in real time
        (temporalio/sdk-java#3088). `tests/chaos` and the `test_*_killed.py` scenarios kill workers during activities.
        """
        self.kinds["restart"] += 1
        await self.wait_until_settled()
        await self._worker.aclose()
        await self._worker.enter_async_context(self.fake.running_worker())

    async def _prepare(self) -> None:
        self.watch.pool = await start_nodepool(self.fake, budgets=[{"nodes": self.budget}], consolidateAfter=self.after)
        fake = self.fake
        for port in (fake.claims, fake.nodes, fake.pods, fake.pools, fake.instances, fake.fleet):
            port.faults = RandomFaults(self._draw_fault)

    def _draw_fault(self) -> Fault | None:
        if self.fault_count >= self.due or self.dice.random() < HALF:
            return None
        fault = (
            BadInput("unknown cause")
            if self.dice.random() < TERMINAL_FAULT_SHARE
            else self.dice.choice(RETRYABLE_FAULTS)()
        )
        self.kinds[type(fault).__name__] += 1
        return fault

    async def current_time(self) -> datetime:
        return await self.fake.now()

    async def advance(self, time: timedelta, check: Callable[[], Awaitable[bool]]) -> None:
        """Advance in parts, since the server does not respond for more than half a minute. After each part the watch
        sends its signals and `check` runs, which returns whether the next part is short."""
        part = AT_ONCE
        while time > timedelta(0):
            await self.fake.sleep(min(time, part))
            time -= part
            await self.watch.notify()
            await self.fake.sleep(SETTLE_STEP)
            part = SOON if await check() else AT_ONCE

    async def step(self, due: int) -> None:
        """One event per slot, and maybe one for the NodePool. `due`: total number of faults so far."""
        self.due = due
        now = self.changed = await self.current_time()
        for slot in self.slots:
            if slot.name not in self.fake.claims.found:
                await self._launch_node(slot, now)
            else:
                await self._inject_events(slot, now)
        if self.dice.random() < HALF:
            event = self.dice.choice((self._change_nodepool, self._toggle_nodepool_pause))
            self.kinds[event.__name__] += 1
            await event(now)
        if self.dice.random() < self._restarts:
            await self._restart_worker()
        await self.wait_until_settled()

    async def wait_until_settled(self) -> None:
        """Send the signals of the watch until nothing changes."""
        calm = 0
        for _ in range(MAX_SETTLE_STEPS):
            calm = 0 if await self.watch.notify() else calm + 1
            if calm == 3:
                return
            await self.fake.sleep(SETTLE_STEP)

    async def _launch_node(self, slot: NodeSlot, now: datetime) -> None:
        if slot.handle is not None:
            self.ends[(await query_state(slot.handle)).disruption] += 1
        slot.nodeclaim_count += 1
        slot.empty_since, slot.do_not_disrupt, slot.paused, slot.last_observation = None, False, None, {}
        claim = self.fake.claims.add(slot.name, born=now)
        slot.handle = await self.fake.start(claim, consolidation=f"{POLICY}/{self.after}")

    async def _inject_events(self, slot: NodeSlot, now: datetime) -> None:
        node = self.watch.find_node(slot)
        if node is None or slot.handle is None:
            return
        ordinary_events: tuple[Callable[..., Awaitable[None]], ...] = (
            self._remove_pods,
            self._remove_pods,
            self._add_pod,
        )
        faults = (
            self._add_unobserved_pod,
            self._toggle_ready,
            self._toggle_do_not_disrupt,
            self._toggle_pause,
            self._delete_nodeclaim,
            self._delete_node,
            self._terminate_instance,
        )
        await self.dice.choice(ordinary_events)(slot, node, now)
        if self.dice.random() < FAULT_SHARE:
            event = self.dice.choice(faults)
            self.kinds[event.__name__] += 1
            await event(slot, node, now)

    async def _remove_pods(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        self.fake.pods.by_node.pop(node.name, None)
        slot.empty_since = slot.empty_since or now

    async def _add_pod(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        await self._add_unobserved_pod(slot, node, now)
        slot.empty_since = None

    async def _add_unobserved_pod(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        """A pod that the watch does not report."""
        if not self.fake.pods.by_node.get(node.name):
            self.fake.pods.add(node.name, f"pod-{slot.name}")

    async def _toggle_ready(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        self.fake.nodes.update_node(node.name, ready=not node.ready)

    async def _toggle_do_not_disrupt(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        slot.do_not_disrupt = not slot.do_not_disrupt
        annotations = {labels.DO_NOT_DISRUPT: "true"} if slot.do_not_disrupt else {}
        self.fake.nodes.update_node(node.name, annotations=annotations)

    async def _toggle_pause(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        if slot.paused and slot.paused > now:
            slot.paused = None
            await self.watch.send_signal(slot, NodeClaimWorkflow.resume_disruption, Resume(by="ops"))
        else:
            slot.paused = now + timedelta(hours=self.dice.uniform(0.1, MAX_PAUSE_HOURS))
            await self.watch.send_signal(slot, NodeClaimWorkflow.pause_disruption, self._pause_until(slot.paused))

    async def _delete_nodeclaim(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        """As a user does."""
        claim = self.fake.claims.found[slot.name]
        claim["metadata"].setdefault("deletionTimestamp", now.isoformat())

    async def _delete_node(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        self.fake.nodes.update_node(node.name, deleting=True)

    async def _terminate_instance(self, slot: NodeSlot, node: NodeFact, now: datetime) -> None:
        """The instance is terminated, and its kubelet stops reporting."""
        self.fake.instances.running.pop(instance_id_of(node.provider_id), None)
        self.fake.nodes.update_node(node.name, ready=False)

    async def _change_nodepool(self, now: datetime) -> None:
        self.budget = self.dice.choice(("100%", "100%", "10%", "1", "0"))
        self.after = self.dice.choice(("30s", "30s", "30s", "10m", "Never"))
        annotations = self.fake.pools.found["default"].metadata.annotations
        self.fake.pools.add("default", disruption={"budgets": [{"nodes": self.budget}], "consolidateAfter": self.after})
        self.fake.pools.set_annotations("default", annotations)
        self.watch.generation += 1

    async def _toggle_nodepool_pause(self, now: datetime) -> None:
        if self.paused and self.paused > now:
            self.paused = None
            await self.watch.pool.signal(NodePoolWorkflow.resume_disruption, Resume(by="ops"))
        else:
            self.paused = now + timedelta(hours=self.dice.uniform(0.1, MAX_PAUSE_HOURS))
            await self.watch.pool.signal(NodePoolWorkflow.pause_disruption, self._pause_until(self.paused))

    def _pause_until(self, until: datetime) -> Pause:
        return Pause(by="ops", reason="upgrade", until=until)
