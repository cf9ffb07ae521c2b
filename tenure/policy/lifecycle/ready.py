"""The next action of a ready node, and its expiration: `expireAfter` after creation, minus a jitter.

With jitter 0%, nodes expire exactly as with Karpenter.
"""

from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.durations import NEVER, parse_duration_or_none
from tenure.apis.lifecyclepolicy import DrainRules, LifecycleRules
from tenure.model.base import Value
from tenure.model.blockers import INSTANCE_STOPPED
from tenure.model.disruption.drain import MAX_STATUS_LINE_LENGTH
from tenure.model.nodeclaim.expiry import DEFAULT_JITTER, expiry_with_jitter
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.model.signals import DisruptionReason
from tenure.policy.backoff import backoff
from tenure.policy.interruption.decision import (
    ACTING,
    InterruptionDecision,
    decide_interruption,
    maintenance_until,
    next_decision_at,
)
from tenure.policy.lifecycle.pauses import describe_pause, is_pause_active, recheck_at
from tenure.policy.lifecycle.repair import Repair, decide_repair


def expiry_of(state: NodeClaimState) -> datetime | None:
    """The expiration time by the current rules, which may change during the node's life; None for never."""
    latest, lifetime = state.expires, state.lifetime
    if latest is None or lifetime is None:
        return latest
    return expiry_with_jitter(latest, lifetime, state.identity.uid, expiry_jitter_of(state.observed.rules))


def has_expired(state: NodeClaimState, now: datetime) -> bool:
    expires = expiry_of(state)
    return expires is not None and now >= expires


def is_under_budget(state: NodeClaimState) -> bool:
    expiry = state.observed.rules.expiry if state.observed.rules else None
    return bool(expiry and expiry.under_budget and state.identity.pool)


def expiry_jitter_of(rules: LifecycleRules | None) -> float:
    written = rules.expiry.jitter if rules and rules.expiry else None
    return int(written.removesuffix("%")) / 100 if written else DEFAULT_JITTER


PERMIT_RESPONSE_TIMEOUT = timedelta(seconds=30)
"""Interval before an unanswered request is repeated, in case the NodePool workflow was replaced."""
REJECTED_PERMIT_RETRY = timedelta(minutes=10)
"""First interval before a rejected request is repeated. The NodePool keeps requests, but may have lost it."""
MAX_REJECTED_PERMIT_RETRY = timedelta(hours=1)
"""The interval doubles up to this."""
FIRST_NOT_READY_CHECK = timedelta(seconds=5)
"""Time after which the instance of a ready Node that became NotReady is first checked."""
NOT_READY_CHECK_INTERVAL = timedelta(minutes=2)
"""First interval between further checks of the instance of a missing or NotReady Node, as in Karpenter's garbage
collection (reference 3.8). The first one or two checks find a terminated instance."""
CHECKS_BEFORE_BACKOFF: Final = 2
"""After this many checks, the interval doubles each time."""
MAX_NOT_READY_CHECK_INTERVAL = timedelta(minutes=10)
"""The interval doubles up to this."""

EMPTY: Final = "Empty"
EXPIRED: Final = "Expired"
INTERRUPTED: Final = "Interrupted"
UNHEALTHY: Final = "Unhealthy"
PERMIT: Final = "the pool's permit"
REBOOT: Final = "its reboot"
REPLACED_LATER = "waits for its replacement to be planned"


class ReadyDecision(Value):
    do: Literal[
        "wait", "drain", "interrupt", "register", "initialize", "expire", "ask", "withdraw", "disrupt", "look", "repair"
    ]
    until: datetime | None = None
    """For `wait`: when the decision changes without a signal; None if only a signal can change it."""
    why: str = ""
    blocked_by: str = ""
    """The blocker of the node's next step, as text; empty without a blocker."""
    blocked_code: str = ""
    """Its code in `tenure/model/blockers.py`."""


def decide_ready(state: NodeClaimState, now: datetime) -> ReadyDecision:
    """In order of priority: deletion, AWS events, reboot, expiration, missing Node, repair, voluntary disruption."""
    observed = state.observed
    if observed.deleting or not observed.exists:
        return ReadyDecision(do="drain", why=observed.disruption or "Deleted")
    event = decide_interruption(state, now)
    if event.do in ACTING:
        return ReadyDecision(do="interrupt", why=event.reason)
    if lacks_registration(state):
        return ReadyDecision(do="register", why="Unregistered")
    if observed.boot_id and state.boot_id and observed.boot_id != state.boot_id:
        return ReadyDecision(do="initialize", why="Rebooted")
    expired = has_expired(state, now)
    if expired and not is_under_budget(state):
        return ReadyDecision(do="expire", why=EXPIRED)
    if not observed.node_name:
        return ReadyDecision(do="look", why="NodeNotFound")
    is_in_maintenance = maintenance_until(state) is not None
    is_repair_suspended = is_in_maintenance and state.health.reboot is None
    repair = Repair() if is_repair_suspended else decide_repair(state, now)
    needs_permit = repair.do == "reboot" and requires_reboot_permit(state)
    if repair.do != "wait" and not needs_permit:
        return ReadyDecision(do="repair", why=repair.condition)
    decision = _with_repair(
        repair, _decide_voluntary(state, now, event, expired=expired, needs_reboot_permit=needs_permit)
    )
    reported = _with_interruption(event, decision if is_in_maintenance else _with_stopped_instance(state, decision))
    return _wake_by(reported, next_involuntary_at(state, now))


def next_involuntary_at(state: NodeClaimState, now: datetime) -> datetime | None:
    """When an AWS event or the expiration may require an action, whatever the node waits for; None for never."""
    expiry = None if is_under_budget(state) else expiry_of(state)
    return min((at for at in (next_decision_at(state, now), expiry) if at is not None and at > now), default=None)


def lacks_registration(state: NodeClaimState) -> bool:
    """Whether the last observation shows a Node of the NodeClaim that must be registered again."""
    return bool(state.observed.registration_gaps) and state.observed.number > state.registration_checked


def _decide_voluntary(
    state: NodeClaimState,
    now: datetime,
    event: InterruptionDecision,
    *,
    expired: bool,
    needs_reboot_permit: bool = False,
) -> ReadyDecision:
    check_after = FIRST_NOT_READY_CHECK if state.is_newly_unready else check_interval(state.instance_checks)
    check_at = state.unready_since + check_after if state.unready_since else None
    if check_at and now >= check_at:
        return ReadyDecision(do="look", why="NodeNotReady")
    if state.health.reboot is not None:
        return ReadyDecision(do="wait", until=check_at, why=REBOOT)
    if needs_reboot_permit:
        return _wake_by(_decide_reboot_permit(state, now), check_at)
    if event.do == "ask":
        return _wake_by(
            _decide_paused(state, now) or _decide_drain_backoff(state, now) or _decide_permit(state, now, INTERRUPTED),
            check_at,
        )
    if expired:
        return _wake_by(_decide_expired(state, now), check_at)
    return _wake_by(_wake_by(_decide_empty(state, now), expiry_of(state)), check_at)


def requires_reboot_permit(state: NodeClaimState) -> bool:
    """Budgets limit reboots too, except in the legacy mode (reference 1.15, section 3.5)."""
    return state.health.reboot is None and state.health.mode != "legacy" and bool(state.identity.pool)


def _decide_reboot_permit(state: NodeClaimState, now: datetime) -> ReadyDecision:
    decision = _decide_paused(state, now) or _decide_permit(state, now, UNHEALTHY)
    return ReadyDecision(do="repair", why=UNHEALTHY) if decision.do == "disrupt" else decision


def check_interval(checks: int) -> timedelta:
    return backoff(NOT_READY_CHECK_INTERVAL, MAX_NOT_READY_CHECK_INTERVAL, checks - CHECKS_BEFORE_BACKOFF)


def _decide_expired(state: NodeClaimState, now: datetime) -> ReadyDecision:
    """Expiration under budget, if a policy enables it: the node is disrupted when its NodePool's budgets allow it,
    whatever runs on it."""
    if state.observed.maintenance:
        return _withdraw_request(state, _blocked("NodeMaintenance", state.observed.maintenance, why=EXPIRED))
    return _decide_paused(state, now) or _decide_drain_backoff(state, now) or _decide_permit(state, now, EXPIRED)


def drain_rules(state: NodeClaimState) -> DrainRules | None:
    return state.observed.rules.drain if state.observed.rules else None


def _decide_drain_backoff(state: NodeClaimState, now: datetime) -> ReadyDecision | None:
    cancelled_drain = state.cancelled_drain
    if cancelled_drain is None or now >= cancelled_drain.retry_at:
        return None
    blocked_by = f"its drain was cancelled: {cancelled_drain.why}"[:MAX_STATUS_LINE_LENGTH]
    return _withdraw_request(
        state, _blocked("DrainCancelled", blocked_by, until=cancelled_drain.retry_at, why="drain cancelled")
    )


def _decide_empty(state: NodeClaimState, now: datetime) -> ReadyDecision:
    due = empty_due_at(state)
    if due is None:
        return _withdraw_request(state, _blocked(*_why_not_removed(state)))
    if blocked := _decide_paused(state, now) or _decide_drain_backoff(state, now):
        return blocked
    if now < due:
        return _withdraw_request(state, ReadyDecision(do="wait", until=due, why=EMPTY))
    return _decide_permit(state, now, EMPTY)


def _decide_paused(state: NodeClaimState, now: datetime) -> ReadyDecision | None:
    if state.pause is None or not is_pause_active(state.pause, now):
        return None
    blocked = _blocked("Paused", f"the node {describe_pause(state.pause)}", until=recheck_at(state.pause), why="Paused")
    return _withdraw_request(state, blocked)


def _decide_permit(state: NodeClaimState, now: datetime, why: DisruptionReason) -> ReadyDecision:
    """A permit for another reason is ignored, since budgets differ by reason."""
    permit = state.permit if state.permit and state.permit.reason == why else None
    requested_at = state.permit_requested_at if state.permit_for == why else None
    if permit and permit.granted and permit.until and now < permit.until:
        return ReadyDecision(do="disrupt", why=why)
    if requested_at is None or (permit and permit.granted):
        return ReadyDecision(do="ask", why=why)
    rejected_for = backoff(REJECTED_PERMIT_RETRY, MAX_REJECTED_PERMIT_RETRY, state.permit_retries)
    retry_at = requested_at + (rejected_for if permit else PERMIT_RESPONSE_TIMEOUT)
    if now >= retry_at:
        return ReadyDecision(do="ask", why=why)
    return _blocked("PermitDenied", permit.blocked_by if permit else "", until=retry_at, why=PERMIT)


def _blocked(code: str, blocked_by: str, *, until: datetime | None = None, why: str = "") -> ReadyDecision:
    return ReadyDecision(
        do="wait", until=until, why=why, blocked_by=blocked_by, blocked_code=code if blocked_by else ""
    )


def _why_not_removed(state: NodeClaimState) -> tuple[str, str]:
    observed = state.observed
    if not observed.empty:
        if observed.drift:
            return "ReplacementPending", f"drifted: {observed.drift}, {REPLACED_LATER}"
        if observed.needed_by_buffer:
            return "CapacityBuffer", f"room for CapacityBuffer {observed.needed_by_buffer}"
        return "PodsExpected", observed.awaited_pods
    if observed.maintenance:
        return "NodeMaintenance", observed.maintenance
    if observed.do_not_disrupt:
        return "NodeDoNotDisrupt", "the annotation karpenter.sh/do-not-disrupt on the Node"
    if not observed.consolidation:
        return "NoPool", "no NodePool: a standalone NodeClaim ends only by deletion or expiration"
    if consolidate_after(observed.consolidation) is not None:
        return "Never", ""
    problem = NEVER if observed.consolidation.endswith(f"/{NEVER}") else "invalid"
    return "Never", f"consolidateAfter of NodePool {state.identity.pool} is {problem}"


def empty_due_at(state: NodeClaimState) -> datetime | None:
    observed = state.observed
    after = consolidate_after(observed.consolidation)
    is_protected = observed.do_not_disrupt or bool(observed.maintenance)
    if not observed.empty or observed.empty_since is None or after is None or is_protected:
        return None
    due = observed.empty_since + after
    return max(due, observed.hold_until) if observed.hold_until else due


def is_empty_node_needed(state: NodeClaimState, now: datetime) -> bool:
    """Whether a later observation no longer allows the deletion of the empty node."""
    due = empty_due_at(state)
    return not state.observed.deleting and (due is None or now < due)


def consolidate_after(consolidation: str) -> timedelta | None:
    """consolidateAfter in `<consolidationPolicy>/<consolidateAfter>`; None for Never, for an invalid duration that the
    CRD accepts, or without a NodePool."""
    return parse_duration_or_none(consolidation.partition("/")[2])


def _with_repair(repair: Repair, decision: ReadyDecision) -> ReadyDecision:
    """A pending repair is evaluated again at its own time, and does not delay another action."""
    if decision.do == "wait" and repair.blocked_by and not decision.blocked_by:
        decision = decision.model_copy(update={"blocked_by": repair.blocked_by, "blocked_code": "Unhealthy"})
    return _wake_by(decision, repair.until)


def _with_stopped_instance(state: NodeClaimState, decision: ReadyDecision) -> ReadyDecision:
    """A Node whose instance is stopped stays NotReady, whatever else blocks its disruption."""
    if decision.do != "wait" or state.unready_since is None or not state.instance_status.is_stopped:
        return decision
    blocked_by = f"Node {state.node_name} is NotReady; {state.instance_status.describe()}"
    return decision.model_copy(update={"blocked_by": blocked_by, "blocked_code": INSTANCE_STOPPED})


def _with_interruption(event: InterruptionDecision, decision: ReadyDecision) -> ReadyDecision:
    """An AWS event is reported first."""
    if decision.do != "wait" or event.do not in ("wait", "ask"):
        return decision
    blocked_by = "; ".join(part for part in (event.why, decision.blocked_by) if part)
    code = decision.blocked_code if event.do == "ask" and decision.blocked_by else "InterruptionDeferred"
    return decision.model_copy(update={"blocked_by": blocked_by, "blocked_code": code})


def _withdraw_request(state: NodeClaimState, decision: ReadyDecision) -> ReadyDecision:
    return ReadyDecision(do="withdraw", why=decision.why) if state.permit_requested_at else decision


def _wake_by(decision: ReadyDecision, at: datetime | None) -> ReadyDecision:
    if decision.do != "wait" or at is None:
        return decision
    until = min(decision.until, at) if decision.until else at
    return decision.model_copy(update={"until": until})
