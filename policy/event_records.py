"""What is kept of AWS's events for people who ask later: each with its policy and what was done. Pure.

The words change only where what follows changes, so that a node that waits costs nothing.
"""

from datetime import datetime
from typing import Final

from model.event_records import EventRecord
from model.lifecycle import ENDING, ClaimState
from model.remembered import Event
from policy.interruption import Doing, decide_event
from policy.interruption_rules import rules_of
from policy.notices import events_of

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
