"""Tells NodeClaims' lives what AWS says of their instances: instance to NodeClaim to workflow, through the caches.

The activities of `activities/interruption/activities.py` ask it, in the process that hosts the watch. What was told
is remembered
by this process alone: after a restart a life hears it again, and takes it for the repeat it is.

What AWS takes back by announcement: nodes that are leaving before anybody deleted them, and pools that are short.

`noticing.py` tells the nodes' workflows, which delete their NodeClaims one after the other. Here all of it is known as
soon as it is read: so one plan replaces the nodes of a storm, and none is bought where they were taken from, and pods
that nothing holds are told to go before any workflow is.

How many nodes AWS takes back within some minutes, and until when they are a storm.

`taken_back.py` counts; `planning.py` deals out what it buys meanwhile (docs/decisions/storms-are-spread.md). The
Provisioning workflow remembers it for a worker that takes over in the middle.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from typing import Final
from weakref import WeakValueDictionary

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.ports.interruption import Leaving, Standing
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.cluster_cache import Caches
from tenure.kube.facts.pod_drain import first_out
from tenure.model.facts import ClaimFact
from tenure.model.instance_types import UnavailableOffering
from tenure.model.interruption.notices import EventKind, Notice, Notices
from tenure.model.launch import mark_of_taken
from tenure.model.nodeclaim_requests import TOLD_OF
from tenure.model.observations import MarksSeen
from tenure.policy.interruption.decision import leaves_at_once
from tenure.policy.interruption.rules import TAKES, rules_of
from workflows import ids

log = structlog.get_logger(__name__)

AT_ONCE: Final = 32
"""Signals under way."""
REMEMBERED: Final = 20_000
"""Notices that were told; the oldest are forgotten first."""
LAUNCHING: Final = timedelta(minutes=2)
"""So long an instance that nobody knows may be that of a NodeClaim without one."""
_AGAIN: Final = timedelta(seconds=1)
_RPC_TIMEOUT: Final = timedelta(seconds=10)
_FOR_GOOD: Final = frozenset(
    {RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.OUT_OF_RANGE}
)
"""What no repeat of this very signal helps. All else passes, or a person mends it, such as a key that ran out."""

_Key = tuple[str, str, str]
"""Instance, kind, id."""
_Told = tuple[str, datetime | None, datetime | None]
"""Status, starts, ends: a change of these is news."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Noticing:
    """One per process, whoever hosts the watch meanwhile."""

    def __init__(self, temporal: Client, cluster: str, *, now: Callable[[], datetime] = _utc_now) -> None:
        self._temporal, self._cluster, self._now = temporal, cluster, now
        self._told: OrderedDict[_Key, tuple[datetime, _Told]] = OrderedDict()
        """With the moment at which AWS said it: what is older than the last is no news."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._sending = asyncio.Semaphore(AT_ONCE)
        self._launching_at: tuple[datetime, bool] | None = None

    async def notice(
        self, caches: Caches, instance_id: str, notices: Sequence[Notice], *, known: bool, left: Sequence[str] = ()
    ) -> Standing:
        """One at a time for each instance. `known`: the caches hold every NodeClaim there is at present; `left`: pods
        that were told to go already.

        Raises what Temporal refuses for good, which no repeat would help."""
        claim = caches.claim_on(instance_id)
        if claim is None:
            return self._stranger(caches, known)
        worth = [one for one in notices if not (claim.deleting and one.kind == "instanceTerminating")]
        if not worth:
            return "over"
        turn = self._turns.setdefault(instance_id, asyncio.Lock())
        async with turn:
            news = self._news(instance_id, worth)
            if not news:
                return "repeated"
            said = Notices(instance_id=instance_id, notices=tuple(news), left=tuple(left)[:TOLD_OF])
            standing = await self._tell(claim, said)
            if standing == "told":
                self._remember(instance_id, news)
            return standing

    async def _tell(self, claim: ClaimFact, said: Notices) -> Standing:
        workflow_id = ids.nodeclaim(self._cluster, claim.name, claim.uid)
        handle = self._temporal.get_workflow_handle(workflow_id)
        try:
            async with self._sending:
                await handle.signal("noticed", said, rpc_timeout=_RPC_TIMEOUT)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return "over" if claim.deleting else "no workflow"
            if error.status in _FOR_GOOD:
                raise
            log.warning("node not told what AWS says", workflow=workflow_id, error=str(error))
            return "later"
        kinds = sorted({one.kind for one in said.notices})
        log.info("node told what AWS says", claim=claim.name, instance=said.instance_id, kinds=kinds)
        return "told"

    def _stranger(self, caches: Caches, known: bool) -> Standing:
        """An instance of nobody's; unless its NodeClaim is about to have it."""
        if not known:
            return "later"
        now = self._now()
        if self._launching_at is None or abs(now - self._launching_at[0]) >= _AGAIN:
            young = (one for one in caches.claims.values() if not one.provider_id and not one.deleting)
            self._launching_at = (now, any(now - one.created < LAUNCHING for one in young))
        return "not yet" if self._launching_at[1] else "foreign"

    def _news(self, instance_id: str, notices: Sequence[Notice]) -> list[Notice]:
        """Each but once, and the latest word alone where one was said and then another."""
        latest: dict[_Key, Notice] = {}
        for one in sorted(notices, key=lambda notice: notice.at):
            latest[_key(instance_id, one)] = one
        return [one for key, one in latest.items() if self._is_news(key, one)]

    def _is_news(self, key: _Key, notice: Notice) -> bool:
        before = self._told.get(key)
        return before is None or (before[1] != _told(notice) and before[0] <= notice.at)

    def _remember(self, instance_id: str, notices: Sequence[Notice]) -> None:
        for one in notices:
            key = _key(instance_id, one)
            self._told[key] = (one.at, _told(one))
            self._told.move_to_end(key)
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)


def _key(instance_id: str, notice: Notice) -> _Key:
    return (instance_id, notice.kind, notice.id)


def _told(notice: Notice) -> _Told:
    return (notice.status, notice.starts, notice.ends)


STORM: Final = 10
"""Nodes that AWS takes back within five minutes. Fewer are replaced as cheaply as any others."""
ANEW_AFTER: Final = timedelta(seconds=30)
"""What is said once for many interruptions is said anew when more of them come for longer than that."""


class Storm:
    def __init__(self) -> None:
        self._counts: dict[str, datetime] = {}
        """By a NodeClaim's UID, until when it counts, though it may be gone by then."""
        self._told: datetime | None = None

    def count(self, uid: str, until: datetime) -> None:
        """Once for each, however often it is said."""
        self._counts.setdefault(uid, until)

    def until(self, now: datetime) -> datetime | None:
        """When fewer than `STORM` of them count; None where that is so now."""
        self._counts = {uid: until for uid, until in self._counts.items() if now < until}
        latest = nlargest(STORM, self._counts.values())
        return latest[-1] if len(latest) == STORM else None

    def is_news(self, now: datetime) -> bool:
        """A storm began, or goes on. What is news is taken to be told."""
        until = self.until(now)
        if until is None or (self._told is not None and until < self._told + ANEW_AFTER):
            return False
        self._told = until
        return True


LEAVES_WITHIN: Final = timedelta(minutes=5)
"""AWS gives two minutes. What stands for longer is there to stay, whatever was said."""

_Pool = tuple[str, str, str, str]


class TakenBack:
    """`rules` are those of LifecyclePolicies by NodePool; `tell` hands marks to the Provisioning workflow."""

    def __init__(
        self,
        caches: Caches,
        rules: Callable[[str], LifecycleRules | None],
        tell: Callable[[MarksSeen], None],
        now: Callable[[], datetime],
    ) -> None:
        self._caches, self._rules, self._tell, self._now = caches, rules, tell, now
        self.storm = Storm()
        self._marks: dict[_Pool, UnavailableOffering] = {}
        self._until: dict[str, datetime] = {}
        """By NodeClaim, until when it is taken to be leaving."""
        self._evacuated: dict[str, datetime] = {}
        """Likewise, those whose pods were told to go before their workflows."""

    def hear(self, claim: ClaimFact, notices: Sequence[Notice]) -> None:
        """Repeats are harmless, and what comes too late is nothing."""
        now = self._now()
        for one in self._heed(claim, notices, now):
            self._take(claim, one.kind, min(one.at, now) + LEAVES_WITHIN)

    def leaving(self, claim: ClaimFact, notices: Sequence[Notice]) -> Leaving | None:
        """Whose pods have to go now, without asking anybody; from here on nobody is told that it is empty."""
        now, rules = self._now(), self._rules(claim.pool)
        heard = self._heed(claim, notices, now)
        if claim.deleting or not claim.initialized or not any(leaves_at_once(rules, one.kind) for one in heard):
            return None
        nodes = self._caches.nodes_of(claim)
        if len(nodes) != 1 or nodes[0].deleting:
            return None
        (node,) = nodes
        pods = first_out(self._caches.occupancy.pods(node.name).values(), now)
        if not pods:
            return None
        self._evacuated[claim.name] = now + LEAVES_WITHIN
        self._caches.evacuate(claim.name, evacuated=True)
        return Leaving(node=node.name, uid=node.uid, tainted=bool(node.taints), pods=pods)

    def marks(self, now: datetime) -> Sequence[UnavailableOffering]:
        """Of the last minutes."""
        return [one for one in self._marks.values() if now < one.until]

    @property
    def next(self) -> datetime | None:
        """When to look again though nothing changed."""
        return min((*self._until.values(), *self._evacuated.values()), default=None)

    def look(self, now: datetime) -> None:
        """What AWS left standing is as it was before."""
        for name in [name for name, until in self._until.items() if until <= now or name not in self._caches.going]:
            del self._until[name]
            self._caches.take_back(name, taken=False)
        for name in [name for name, until in self._evacuated.items() if until <= now]:
            del self._evacuated[name]
            self._caches.evacuate(name, evacuated=False)

    def _take(self, claim: ClaimFact, kind: EventKind, until: datetime) -> None:
        """Unless its NodePool takes no orders from AWS for this."""
        if claim.deleting or claim.name in self._until or self._ignores(claim, kind):
            return
        self._until[claim.name] = until
        self._caches.take_back(claim.name, taken=True)

    def _ignores(self, claim: ClaimFact, kind: EventKind) -> bool:
        return rules_of(self._rules(claim.pool), kind).action == "ignore"

    def _heed(self, claim: ClaimFact, notices: Sequence[Notice], now: datetime) -> list[Notice]:
        """What takes its capacity back; pools that are short by that, and storms, are told of."""
        found = _takes(notices, now)
        for one in found:
            said = min(one.at, now)
            if not self._ignores(claim, one.kind):
                self.storm.count(claim.uid, said + LEAVES_WITHIN)
            is_marked = self._mark(claim, said, now)
            if self.storm.is_news(now) or is_marked:
                self._tell(MarksSeen(unavailable=tuple(self.marks(now)), storm=self.storm.until(now)))
        return found

    def _mark(self, claim: ClaimFact, said: datetime, now: datetime) -> bool:
        """The pool is short whatever becomes of the node. False where that is no news."""
        mark = mark_of_taken(claim.labels, said)
        if mark is None or mark.until <= now:
            return False
        pool = (mark.instance_type, mark.zone, mark.capacity_type, mark.reservation_id)
        known = self._marks.get(pool)
        if known is not None and mark.until < known.until + ANEW_AFTER:
            return False
        self._marks[pool] = mark
        live = tuple(self.marks(now))
        self._marks = {key: one for key, one in self._marks.items() if one in live}
        log.info("capacity pool marked: AWS takes back from it", type=mark.instance_type, zone=mark.zone)
        return True


def _takes(notices: Sequence[Notice], now: datetime) -> list[Notice]:
    """What takes capacity back, and may still come true."""
    announced = (one for one in notices if one.kind in TAKES and one.status == "announced")
    return [one for one in announced if now < min(one.at, now) + LEAVES_WITHIN]
