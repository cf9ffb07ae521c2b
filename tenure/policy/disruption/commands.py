"""Decisions of the Disruption and Cluster workflows: permits, replacements, cancellation, backoff.

A failed command backs off per node if a node was the cause, and per NodePool if its replacements failed. While a
NodePool has failed replacements, one command at a time tries new ones.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from tenure.model.base import format_short_list
from tenure.model.disruption.commands import (
    ActivePause,
    CommandBackoff,
    CommandCancellation,
    CommandFinished,
    CommandRun,
    CommandState,
    DisruptionState,
    InFlightCommand,
    Proposal,
    ReplacementMessage,
    Step,
)
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.nodeclaim.state import TERMINATING_PHASES, NodeClaimState, Phase
from tenure.policy.backoff import backoff
from tenure.policy.lifecycle import pauses

DEADLINES: Final[dict[Step, timedelta]] = {
    "Permit": timedelta(minutes=10),
    "Begin": timedelta(minutes=5),
    "Replace": timedelta(minutes=5),
    "Wait": timedelta(hours=1),
}
"""By step. Karpenter waits between ten minutes and one hour for replacements (reference 4.9). In Tenure, a failed
replacement signals its failure at its own launch or registration deadline."""
BEGINS_WITHIN: Final = DEADLINES["Begin"] + timedelta(minutes=1)
"""How long after its permits expire the nodes of a command may be tainted. A command begins only with valid permits."""
FINISH_WITHIN: Final = timedelta(minutes=10)
"""Limit of the attempts to delete nodes whose replacements are ready, while the API server does not respond."""
RENEW_AFTER: Final = timedelta(seconds=90)
"""Permits are leases of two minutes, so that they can be revoked. A command renews them while it runs."""
CHECK_INTERVAL: Final = timedelta(minutes=5)
"""Interval between checks of replacements, in case a signal was lost."""
RECHECK_AFTER: Final = timedelta(seconds=10)
"""Delay before the first repeated check if replacements signaled ready and the API server does not show it."""


def candidates_without_permit(state: CommandState, now: datetime) -> tuple[CommandCandidate, ...]:
    return tuple(one for one in state.proposal.candidates if not _has_permit(state, one.claim_uid, now))


def _has_permit(state: CommandState, uid: str, now: datetime) -> bool:
    permit = state.permits.get(uid)
    return permit is not None and permit.granted and (permit.until is None or now < permit.until)


def rejected_candidates(state: CommandState) -> tuple[CommandCandidate, ...]:
    return tuple(one for one in state.proposal.candidates if _is_rejected(state, one.claim_uid))


def _is_rejected(state: CommandState, uid: str) -> bool:
    permit = state.permits.get(uid)
    return permit is not None and not permit.granted


def permit_renewal_at(state: CommandState) -> datetime | None:
    return state.permits_renewed_at + RENEW_AFTER if state.permits_renewed_at else None


def is_permit_request_due(state: CommandState, now: datetime) -> bool:
    renewal_at = permit_renewal_at(state)
    return renewal_at is None or now >= renewal_at


def candidates_to_request(state: CommandState) -> tuple[CommandCandidate, ...]:
    """All but rejected candidates: the NodePool keeps their requests and sends a new result when that changes."""
    return tuple(one for one in state.proposal.candidates if not _is_rejected(state, one.claim_uid))


def next_wakeup_at(state: CommandState) -> datetime | None:
    return min((one for one in (state.next_check_at, permit_renewal_at(state)) if one), default=None)


def explain_unpermitted(state: CommandState, unpermitted: Sequence[CommandCandidate]) -> str:
    messages = [
        permit.blocked_by for one in unpermitted if (permit := state.permits.get(one.claim_uid)) and permit.blocked_by
    ]
    more = (
        f" ({len(unpermitted)} of {len(state.proposal.candidates)} nodes)" if len(state.proposal.candidates) > 1 else ""
    )
    pools = ", ".join(sorted({one.pool for one in unpermitted}))
    return f"{messages[0]}{more}" if messages else f"NodePool {pools} does not respond{more}"


def all_ready(state: CommandState) -> bool:
    return {*state.claims} <= {*state.ready}


def is_check_due(state: CommandState, now: datetime) -> bool:
    return (all_ready(state) and state.failed_checks == 0) or (
        state.next_check_at is not None and now >= state.next_check_at
    )


def next_check_at(state: CommandState, now: datetime) -> datetime:
    return now + (backoff(RECHECK_AFTER, CHECK_INTERVAL, state.failed_checks) if all_ready(state) else CHECK_INTERVAL)


def describe_unready_replacements(state: CommandState) -> str:
    return format_short_list([name for name in state.claims if name not in state.ready])


MAX_PROTECTION: Final = timedelta(days=30)
"""A longer protection needs an annotation, or a pause of the NodePool."""
MAX_REASON_LENGTH: Final = 200
_LATE: Final = timedelta(minutes=10)
"""A rollback that takes longer needs attention."""


def rejection_reason(state: CommandState, request: CommandCancellation) -> str:
    """Why the request is invalid: field, value, expected form; empty if it is valid."""
    if not request.by.strip():
        return "by: empty, expected the name of the requester"
    if not request.reason.strip() or len(request.reason) > MAX_REASON_LENGTH:
        return f"reason: {request.reason[:60]!r}: expected 1 to {MAX_REASON_LENGTH} characters"
    if not timedelta(0) <= request.retain_for <= MAX_PROTECTION:
        return (
            f"keep: {request.retain_for}, expected 0 to {MAX_PROTECTION.days} days, e.g. 4h; for a longer time, pause "
            "its NodePool"
        )
    if state.step in ("Undo", "Over"):
        how = f"{state.over.ending}: {state.over.why}" if state.over else "done"
        return f"the command has already ended ({how}); `tenure why NODE` explains the state of a node"
    return ""


def cancellation_changes(state: CommandState, request: CommandCancellation, now: datetime) -> dict[str, object]:
    protected_until = now + request.retain_for if request.retain_for else None
    until = f", keeping its nodes until {protected_until.isoformat(timespec='minutes')}" if protected_until else ""
    return {
        "revocation": f"{request.by.strip()} cancelled it{until}: {request.reason.strip()}",
        "retain_until": protected_until,
    }


def cancellation_message(state: CommandState, request: CommandCancellation) -> str:
    if state.step == "Finish":
        return "NodeClaims are being deleted: nodes whose NodeClaim still exists return to service"
    replacements = ", and its replacements without pods are deleted" if state.claims else ""
    return f"cancelled by {request.by.strip()}: its nodes return to service{replacements}"


def is_late(step: str, since: datetime | None, deadline: datetime | None, now: datetime) -> bool:
    """Whether a command needs attention: it is past the deadline of its step, or its rollback takes long."""
    if deadline is not None:
        return deadline < now
    return step == "Undo" and since is not None and since + _LATE < now


NODES_FIRST: Final = timedelta(minutes=5)
NODES_LONGEST: Final = timedelta(hours=24)
STALE_FIRST: Final = timedelta(seconds=20)
STALE_LONGEST: Final = timedelta(hours=1)
"""For a command that became stale before it began, usually by a short-lived change."""
POOL_FIRST: Final = timedelta(minutes=1)
POOL_LONGEST: Final = timedelta(hours=1)
BACKOFF_RETENTION: Final = timedelta(hours=24)
"""How long an entry is kept after its backoff, so that the next backoff is longer."""
_ENDINGS_WITHOUT_BACKOFF: Final = ("not permitted", "cancelled", "failed")
"""Endings whose backoff does not increase: a budget, an operator or an outage, not the nodes, is the cause."""

CommandBackoffs = tuple[CommandBackoff, ...]


def record_command_result(
    backoffs: CommandBackoffs, proposal: Proposal, over: CommandFinished, now: datetime
) -> CommandBackoffs:
    uids = {*(over.nodes or (one.claim_uid for one in proposal.candidates))}
    if over.ending == "done":
        deleted = {one.claim_uid for one in proposal.candidates}
        return _remove_backoffs(backoffs, deleted, proposal.replacement_pools if proposal.replacements else ())
    if over.ending == "not replaced" and proposal.replacement_pools:
        return _with_pools(backoffs, proposal.replacement_pools, over.why, now)
    known = [one.times for one in backoffs if uids & {*one.claims}]
    grows = over.ending not in _ENDINGS_WITHOUT_BACKOFF
    times = max(known, default=0) + 1 if grows else max(known, default=1)
    first, longest = (STALE_FIRST, STALE_LONGEST) if over.ending == "stale" else (NODES_FIRST, NODES_LONGEST)
    pause = backoff(first, longest, times - 1) if grows else first
    until = max(now + pause, over.retain_until or now)
    outage = over.outage and over.retain_until is None
    entry = CommandBackoff(claims=tuple(sorted(uids)), times=times, until=until, why=over.why, outage=outage)
    return (*_remove_backoffs(backoffs, uids, ()), entry)


def _with_pools(backoffs: CommandBackoffs, pools: Iterable[str], why: str, now: datetime) -> CommandBackoffs:
    for pool in pools:
        times = max((one.times for one in backoffs if _is_backoff_of_pool(one, pool)), default=0) + 1
        until = now + backoff(POOL_FIRST, POOL_LONGEST, times - 1)
        backoffs = (
            *_remove_backoffs(backoffs, set(), (pool,)),
            CommandBackoff(pool=pool, times=times, until=until, why=why),
        )
    return backoffs


def _remove_backoffs(backoffs: CommandBackoffs, uids: set[str], pools: Iterable[str]) -> CommandBackoffs:
    """An entry for several nodes is kept for its remaining nodes."""
    remaining = []
    for one in backoffs:
        claims = tuple(uid for uid in one.claims if uid not in uids)
        if (one.claims and claims) or (not one.claims and one.pool not in pools):
            remaining.append(one.model_copy(update={"claims": claims}))
    return tuple(remaining)


def end_outage_backoffs(backoffs: CommandBackoffs, now: datetime) -> CommandBackoffs:
    """Backoffs after an outage end now; they still count for the next one."""
    return tuple(one.model_copy(update={"until": min(now, one.until)}) if one.outage else one for one in backoffs)


def prune_backoffs(backoffs: CommandBackoffs, now: datetime) -> CommandBackoffs:
    return tuple(one for one in backoffs if now < one.until + BACKOFF_RETENTION)


def active_backoffs(backoffs: CommandBackoffs, now: datetime) -> CommandBackoffs:
    return tuple(one for one in backoffs if now < one.until)


def has_failed_replacements(backoffs: CommandBackoffs, pool: str) -> bool:
    return any(_is_backoff_of_pool(one, pool) for one in backoffs)


def _is_backoff_of_pool(one: CommandBackoff, pool: str) -> bool:
    return not one.claims and one.pool == pool


PASS_INTERVAL: Final = timedelta(seconds=10)
"""Minimum time between passes; Karpenter's interval without changes (reference 4.1)."""
MAX_FAULT_PAUSE: Final = timedelta(minutes=5)
MAX_CONCURRENT_COMMANDS: Final = 25
"""Budgets limit the number of nodes. This limit bounds the size of the workflow states, and the effect of a wrong
decision before the next pass observes it."""
LOST_AFTER: Final = timedelta(hours=3)
"""The steps of a command take at most two hours. A command without a result after this time is rolled back, even if the
watch does not report that its workflow is closed."""


def next_pass(state: DisruptionState, now: datetime) -> datetime | None:
    """None: only after the next change. An incomplete pass continues at `next_pass_at`."""
    last = state.last + PASS_INTERVAL if state.last and not (state.first and not state.has_changed) else None
    floor = max((one for one in (last, state.not_before) if one), default=None)
    if state.has_changed:
        return floor or now
    return max(state.next_pass_at, floor) if state.next_pass_at and floor else state.next_pass_at


def retry_pass_at(faults: int, now: datetime) -> datetime:
    return now + backoff(PASS_INTERVAL, MAX_FAULT_PAUSE, faults - 1)


def cluster_blockers(state: DisruptionState, now: datetime) -> tuple[ActivePause, ...]:
    pause = state.pause
    if pause is None or not pauses.is_pause_active(pause, now):
        return ()
    return (pauses.make_active_pause("cluster", "", pause),)


def next_timed_pass_at(state: DisruptionState, planned_at: datetime | None, now: datetime) -> datetime | None:
    """When a pass is due without a change: the planner's time, or the end of a backoff, pause or lost command."""
    timestamps = (
        planned_at,
        *(one.until for one in active_backoffs(state.backoffs, now)),
        pauses.recheck_at(state.pause) if cluster_blockers(state, now) else None,
        *(_lost_at(one) for one in state.under_way),
    )
    return min((one for one in timestamps if one), default=None)


def lost_commands(running: Iterable[CommandRun], now: datetime) -> tuple[CommandRun, ...]:
    return tuple(one for one in running if now >= _lost_at(one))


def _lost_at(one: CommandRun) -> datetime:
    return one.since if one.closed else one.since + LOST_AFTER


def why_not_start(
    proposal: Proposal, running: Iterable[CommandRun], backoffs: tuple[CommandBackoff, ...], now: datetime
) -> str:
    """Why a proposal does not start now; empty if it does. Empty nodes request their permits themselves."""
    under_way = [one.under_way for one in running]
    if proposal.reason == "Empty":
        return "its NodeClaim handles it"
    if len(under_way) >= MAX_CONCURRENT_COMMANDS:
        return f"{MAX_CONCURRENT_COMMANDS} commands are in progress"
    uids = {one.claim_uid for one in proposal.candidates}
    if any(one.proposal.id == proposal.id or uids & _candidate_uids(one) for one in under_way):
        return "it is in progress"
    if any(uids & {*one.claims} for one in active_backoffs(backoffs, now)):
        return "its last command failed"
    return _pool_waits(proposal, under_way, backoffs, now)


def _pool_waits(
    proposal: Proposal, under_way: list[InFlightCommand], backoffs: tuple[CommandBackoff, ...], now: datetime
) -> str:
    for pool in proposal.replacement_pools:
        if not has_failed_replacements(backoffs, pool):
            continue
        if has_failed_replacements(active_backoffs(backoffs, now), pool):
            return f"the last replacements of NodePool {pool} failed"
        if any(one.proposal.replacements and pool in one.proposal.replacement_pools for one in under_way):
            return f"another command tests replacements of NodePool {pool}"
    return ""


def _candidate_uids(one: InFlightCommand) -> set[str]:
    return {candidate.claim_uid for candidate in one.proposal.candidates}


def replacement_status(state: NodeClaimState) -> ReplacementMessage | None:
    """The signal to the command's workflow; None if it is not due or was already sent. It is sent once, so a
    replacement that later becomes NotReady still counts as ready."""
    if not state.identity.replaces or state.reported_ready is not None:
        return None
    if state.phase is Phase.READY:
        return ReplacementMessage(claim=state.identity.name, ready=True)
    if state.phase in TERMINATING_PHASES:
        rejection = f": {state.rejection.reason} {state.rejection.message}" if state.rejection else ""
        return ReplacementMessage(claim=state.identity.name, ready=False, why=f"{state.disruption}{rejection}"[:200])
    return None
