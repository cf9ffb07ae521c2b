"""Nodes in capacity reservations: relabeled after leaving the reservation, deleted before a capacity block ends."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.capacity_reservations import ReservationCollector
from tenure.apis import labels
from tenure.model.errors import Forbidden, TryLater
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult
from tenure.model.provider_results import InstanceFacts
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.ports import FakePorts

ENDS = datetime.now(UTC) + timedelta(minutes=39)
POOL = {labels.NODEPOOL: "default"}


class CountingInstances(FakeInstances):
    """Counts reads of instances."""

    reads = 0

    async def get(self, instance_id: str) -> InstanceFacts | None:
        self.reads += 1
        return await super().get(instance_id)


class ReservedInstances(FakePorts):
    def __init__(self) -> None:
        super().__init__(instances=CountingInstances())
        self._activities = ReservationCollector(self.build_ports())

    def add(self, name: str, *, now: str = "on-demand", node: bool = True, **more: str) -> None:
        """Add a reserved NodeClaim with its Node, and the current capacity type in EC2."""
        object_labels = {**POOL, **reservation_labels(), **more}
        self.claims.add(name, labels=dict(object_labels))
        provider = f"aws:///us-west-2a/i-{name}"
        self.claims.set_status(name, provider_id=provider, Launched="True")
        if node:
            self.claims.found[name]["status"]["nodeName"] = f"node-{name}"
            self.nodes.join(f"node-{name}", provider, labels=dict(object_labels))
        self.instances.running[f"i-{name}"] = InstanceFacts(
            instance_id=f"i-{name}",
            state="running",
            capacity_type=now,
            reservation_id="cr-1" if now == labels.RESERVED else "",
        )

    async def sync_capacity_types(self) -> GarbageCollectionResult:
        request = GarbageCollectionRequest(cluster="demo", task="capacity-types")
        done: GarbageCollectionResult = await ActivityEnvironment().run(self._activities.sync_capacity_types, request)
        return done

    async def release_expiring_reservations(self) -> GarbageCollectionResult:
        request = GarbageCollectionRequest(cluster="demo", task="capacity-blocks")
        done: GarbageCollectionResult = await ActivityEnvironment().run(
            self._activities.release_expiring_reservations, request
        )
        return done

    def labels_of(self, name: str) -> list[dict[str, str]]:
        """Labels of the NodeClaim and of its Node."""
        found = [self.claims.found[name]["metadata"]["labels"]]
        return [*found, self.nodes.found[f"node-{name}"].labels] if f"node-{name}" in self.nodes.found else found

    def deleting_names(self) -> list[str]:
        """Names of NodeClaims that are being deleted."""
        deleting = [name for name, one in self.claims.found.items() if "deletionTimestamp" in one["metadata"]]
        return sorted(deleting)


def reservation_labels(kind: Literal["default", "capacity-block"] = "default") -> dict[str, Any]:
    return {
        labels.CAPACITY_TYPE: labels.RESERVED,
        labels.CAPACITY_RESERVATION_ID: "cr-1",
        labels.CAPACITY_RESERVATION_TYPE: kind,
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: "true",
    }


@pytest.fixture
def reserved() -> ReservedInstances:
    return ReservedInstances()


async def test_node_without_reservation_loses_reservation_labels(reserved: ReservedInstances) -> None:
    reserved.add("a")
    assert (await reserved.sync_capacity_types()).collected == 1
    assert reserved.labels_of("a") == [{**POOL, labels.CAPACITY_TYPE: labels.ON_DEMAND}] * 2
    assert (await reserved.sync_capacity_types()).collected == 0


@pytest.mark.parametrize(
    ("capacity_type", "state"),
    [(labels.RESERVED, "running"), ("on-demand", "shutting-down"), ("on-demand", "gone")],
    ids=["in its reservation", "shutting down", "gone"],
)
async def test_other_instances_keep_their_labels(reserved: ReservedInstances, capacity_type: str, state: str) -> None:
    reserved.add("a", now=capacity_type)
    instance = reserved.instances.running.pop("i-a")
    if state != "gone":
        reserved.instances.running["i-a"] = instance.model_copy(update={"state": state})
    assert (await reserved.sync_capacity_types()).collected == 0
    assert reserved.labels_of("a") == [{**POOL, **reservation_labels()}] * 2


async def test_disabled_gate_relabels_and_deletes_nothing(reserved: ReservedInstances) -> None:
    reserved.add("a", **reservation_labels("capacity-block"))
    reserved.reservations.enabled = False
    reserved.reservations.ends["cr-1"] = ENDS
    assert (await reserved.sync_capacity_types()).checked == 0
    assert (await reserved.release_expiring_reservations()).checked == 0
    assert reserved.labels_of("a")[0][labels.CAPACITY_TYPE] == labels.RESERVED
    assert reserved.deleting_names() == []


async def test_ec2_is_not_read_without_reserved_nodes(reserved: ReservedInstances) -> None:
    reserved.claims.add("a", labels={**POOL, labels.CAPACITY_TYPE: labels.ON_DEMAND})
    reserved.claims.set_status("a", provider_id="aws:///us-west-2a/i-a")
    await reserved.sync_capacity_types()
    assert cast(CountingInstances, reserved.instances).reads == 0


async def test_nodeclaim_without_node_is_relabeled(reserved: ReservedInstances) -> None:
    reserved.add("a", node=False)
    assert (await reserved.sync_capacity_types()).collected == 1


async def test_node_of_another_instance_keeps_its_labels(reserved: ReservedInstances) -> None:
    reserved.add("a")
    reserved.nodes.update_node("node-a", provider_id="aws:///us-west-2a/i-other")
    await reserved.sync_capacity_types()
    claim, node = reserved.labels_of("a")
    assert claim[labels.CAPACITY_TYPE] == labels.ON_DEMAND
    assert node[labels.CAPACITY_TYPE] == labels.RESERVED


async def test_failed_read_or_write_does_not_affect_other_nodes(reserved: ReservedInstances) -> None:
    for name in ("a", "b", "c"):
        reserved.add(name)
    reserved.instances.faults["get"] = [TryLater("slow down")]
    reserved.claims.faults["patch_labels"] = [Forbidden("no")]
    done = await reserved.sync_capacity_types()
    assert (done.checked, done.collected, done.failed) == (3, 1, 2)
    assert (await reserved.sync_capacity_types()).collected == 2


async def test_interrupted_relabeling_is_completed_by_next_run(reserved: ReservedInstances) -> None:
    reserved.add("a")
    reserved.claims.faults["patch_labels"] = [TryLater("gone away")]
    assert (await reserved.sync_capacity_types()).failed == 1
    assert (await reserved.sync_capacity_types()).collected == 1
    assert {one[labels.CAPACITY_TYPE] for one in reserved.labels_of("a")} == {labels.ON_DEMAND}


async def test_placement_group_partition_is_recorded(reserved: ReservedInstances) -> None:
    key = labels.PLACEMENT_GROUP_PARTITION
    empty: dict[str, Any] = {key: ""}
    reserved.add("a", now=labels.RESERVED, **empty)
    assert (await reserved.sync_capacity_types()).collected == 0
    found = reserved.instances.running["i-a"]
    reserved.instances.running["i-a"] = found.model_copy(update={"partition": "4"})
    assert (await reserved.sync_capacity_types()).collected == 1
    assert [one[key] for one in reserved.labels_of("a")] == ["4", "4"]


async def test_nodes_of_ending_capacity_block_are_deleted(reserved: ReservedInstances) -> None:
    block = reservation_labels("capacity-block")
    reserved.add("a", now=labels.RESERVED, **block)
    reserved.add("b", now=labels.RESERVED, **{**block, labels.CAPACITY_RESERVATION_ID: "cr-2"})
    reserved.add("c", now=labels.RESERVED)
    for one in ("a", "b", "c"):
        reserved.claims.found[one]["metadata"]["finalizers"] = [labels.TERMINATION_FINALIZER]
    reserved.reservations.ends["cr-1"] = ENDS
    done = await reserved.release_expiring_reservations()
    assert (done.checked, done.collected) == (2, 1)
    assert reserved.deleting_names() == ["a"]
    assert (await reserved.release_expiring_reservations()).collected == 0


async def test_failed_reservation_read_deletes_nothing(reserved: ReservedInstances) -> None:
    reserved.add("a", now=labels.RESERVED, **reservation_labels("capacity-block"))
    reserved.reservations.faults["find_ending"] = [TryLater("slow down")]
    with pytest.raises(Exception, match="slow down"):
        await reserved.release_expiring_reservations()
    assert reserved.deleting_names() == []
