"""Capacity discovered from live Nodes, and signals to the Provisioning workflow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, NoReturn

import pytest

from tenure.apis.labels import ARCH, INSTANCE_GPU_COUNT, INSTANCE_TYPE, REGISTERED
from tenure.controller.planning import discovered_capacity
from tenure.controller.planning.discovered_capacity import (
    MIN_SIGNAL_INTERVAL,
    CapacityDiscovery,
    DiscoveredCapacityNotifier,
)
from tenure.controller.signals.signaller import Signal, SignalQueue, Start
from tenure.model.discovered_capacity import DiscoveredCapacity, ObservedCapacity
from tenure.model.facts import NodeClaimFact
from tenure.model.observations import ObservedDemand
from tenure.model.workflow_states import ProvisioningState
from tests.support.controller.builders import NOW, CacheHarness, Json, claim, node, node_class
from tests.support.fakes.event_loop import run_pending_tasks
from tests.unit.controller.fake_temporal import FakeTemporal

MIB = 1 << 20
STANDARD, NVIDIA = "ami-standard", "ami-nvidia"


def nodeclaim_and_node(
    name: str, memory: str = "7650Mi", image: str = STANDARD, of: str = "m6i.large", **labels: str | None
) -> tuple[Json, Json]:
    """A NodeClaim and its registered Node. Labels with the value None are omitted."""
    node_labels = {INSTANCE_TYPE: of, REGISTERED: "true", ARCH: "amd64"} | labels
    one = claim(name, phase="Registered", labels={"karpenter.sh/nodepool": "general", INSTANCE_TYPE: of})
    one["status"]["imageID"] = image
    other = node(f"n-{name}", of=name, labels={key: value for key, value in node_labels.items() if value is not None})
    other["status"]["capacity"] = {"memory": memory}
    return one, other


def resolved_nodeclass(*amis: tuple[str, str, str]) -> Json:
    """An EC2NodeClass with AMIs, each as ID, architecture and operator of the GPU count."""
    raw = node_class()
    raw["status"] = {
        "amis": [
            {
                "id": image,
                "requirements": [
                    {"key": ARCH, "operator": "In", "values": [architecture]},
                    {"key": INSTANCE_GPU_COUNT, "operator": gpus},
                ],
            }
            for image, architecture, gpus in amis
        ]
    }
    return raw


AMIS = (
    (NVIDIA, "amd64", "Exists"),
    ("ami-nvidia-arm", "arm64", "Exists"),
    (STANDARD, "amd64", "DoesNotExist"),
    ("ami-standard-arm", "arm64", "DoesNotExist"),
)


@pytest.fixture
def harness() -> CacheHarness:
    harness = CacheHarness()
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(*AMIS))
    return harness


def discover(
    harness: CacheHarness, *instances: tuple[Json, Json], by: CapacityDiscovery | None = None
) -> CapacityDiscovery:
    discovery = by or CapacityDiscovery(harness.cache)
    for one, other in instances:
        harness.apply_objects("nodeclaims", one)
        harness.apply_objects("nodes", other)
        discovery.discover_from_changes(harness.cache.drain_planner_changes())
    return discovery


def test_memory_is_discovered_per_image_and_instance_type(harness: CacheHarness) -> None:
    discovery = discover(harness, nodeclaim_and_node("a"))
    assert discovery.discovered.images == {STANDARD: {"m6i.large": 7650 * MIB}}


def test_smallest_memory_counts_and_larger_memory_is_ignored(harness: CacheHarness) -> None:
    discovery = discover(harness, nodeclaim_and_node("a", "7650Mi"), nodeclaim_and_node("b", "7640Mi"))
    assert discovery.discovered.get_memory(STANDARD, "m6i.large") == 7640 * MIB
    digest = discovery.digest()
    discover(harness, nodeclaim_and_node("c", "7700Mi"), by=discovery)
    assert discovery.discovered.get_memory(STANDARD, "m6i.large") == 7640 * MIB and discovery.digest() == digest


def test_smallest_memory_of_a_snapshot_counts(harness: CacheHarness) -> None:
    for one, other in (
        nodeclaim_and_node("a", "7640Mi"),
        nodeclaim_and_node("b", "7650Mi"),
        nodeclaim_and_node("c", "7630Mi"),
    ):
        harness.apply_objects("nodeclaims", one)
        harness.apply_objects("nodes", other)
    discovery = CapacityDiscovery(harness.cache)
    discovery.discover_from_changes(harness.cache.snapshot_changes())
    assert discovery.discovered.images == {STANDARD: {"m6i.large": 7630 * MIB}}


def test_discovered_memory_outlives_the_node(harness: CacheHarness) -> None:
    one, other = nodeclaim_and_node("a")
    discovery = discover(harness, (one, other))
    harness.delete_objects("nodes", other)
    harness.delete_objects("nodeclaims", one)
    discovery.discover_from_changes(harness.cache.drain_planner_changes())
    assert discovery.discovered.get_memory(STANDARD, "m6i.large") == 7650 * MIB


@pytest.mark.parametrize(
    "change",
    [{INSTANCE_TYPE: "m6i.xlarge"}, {INSTANCE_GPU_COUNT: "1"}, {ARCH: "arm64"}, {"memory": "0"}, {"image": ""}],
    ids=["other instance type", "NVIDIA labels", "arm64 labels", "no memory", "no image"],
)
def test_inconsistent_node_is_ignored(harness: CacheHarness, change: dict[str, Any]) -> None:
    assert not discover(harness, nodeclaim_and_node("a", **change)).discovered.images


def test_unregistered_node_is_matched_by_the_labels_of_its_nodeclaim(harness: CacheHarness) -> None:
    """Otherwise a plan before registration would launch the same type again, although its capacity is known."""
    unknown: dict[str, Any] = {REGISTERED: None, INSTANCE_TYPE: None, ARCH: None}
    unregistered = nodeclaim_and_node("a", **unknown)
    unregistered[0]["metadata"]["labels"] |= {ARCH: "amd64"}
    assert discover(harness, unregistered).discovered.images == {STANDARD: {"m6i.large": 7650 * MIB}}


def test_two_nodes_of_one_instance_are_ignored(harness: CacheHarness) -> None:
    one, other = nodeclaim_and_node("a")
    harness.apply_objects(
        "nodes", nodeclaim_and_node("a")[1] | {"metadata": other["metadata"] | {"name": "stranger", "uid": "uid-2"}}
    )
    assert not discover(harness, (one, other)).discovered.images


def test_node_with_an_unlisted_image_is_used(harness: CacheHarness) -> None:
    assert (
        discover(harness, nodeclaim_and_node("a", image="ami-before")).discovered.get_memory("ami-before", "m6i.large")
        == 7650 * MIB
    )


def test_nodeclaim_that_follows_its_node_is_used(harness: CacheHarness) -> None:
    one, other = nodeclaim_and_node("a")
    harness.apply_objects("nodes", other)
    discovery = CapacityDiscovery(harness.cache)
    discovery.discover_from_changes(harness.cache.drain_planner_changes())
    harness.apply_objects("nodeclaims", one)
    discovery.discover_from_changes(harness.cache.drain_planner_changes())
    assert discovery.discovered.entry_count == 1


def test_unreported_contains_only_entries_missing_in_the_workflow(harness: CacheHarness) -> None:
    discovery = discover(harness, nodeclaim_and_node("a", "7650Mi"), nodeclaim_and_node("b", of="m6i.xlarge"))
    assert discovery.unreported().discovered == discovery.discovered
    assert discovery.unreported().images == tuple(sorted(image for image, _, _ in AMIS))
    assert discovery.unreported().images_by_class == {"default": discovery.unreported().images}
    discovery.apply_stored(DiscoveredCapacity(images={STANDARD: {"m6i.large": 7650 * MIB}, "ami-gone": {"t3.nano": 1}}))
    assert discovery.unreported().discovered.images == {STANDARD: {"m6i.xlarge": 7650 * MIB}}
    assert discovery.discovered.get_memory("ami-gone", "t3.nano") == 1
    assert discovery.for_node_class("default") == discovery.discovered.restrict_to_images({STANDARD})
    assert discovery.for_node_class("other") == DiscoveredCapacity()


def test_entry_dropped_by_the_workflow_is_kept_only_while_in_use(harness: CacheHarness) -> None:
    discovery = discover(harness, nodeclaim_and_node("a"), nodeclaim_and_node("b", image="ami-before"))
    discovery.apply_stored(DiscoveredCapacity(images={"ami-gone": {"t3.nano": 1}, "ami-gone/123": {"t3.nano": 1}}))
    assert discovery.discovered.images.keys() == {STANDARD, "ami-before", "ami-gone", "ami-gone/123"}
    harness.delete_objects("nodeclaims", *(nodeclaim_and_node(name)[0] for name in "ab"))
    discovery.apply_stored(DiscoveredCapacity())
    assert discovery.discovered.images.keys() == {STANDARD}


class UnreadableNodeClaims(dict[str, NodeClaimFact]):
    def values(self) -> NoReturn:
        raise AssertionError("all NodeClaims are read")


def test_nodeclaims_are_not_read_if_the_workflow_stores_all_images(harness: CacheHarness) -> None:
    discovery = discover(harness, nodeclaim_and_node("a"), nodeclaim_and_node("b", image="ami-before"))
    harness.cache.nodeclaims = UnreadableNodeClaims(harness.cache.nodeclaims)
    stored = {**discovery.discovered.images, "ami-gone": {"t3.nano": 1}}
    discovery.apply_stored(DiscoveredCapacity(images=stored))
    assert discovery.discovered.images == stored


def test_digest_covers_entries_and_images_in_use(harness: CacheHarness) -> None:
    digests = {CapacityDiscovery(harness.cache).digest()}
    discovery = discover(harness, nodeclaim_and_node("a"))
    digests.add(discovery.digest())
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(*AMIS[:2]))
    digests.add(discovery.digest())
    assert len(digests) == 3
    assert discover(CacheHarness(), nodeclaim_and_node("a")).digest() != discovery.digest()


START = Start("Provisioning", ProvisioningState(cluster="c"))


class DiscoveryNotifierHarness(CacheHarness):
    def __init__(self) -> None:
        super().__init__()
        self.temporal, self.discovery = FakeTemporal(), CapacityDiscovery(self.cache)
        self.signal_queue = SignalQueue(self.temporal.client, "queue")
        self.notifier = DiscoveredCapacityNotifier("c", self.discovery, self.signal_queue)

    async def notify(self, after: float = 0) -> None:
        self.notifier.notify(START, NOW + MIN_SIGNAL_INTERVAL * after)
        await run_pending_tasks()

    def notified(self) -> list[DiscoveredCapacity]:
        return [
            one.discovered for one in self.temporal.arguments_to("c/provisioning") if isinstance(one, ObservedCapacity)
        ]


@pytest.fixture
async def reporting() -> AsyncIterator[DiscoveryNotifierHarness]:
    reporting = DiscoveryNotifierHarness()
    task = asyncio.create_task(reporting.signal_queue.run())
    yield reporting
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_no_signal_is_sent_before_the_first_discovery(reporting: DiscoveryNotifierHarness) -> None:
    await reporting.notify()
    assert not reporting.temporal.sent and reporting.notifier.next_attempt_at is None


async def test_unchanged_discovery_is_signaled_once(reporting: DiscoveryNotifierHarness) -> None:
    discover(reporting, nodeclaim_and_node("a"), by=reporting.discovery)
    await reporting.notify()
    await reporting.notify(after=5)
    assert [one.entry_count for one in reporting.notified()] == [1]
    assert (reporting.temporal.sent[0].workflow, reporting.temporal.sent[0].signal) == (
        "Provisioning",
        "capacity_discovered",
    )


async def test_discoveries_are_coalesced_into_one_signal(reporting: DiscoveryNotifierHarness) -> None:
    discover(reporting, nodeclaim_and_node("a"), by=reporting.discovery)
    await reporting.notify()
    for number, name in enumerate("bcd"):
        discover(reporting, nodeclaim_and_node(name, f"{7000 - number}Mi"), by=reporting.discovery)
        await reporting.notify(after=0.5)
    assert len(reporting.notified()) == 1 and reporting.notifier.next_attempt_at == NOW + MIN_SIGNAL_INTERVAL
    await reporting.notify(after=1)
    assert len(reporting.notified()) == 2 and reporting.notifier.next_attempt_at is None
    assert reporting.notified()[-1].get_memory(STANDARD, "m6i.large") == 6998 << 20


async def test_signal_omits_entries_known_to_the_workflow(reporting: DiscoveryNotifierHarness) -> None:
    discover(reporting, nodeclaim_and_node("a"), by=reporting.discovery)
    reporting.discovery.apply_stored(reporting.discovery.discovered)
    discover(reporting, nodeclaim_and_node("b", of="m6i.xlarge"), by=reporting.discovery)
    await reporting.notify()
    assert [one.images for one in reporting.notified()] == [{STANDARD: {"m6i.xlarge": 7650 << 20}}]


async def test_discovery_is_signaled_again_if_the_workflow_lost_it(reporting: DiscoveryNotifierHarness) -> None:
    discover(reporting, nodeclaim_and_node("a"), by=reporting.discovery)
    await reporting.notify()
    reporting.discovery.apply_stored(reporting.discovery.discovered)
    assert not reporting.notifier.discard_if_lost()
    reporting.discovery.apply_stored(DiscoveredCapacity())
    assert reporting.notifier.discard_if_lost()
    await reporting.notify(after=1)
    assert [one.entry_count for one in reporting.notified()] == [1, 1]


async def test_full_workflow_does_not_count_as_lost(
    reporting: DiscoveryNotifierHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovered_capacity, "MAX_ENTRIES", 1)
    discover(reporting, nodeclaim_and_node("a"), nodeclaim_and_node("b", of="m6i.xlarge"), by=reporting.discovery)
    reporting.discovery.apply_stored(DiscoveredCapacity(images={STANDARD: {"m6i.large": 7650 << 20}}))
    assert reporting.discovery.unreported().discovered.entry_count == 1
    assert not reporting.notifier.discard_if_lost()


async def test_demand_and_discovery_signals_do_not_replace_each_other(reporting: DiscoveryNotifierHarness) -> None:
    reporting.temporal.gate = asyncio.Event()
    discover(reporting, nodeclaim_and_node("a"), by=reporting.discovery)
    for number in (1, 2):
        demand = ObservedDemand(number=number, pods=1, newest_pod_at=NOW)
        reporting.signal_queue.enqueue(Signal("c/provisioning", "pending_pods", demand, str(number), START))
        await reporting.notify()
    reporting.temporal.gate.set()
    await run_pending_tasks()
    assert sorted(one.signal for one in reporting.temporal.sent) == [
        "capacity_discovered",
        "pending_pods",
        "pending_pods",
    ]
