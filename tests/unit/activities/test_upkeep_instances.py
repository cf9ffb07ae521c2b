"""Instances that nobody owns are ended, and no other: not in any order in which things happen."""

import asyncio
import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tenure.model.errors import Forbidden, TryLater
from tenure.model.provider_results import InstanceFacts
from tests.support.properties import examples
from tests.unit.activities.upkeep_world import CLUSTER, Tidied, run


@pytest.fixture
def world() -> Tidied:
    return Tidied()


async def test_an_instance_without_a_nodeclaim_goes_with_its_node_and_it_is_said(world: Tidied) -> None:
    world.nodes.join("orphaned", world.instance("i-orphan"))
    owned = world.instance("i-owned")
    world.claim("owner", owned)
    world.nodes.join("kept", owned)
    world.instance("i-young", age=5)
    world.instance("i-foreign", cluster="other")
    done = await run(world.instances.end_unowned_instances)
    assert world.found.terminated == ["i-orphan"]
    assert list(world.nodes.found) == ["kept"]
    assert (done.looked_at, done.collected, done.failed) == (4, 2, 0)
    assert world.events.reasons("pool") == ["GarbageCollected"]


async def test_an_instance_whose_group_still_hands_out_is_spared_and_a_forgotten_groups_is_not(world: Tidied) -> None:
    world.instance("i-open", group="open")
    world.instance("i-forgotten", group="forgotten")
    world.instance("i-alone")
    world.groups.under_way = {"open"}
    await run(world.instances.end_unowned_instances)
    assert sorted(world.found.terminated) == ["i-alone", "i-forgotten"]
    assert world.groups.asked == [{"open", "forgotten"}]


async def test_while_nobody_can_tell_which_groups_are_open_none_of_their_instances_goes(world: Tidied) -> None:
    world.instance("i-group", group="group")
    world.instance("i-alone")
    world.groups.faults["open"] = [TryLater("the workflow does not answer")]
    done = await run(world.instances.end_unowned_instances)
    assert world.found.terminated == ["i-alone"]
    assert done.failed == 1 and "does not answer" in done.notes[0]


async def test_nobody_is_asked_about_groups_while_every_instance_is_owned(world: Tidied) -> None:
    world.claim("owner", world.instance("i-1", group="g"))
    await run(world.instances.end_unowned_instances)
    assert world.groups.asked == []


async def test_an_instance_that_may_not_be_ended_hurts_no_other(world: Tidied) -> None:
    for name in ("i-1", "i-2", "i-3"):
        world.instance(name)
    world.found.faults["terminate"] = [Forbidden("not allowed", code="UnauthorizedOperation")]
    done = await run(world.instances.end_unowned_instances)
    assert len(world.found.terminated) == 2
    assert (done.collected, done.failed) == (2, 1)
    await run(world.instances.end_unowned_instances)
    assert sorted(world.found.terminated) == ["i-1", "i-2", "i-3"]


async def test_a_nodeclaim_and_a_class_that_cannot_be_read_stop_nothing(world: Tidied) -> None:
    """Karpenter's list of instances fails as a whole for one broken class."""
    world.instance("i-orphan")
    world.claim("odd", world.instance("i-odd"))
    world.claims.found["odd"]["spec"] = {"requirements": "nonsense", "expireAfter": -1}
    world.node_classes.faults["list"] = [TryLater("broken")]
    done = await run(world.instances.end_unowned_instances)
    assert world.found.terminated == ["i-orphan"]
    assert done.failed == 0


async def test_an_instance_whose_tags_were_taken_off_meanwhile_stays(world: Tidied) -> None:
    """A person keeps it for a look."""
    world.instance("i-kept")
    get = world.found.get

    async def without_tags(instance_id: str) -> InstanceFacts | None:
        found = await get(instance_id)
        return found.model_copy(update={"tags": {}}) if found else None

    world.found.get = without_tags  # type: ignore[method-assign]
    assert (await run(world.instances.end_unowned_instances)).collected == 0
    assert world.found.terminated == []


@dataclass(frozen=True)
class Made:
    """An instance, and what becomes of its NodeClaim while upkeep looks around."""

    age: float
    cluster: str
    group: str
    open: bool
    claim: str
    """`there`, `comes` between the two lists, `waits` for its instance, or `none`."""


MADE = some.builds(
    Made,
    age=some.sampled_from([0.0, 15.0, 28.0, 45.0, 600.0, 1e6]),
    cluster=some.sampled_from([CLUSTER, CLUSTER, CLUSTER, "other"]),
    group=some.sampled_from(["", "g1", "g2"]),
    open=some.booleans(),
    claim=some.sampled_from(["there", "comes", "waits", "none", "none"]),
)


@examples(150)
@given(some.lists(MADE, max_size=8), some.integers(0, 3))
def test_nothing_goes_that_is_young_foreign_claimed_or_being_handed_out(made: list[Made], faults: int) -> None:
    asyncio.run(_play(made, faults))


async def _play(made: list[Made], faults: int) -> None:
    began = time.monotonic()
    world = Tidied()
    world.groups.under_way = {one.group for one in made if one.open and one.group}
    world.found.faults["terminate"] = [TryLater("busy")] * faults
    coming: list[tuple[str, str]] = []
    for number, one in enumerate(made):
        name = f"c{number}"
        tags = {"group": one.group} if one.group else {"claim": name}
        provider = world.instance(f"i-{number}", age=one.age, cluster=one.cluster, **tags)
        if one.claim == "there":
            world.claim(name, provider)
        elif one.claim == "comes":
            coming.append((name, provider))
        elif one.claim == "waits":
            world.claims.add(name, annotations={"tenure.sh/launch-group": one.group} if one.group else {})
    _arrive_between_the_lists(world, coming)
    await run(world.instances.end_unowned_instances)
    took = time.monotonic() - began
    waited_for = {one.group for one in made if one.claim == "waits" and one.group}
    for number, one in enumerate(made):
        gone = f"i-{number}" in world.found.terminated
        spared = one.group in world.groups.under_way or one.group in waited_for
        unowned = one.cluster == CLUSTER and one.claim == "none" and not spared
        assert gone <= (one.age + took > 30 and unowned), (number, one)
        assert (one.age > 30 and unowned) <= gone or faults, (number, one)


def _arrive_between_the_lists(world: Tidied, coming: list[tuple[str, str]]) -> None:
    lists = world.found.list_managed

    async def and_then_they_come() -> object:
        listed = await lists()
        for name, provider in coming:
            world.claim(name, provider)
        return listed

    world.found.list_managed = and_then_they_come  # type: ignore[assignment, method-assign]
