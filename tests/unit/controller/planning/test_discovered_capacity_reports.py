"""The Provisioning workflow is told what was learnt: in one signal for many nodes, and again when it has lost it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tenure.controller.planning import discovered_capacity
from tenure.controller.planning.discovered_capacity import (
    MIN_SIGNAL_INTERVAL,
    CapacityDiscovery,
    DiscoveredCapacityNotifier,
)
from tenure.controller.signals.signaller import Signal, SignalQueue, Start
from tenure.model.discovered_capacity import DiscoveredCapacity, ObservedCapacity
from tenure.model.observations import ObservedDemand
from tenure.model.workflow_states import ProvisioningState
from tests.support.controller.builders import NOW, CacheHarness
from tests.support.fakes.event_loop import run_pending_tasks
from tests.unit.controller.fake_temporal import FakeTemporal
from tests.unit.controller.planning.test_discovered_capacity import STANDARD, discover, nodeclaim_and_node

START = Start("Provisioning", ProvisioningState(cluster="c"))


class DiscoveryNotifierHarness(CacheHarness):
    def __init__(self, sent: dict[str, str]) -> None:
        super().__init__()
        self.temporal, self.discovery = FakeTemporal(), CapacityDiscovery(self.cache)
        self.signal_queue = SignalQueue(self.temporal.client, "queue", sent)
        self.notifier = DiscoveredCapacityNotifier("c", self.discovery, self.signal_queue)

    async def notify(self, after: float = 0) -> None:
        self.notifier.notify(START, NOW + MIN_SIGNAL_INTERVAL * after)
        await run_pending_tasks()

    def notified(self) -> list[DiscoveredCapacity]:
        return [
            one.discovered for one in self.temporal.arguments_to("c/provisioning") if isinstance(one, ObservedCapacity)
        ]


@pytest.fixture
async def harness() -> AsyncIterator[DiscoveryNotifierHarness]:
    harness = DiscoveryNotifierHarness({})
    task = asyncio.create_task(harness.signal_queue.run())
    yield harness
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_nothing_is_told_before_anything_is_learnt(harness: DiscoveryNotifierHarness) -> None:
    await harness.notify()
    assert not harness.temporal.sent and harness.notifier.next_attempt_at is None


async def test_the_same_is_told_once(harness: DiscoveryNotifierHarness) -> None:
    discover(harness, nodeclaim_and_node("a"), by=harness.discovery)
    await harness.notify()
    await harness.notify(after=5)
    assert [one.entry_count for one in harness.notified()] == [1]
    assert (harness.temporal.sent[0].workflow, harness.temporal.sent[0].signal) == (
        "Provisioning",
        "capacity_discovered",
    )


async def test_many_nodes_teach_in_one_signal(harness: DiscoveryNotifierHarness) -> None:
    discover(harness, nodeclaim_and_node("a"), by=harness.discovery)
    await harness.notify()
    for number, name in enumerate("bcd"):
        discover(harness, nodeclaim_and_node(name, f"{7000 - number}Mi"), by=harness.discovery)
        await harness.notify(after=0.5)
    assert len(harness.notified()) == 1 and harness.notifier.next_attempt_at == NOW + MIN_SIGNAL_INTERVAL
    await harness.notify(after=1)
    assert len(harness.notified()) == 2 and harness.notifier.next_attempt_at is None
    assert harness.notified()[-1].get_memory(STANDARD, "m6i.large") == 6998 << 20


async def test_what_the_workflow_knows_already_is_not_told(harness: DiscoveryNotifierHarness) -> None:
    discover(harness, nodeclaim_and_node("a"), by=harness.discovery)
    harness.discovery.apply_stored(harness.discovery.discovered)
    discover(harness, nodeclaim_and_node("b", of="m6i.xlarge"), by=harness.discovery)
    await harness.notify()
    assert [one.images for one in harness.notified()] == [{STANDARD: {"m6i.xlarge": 7650 << 20}}]


async def test_a_workflow_that_turns_out_to_know_nothing_is_told_again(harness: DiscoveryNotifierHarness) -> None:
    discover(harness, nodeclaim_and_node("a"), by=harness.discovery)
    await harness.notify()
    harness.discovery.apply_stored(harness.discovery.discovered)
    assert not harness.notifier.discard_if_lost()
    harness.discovery.apply_stored(DiscoveredCapacity())
    assert harness.notifier.discard_if_lost()
    await harness.notify(after=1)
    assert [one.entry_count for one in harness.notified()] == [1, 1]


async def test_a_workflow_that_is_full_is_not_told_again_and_again(
    harness: DiscoveryNotifierHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovered_capacity, "MAX_ENTRIES", 1)
    discover(harness, nodeclaim_and_node("a"), nodeclaim_and_node("b", of="m6i.xlarge"), by=harness.discovery)
    harness.discovery.apply_stored(DiscoveredCapacity(images={STANDARD: {"m6i.large": 7650 << 20}}))
    assert harness.discovery.unreported().discovered.entry_count == 1
    assert not harness.notifier.discard_if_lost()


async def test_a_successor_that_has_learnt_the_same_tells_nothing(harness: DiscoveryNotifierHarness) -> None:
    discover(harness, nodeclaim_and_node("a"), by=harness.discovery)
    await harness.notify()
    successor = DiscoveryNotifierHarness(dict(harness.signal_queue.sent))
    discover(successor, nodeclaim_and_node("a"), by=successor.discovery)
    await successor.notify()
    assert not successor.temporal.sent and not successor.signal_queue._waiting


async def test_demand_and_what_was_learnt_do_not_take_each_others_place(harness: DiscoveryNotifierHarness) -> None:
    harness.temporal.gate = asyncio.Event()
    discover(harness, nodeclaim_and_node("a"), by=harness.discovery)
    for number in (1, 2):
        demand = ObservedDemand(number=number, pods=1, newest_pod_at=NOW)
        harness.signal_queue.enqueue(Signal("c/provisioning", "pending_pods", demand, str(number), START))
        await harness.notify()
    harness.temporal.gate.set()
    await run_pending_tasks()
    assert sorted(one.signal for one in harness.temporal.sent) == [
        "capacity_discovered",
        "pending_pods",
        "pending_pods",
    ]
