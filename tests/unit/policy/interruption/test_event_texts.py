"""Texts of Kubernetes events about AWS events: once per change, with Karpenter's reasons."""

from typing import get_args

import pytest

from tenure.kube.client.event_reasons import EVENT_REASONS
from tenure.model.interruption.messages import EventKind
from tenure.model.interruption.records import EventText
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.interruption.event_texts import REASONS, due_event_texts
from tenure.policy.interruption.event_texts import published_versions as versions_after
from tests.unit.policy import interruption_builders as ev
from tests.unit.policy.builders import NOW, after
from tests.unit.policy.interruption_builders import NO, interruption_message, node_with_events

IN_TWO_DAYS = interruption_message(starts=after(hours=48), text="Your instance will retire.")
DEFER = {"scheduledChange": {"action": "deferUntilEventStart"}}


def texts_published_once(state: NodeClaimState) -> list[EventText]:
    """The due texts of `state`, checked to be due only once."""
    texts = due_event_texts(state, NOW)
    assert due_event_texts(state.model_copy(update={"published_event_versions": versions_after(state, NOW)}), NOW) == {}
    return list(texts.values())


def versions_published_for(state: NodeClaimState) -> dict[str, str]:
    return versions_after(state, NOW)


def test_event_reasons_are_those_of_karpenter() -> None:
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
def test_event_is_published_once(kind: EventKind) -> None:
    (text,) = texts_published_once(node_with_events(interruption_message(kind)))
    assert text.reason == REASONS[kind] and f": {kind}" in text.message
    assert EVENT_REASONS[text.reason].warning is (kind != "rebalanceRecommendation")


def test_event_text_contains_the_decision() -> None:
    (text,) = texts_published_once(node_with_events(IN_TWO_DAYS, event_rules=DEFER))
    assert "deferred until 2026-06-03T11:50:00+00:00 (Your instance will retire.)" in text.message


def test_ignored_event_is_not_published() -> None:
    assert (
        texts_published_once(node_with_events(IN_TWO_DAYS, event_rules={"scheduledChange": {"action": "ignore"}})) == []
    )


def test_rescheduled_and_withdrawn_events_are_published() -> None:
    known = versions_published_for(node_with_events(IN_TWO_DAYS))
    moved = ev.tracked_interruptions(interruption_message(starts=after(hours=72)))
    state = node_with_events(
        published_event_versions=known, interruptions=(moved[0].model_copy(update={"moved_from": IN_TWO_DAYS.starts}),)
    )
    (text,) = texts_published_once(state)
    assert "moved from 2026-06-03T12:00:00+00:00" in text.message
    withdrawn = node_with_events(
        interruption_message(starts=after(hours=72), status="withdrawn"),
        published_event_versions=versions_published_for(state),
    )
    (text,) = texts_published_once(withdrawn)
    assert text.reason == "InterruptionWithdrawn" and "AWS cancelled it" in text.message


def test_withdrawal_of_an_unpublished_event_is_not_published() -> None:
    assert texts_published_once(node_with_events(interruption_message(status="withdrawn"))) == []


def test_rejection_is_published() -> None:
    approval = {"scheduledChange": {"action": "waitForApproval"}}
    known = versions_published_for(node_with_events(IN_TWO_DAYS, event_rules=approval))
    (text,) = texts_published_once(
        node_with_events(IN_TWO_DAYS, event_rules=approval, decision=NO, published_event_versions=known)
    )
    assert text.reason == "InterruptionRejected" and "rejected by bob: quarter's end" in text.message


def test_termination_on_interruption_is_published() -> None:
    reasons = [text.reason for text in texts_published_once(ev.drained_for(interruption_message("spotInterruption")))]
    assert reasons == ["SpotInterrupted", "TerminatingOnInterruption"]
