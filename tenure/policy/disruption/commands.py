"""What a command waits for: permits, replacements, another look. Pure; `workflows/disruption/command.py` waits.

What a person may say of a command that is being carried out: give it up, and leave its nodes alone for a while.

Pure; `workflows/disruption/command.py` hears it, `tenure/policy/disruption/commands.py` remembers how long the nodes
are left alone.

Memory of moves that came to nothing: what bounced is left alone, for longer each time, until it succeeds.

By nodes where these were the reason; by NodePool where its replacements did not come up, so that a pool that nothing
can be bought for is tried by one command at a time, and holds up no other.

When a pass of voluntary disruption is due, and which of its proposals begin. `workflows/disruption/cluster.py`
performs it.

What a replacement's life says to the disruption that waits for it: that it is ready, or that it never will be.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from tenure.model.base import few
from tenure.model.disruption.commands import (
    Bounced,
    CommandOver,
    CommandRun,
    CommandState,
    DisruptionState,
    GiveUp,
    Hold,
    Proposal,
    ReplacementSaid,
    Step,
    UnderWay,
)
from tenure.model.disruption.planning import Leaving
from tenure.model.nodeclaim_state import ENDING, ClaimState, Phase
from tenure.policy.lifecycle import pauses

DEADLINES: Final[dict[Step, timedelta]] = {
    "Permit": timedelta(minutes=10),
    "Begin": timedelta(minutes=5),
    "Replace": timedelta(minutes=5),
    "Wait": timedelta(hours=1),
}
"""For replacements Karpenter waits between ten minutes and this, by how much it has to do (reference 4.9). Here a
replacement that fails says so itself, by the deadlines of its own launch and registration."""
BEGINS_WITHIN: Final = DEADLINES["Begin"] + timedelta(minutes=1)
"""After its permits' end, at the latest: it begins while it has them, and is seen to have begun a moment later."""
FINISH_WITHIN: Final = timedelta(minutes=10)
"""For trying to delete nodes whose replacements are ready, while the API server does not answer."""
RENEW_AFTER: Final = timedelta(seconds=90)
"""Permits are leases of two minutes. They are kept for as long as a command runs, lest nobody could recall it."""
LOOK_EVERY: Final = timedelta(minutes=5)
"""At replacements, in case their word was lost."""
LOOK_AGAIN: Final = timedelta(seconds=10)
"""When they said that they are ready, and the live state does not."""


def unpermitted(state: CommandState, now: datetime) -> tuple[Leaving, ...]:
    """The candidates that may not go now: refused, not answered, or by a lease that lapsed."""
    return tuple(one for one in state.proposal.candidates if not _holds(state, one.claim_uid, now))


def _holds(state: CommandState, uid: str, now: datetime) -> bool:
    permit = state.permits.get(uid)
    return permit is not None and permit.granted and (permit.until is None or now < permit.until)


def refused(state: CommandState) -> tuple[Leaving, ...]:
    return tuple(one for one in state.proposal.candidates if _is_refused(state, one.claim_uid))


def _is_refused(state: CommandState, uid: str) -> bool:
    permit = state.permits.get(uid)
    return permit is not None and not permit.granted


def renewal(state: CommandState) -> datetime | None:
    """When permits are to be asked for again; None before they were asked for at all."""
    return state.renewed + RENEW_AFTER if state.renewed else None


def ask_due(state: CommandState, now: datetime) -> bool:
    moment = renewal(state)
    return moment is None or now >= moment


def to_ask(state: CommandState) -> tuple[Leaving, ...]:
    """Those who were refused need not ask again: the NodePool keeps their wish, and answers by itself."""
    return tuple(one for one in state.proposal.candidates if not _is_refused(state, one.claim_uid))


def sooner(state: CommandState) -> datetime | None:
    """While replacements are waited for: another look, or another round of permits."""
    return min((one for one in (state.look_at, renewal(state)) if one), default=None)


def why_unpermitted(state: CommandState, left: Sequence[Leaving]) -> str:
    """In the words of the first pool that refused."""
    words = [permit.blocked_by for one in left if (permit := state.permits.get(one.claim_uid)) and permit.blocked_by]
    more = f" ({len(left)} of {len(state.proposal.candidates)} nodes)" if len(state.proposal.candidates) > 1 else ""
    pools = ", ".join(sorted({one.pool for one in left}))
    return f"{words[0]}{more}" if words else f"NodePool {pools} does not answer{more}"


def all_ready(state: CommandState) -> bool:
    return {*state.claims} <= {*state.ready}


def look_due(state: CommandState, now: datetime) -> bool:
    """Whether to look if it can be finished."""
    return (all_ready(state) and state.looks == 0) or (state.look_at is not None and now >= state.look_at)


def next_look(state: CommandState, now: datetime) -> datetime:
    """After one that did not let it finish."""
    return now + (min(LOOK_EVERY, LOOK_AGAIN * 2.0 ** min(state.looks, 6)) if all_ready(state) else LOOK_EVERY)


def starting(state: CommandState) -> str:
    """The replacements that are not ready, in words."""
    return few([name for name in state.claims if name not in state.ready])


LONGEST: Final = timedelta(days=30)
"""What is to be kept for good has an annotation, or a pause of its NodePool."""
LONGEST_REASON: Final = 200
_LATE: Final = timedelta(minutes=10)
"""Nodes that could not be put back for so long wait for a person."""


def refusal_of(state: CommandState, said: GiveUp) -> str:
    """Why this cannot be done: field, value, what to write; empty when it can."""
    if not said.by.strip():
        return "by: nobody is named; write who says so"
    if not said.reason.strip() or len(said.reason) > LONGEST_REASON:
        return f"reason: {said.reason[:60]!r}: write why, in 1 to {LONGEST_REASON} characters"
    if not timedelta(0) <= said.keep <= LONGEST:
        return (
            f"keep: {said.keep} is not between nothing and {LONGEST.days} days; write such as 4h, or pause its NodePool"
        )
    if state.step in ("Undo", "Over"):
        how = f"{state.over.ending}: {state.over.why}" if state.over else "as it was to end"
        return f"the command has ended already ({how}); `tenure why NODE` says what became of a node"
    return ""


def given_up(state: CommandState, said: GiveUp, now: datetime) -> dict[str, object]:
    """What changes by it."""
    kept = now + said.keep if said.keep else None
    until = f", and keeps its nodes until {kept.isoformat(timespec='minutes')}" if kept else ""
    return {"recalled": f"{said.by.strip()} gave it up{until}: {said.reason.strip()}", "keep_until": kept}


def answer(state: CommandState, said: GiveUp) -> str:
    """For whoever asked."""
    if state.step == "Finish":
        return "NodeClaims are being deleted: those that are not yet are put back into service"
    replacements = ", and its replacements deleted but those that carry pods" if state.claims else ""
    return f"given up by {said.by.strip()}: its nodes are put back into service{replacements}"


def is_late(step: str, since: datetime | None, deadline: datetime | None, now: datetime) -> bool:
    """A command that waits for a person: past its step's deadline, or nodes that cannot be put back."""
    if deadline is not None:
        return deadline < now
    return step == "Undo" and since is not None and since + _LATE < now


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


def replacement_says(state: ClaimState) -> ReplacementSaid | None:
    """None while there is nothing to say, or nobody to say it to. What was said holds: a node that is not Ready any
    more was a replacement all the same."""
    if not state.identity.replaces or state.said_ready is not None:
        return None
    if state.phase is Phase.READY:
        return ReplacementSaid(claim=state.identity.name, ready=True)
    if state.phase in ENDING:
        refused = f": {state.refused.reason} {state.refused.message}" if state.refused else ""
        return ReplacementSaid(claim=state.identity.name, ready=False, why=f"{state.disruption}{refused}"[:200])
    return None
