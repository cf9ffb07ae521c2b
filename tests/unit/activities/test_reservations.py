"""Nodes in capacity reservations: demoted when EC2 no longer has them there, deleted before their block ends."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from temporalio.testing import ActivityEnvironment

from activities.capacity_reservations import ReservationActivities
from tenure.apis import labels
from tenure.model.errors import Forbidden, TryLater
from tenure.model.garbage_collection import UpkeepAsked, UpkeepDone
from tenure.model.provider_results import InstanceFacts
from tests.support.fakes.cloud import FakeInstances, FakeReservations
from tests.support.fakes.kubernetes import FakeClaims, FakeEvents, FakeNodes

ENDS = datetime.now(UTC) + timedelta(minutes=39)
POOL = {labels.NODEPOOL: "default"}


class Looked(FakeInstances):
    """Counts the looks."""

    looks = 0

    async def get(self, instance_id: str) -> InstanceFacts | None:
        self.looks += 1
        return await super().get(instance_id)


class World:
    def __init__(self) -> None:
        self.claims, self.nodes, self.events = FakeClaims(), FakeNodes(), FakeEvents()
        self.instances, self.reservations = Looked(), FakeReservations()
        self._activities = ReservationActivities(
            claims=self.claims,
            nodes=self.nodes,
            instances=self.instances,
            reservations=self.reservations,
            events=self.events,
        )

    def add(self, name: str, *, now: str = "on-demand", node: bool = True, **more: str) -> None:
        """A NodeClaim labelled reserved with its Node, and what EC2 says its capacity type is now."""
        shown = {**POOL, **in_reservation(), **more}
        self.claims.add(name, labels=dict(shown))
        provider = f"aws:///us-west-2a/i-{name}"
        self.claims.give(name, provider_id=provider, Launched="True")
        if node:
            self.claims.found[name]["status"]["nodeName"] = f"node-{name}"
            self.nodes.join(f"node-{name}", provider, labels=dict(shown))
        self.instances.running[f"i-{name}"] = InstanceFacts(
            instance_id=f"i-{name}",
            state="running",
            capacity_type=now,
            reservation_id="cr-1" if now == labels.RESERVED else "",
        )

    async def sync(self) -> UpkeepDone:
        asked = UpkeepAsked(cluster="demo", task="capacity-types")
        done: UpkeepDone = await ActivityEnvironment().run(self._activities.sync_capacity_types, asked)
        return done

    async def end(self) -> UpkeepDone:
        asked = UpkeepAsked(cluster="demo", task="capacity-blocks")
        done: UpkeepDone = await ActivityEnvironment().run(self._activities.end_expiring_reservations, asked)
        return done

    def shown(self, name: str) -> list[dict[str, str]]:
        """The labels of NodeClaim and Node."""
        found = [self.claims.found[name]["metadata"]["labels"]]
        return [*found, self.nodes.found[f"node-{name}"].labels] if f"node-{name}" in self.nodes.found else found

    def deleted(self) -> list[str]:
        """Those that are on their way out or gone."""
        going = [name for name, one in self.claims.found.items() if "deletionTimestamp" in one["metadata"]]
        return sorted(going)


def in_reservation(kind: Literal["default", "capacity-block"] = "default") -> dict[str, Any]:
    return {
        labels.CAPACITY_TYPE: labels.RESERVED,
        labels.CAPACITY_RESERVATION_ID: "cr-1",
        labels.CAPACITY_RESERVATION_TYPE: kind,
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: "true",
    }


@pytest.fixture
def world() -> World:
    return World()


async def test_a_node_that_lost_its_reservation_loses_all_three_labels(world: World) -> None:
    world.add("a")
    assert (await world.sync()).collected == 1
    assert world.shown("a") == [{**POOL, labels.CAPACITY_TYPE: labels.ON_DEMAND}] * 2
    assert (await world.sync()).collected == 0


async def test_a_node_in_its_reservation_is_left_alone(world: World) -> None:
    world.add("a", now=labels.RESERVED)
    assert (await world.sync()).collected == 0
    assert world.shown("a") == [{**POOL, **in_reservation()}] * 2


@pytest.mark.parametrize("state", ["shutting-down", ""])
async def test_an_instance_that_ends_or_is_gone_is_not_relabelled(world: World, state: str) -> None:
    world.add("a")
    if state:
        world.instances.running["i-a"] = world.instances.running["i-a"].model_copy(update={"state": state})
    else:
        world.instances.running.clear()
    assert (await world.sync()).collected == 0
    assert world.shown("a")[0][labels.CAPACITY_TYPE] == labels.RESERVED


async def test_with_the_gate_off_nobody_is_demoted_or_deleted(world: World) -> None:
    world.add("a", **in_reservation("capacity-block"))
    world.reservations.enabled = False
    world.reservations.ends["cr-1"] = ENDS
    assert (await world.sync()).looked_at == 0
    assert (await world.end()).looked_at == 0
    assert world.shown("a")[0][labels.CAPACITY_TYPE] == labels.RESERVED
    assert world.deleted() == []


async def test_without_reserved_nodes_ec2_is_not_asked(world: World) -> None:
    world.claims.add("a", labels={**POOL, labels.CAPACITY_TYPE: labels.ON_DEMAND})
    world.claims.give("a", provider_id="aws:///us-west-2a/i-a")
    await world.sync()
    assert world.instances.looks == 0


async def test_a_claim_without_a_node_is_relabelled_too(world: World) -> None:
    world.add("a", node=False)
    assert (await world.sync()).collected == 1


async def test_a_node_of_another_instance_keeps_its_labels(world: World) -> None:
    world.add("a")
    world.nodes.change("node-a", provider_id="aws:///us-west-2a/i-other")
    await world.sync()
    claim, node = world.shown("a")
    assert claim[labels.CAPACITY_TYPE] == labels.ON_DEMAND
    assert node[labels.CAPACITY_TYPE] == labels.RESERVED


async def test_one_that_cannot_be_looked_at_or_written_hurts_no_other(world: World) -> None:
    for name in ("a", "b", "c"):
        world.add(name)
    world.instances.faults["get"] = [TryLater("slow down")]
    world.claims.faults["relabel"] = [Forbidden("no")]
    done = await world.sync()
    assert (done.looked_at, done.collected, done.failed) == (3, 1, 2)
    assert (await world.sync()).collected == 2


async def test_cut_off_between_node_and_claim_it_is_done_the_next_time(world: World) -> None:
    world.add("a")
    world.claims.faults["relabel"] = [TryLater("gone away")]
    assert (await world.sync()).failed == 1
    assert (await world.sync()).collected == 1
    assert {one[labels.CAPACITY_TYPE] for one in world.shown("a")} == {labels.ON_DEMAND}


async def test_a_partition_that_ec2_chose_is_written_down(world: World) -> None:
    key = labels.PLACEMENT_GROUP_PARTITION
    empty: dict[str, Any] = {key: ""}
    world.add("a", now=labels.RESERVED, **empty)
    assert (await world.sync()).collected == 0
    found = world.instances.running["i-a"]
    world.instances.running["i-a"] = found.model_copy(update={"partition": "4"})
    assert (await world.sync()).collected == 1
    assert [one[key] for one in world.shown("a")] == ["4", "4"]


async def test_nodes_on_a_block_that_ends_are_deleted_and_others_are_not(world: World) -> None:
    block = in_reservation("capacity-block")
    world.add("a", now=labels.RESERVED, **block)
    world.add("b", now=labels.RESERVED, **{**block, labels.CAPACITY_RESERVATION_ID: "cr-2"})
    world.add("c", now=labels.RESERVED)
    for one in ("a", "b", "c"):
        world.claims.found[one]["metadata"]["finalizers"] = [labels.TERMINATION_FINALIZER]
    world.reservations.ends["cr-1"] = ENDS
    done = await world.end()
    assert (done.looked_at, done.collected) == (2, 1)
    assert world.deleted() == ["a"]
    assert (await world.end()).collected == 0


async def test_while_ec2_does_not_tell_no_node_is_deleted(world: World) -> None:
    world.add("a", now=labels.RESERVED, **in_reservation("capacity-block"))
    world.reservations.faults["ending"] = [TryLater("slow down")]
    with pytest.raises(Exception, match="slow down"):
        await world.end()
    assert world.deleted() == []
