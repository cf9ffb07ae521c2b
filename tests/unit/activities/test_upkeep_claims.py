"""NodeClaims and Nodes whose instance is gone are put away; those whose instance runs, or may run, never."""

import pytest

from tenure.apis.labels import REGISTERED_CONDITION, TERMINATION_FINALIZER
from tenure.model.errors import TryLater
from tests.unit.activities.upkeep_world import Tidied, run, run_twice

JOINED = {REGISTERED_CONDITION: "True"}


@pytest.fixture
def world() -> Tidied:
    return Tidied()


async def test_a_nodeclaim_whose_instance_and_node_are_gone_is_deleted_and_it_is_said(world: Tidied) -> None:
    world.claim("bereft", "aws:///a/i-gone", **JOINED)
    world.claim("well", world.instance("i-there"), **JOINED)
    done = await run_twice(world.objects.collect_claims)
    assert list(world.claims.found) == ["well"]
    assert (done.looked_at, done.collected) == (2, 1)
    assert world.events.reasons("bereft") == ["GarbageCollected"]


@pytest.mark.parametrize(("ready", "left"), [(True, ["bereft"]), (False, [])])
async def test_a_node_that_is_ready_speaks_for_its_instance(world: Tidied, ready: bool, left: list[str]) -> None:
    world.claim("bereft", "aws:///a/i-gone", **JOINED)
    world.nodes.join("node", "aws:///a/i-gone", ready=ready)
    await run_twice(world.objects.collect_claims)
    assert list(world.claims.found) == left


async def test_a_nodeclaim_that_its_own_workflow_may_be_at_is_only_suspected(world: Tidied) -> None:
    world.claim("bereft", "aws:///a/i-gone", **JOINED)
    done = await run(world.objects.collect_claims)
    assert (done.collected, done.suspects) == (0, ("uid-bereft",))
    world.claim("another", "aws:///a/i-gone-too", **JOINED)
    assert (await run(world.objects.collect_claims, done.suspects)).suspects == ("uid-another",)
    assert list(world.claims.found) == ["another"]


async def test_a_nodeclaim_with_a_provider_id_that_names_nothing_is_deleted(world: Tidied) -> None:
    world.claim("bogus", "nonsense", **JOINED)
    await run_twice(world.objects.collect_claims)
    assert world.claims.found == {}


async def test_an_instance_that_lost_its_tags_is_found_by_its_id(world: Tidied) -> None:
    world.claim("untagged", world.instance("i-there"), **JOINED)

    async def lists_nothing() -> list[object]:
        return []

    world.found.list_managed = lists_nothing  # type: ignore[assignment, method-assign]
    assert (await run_twice(world.objects.collect_claims)).collected == 0


async def test_a_nodeclaim_whose_instance_cannot_be_looked_at_stays_and_hurts_no_other(world: Tidied) -> None:
    world.claim("one", "aws:///a/i-1", **JOINED)
    world.claim("two", "aws:///a/i-2", **JOINED)
    world.found.faults["get"] = [TryLater("not while a zone is shifted away from")]
    first = await run(world.objects.collect_claims)
    assert (first.failed, len(first.suspects)) == (1, 1)
    assert (await run(world.objects.collect_claims, first.suspects)).collected == 1
    assert len(world.claims.found) == 1


async def test_a_node_that_stayed_behind_goes_with_its_finalizer(world: Tidied) -> None:
    held = {"finalizers": (TERMINATION_FINALIZER,)}
    world.nodes.join("stray", "aws:///a/i-gone", **held)
    world.nodes.join("runs", world.instance("i-there"), **held)
    world.nodes.join("somebody-elses", "aws:///a/i-other")
    world.claim("owner", "aws:///a/i-owned")
    world.nodes.join("owned", "aws:///a/i-owned", **held)
    done = await run(world.objects.collect_nodes)
    assert sorted(world.nodes.found) == ["owned", "runs", "somebody-elses"]
    assert done.collected == 1
