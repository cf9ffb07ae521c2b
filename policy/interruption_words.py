"""What is said of AWS's events on a NodeClaim and its Node: once for every change. Pure.

The reasons are Karpenter's (karpenter-aws 5.3). What was said is kept by topic: a topic whose word is another now is
due. Of a kind that its policy ignores nothing is said.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from model.interruptions import EventKind
from model.lifecycle import ClaimState
from model.remembered import Event, Said
from policy.interruption import decide_event, kept_until, words
from policy.interruption_rules import rules_of
from policy.notices import events_of

REASONS: Final[Mapping[EventKind, str]] = {
    "spotInterruption": "SpotInterrupted",
    "capacityReservationInterruption": "CapacityReservationInstanceInterrupted",
    "rebalanceRecommendation": "SpotRebalanceRecommendation",
    "scheduledChange": "InstanceUnhealthy",
    "instanceStopping": "InstanceStopping",
    "instanceTerminating": "InstanceTerminating",
    "instanceStatus": "InstanceUnhealthy",
    "systemStatus": "InstanceUnhealthy",
}
_FOLLOWS: Final = {
    "drain": "the node is drained",
    "terminate": "the node is terminated, whatever runs there",
    "stop": "the node is drained, stopped and started again",
    "ask": "the node goes when its NodePool's budgets permit it",
    "nothing": "nothing follows",
}
TERMINATING: Final = "TerminatingOnInterruption"


def due(state: ClaimState, now: datetime) -> dict[str, Said]:
    """What is to be said now, by topic."""
    return {topic: said for topic, (word, said) in _all(state, now).items() if state.notices_told.get(topic) != word}


def told(state: ClaimState, now: datetime) -> dict[str, str]:
    """What has been said once all is said; of what is forgotten nothing."""
    known = {event.key for event in events_of(state.notices)}
    before = {topic: word for topic, word in state.notices_told.items() if topic.partition("|")[0] in known}
    return {**before, **{topic: word for topic, (word, _) in _all(state, now).items()}}


def _all(state: ClaimState, now: datetime) -> dict[str, tuple[str, Said]]:
    found: dict[str, tuple[str, Said]] = {}
    for event in events_of(state.notices):
        ruled = rules_of(state.seen.rules, event.kind)
        if ruled.action == "ignore" and ruled.away is None:
            continue
        topic = f"{event.key}|status"
        if event.status == "announced" or state.notices_told.get(topic) == "announced":
            found[topic] = (event.status, _status(state, event, now))
        if event.answer is not None:
            found[f"{event.key}|answer"] = (event.answer.at.isoformat(), _answer(event))
        if event.key == state.interrupted:
            found[f"{event.key}|acts"] = (state.interrupted, _acts(event))
    return found


def _status(state: ClaimState, event: Event, now: datetime) -> Said:
    if event.status != "announced":
        over = "AWS withdrew it" if event.status == "withdrawn" else "it is over"
        return Said(reason="InterruptionWithdrawn", message=f"{words(event)}: {over}", warning=False)
    moved = f", moved from {event.moved_from.isoformat(timespec='seconds')}" if event.moved_from else ""
    text = f" ({event.text[:200]})" if event.text else ""
    return Said(
        reason=REASONS[event.kind],
        message=f"{words(event)}{moved}: {_follows(state, event, now)}{text}",
        warning=event.kind != "rebalanceRecommendation",
    )


def _follows(state: ClaimState, event: Event, now: datetime) -> str:
    verdict = decide_event(state, event, now)
    if verdict.do != "wait":
        return _FOLLOWS[verdict.do]
    until = kept_until(state, event)
    return f"the node is kept until {until.isoformat(timespec='seconds')}" if until else verdict.what


def _answer(event: Event) -> Said:
    answer = event.answer
    assert answer is not None
    verb = "approved" if answer.approved else "rejected"
    why = f": {answer.reason}" if answer.reason else ""
    reason = "InterruptionApproved" if answer.approved else "InterruptionRejected"
    return Said(reason=reason, message=f"{words(event)} is {verb} by {answer.by}{why}", warning=False)


def _acts(event: Event) -> Said:
    return Said(reason=TERMINATING, message=f"the node goes for {words(event)}")
