"""When a pass of voluntary disruption is due, and which of its proposals begin. `workflows/cluster.py` performs it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from model.commands import CommandRun, DisruptionState
from model.disrupting import Bounced, Hold, Proposal, UnderWay
from policy import pauses
from policy.bouncing import active, in_trouble

EVERY: Final = timedelta(seconds=10)
"""At most so often, as Karpenter does at rest (reference 4.1)."""
FAULT_LONGEST: Final = timedelta(minutes=5)
AT_ONCE: Final = 25
"""Commands at the same time. Budgets say how many nodes go; this bounds what their workflows carry in their states, and
how far one wrong decision can reach before the next one sees what it did."""
LOST_AFTER: Final = timedelta(hours=3)
"""The steps of a command take two hours at most: whoever said nothing for so long was terminated by a person."""


def next_pass(state: DisruptionState, now: datetime) -> datetime | None:
    """None: when something changes. A pass that did not reach all nodes goes on when it says."""
    last = state.last + EVERY if state.last and not (state.first and not state.news) else None
    floor = max((one for one in (last, state.not_before) if one), default=None)
    if state.news:
        return floor or now
    return max(state.again, floor) if state.again and floor else state.again


def after_fault(faults: int, now: datetime) -> datetime:
    """Before another pass, after so many in a row that came to nothing."""
    return now + min(FAULT_LONGEST, EVERY * 2.0 ** min(max(faults - 1, 0), 10))


def holds(state: DisruptionState, now: datetime) -> tuple[Hold, ...]:
    """What holds the whole cluster."""
    pause = state.pause
    if pause is None or not pauses.holds(pause, now):
        return ()
    return (Hold(scope="cluster", why=f"the cluster {pauses.words(pause)}", until=pauses.ends(pause)),)


def earliest(state: DisruptionState, said: datetime | None, now: datetime) -> datetime | None:
    """When time alone makes a pass worth it: what the planner says, and the ends of what this workflow knows."""
    moments = (
        said,
        *(one.until for one in active(state.bounced, now)),
        pauses.again_at(state.pause) if holds(state, now) else None,
        *(one.since + LOST_AFTER for one in state.under_way),
    )
    return min((one for one in moments if one), default=None)


def lost(running: Iterable[CommandRun], now: datetime) -> tuple[CommandRun, ...]:
    return tuple(one for one in running if now >= one.since + LOST_AFTER)


def why_not_start(proposal: Proposal, running: Iterable[CommandRun], memory: tuple[Bounced, ...], now: datetime) -> str:
    """Empty for a proposal that begins now. Empty nodes ask for their permits themselves."""
    under_way = [one.under_way for one in running]
    if proposal.reason == "Empty":
        return "its NodeClaim sees to it"
    if len(under_way) >= AT_ONCE:
        return f"{AT_ONCE} commands are under way"
    uids = {one.claim_uid for one in proposal.candidates}
    if any(one.proposal.id == proposal.id or uids & _uids(one) for one in under_way):
        return "it is under way"
    if any(uids & {*one.claims} for one in active(memory, now)):
        return "it came to nothing a while ago"
    return _pool_waits(proposal, under_way, memory, now)


def _pool_waits(proposal: Proposal, under_way: list[UnderWay], memory: tuple[Bounced, ...], now: datetime) -> str:
    """Where replacements did not come up, one command tries at a time, and after a pause."""
    for pool in proposal.replacement_pools if proposal.replacements else ():
        if not in_trouble(memory, pool):
            continue
        if in_trouble(active(memory, now), pool):
            return f"replacements of NodePool {pool} did not come up a while ago"
        if any(one.proposal.replacements and pool in one.proposal.replacement_pools for one in under_way):
            return f"another command tries whether replacements of NodePool {pool} come up"
    return ""


def _uids(one: UnderWay) -> set[str]:
    return {leaving.claim_uid for leaving in one.proposal.candidates}
