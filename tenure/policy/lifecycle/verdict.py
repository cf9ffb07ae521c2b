"""The verdict on a node: its blocker and start time, whether it clears by itself, and the remedy.

Conditions, events, metrics, search attributes, the Temporal UI and commands show the same verdict.
"""

from typing import Final

from tenure.model.blockers import BLOCKERS, NODE_NOT_FOUND, SLOW, Reason, Verdict
from tenure.model.disruption.drain import EvictionBlocker
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.policy.lifecycle.deadlines import ACTIONS, action_of

NEEDS_ATTENTION_TEXT: Final = "needs attention"
WAITS_FOR_DELETION: Final = "waits for its deletion"


def verdict_of(state: NodeClaimState) -> Verdict | None:
    """None if nothing blocks the node."""
    code = _code_of(state)
    if not code:
        return None
    drain = state.drain.status if state.drain else None
    blocker = drain.first_blocker if drain else None
    remedy = _remedy_of(state, code, blocker)
    clears_by_itself, introduction = _reason_of(code).clears_by_itself, ""
    if _is_overdue(state):
        clears_by_itself, introduction = not is_alarmed(state), WAITS_FOR_DELETION
    if not clears_by_itself:
        introduction = f"{NEEDS_ATTENTION_TEXT}: {remedy}"
    if code == SLOW:
        sentence = f"slow: {state.blocked_by or 'no known blocker'}"
    else:
        sentence = "; ".join(part for part in (introduction, state.blocked_by) if part)
    return Verdict(
        code=code,
        sentence=sentence,
        since=(blocker.since if blocker else None) or state.node_missing_since or state.since,
        clears_by_itself=clears_by_itself,
        remedy=remedy,
        deadline=state.deadline,
    )


def describe_blocker(state: NodeClaimState) -> str:
    """The sentence of the verdict; empty without one."""
    verdict = verdict_of(state)
    return verdict.sentence if verdict else ""


def is_alarmed(state: NodeClaimState) -> bool:
    """Whether the node is past a deadline and is kept until an operator acts."""
    return state.overdue and action_of(state.observed.rules, state.phase) == "alarm"


def _is_overdue(state: NodeClaimState) -> bool:
    return state.overdue and state.phase in ACTIONS


def _code_of(state: NodeClaimState) -> str:
    if _is_lost(state):
        return NODE_NOT_FOUND
    code = state.blocked_code if state.blocked_by else ""
    if state.slow and not state.overdue and _reason_of(code).clears_by_itself:
        return SLOW
    return code or (_overdue_code(state) if _is_overdue(state) else "")


def _is_lost(state: NodeClaimState) -> bool:
    observed = state.observed
    exists = observed.exists and not observed.deleting
    return state.phase is Phase.READY and bool(state.blocked_by) and exists and not observed.node_name


def _remedy_of(state: NodeClaimState, code: str, blocker: EvictionBlocker | None) -> str:
    if blocker and blocker.code == code and blocker.hint:
        return blocker.hint
    return _reason_of(code).remedy or _reason_of(_overdue_code(state)).remedy


def _reason_of(code: str) -> Reason:
    return BLOCKERS.get(code, Reason(""))


def _overdue_code(state: NodeClaimState) -> str:
    return f"{state.phase.value}Overdue"
