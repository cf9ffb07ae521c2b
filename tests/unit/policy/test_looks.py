"""When a NodePool reads its budget again while wishes wait for it."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.model.workflow_states import Permit
from tenure.policy.disruption.budgets import Allowance
from tenure.policy.disruption.permits import LOOK_FIXED, next_look

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
USED_UP = {"Empty": Allowance(allowed=0)}


def at(**later: float) -> datetime:
    return NOW + timedelta(**later)


def permit(until: datetime) -> Permit:
    return Permit(claim_name="a", claim_uid="uid-a", reason="Empty", until=until)


@pytest.mark.parametrize(("looks", "seconds"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 240), (5000, 240)])
def test_looks_come_ever_more_slowly_while_nothing_changes(looks: int, seconds: int) -> None:
    assert next_look(looks, USED_UP, (), NOW) == at(seconds=seconds)


def test_a_permit_that_may_lapse_is_not_overslept() -> None:
    out = (permit(at(seconds=-5)), permit(at(seconds=70)), permit(at(seconds=100)))
    assert next_look(4, USED_UP, out, NOW) == at(seconds=70)


def test_a_commands_permit_counts_until_its_nodes_cannot_begin_to_go() -> None:
    out = (permit(at(seconds=70)).model_copy(update={"begins_within": timedelta(seconds=40)}),)
    assert next_look(4, USED_UP, out, NOW) == at(seconds=110)


def test_a_place_that_another_pool_booked_is_not_overslept() -> None:
    assert next_look(4, USED_UP, (permit(at(seconds=70)),), NOW, booked_until=at(seconds=20)) == at(seconds=20)
    assert next_look(4, USED_UP, (permit(at(seconds=70)),), NOW, booked_until=at(seconds=90)) == at(seconds=70)


def test_what_time_frees_is_not_overslept() -> None:
    assert next_look(4, {"Empty": Allowance(allowed=0, opens=at(seconds=90))}, (), NOW) == at(seconds=90)


def test_where_time_alone_lets_nodes_go_nothing_happens_before() -> None:
    allowances = {"Empty": Allowance(allowed=0, fixed=True, opens=at(minutes=40))}
    assert next_look(1, allowances, (permit(at(seconds=70)),), NOW) == at(minutes=40)
    assert next_look(1, {"Empty": Allowance(allowed=0, fixed=True)}, (), NOW) == NOW + LOOK_FIXED


def test_one_reason_that_nodes_may_free_is_looked_at_like_any() -> None:
    allowances = {"Empty": Allowance(allowed=0, fixed=True, opens=at(minutes=40)), **{"Drifted": Allowance(allowed=0)}}
    assert next_look(1, allowances, (), NOW) == at(seconds=30)


def test_while_it_is_paused_only_the_end_of_the_pause_counts() -> None:
    allowances = {"Empty": Allowance(allowed=3, opens=at(minutes=1))}
    assert next_look(1, allowances, (), NOW, held="paused", until=at(minutes=50)) == at(minutes=50)
    assert next_look(1, allowances, (), NOW, held="paused", until=at(days=3)) == NOW + LOOK_FIXED
    assert next_look(1, allowances, (), NOW, held="paused") == NOW + LOOK_FIXED


def test_a_clock_that_is_late_does_not_cost_an_hour() -> None:
    """The timer for the opening went off, and who read the budget found it still closed."""
    allowances = {"Empty": Allowance(allowed=0, fixed=True, opens=at(seconds=-1))}
    assert next_look(1, allowances, (), NOW) == at(seconds=5)
