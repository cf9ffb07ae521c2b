"""What a ready node does next: a pure function of what is known of it, its pool's wishes, and now.

`workflows/phases/ready.py` performs the verdict. Every reason not to go is said; none is silent.

When a node expires: `expireAfter` after its NodeClaim's birth at the latest, and up to the jitter sooner.

Nodes that were born together would else go together. The share is drawn from the NodeClaim's UID, so that it is the
same wherever and however often it is asked for. Karpenter's exact moment: jitter 0%.
"""

import hashlib
from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.durations import parse_duration
from tenure.apis.lifecyclepolicy import DrainRules, LifecycleRules
from tenure.model.base import Value
from tenure.model.disruption.drain import LINE
from tenure.model.nodeclaim_state import ClaimState
from tenure.model.signals import DisruptionReason
from tenure.policy.interruption.decision import ACTING, Interrupted, decide_interruption, expected_back
from tenure.policy.lifecycle.pauses import again_at, holds, words
from tenure.policy.lifecycle.repair import Repair, decide_repair

DEFAULT_JITTER: Final = "5%"


def expiry_of(state: ClaimState) -> datetime | None:
    """By the rules as they are now, which may change while the node lives; None for never."""
    latest, lifetime = state.expires, state.lifetime
    if latest is None or lifetime is None:
        return latest
    return latest - lifetime * (_jitter(state.seen.rules) * _share(state.identity.uid))


def has_expired(state: ClaimState, now: datetime) -> bool:
    expires = expiry_of(state)
    return expires is not None and now >= expires


def is_under_budget(state: ClaimState) -> bool:
    """Whether its NodePool's budget has to let it go. A node without a NodePool has nobody to ask."""
    expiry = state.seen.rules.expiry if state.seen.rules else None
    return bool(expiry and expiry.under_budget and state.identity.pool)


def _jitter(rules: LifecycleRules | None) -> float:
    written = rules.expiry.jitter if rules and rules.expiry else None
    return int((written or DEFAULT_JITTER).removesuffix("%")) / 100


def _share(uid: str) -> float:
    """From 0 up to 1, the same for the same UID and even over many."""
    return int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=6).digest()) / 2**48


ASK_AGAIN_UNANSWERED = timedelta(seconds=30)
"""A permit that was asked for and never answered is asked for again: the pool's workflow may have been replaced."""
ASK_AGAIN_REFUSED = timedelta(minutes=10)
"""The pool keeps a refused wish and grants it later; this only guards against a pool that forgot, ..."""
ASK_AGAIN_SLOWEST = timedelta(hours=1)
"""... and is twice as long each time, up to this."""
LOOK_AGAIN_AWAY = timedelta(minutes=2)
"""Between looks at the instance of a Node that is missing or NotReady (Karpenter's garbage collection, reference 3.8),
at first. An instance that ended is found by the first look or two, ..."""
LOOK_STEADY: Final = 2
"""... so that after so many they come twice as late each time, ..."""
LOOK_SLOWEST_AWAY = timedelta(minutes=10)
"""... up to this."""

EMPTY: Final = "Empty"
EXPIRED: Final = "Expired"
INTERRUPTED: Final = "Interrupted"
PERMIT: Final = "the pool's permit"
REPLACED_LATER = "waits for its replacement to be planned"


class Verdict(Value):
    do: Literal["wait", "drain", "interrupt", "initialize", "expire", "ask", "withdraw", "disrupt", "look", "repair"]
    until: datetime | None = None
    """For `wait`: when time alone changes the verdict; None while only a signal can."""
    why: str = ""
    blocked_by: str = ""
    """Who or what holds the node back, in words; empty while it goes its way."""


def decide_ready(state: ClaimState, now: datetime) -> Verdict:
    """Deletion first, then AWS's word, then what the machine says, then expiry, then its health, then the pool's wish
    to shrink."""
    seen = state.seen
    if seen.deleting or not seen.exists:
        return Verdict(do="drain", why=seen.disruption or "Deleted")
    event = decide_interruption(state, now)
    if event.do in ACTING:
        return Verdict(do="interrupt", why=event.reason)
    if seen.boot_id and state.boot_id and seen.boot_id != state.boot_id:
        return Verdict(do="initialize", why="Rebooted")
    expired = has_expired(state, now)
    if expired and not is_under_budget(state):
        return Verdict(do="expire", why=EXPIRED)
    if not seen.node_name:
        return Verdict(do="look", why="NodeNotFound")
    trouble = decide_repair(state, now) if expected_back(state) is None else Repair()
    if trouble.do != "wait":
        return Verdict(do="repair", why=trouble.condition)
    return _waiting(event, _beside(trouble, _decide_calm(state, now, event, expired=expired)))


def _decide_calm(state: ClaimState, now: datetime, event: Interrupted, *, expired: bool) -> Verdict:
    look = state.unready_since + look_pause(state.looks) if state.unready_since else None
    if look and now >= look:
        return Verdict(do="look", why="NodeNotReady")
    if event.do == "ask":
        return _sooner(_paused(state, now) or _left_alone(state, now) or _decide_permit(state, now, INTERRUPTED), look)
    if expired:
        return _sooner(_decide_expired(state, now), look)
    return _sooner(_sooner(_decide_empty(state, now), expiry_of(state)), look)


def look_pause(looks: int) -> timedelta:
    """Before another look at the instance, after as many that found it running."""
    doublings: int = 2 ** min(max(0, looks - LOOK_STEADY), 8)
    return min(LOOK_SLOWEST_AWAY, LOOK_AGAIN_AWAY * doublings)


def _decide_expired(state: ClaimState, now: datetime) -> Verdict:
    """Only where rules say so: whatever runs there, it goes as soon as its NodePool's budget has room."""
    return _paused(state, now) or _left_alone(state, now) or _decide_permit(state, now, EXPIRED)


def drain_rules(state: ClaimState) -> DrainRules | None:
    return state.seen.rules.drain if state.seen.rules else None


def _left_alone(state: ClaimState, now: datetime) -> Verdict | None:
    """A node whose drain was given up goes nowhere of Tenure's own accord for a while; None for any other."""
    gave_up = state.gave_up
    if gave_up is None or now >= gave_up.again:
        return None
    held = f"its drain was given up: {gave_up.why}"[:LINE]
    return _let_go(state, Verdict(do="wait", until=gave_up.again, why="drain given up", blocked_by=held))


def _decide_empty(state: ClaimState, now: datetime) -> Verdict:
    due = empty_due(state)
    if due is None:
        return _let_go(state, Verdict(do="wait", blocked_by=_held(state)))
    if alone := _paused(state, now) or _left_alone(state, now):
        return alone
    if now < due:
        return _let_go(state, Verdict(do="wait", until=due, why=EMPTY))
    return _decide_permit(state, now, EMPTY)


def _paused(state: ClaimState, now: datetime) -> Verdict | None:
    if state.pause is None or not holds(state.pause, now):
        return None
    held = f"the node {words(state.pause)}"
    return _let_go(state, Verdict(do="wait", until=again_at(state.pause), why="Paused", blocked_by=held))


def _decide_permit(state: ClaimState, now: datetime, why: DisruptionReason) -> Verdict:
    """A permit for another reason counts for nothing: budgets differ by reason."""
    permit = state.permit if state.permit and state.permit.reason == why else None
    asked = state.permit_asked if state.permit_for == why else None
    if permit and permit.granted and permit.until and now < permit.until:
        return Verdict(do="disrupt", why=why)
    if asked is None or (permit and permit.granted):
        return Verdict(do="ask", why=why)
    doublings: int = 2 ** min(state.asks, 8)
    again = asked + (min(ASK_AGAIN_SLOWEST, ASK_AGAIN_REFUSED * doublings) if permit else ASK_AGAIN_UNANSWERED)
    if now >= again:
        return Verdict(do="ask", why=why)
    return Verdict(do="wait", until=again, why=PERMIT, blocked_by=permit.blocked_by if permit else "")


def _held(state: ClaimState) -> str:
    """Why an empty node stays all the same, or one that has drifted; any other occupied one needs no reason."""
    if not state.seen.empty:
        if state.seen.drift:
            return f"drifted: {state.seen.drift}, {REPLACED_LATER}"
        return f"room for CapacityBuffer {state.seen.kept_for}" if state.seen.kept_for else state.seen.awaits
    if state.seen.do_not_disrupt:
        return "the annotation karpenter.sh/do-not-disrupt on the Node"
    if not state.seen.policy:
        return "no NodePool: a standalone NodeClaim goes only by hand or expiry"
    never = consolidate_after(state.seen.policy) is None
    return f"consolidateAfter of NodePool {state.identity.pool} is Never" if never else ""


def empty_due(state: ClaimState) -> datetime | None:
    """When an empty node may go; None while it is not empty, is held, or its pool never consolidates."""
    seen = state.seen
    after = consolidate_after(seen.policy)
    if not seen.empty or seen.empty_since is None or after is None or seen.do_not_disrupt:
        return None
    return seen.empty_since + after


def consolidate_after(policy: str) -> timedelta | None:
    """The NodePool's consolidateAfter out of `<consolidationPolicy>/<consolidateAfter>`; None for Never or no pool."""
    _, _, text = policy.partition("/")
    return parse_duration(text) if text else None


def _beside(trouble: Repair, verdict: Verdict) -> Verdict:
    """Health is looked at again at its own time, and holds back nothing that has a reason of its own."""
    if verdict.do == "wait" and trouble.blocked_by and not verdict.blocked_by:
        verdict = verdict.model_copy(update={"blocked_by": trouble.blocked_by})
    return _sooner(verdict, trouble.until)


def _waiting(event: Interrupted, verdict: Verdict) -> Verdict:
    """What AWS announced is looked at again at its own time, and said first."""
    if verdict.do != "wait" or event.do not in ("wait", "ask"):
        return verdict
    said = "; ".join(words for words in (event.why, verdict.blocked_by) if words)
    return _sooner(verdict.model_copy(update={"blocked_by": said}), event.until)


def _let_go(state: ClaimState, verdict: Verdict) -> Verdict:
    return Verdict(do="withdraw", why=verdict.why) if state.permit_asked else verdict


def _sooner(verdict: Verdict, moment: datetime | None) -> Verdict:
    if verdict.do != "wait" or moment is None:
        return verdict
    until = min(verdict.until, moment) if verdict.until else moment
    return verdict.model_copy(update={"until": until})
