"""When a NodePool reads its budget again while wishes wait for it."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.model.workflow_states import Permit
from tenure.policy.disruption.budgets import AllowedDisruptions
from tenure.policy.disruption.permits import FIXED_CHECK_INTERVAL, next_check_at

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
USED_UP = {"Empty": AllowedDisruptions(allowed=0)}


def at(**later: float) -> datetime:
    return NOW + timedelta(**later)


def permit(until: datetime) -> Permit:
    return Permit(claim_name="a", claim_uid="uid-a", reason="Empty", until=until)


@pytest.mark.parametrize(("checks", "seconds"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 240), (5000, 240)])
def test_looks_come_ever_more_slowly_while_nothing_changes(checks: int, seconds: int) -> None:
    assert next_check_at(checks, USED_UP, (), NOW) == at(seconds=seconds)


def test_a_permit_that_may_lapse_is_not_overslept() -> None:
    out = (permit(at(seconds=-5)), permit(at(seconds=70)), permit(at(seconds=100)))
    assert next_check_at(4, USED_UP, out, NOW) == at(seconds=70)


def test_a_commands_permit_counts_until_its_nodes_cannot_begin_to_go() -> None:
    out = (permit(at(seconds=70)).model_copy(update={"begins_within": timedelta(seconds=40)}),)
    assert next_check_at(4, USED_UP, out, NOW) == at(seconds=110)


def test_a_place_that_another_pool_booked_is_not_overslept() -> None:
    assert next_check_at(4, USED_UP, (permit(at(seconds=70)),), NOW, reserved_until=at(seconds=20)) == at(seconds=20)
    assert next_check_at(4, USED_UP, (permit(at(seconds=70)),), NOW, reserved_until=at(seconds=90)) == at(seconds=70)


def test_what_time_frees_is_not_overslept() -> None:
    assert next_check_at(4, {"Empty": AllowedDisruptions(allowed=0, opens=at(seconds=90))}, (), NOW) == at(seconds=90)


def test_where_time_alone_lets_nodes_go_nothing_happens_before() -> None:
    allowed_disruptions = {"Empty": AllowedDisruptions(allowed=0, fixed=True, opens=at(minutes=40))}
    assert next_check_at(1, allowed_disruptions, (permit(at(seconds=70)),), NOW) == at(minutes=40)
    assert next_check_at(1, {"Empty": AllowedDisruptions(allowed=0, fixed=True)}, (), NOW) == NOW + FIXED_CHECK_INTERVAL


def test_one_reason_that_nodes_may_free_is_looked_at_like_any() -> None:
    allowed_disruptions = {
        "Empty": AllowedDisruptions(allowed=0, fixed=True, opens=at(minutes=40)),
        **{"Drifted": AllowedDisruptions(allowed=0)},
    }
    assert next_check_at(1, allowed_disruptions, (), NOW) == at(seconds=30)


def test_while_it_is_paused_only_the_end_of_the_pause_counts() -> None:
    allowed_disruptions = {"Empty": AllowedDisruptions(allowed=3, opens=at(minutes=1))}
    assert next_check_at(1, allowed_disruptions, (), NOW, blocked_by="paused", until=at(minutes=50)) == at(minutes=50)
    assert (
        next_check_at(1, allowed_disruptions, (), NOW, blocked_by="paused", until=at(days=3))
        == NOW + FIXED_CHECK_INTERVAL
    )
    assert next_check_at(1, allowed_disruptions, (), NOW, blocked_by="paused") == NOW + FIXED_CHECK_INTERVAL


def test_a_clock_that_is_late_does_not_cost_an_hour() -> None:
    """The timer for the opening went off, and who read the budget found it still closed."""
    allowed_disruptions = {"Empty": AllowedDisruptions(allowed=0, fixed=True, opens=at(seconds=-1))}
    assert next_check_at(1, allowed_disruptions, (), NOW) == at(seconds=5)
