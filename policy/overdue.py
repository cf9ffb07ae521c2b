"""A phase that takes long: slow, or past its deadline; and who is waited for then. Pure.

Slow is measured by what such nodes have taken so far, and is only shown. Overdue is a deadline that passed: what
follows is the policy's, and where that is the alarm the node waits for a person, and says so.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from model.lifecycle import ClaimState, Phase
from model.pace import PhaseTimes
from policy.hook_words import has_failed, is_at_one
from policy.rules import action_of

SLOW: Final = "slow"
WAITS_FOR_A_PERSON: Final = "waits for a person"
WAITS_FOR_ITS_END: Final = "waits for its end"
ADVICE: Final[Mapping[Phase, str]] = {
    Phase.LAUNCH: "see why EC2 gives no instance, or delete the NodeClaim",
    Phase.REGISTRATION: "see why the instance's Node does not join, or delete the NodeClaim",
    Phase.INITIALIZATION: "mend what holds up the Node, or delete the NodeClaim",
    Phase.DRAIN: "let its pods go, or delete them",
    Phase.TERMINATION: "see why the instance does not end",
}
"""What a person can do about a phase that is overdue."""
MEND_HOOK: Final = "mend the hook, or take it out of its LifecyclePolicy"
LONGEST: Final = 250
"""Characters; a Keyword in SQL visibility holds 255."""


def is_alarmed(state: ClaimState) -> bool:
    """It is overdue, and nothing follows of itself."""
    return state.overdue and action_of(state.seen.rules, state.phase) == "alarm"


def blocked_by(state: ClaimState) -> str:
    """Who or what is waited for, as everybody is shown it; empty while the node goes its way."""
    said = state.blocked_by
    if state.overdue and state.phase in ADVICE:
        advice = MEND_HOOK if is_at_one(state) else ADVICE[state.phase]
        whom = f"{WAITS_FOR_A_PERSON}: {advice}" if is_alarmed(state) else WAITS_FOR_ITS_END
        said = f"{whom}; {said}" if said else whom
    elif has_failed(state):
        said = f"{WAITS_FOR_A_PERSON}: {MEND_HOOK}; {said}"
    elif is_lost(state):
        said = f"{WAITS_FOR_A_PERSON}: bring its Node back, or delete the NodeClaim; {said}"
    elif state.slow:
        said = f"{SLOW}: {said}" if said else f"{SLOW}: nothing is known to hold it up"
    return said[:LONGEST]


def is_lost(state: ClaimState) -> bool:
    """A node that was ready has left the cluster while its instance runs on, as far as is known."""
    seen = state.seen
    standing = seen.exists and not seen.deleting
    return state.phase is Phase.READY and bool(state.blocked_by) and standing and not seen.node_name


def slow_at(state: ClaimState) -> datetime | None:
    """From when on the phase takes longer than such nodes do; None where nothing is expected, or it is known."""
    if state.slow or state.overdue or state.since is None or state.initialized:
        return None
    span = _expected(state)
    if span is None:
        return None
    moment = (state.identity.created if state.phase is Phase.LAUNCH else state.since) + span
    return moment if state.deadline is None or moment < state.deadline else None


def _expected(state: ClaimState) -> timedelta | None:
    if state.expected is None:
        return None
    kind = state.launched.instance_type if state.launched else ""
    times = state.expected.by_type.get(kind, PhaseTimes())
    others = state.expected.otherwise
    match state.phase:
        case Phase.LAUNCH:
            return times.launch or others.launch
        case Phase.REGISTRATION:
            return times.registration or others.registration
        case Phase.INITIALIZATION:
            return times.initialization or others.initialization
        case _:
            return None
