"""Memory of moves that came to nothing: what bounced is left alone, for longer each time, until it succeeds.

By nodes where these were the reason; by NodePool where its replacements did not come up, so that a pool that nothing
can be bought for is tried by one command at a time, and holds up no other.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from model.commands import CommandOver
from model.disrupting import Bounced, Proposal

NODES_FIRST: Final = timedelta(minutes=5)
NODES_LONGEST: Final = timedelta(hours=24)
STALE_FIRST: Final = timedelta(seconds=20)
STALE_LONGEST: Final = timedelta(hours=1)
"""The world had moved before anything was done: what holds then holds for a moment only, as a rule."""
POOL_FIRST: Final = timedelta(minutes=1)
POOL_LONGEST: Final = timedelta(hours=1)
KEPT_FOR: Final = timedelta(hours=24)
"""After its pause a move is remembered for so long, so that the next one lasts longer."""
_DOUBLINGS: Final = 16
_NOBODYS_FAULT: Final = ("not permitted", "recalled", "failed")
"""Pauses for these do not grow: a budget, a person or an outage says nothing of the nodes."""

Memory = tuple[Bounced, ...]


def remembered(memory: Memory, proposal: Proposal, over: CommandOver, now: datetime) -> Memory:
    """The memory with how a command ended."""
    uids = {*(over.nodes or (one.claim_uid for one in proposal.candidates))}
    if over.ending == "done":
        gone = {one.claim_uid for one in proposal.candidates}
        return _without(memory, gone, proposal.replacement_pools if proposal.replacements else ())
    if over.ending == "not replaced" and proposal.replacement_pools:
        return _with_pools(memory, proposal.replacement_pools, over.why, now)
    known = [one.times for one in memory if uids & {*one.claims}]
    grows = over.ending not in _NOBODYS_FAULT
    times = max(known, default=0) + 1 if grows else max(known, default=1)
    first, longest = (STALE_FIRST, STALE_LONGEST) if over.ending == "stale" else (NODES_FIRST, NODES_LONGEST)
    pause = _pause(first, longest, times) if grows else first
    until = max(now + pause, over.keep_until or now)
    entry = Bounced(claims=tuple(sorted(uids)), times=times, until=until, why=over.why)
    return (*_without(memory, uids, ()), entry)


def _with_pools(memory: Memory, pools: Iterable[str], why: str, now: datetime) -> Memory:
    for pool in pools:
        times = max((one.times for one in memory if _is_pools(one, pool)), default=0) + 1
        until = now + _pause(POOL_FIRST, POOL_LONGEST, times)
        memory = (*_without(memory, set(), (pool,)), Bounced(pool=pool, times=times, until=until, why=why))
    return memory


def _pause(first: timedelta, longest: timedelta, times: int) -> timedelta:
    return min(longest, first * 2.0 ** min(times - 1, _DOUBLINGS))


def _without(memory: Memory, uids: set[str], pools: Iterable[str]) -> Memory:
    """An entry for several nodes stays for those that are left."""
    left = []
    for one in memory:
        claims = tuple(uid for uid in one.claims if uid not in uids)
        if (one.claims and claims) or (not one.claims and one.pool not in pools):
            left.append(one.model_copy(update={"claims": claims}))
    return tuple(left)


def kept(memory: Memory, now: datetime) -> Memory:
    """Less what is long over."""
    return tuple(one for one in memory if now < one.until + KEPT_FOR)


def active(memory: Memory, now: datetime) -> Memory:
    return tuple(one for one in memory if now < one.until)


def in_trouble(memory: Memory, pool: str) -> bool:
    """Its replacements did not come up when they were tried last."""
    return any(_is_pools(one, pool) for one in memory)


def _is_pools(one: Bounced, pool: str) -> bool:
    return not one.claims and one.pool == pool
