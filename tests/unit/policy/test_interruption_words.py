"""What is said of AWS's events: once for each change, with Karpenter's reasons."""

from typing import get_args

import pytest

from tenure.model.interruption.notices import EventKind
from tenure.model.interruption.records import EventText
from tenure.model.nodeclaim_state import ClaimState
from tenure.policy.interruption.messages import REASONS, due
from tenure.policy.interruption.messages import told as told_after
from tests.unit.policy import interrupting as ev
from tests.unit.policy.builders import NOW, after
from tests.unit.policy.interrupting import NO, notice, told

IN_TWO_DAYS = notice(starts=after(hours=48), text="Your instance will retire.")
DEFER = {"scheduledChange": {"action": "deferUntilEventStart"}}


def said_once(state: ClaimState) -> list[EventText]:
    """And not again."""
    said = due(state, NOW)
    assert due(state.model_copy(update={"notices_told": told_after(state, NOW)}), NOW) == {}
    return list(said.values())


def having_told(state: ClaimState) -> dict[str, str]:
    return told_after(state, NOW)


def test_the_reasons_are_karpenter_s() -> None:
    assert set(REASONS) == set(get_args(EventKind))
    assert set(REASONS.values()) == {
        "SpotInterrupted",
        "CapacityReservationInstanceInterrupted",
        "SpotRebalanceRecommendation",
        "InstanceUnhealthy",
        "InstanceStopping",
        "InstanceTerminating",
    }


@pytest.mark.parametrize("kind", get_args(EventKind))
def test_an_event_is_said_once(kind: EventKind) -> None:
    (said,) = said_once(told(notice(kind)))
    assert said.reason == REASONS[kind] and said.message.startswith(kind)
    assert said.warning is (kind != "rebalanceRecommendation")


def test_what_follows_is_said_with_it() -> None:
    (said,) = said_once(told(IN_TWO_DAYS, said=DEFER))
    assert "deferred until 2026-06-03T11:50:00+00:00 (Your instance will retire.)" in said.message


def test_of_what_is_ignored_nothing_is_said() -> None:
    assert said_once(told(IN_TWO_DAYS, said={"scheduledChange": {"action": "ignore"}})) == []


def test_what_aws_moves_and_withdraws_is_said_each_time() -> None:
    known = having_told(told(IN_TWO_DAYS))
    moved = ev.heard(notice(starts=after(hours=72)))
    state = told(notices_told=known, notices=(moved[0].model_copy(update={"moved_from": IN_TWO_DAYS.starts}),))
    (said,) = said_once(state)
    assert "moved from 2026-06-03T12:00:00+00:00" in said.message
    gone = told(notice(starts=after(hours=72), status="withdrawn"), notices_told=having_told(state))
    (said,) = said_once(gone)
    assert said.reason == "InterruptionWithdrawn" and "AWS withdrew it" in said.message


def test_of_a_withdrawal_nobody_is_told_who_was_not_told_before() -> None:
    assert said_once(told(notice(status="withdrawn"))) == []


def test_what_a_person_says_is_said() -> None:
    approval = {"scheduledChange": {"action": "waitForApproval"}}
    known = having_told(told(IN_TWO_DAYS, said=approval))
    (said,) = said_once(told(IN_TWO_DAYS, said=approval, answer=NO, notices_told=known))
    assert said.reason == "InterruptionRejected" and "rejected by bob: quarter's end" in said.message


def test_that_the_node_goes_is_said() -> None:
    reasons = [said.reason for said in said_once(ev.drained_for(notice("spotInterruption")))]
    assert reasons == ["SpotInterrupted", "TerminatingOnInterruption"]
