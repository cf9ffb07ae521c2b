"""Tells NodeClaims' lives what AWS says of their instances: instance to NodeClaim to workflow, through the caches.

The activities of `activities/interruptions.py` ask it, in the process that hosts the watch. What was told is remembered
by this process alone: after a restart a life hears it again, and takes it for the repeat it is.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from weakref import WeakValueDictionary

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.interruption_ports import Standing
from controller.caches import Caches
from model.facts import ClaimFact
from model.interruptions import Notice, Notices
from model.steps import TOLD_OF
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
