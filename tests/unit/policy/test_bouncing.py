"""What came to nothing is left alone, longer each time, and forgotten when it succeeds."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.model.disruption.commands import Bounced, CommandOver, Ending, Proposal
from tenure.model.disruption.planning import Leaving
from tenure.policy.disruption.commands import Memory, active, in_trouble, kept, remembered
from tests.unit.policy.builders import NOW, after, before

DAY = timedelta(hours=24)


def proposal(*names: str, pools: tuple[str, ...] = ()) -> Proposal:
    leaving = tuple(Leaving(node=one, claim=one, claim_uid=one, pool="default") for one in names)
    return Proposal(
        id="p", reason="Drifted", kind="drift", candidates=leaving, replacements=len(pools), replacement_pools=pools
    )


def over(ending: Ending, *nodes: str) -> CommandOver:
    return CommandOver(proposal_id="p", ending=ending, nodes=nodes, why=ending)


def pauses(ending: Ending, times: int, wanted: Proposal) -> list[timedelta]:
    """When the same comes to nothing again and again, each time as soon as it may be tried."""
    memory: Memory = ()
    now, found = NOW, []
    for _ in range(times):
        memory = remembered(memory, wanted, over(ending), now)
        (one,) = active(memory, now)
        found.append(one.until - now)
        now = one.until
    return found


def minutes(*numbers: float) -> list[timedelta]:
    return [timedelta(minutes=one) for one in numbers]


def test_pauses_of_nodes_that_had_to_stay_grow_from_minutes_to_a_day() -> None:
    found = pauses("held", 12, proposal("a"))
    assert found[:4] == minutes(5, 10, 20, 40)
    assert found[-1] == DAY


def test_pauses_of_nodes_for_which_the_world_had_moved_grow_from_seconds_to_an_hour() -> None:
    found = pauses("stale", 12, proposal("a"))
    assert found[:4] == minutes(1 / 3, 2 / 3, 4 / 3, 8 / 3)
    assert found[-1] == timedelta(hours=1)


def test_pauses_of_a_pool_grow_from_a_minute_to_an_hour() -> None:
    found = pauses("not replaced", 9, proposal("a", pools=("spot",)))
    assert found[:4] == minutes(1, 2, 4, 8)
    assert found[-1] == timedelta(hours=1)


@pytest.mark.parametrize("ending", ["not permitted", "recalled", "failed"])
def test_what_says_nothing_of_the_nodes_makes_no_pause_longer(ending: Ending) -> None:
    assert pauses(ending, 3, proposal("a")) == minutes(5, 5, 5)


def test_only_the_nodes_that_were_the_reason_are_left_alone() -> None:
    memory = remembered((), proposal("a", "b", "c"), over("held", "b"), NOW)
    assert [one.claims for one in memory] == [("b",)]


def test_replacements_that_do_not_come_up_are_their_pools_trouble_and_no_nodes() -> None:
    memory = remembered((), proposal("a", pools=("spot",)), over("not replaced"), NOW)
    assert [(one.pool, one.claims) for one in memory] == [("spot", ())]
    assert in_trouble(memory, "spot") and not in_trouble(memory, "default")


def test_a_success_is_forgotten_with_its_pools_trouble() -> None:
    memory = remembered((), proposal("a", pools=("spot",)), over("not replaced"), NOW)
    memory = remembered(memory, proposal("a", "b"), over("held"), NOW)
    memory = remembered(memory, proposal("a", pools=("spot",)), over("done"), NOW)
    assert [one.claims for one in memory] == [("b",)]


def test_a_removal_without_a_replacement_says_nothing_of_its_pools_trouble() -> None:
    memory = remembered((), proposal("a", pools=("default",)), over("not replaced"), NOW)
    assert in_trouble(remembered(memory, proposal("b"), over("done"), NOW), "default")


def test_a_node_in_another_company_keeps_its_count() -> None:
    memory = remembered((), proposal("a", "b"), over("held"), NOW)
    memory = remembered(memory, proposal("b", "c"), over("held"), NOW)
    assert [(one.claims, one.times) for one in memory] == [(("a",), 1), (("b", "c"), 2)]


@pytest.mark.parametrize(
    "until, is_active, is_kept",
    [
        (after(minutes=1), True, True),
        (NOW, False, True),
        (before(hours=23), False, True),
        (before(hours=24), False, False),
    ],
)
def test_a_pause_that_is_over_is_still_remembered_for_a_day(until: Any, is_active: bool, is_kept: bool) -> None:
    memory = (Bounced(claims=("a",), until=until),)
    assert bool(active(memory, NOW)) is is_active
    assert bool(kept(memory, NOW)) is is_kept
