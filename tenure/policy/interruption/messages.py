"""What is said of AWS's events on a NodeClaim and its Node: once for every change. Pure.

The reasons are Karpenter's (karpenter-aws 5.3). What was said is kept by topic: a topic whose word is another now is
due. Of a kind that its policy ignores nothing is said.

What is kept of AWS's events for people who ask later: each with its policy and what was done. Pure.

The words change only where what follows changes, so that a node that waits costs nothing.

What a person may say of a node's events, and what comes of it. Pure: `workflows/approvals.py` takes it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from tenure.model.interruption.notices import EventKind
from tenure.model.interruption.records import Answer, Event, EventRecord, EventText
from tenure.model.nodeclaim_state import ENDING, ClaimState
from tenure.model.signals import Verdict
from tenure.policy.interruption.decision import Doing, approvable, decide_event, decide_interruption, kept_until, words
from tenure.policy.interruption.events import events_of
from tenure.policy.interruption.rules import rules_of

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


def due(state: ClaimState, now: datetime) -> dict[str, EventText]:
    """What is to be said now, by topic."""
    return {topic: said for topic, (word, said) in _all(state, now).items() if state.notices_told.get(topic) != word}


def told(state: ClaimState, now: datetime) -> dict[str, str]:
    """What has been said once all is said; of what is forgotten nothing."""
    known = {event.key for event in events_of(state.notices)}
    before = {topic: word for topic, word in state.notices_told.items() if topic.partition("|")[0] in known}
    return {**before, **{topic: word for topic, (word, _) in _all(state, now).items()}}


def _all(state: ClaimState, now: datetime) -> dict[str, tuple[str, EventText]]:
    found: dict[str, tuple[str, EventText]] = {}
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


def _status(state: ClaimState, event: Event, now: datetime) -> EventText:
    if event.status != "announced":
        over = "AWS withdrew it" if event.status == "withdrawn" else "it is over"
        return EventText(reason="InterruptionWithdrawn", message=f"{words(event)}: {over}", warning=False)
    moved = f", moved from {event.moved_from.isoformat(timespec='seconds')}" if event.moved_from else ""
    text = f" ({event.text[:200]})" if event.text else ""
    return EventText(
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


def _answer(event: Event) -> EventText:
    answer = event.answer
    assert answer is not None
    verb = "approved" if answer.approved else "rejected"
    why = f": {answer.reason}" if answer.reason else ""
    reason = "InterruptionApproved" if answer.approved else "InterruptionRejected"
    return EventText(reason=reason, message=f"{words(event)} is {verb} by {answer.by}{why}", warning=False)


def _acts(event: Event) -> EventText:
    return EventText(reason=TERMINATING, message=f"the node goes for {words(event)}")


_WAITING: Final[frozenset[Doing]] = frozenset({"wait", "ask", "stop"})
_GOES_ANYHOW: Final = "the node goes for another reason"
_TO_COME: Final = {
    "drain": "the node is to be drained",
    "terminate": "the node is to be terminated",
    "ask": "asks its NodePool's budgets",
}


def records_of(state: ClaimState, before: tuple[EventRecord, ...], now: datetime) -> tuple[EventRecord, ...]:
    """Oldest first. `before`: what was kept last, which says since when something is so."""
    known = {_key(one): one for one in before}
    found = [_record(state, event, now) for event in events_of(state.notices)]
    return tuple(_since(one, known.get(_key(one))) for one in found)


def _record(state: ClaimState, event: Event, now: datetime) -> EventRecord:
    ruled = rules_of(state.seen.rules, event.kind)
    done, waits = _done(state, event, now)
    answer = event.answer
    said = f"{'approved' if answer.approved else 'rejected'} by {answer.by}" if answer else ""
    moved = f"moved from {event.moved_from.isoformat(timespec='seconds')}" if event.moved_from else ""
    return EventRecord(
        kind=event.kind,
        code=event.code,
        heard=event.heard,
        starts=event.starts,
        status=event.status,
        policy=state.seen.event_policies.get(event.kind, ""),
        action=ruled.action,
        done="; ".join(part for part in (done, said, moved) if part),
        waits=waits,
        since=now,
    )


def _done(state: ClaimState, event: Event, now: datetime) -> tuple[str, bool]:
    """In words, and whether something is waited for."""
    going = state.phase in ENDING
    if event.key == state.interrupted and going:
        forced = decide_event(state, event, now).do == "terminate"
        return "the node is terminated" if forced else "the node is drained", False
    if event.done:
        return "the instance was stopped and started, the node kept", False
    if event.status != "announced":
        return "AWS withdrew it" if event.status == "withdrawn" else "it is over", False
    if going:
        return f"{_GOES_ANYHOW}: {state.disruption}", False
    verdict = decide_event(state, event, now)
    if verdict.do == "stop":
        step = state.stop.step if state.stop and state.stop.key == event.key else "drain"
        return f"the instance is stopped and started ({step})", True
    if verdict.do == "nothing":
        ignored = rules_of(state.seen.rules, event.kind).action == "ignore"
        return "ignored" if ignored else verdict.what or "told, and nothing more", False
    return verdict.what or _TO_COME.get(verdict.do, verdict.do), verdict.do in _WAITING


def _key(one: EventRecord) -> tuple[str, datetime | None, datetime]:
    return (one.kind, one.starts, one.heard)


def _since(one: EventRecord, before: EventRecord | None) -> EventRecord:
    """What was so before stays so; also of an event that asked for no more, when the node goes for another reason."""
    if before is None:
        return one
    settled = one.done.startswith(_GOES_ANYHOW) and not before.waits
    same = before.model_copy(update={"since": one.since}) == one
    return before if same or (settled and before.status == one.status) else one


LONGEST = 300


def problem_of(state: ClaimState, by: str, reason: str) -> str:
    """Why it is refused: what is wrong, and what to write; empty where it is taken."""
    if not by.strip():
        return f"by: {by!r} is no name; write who says so, such as ann@example.com"
    if len(reason) > LONGEST:
        return f"reason: {reason[:60]!r} of {len(reason)} characters; write at most {LONGEST}"
    if not approvable(state):
        name = state.identity.name
        events = f"`tenure events {name}` says what AWS announced"
        return f"NodeClaim {name} has no event that waits for approval, in phase {state.phase.value}; {events}"
    return ""


def answer_of(by: str, reason: str, now: datetime, *, approved: bool) -> Answer:
    return Answer(approved=approved, by=by.strip(), reason=" ".join(reason.split())[:LONGEST], at=now)


def verdict_of(state: ClaimState, answer: Answer, now: datetime) -> Verdict:
    """What follows, of a state in which the answer stands."""
    said = ", ".join(words(event) for event in approvable(state))
    name, follows = state.identity.name, decide_interruption(state, now)
    if answer.approved:
        return Verdict(message=f"NodeClaim {name} goes for {said}, approved by {answer.by}")
    if follows.do == "wait" and follows.until:
        until = follows.until.isoformat(timespec="seconds")
        return Verdict(message=f"NodeClaim {name} is kept until {until}, before AWS acts: {follows.what}")
    return Verdict(message=f"NodeClaim {name} is kept, whatever comes of {said}: rejected by {answer.by}")
