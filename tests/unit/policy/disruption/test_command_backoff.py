"""What came to nothing is left alone, longer each time, and forgotten when it succeeds."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.model.disruption.commands import CommandBackoff, CommandFinished, Ending, Proposal
from tenure.model.disruption.decision import CommandCandidate
from tenure.policy.disruption.commands import (
    CommandBackoffs,
    active_backoffs,
    has_failed_replacements,
    prune_backoffs,
    record_command_result,
)
from tests.unit.policy.builders import NOW, after, before

DAY = timedelta(hours=24)


def proposal(*names: str, pools: tuple[str, ...] = ()) -> Proposal:
    candidates = tuple(CommandCandidate(node=one, claim=one, claim_uid=one, pool="default") for one in names)
    return Proposal(
        id="p", reason="Drifted", kind="drift", candidates=candidates, replacements=len(pools), replacement_pools=pools
    )


def command_result(ending: Ending, *nodes: str) -> CommandFinished:
    return CommandFinished(proposal_id="p", ending=ending, nodes=nodes, why=ending)


def pauses(ending: Ending, times: int, failing: Proposal) -> list[timedelta]:
    """When the same comes to nothing again and again, each time as soon as it may be tried."""
    backoffs: CommandBackoffs = ()
    now, found = NOW, []
    for _ in range(times):
        backoffs = record_command_result(backoffs, failing, command_result(ending), now)
        (one,) = active_backoffs(backoffs, now)
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
    memory = record_command_result((), proposal("a", "b", "c"), command_result("held", "b"), NOW)
    assert [one.claims for one in memory] == [("b",)]


def test_replacements_that_do_not_come_up_are_their_pools_trouble_and_no_nodes() -> None:
    memory = record_command_result((), proposal("a", pools=("spot",)), command_result("not replaced"), NOW)
    assert [(one.pool, one.claims) for one in memory] == [("spot", ())]
    assert has_failed_replacements(memory, "spot") and not has_failed_replacements(memory, "default")


def test_a_success_is_forgotten_with_its_pools_trouble() -> None:
    memory = record_command_result((), proposal("a", pools=("spot",)), command_result("not replaced"), NOW)
    memory = record_command_result(memory, proposal("a", "b"), command_result("held"), NOW)
    memory = record_command_result(memory, proposal("a", pools=("spot",)), command_result("done"), NOW)
    assert [one.claims for one in memory] == [("b",)]


def test_a_removal_without_a_replacement_says_nothing_of_its_pools_trouble() -> None:
    memory = record_command_result((), proposal("a", pools=("default",)), command_result("not replaced"), NOW)
    assert has_failed_replacements(record_command_result(memory, proposal("b"), command_result("done"), NOW), "default")


def test_a_node_in_another_company_keeps_its_count() -> None:
    memory = record_command_result((), proposal("a", "b"), command_result("held"), NOW)
    memory = record_command_result(memory, proposal("b", "c"), command_result("held"), NOW)
    assert [(one.claims, one.times) for one in memory] == [(("a",), 1), (("b", "c"), 2)]


@pytest.mark.parametrize(
    "until, is_active, is_retained",
    [
        (after(minutes=1), True, True),
        (NOW, False, True),
        (before(hours=23), False, True),
        (before(hours=24), False, False),
    ],
)
def test_a_pause_that_is_over_is_still_remembered_for_a_day(until: Any, is_active: bool, is_retained: bool) -> None:
    memory = (CommandBackoff(claims=("a",), until=until),)
    assert bool(active_backoffs(memory, NOW)) is is_active
    assert bool(prune_backoffs(memory, NOW)) is is_retained
