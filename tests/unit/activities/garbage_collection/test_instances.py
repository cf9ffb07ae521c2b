"""Instances that nobody owns are ended, and no other: not in any order in which things happen."""

import asyncio
import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tenure.model.errors import Forbidden, TryLater
from tenure.model.provider_results import InstanceFacts
from tests.support.properties import max_examples
from tests.unit.activities.garbage_collection.fake_cluster import CLUSTER, GarbageCollectionCluster, run_collection


@pytest.fixture
def fake_cluster() -> GarbageCollectionCluster:
    return GarbageCollectionCluster()


async def test_an_instance_without_a_nodeclaim_goes_with_its_node_and_it_is_said(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.nodes.join("orphaned", fake_cluster.add_instance("i-orphan"))
    owned = fake_cluster.add_instance("i-owned")
    fake_cluster.add_nodeclaim("owner", owned)
    fake_cluster.nodes.join("kept", owned)
    fake_cluster.add_instance("i-young", age=5)
    fake_cluster.add_instance("i-foreign", cluster="other")
    done = await run_collection(fake_cluster.instances.terminate_orphaned_instances)
    assert fake_cluster.found.terminated == ["i-orphan"]
    assert list(fake_cluster.nodes.found) == ["kept"]
    assert (done.checked, done.collected, done.failed) == (4, 2, 0)
    assert fake_cluster.events.reasons_for("pool") == ["GarbageCollected"]


async def test_an_instance_whose_group_still_hands_out_is_spared_and_a_forgotten_groups_is_not(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.add_instance("i-open", group="open")
    fake_cluster.add_instance("i-forgotten", group="forgotten")
    fake_cluster.add_instance("i-alone")
    fake_cluster.groups.in_flight = {"open"}
    await run_collection(fake_cluster.instances.terminate_orphaned_instances)
    assert sorted(fake_cluster.found.terminated) == ["i-alone", "i-forgotten"]
    assert fake_cluster.groups.requests == [{"open", "forgotten"}]


async def test_while_nobody_can_tell_which_groups_are_open_none_of_their_instances_goes(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.add_instance("i-group", group="group")
    fake_cluster.add_instance("i-alone")
    fake_cluster.groups.faults["find_open"] = [TryLater("the workflow does not answer")]
    done = await run_collection(fake_cluster.instances.terminate_orphaned_instances)
    assert fake_cluster.found.terminated == ["i-alone"]
    assert done.failed == 1 and "does not answer" in done.notes[0]


async def test_nobody_is_asked_about_groups_while_every_instance_is_owned(
    fake_cluster: GarbageCollectionCluster,
) -> None:
    fake_cluster.add_nodeclaim("owner", fake_cluster.add_instance("i-1", group="g"))
    await run_collection(fake_cluster.instances.terminate_orphaned_instances)
    assert fake_cluster.groups.requests == []


async def test_an_instance_that_may_not_be_ended_hurts_no_other(fake_cluster: GarbageCollectionCluster) -> None:
    for name in ("i-1", "i-2", "i-3"):
        fake_cluster.add_instance(name)
    fake_cluster.found.faults["terminate"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run_collection(fake_cluster.instances.terminate_orphaned_instances)
    assert len(fake_cluster.found.terminated) == 2
    assert (done.collected, done.failed) == (2, 1)
    await run_collection(fake_cluster.instances.terminate_orphaned_instances)
    assert sorted(fake_cluster.found.terminated) == ["i-1", "i-2", "i-3"]


async def test_a_nodeclaim_and_a_class_that_cannot_be_read_stop_nothing(fake_cluster: GarbageCollectionCluster) -> None:
    """Karpenter's list of instances fails as a whole for one broken class."""
    fake_cluster.add_instance("i-orphan")
    fake_cluster.add_nodeclaim("odd", fake_cluster.add_instance("i-odd"))
    fake_cluster.claims.found["odd"]["spec"] = {"requirements": "nonsense", "expireAfter": -1}
    fake_cluster.node_classes.faults["list"] = [TryLater("broken")]
    done = await run_collection(fake_cluster.instances.terminate_orphaned_instances)
    assert fake_cluster.found.terminated == ["i-orphan"]
    assert done.failed == 0


async def test_an_instance_whose_tags_were_taken_off_meanwhile_stays(fake_cluster: GarbageCollectionCluster) -> None:
    """A person keeps it for a look."""
    fake_cluster.add_instance("i-kept")
    get = fake_cluster.found.get

    async def without_tags(instance_id: str) -> InstanceFacts | None:
        found = await get(instance_id)
        return found.model_copy(update={"tags": {}}) if found else None

    fake_cluster.found.get = without_tags  # type: ignore[method-assign]
    assert (await run_collection(fake_cluster.instances.terminate_orphaned_instances)).collected == 0
    assert fake_cluster.found.terminated == []


@dataclass(frozen=True)
class InstanceCase:
    """An instance, and what becomes of its NodeClaim while upkeep looks around."""

    age: float
    cluster: str
    group: str
    open: bool
    claim: str
    """`there`, `comes` between the two lists, `waits` for its instance, or `none`."""


MADE = some.builds(
    InstanceCase,
    age=some.sampled_from([0.0, 15.0, 28.0, 45.0, 600.0, 1e6]),
    cluster=some.sampled_from([CLUSTER, CLUSTER, CLUSTER, "other"]),
    group=some.sampled_from(["", "g1", "g2"]),
    open=some.booleans(),
    claim=some.sampled_from(["there", "comes", "waits", "none", "none"]),
)


@max_examples(150)
@given(some.lists(MADE, max_size=8), some.integers(0, 3))
def test_nothing_goes_that_is_young_foreign_claimed_or_being_handed_out(made: list[InstanceCase], faults: int) -> None:
    asyncio.run(_run_case(made, faults))


async def _run_case(made: list[InstanceCase], faults: int) -> None:
    began = time.monotonic()
    fake_cluster = GarbageCollectionCluster()
    fake_cluster.groups.in_flight = {one.group for one in made if one.open and one.group}
    fake_cluster.found.faults["terminate"] = [TryLater("busy")] * faults
    coming: list[tuple[str, str]] = []
    for number, one in enumerate(made):
        name = f"c{number}"
        tags = {"group": one.group} if one.group else {"claim": name}
        provider = fake_cluster.add_instance(f"i-{number}", age=one.age, cluster=one.cluster, **tags)
        if one.claim == "there":
            fake_cluster.add_nodeclaim(name, provider)
        elif one.claim == "comes":
            coming.append((name, provider))
        elif one.claim == "waits":
            fake_cluster.claims.add(name, annotations={"tenure.sh/launch-group": one.group} if one.group else {})
    _add_claims_between_lists(fake_cluster, coming)
    await run_collection(fake_cluster.instances.terminate_orphaned_instances)
    took = time.monotonic() - began
    waited_for = {one.group for one in made if one.claim == "waits" and one.group}
    for number, one in enumerate(made):
        terminated = f"i-{number}" in fake_cluster.found.terminated
        spared = one.group in fake_cluster.groups.in_flight or one.group in waited_for
        unowned = one.cluster == CLUSTER and one.claim == "none" and not spared
        assert terminated <= (one.age + took > 30 and unowned), (number, one)
        assert (one.age > 30 and unowned) <= terminated or faults, (number, one)


def _add_claims_between_lists(fake_cluster: GarbageCollectionCluster, coming: list[tuple[str, str]]) -> None:
    lists = fake_cluster.found.list_managed

    async def list_then_add_claims() -> object:
        listed = await lists()
        for name, provider in coming:
            fake_cluster.add_nodeclaim(name, provider)
        return listed

    fake_cluster.found.list_managed = list_then_add_claims  # type: ignore[assignment, method-assign]
