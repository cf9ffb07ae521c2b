"""What follows what AWS says of a node's instance, and when. Pure: `workflows/phases/interruption.py` performs it.

Karpenter's action table where no LifecyclePolicy says otherwise. What waits is due before AWS acts, whatever is
waited for: AWS's own deadline is passed only where a policy leaves the node to AWS.
"""

from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.labels import SPOT
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.base import Value
from tenure.model.disruption.drain import PodsHeld
from tenure.model.interruption.notices import EventKind
from tenure.model.interruption.records import Event, StopStart
from tenure.model.node_health import lasting
from tenure.model.nodeclaim_state import ClaimState
from tenure.policy.drain.decision import surges
from tenure.policy.hooks.rules import hooks_of
from tenure.policy.interruption.events import events_of
from tenure.policy.interruption.rules import AWAY, LATER, TAKES, Times, rules_of, times_of, workloads_of
from tenure.policy.interruption.timing import Timely, last_moment, moment, timely_for

Doing = Literal["nothing", "wait", "ask", "drain", "terminate", "stop"]
ACTING: Final[tuple[Doing, ...]] = ("drain", "terminate", "stop")
_RANK: Final[dict[Doing, int]] = {"terminate": 5, "drain": 4, "ask": 3, "stop": 2, "wait": 1, "nothing": 0}
AROUND: Final = timedelta(minutes=10)
"""AWS may act so much before it said; a node that goes away then is taken to be away for that."""


class Interrupted(Value):
    """What follows. `ask`: as soon as its NodePool permits it."""

    do: Doing = "nothing"
    until: datetime | None = None
    """When time alone changes that."""
    key: str = ""
    """Of the event."""
    kind: EventKind | None = None
    reason: str = ""
    """Why the node goes: Karpenter's word for the kind."""
    why: str = ""
    """The event, and what it waits for, in words."""
    what: str = ""
    """What it waits for."""


def decide_interruption(state: ClaimState, now: datetime) -> Interrupted:
    """Of several events the one that asks for most, before others one that leaves no time; of those that wait, the one
    that waits least."""
    found = [decide_event(state, event, now) for event in live(state)]
    if not found:
        return Interrupted()
    most = max(map(_urgency, found))
    first = [one for one in found if _urgency(one) == most]
    return min(first, key=lambda one: (one.until is None, one.until))


def _urgency(one: Interrupted) -> tuple[int, bool]:
    return _RANK[one.do], one.do in ACTING and one.kind not in LATER


def live(state: ClaimState) -> tuple[Event, ...]:
    """What AWS has said of this node and not taken back, and nobody has done. A stop for it is seen to its end: the
    status of a stopped instance is not listed, which reads as if its event were over."""
    if not state.notices:
        return ()
    found = [event for event in events_of(state.notices) if not event.done]
    return tuple(event for event in found if event.status == "announced" or _stop_for(state, event))


def _stop_for(state: ClaimState, event: Event) -> StopStart | None:
    """The stop and start of the instance for this event, from when it is asked for until it is back."""
    stop = state.stop
    return stop if stop and stop.key == event.key and stop.step in ("stop", "start", "back", "failed") else None


def acts(state: ClaimState, now: datetime) -> bool:
    return decide_interruption(state, now).do in ACTING


def leaves_at_once(rules: LifecycleRules | None, kind: EventKind) -> bool:
    """Whether pods of a node that AWS takes back are told to go before the node's workflow is asked: its first look at
    them would do nothing else. Not where a hook comes before, or a new pod."""
    ruled = rules_of(rules, kind)
    if kind not in TAKES or ruled.action != "drain" or ruled.voluntary:
        return False
    return not hooks_of(rules, "beforeDrain") and not surges(rules.drain if rules else None)


def approvable(state: ClaimState) -> tuple[Event, ...]:
    """Events that a person may let go, or keep: of the node as a whole, or of a class of its pods."""
    return tuple(event for event in live(state) if _is_approvable(state, event))


def _is_approvable(state: ClaimState, event: Event) -> bool:
    rules, action = state.seen.rules, rules_of(state.seen.rules, event.kind).action
    if action == "waitForApproval" or event.kind not in LATER or action in ("notify", "ignore", "terminate"):
        return action == "waitForApproval"
    return any(one.action == "waitForApproval" for one in workloads_of(rules))


def decide_event(state: ClaimState, event: Event, now: datetime) -> Interrupted:
    """What one event asks for."""
    if stop := _stop_for(state, event):
        return _verdict(event, "drain" if stop.step == "failed" else "stop")
    ruled = rules_of(state.seen.rules, event.kind)
    if ruled.action == "ignore":
        return _ignored(state, event, now)
    if ruled.action != "notify" and (held := _unread(state, event, ruled.times, now)):
        return _verdict(event, "wait" if held.do == "wait" else "drain", held.until, held.why)
    timely = timely_for(ruled.action, ruled.times, event, state.identity.name, now)
    if timely.do != "go":
        do: Doing = "wait" if timely.do == "wait" else "nothing"
        return _verdict(event, do, timely.until, timely.why)
    if ruled.action == "stopStart":
        return _verdict(event, "stop" if _may_cycle(state, event, now) else "drain")
    if ruled.action == "terminate":
        return _verdict(event, "terminate")
    if ruled.voluntary and state.initialized and state.identity.pool:
        last = event.starts if ruled.action == "deferUntilEventStart" else last_moment(event, ruled.times)
        if last is None or now < last:
            return _verdict(event, "ask", last)
    return _verdict(event, "drain")


def _unread(state: ClaimState, event: Event, times: Times, now: datetime) -> Timely | None:
    """What a policy says of an event that leaves time and nobody can read may be to wait, so that it does until then:
    until AWS acts. None where all can be read."""
    why = state.seen.events_unread
    if not why or event.kind not in LATER:
        return None
    last = last_moment(event, times)
    if last is not None and now >= last:
        return Timely(do="go")
    return Timely(do="wait", until=last, why=f"{why}; it is drained at {moment(last)} all the same" if last else why)


def _may_cycle(state: ClaimState, event: Event, now: datetime) -> bool:
    """Whether its instance may be stopped and started: one that begins is emptied before AWS acts. A spot instance does
    not come back."""
    spot = state.launched is not None and state.launched.capacity_type == SPOT
    return not spot and (event.starts is None or now < event.starts)


def _verdict(event: Event, do: Doing, until: datetime | None = None, why: str = "") -> Interrupted:
    said = f"{words(event)}: {why}" if why else words(event)
    return Interrupted(do=do, until=until, key=event.key, kind=event.kind, reason=event.reason, why=said, what=why)


# --- instances that come back ----------------------------------------------------------------------------


def kept_until(state: ClaimState, event: Event) -> datetime | None:
    """Until when a node whose instance was stopped is waited for; None for one that is here, or not waited for. A spot
    instance does not come back of itself."""
    away = rules_of(state.seen.rules, event.kind).away
    since = _stopped_since(state, event) if away else None
    spot = state.launched is not None and state.launched.capacity_type == SPOT
    return since + away if since and away and not spot else None


def expected_back(state: ClaimState) -> datetime | None:
    """The same of all its events."""
    return max((until for event in live(state) if (until := kept_until(state, event))), default=None)


def _stopped_since(state: ClaimState, event: Event) -> datetime | None:
    if event.kind == "instanceStopping":
        return event.heard
    since = lasting(state.absences)
    return since if since and event.starts and since >= event.starts - AROUND else None


def _ignored(state: ClaimState, event: Event, now: datetime) -> Interrupted:
    """Left to AWS: a node that was stopped is kept, and drained only where it does not come back in its time."""
    until = kept_until(state, event)
    if until is None:
        return _verdict(event, "nothing")
    if now < until:
        return _verdict(event, "wait", until, f"its instance is away, the node is kept until {moment(until)}")
    return _verdict(event, "drain")


# --- drains for events -----------------------------------------------------------------------------------


def drained_for(state: ClaimState) -> Event | None:
    """The event that the node is drained for, while AWS has not taken it back."""
    return next((one for one in live(state) if one.key == state.interrupted), None)


def overtaking(state: ClaimState, now: datetime) -> Interrupted | None:
    """What makes a node that is being drained already go more urgently than that does; None for nothing. Of one whose
    NodeClaim is being deleted, and whose pods none of this would move sooner, nothing does."""
    verdict, known = decide_interruption(state, now), drained_for(state)
    event = next((one for one in live(state) if one.key == verdict.key), None)
    if event is None or verdict.do not in ("drain", "terminate"):
        return None
    if known and _urgency(verdict) <= _urgency(decide_event(state, known, now)):
        return None
    kept = state.drain is not None and state.drain.keep
    holds = known is not None and any(one.held for one in held_pods(state, known, now))
    forces = verdict.do == "terminate" or (overrides_for(state, event) and not overrides(state))
    return verdict if kept or holds or forces else None


def held_pods(state: ClaimState, event: Event, now: datetime) -> tuple[PodsHeld, ...]:
    """Classes of pods that wait while the others leave, in the policy's order."""
    if event.kind not in LATER or rules_of(state.seen.rules, event.kind).action == "terminate":
        return ()
    found = []
    for number, one in enumerate(workloads_of(state.seen.rules)):
        times = times_of(one)
        timely = _unread(state, event, times, now) or timely_for(one.action, times, event, state.identity.name, now)
        why = f"{words(event)}: interruption.workloads[{number}] {timely.why or 'is left to AWS'}"
        held = timely.do != "go"
        found.append(PodsHeld(match_labels=one.match_labels, held=held, until=timely.until, why=why if held else ""))
    return tuple(found) if any(one.held for one in found) else ()


def overrides(state: ClaimState) -> bool:
    """Whether the drain that is under way takes do-not-disrupt pods like others."""
    event = drained_for(state)
    return event is not None and overrides_for(state, event)


def overrides_for(state: ClaimState, event: Event) -> bool:
    return rules_of(state.seen.rules, event.kind).do_not_disrupt == "override"


def cycle_deadline(state: ClaimState, key: str) -> timedelta:
    """How long an instance that Tenure stops may be away until its machine is back."""
    found = (rules_of(state.seen.rules, event.kind).away for event in live(state) if event.key == key)
    return next(found, None) or AWAY


# --- words -----------------------------------------------------------------------------------------------


def words(event: Event) -> str:
    """What AWS says, in a line."""
    code = f" {event.code}" if event.code else ""
    return f"{event.kind}{code}" + (f" at {moment(event.starts)}" if event.starts else "")
