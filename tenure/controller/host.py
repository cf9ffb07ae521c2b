"""The watch: list-watches, digests, signals, demand and planning, for as long as this process hosts it.

Run by the `watch_cluster` activity, whose heartbeat is the fail-over; satisfies `activities.watch.WatchHost`. Kinds
begin to work as they sync; there is no gate that waits for all.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Final

import structlog
from temporalio.client import Client

from activities.planner_host import WatchProgress
from activities.ports.core import Instances, Offerings
from activities.ports.interruption import Leaving, Standing
from tenure.controller.disruption.controller import LOOK_AGAIN
from tenure.controller.interruption import Noticing
from tenure.controller.session import Session
from tenure.controller.settings import HostSettings
from tenure.controller.temporal.client import free
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.model.disruption.commands import DecideAsked, Decided, ReplaceAsked, Replaced
from tenure.model.errors import Fault, Forbidden, TryLater
from tenure.model.interruption.notices import Notice
from tenure.model.operator_requests import ShowAsked, Shown
from tenure.model.provisioning import PlanOutcome, PlanRequest
from workflows import ids

log = structlog.get_logger(__name__)

_LEASE_EVERY: Final = 10.0
_HEARTBEAT_EVERY: Final = 1.0
_RESYNC_FIRST: Final = (3.0, 45.0)
"""Seconds before the first two: for what went while nobody watched, and for what was too young then."""
_RESYNC_EVERY: Final = 180.0
_FEED_EVERY: Final = 0.5
_DEAF_FOR: Final = 60.0
"""Seconds without any watch of the API server after which another process had better try."""
FRESH_WITHIN: Final = 5.0
"""Seconds; a plan on older caches is refused."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ClusterHost:
    """One per process; `run` is called again after every fail-over back to it."""

    def __init__(
        self,
        *,
        settings: HostSettings,
        kube: KubeAdapters,
        temporal: Client,
        offerings: Offerings,
        instances: Instances,
        plan_worker: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._settings, self._kube, self._temporal = settings, kube, temporal
        self._offerings, self._instances = offerings, instances
        self._plan_worker = plan_worker
        self._session: Session | None = None
        self._noticing = Noticing(temporal, settings.cluster)

    async def run(self, carried: WatchProgress | None, heartbeat: Callable[[WatchProgress], None]) -> None:
        """Until cancelled. Raises Forbidden while Karpenter is at work, TryLater when no API server is to be had."""
        await self._check_others()
        session = Session(
            settings=self._settings,
            kube=self._kube,
            temporal=self._temporal,
            offerings=self._offerings,
            instances=self._instances,
            sent=dict(carried.digests) if carried else {},
            now=_utc_now,
        )
        self._session = session
        log.info("watch hosted", cluster=self._settings.cluster, carried=len(session.sent))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(session.run(), name="watch-session")
                group.create_task(self._beat(session, heartbeat), name="watch-heartbeat")
                group.create_task(self._free_coordinators(), name="watch-free")
                group.create_task(self._watch_others(), name="watch-others")
                group.create_task(self._resync(session), name="watch-resync")
                group.create_task(self._feed(session), name="watch-feed")
                group.create_task(self._watch_drift(session), name="watch-drift")
                group.create_task(self._watch_disruption(session), name="watch-disruption")
                group.create_task(self._host_plan_queue(session), name="watch-plan-queue")
        except* Fault as faults:
            raise _first(faults) from faults
        finally:
            # The watch may have failed over back to this process, and its next stay begun before this one ended.
            if self._session is session:
                self._session = None
            await session.close()
            log.info("watch given up", cluster=self._settings.cluster)

    async def _free_coordinators(self) -> None:
        """Whoever hosted before was likely killed, and had the cluster's own workflows in its cache."""
        for workflow_id in (ids.provisioning, ids.interruption, ids.cluster):
            await free(self._temporal, workflow_id(self._settings.cluster))

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        """Refuses, as a value, where there is no host or its caches are too old."""
        session, why = self._able()
        return await session.plan(request) if session else PlanOutcome(plan_id=request.plan_id, blocked=why)

    async def decide(self, asked: DecideAsked) -> Decided:
        """One pass of voluntary disruption; refuses as `plan` does."""
        session, why = self._able()
        if session is None:
            return Decided(blocked=why, first=asked.first, again=_utc_now() + LOOK_AGAIN)
        return await session.decide(asked)

    async def replace(self, asked: ReplaceAsked) -> Replaced:
        """The replacements of a command; refuses as `plan` does."""
        session, why = self._able()
        return await session.replace(asked) if session else Replaced(outcome="not now", why=why)

    async def show(self, asked: ShowAsked) -> Shown:
        """What would be done now, for people; refuses as `plan` does."""
        session, why = self._able()
        return await session.show(asked) if session else Shown(blocked=why)

    def owns(self, instance_ids: Collection[str]) -> frozenset[str]:
        """The instances of this cluster's NodeClaims among them."""
        caches = self._session.caches if self._session else None
        return frozenset(one for one in instance_ids if caches and caches.claim_on(one))

    def leaving(self, instance_id: str, notices: Sequence[Notice]) -> Leaving | None:
        """The instance's node, where its pods have to go before its life is asked. Of nobody while caches are too old:
        a LifecyclePolicy may say otherwise that is not known."""
        session, _ = self._able()
        return session.leaving(instance_id, notices) if session else None

    async def notice(self, instance_id: str, notices: Sequence[Notice], left: Sequence[str] = ()) -> Standing:
        """Tell a node's life what AWS says of its instance; caches that are too old still know what they knew."""
        session = self._session
        if session is None:
            return "later"
        session.hear(instance_id, notices)
        known = resources.NODE_CLAIMS.plural not in session.stale(FRESH_WITHIN)
        return await self._noticing.notice(session.caches, instance_id, notices, left=left, known=known)

    def _able(self) -> tuple[Session | None, str]:
        """The session while it knows enough to plan; else None, and why."""
        if self._session is None:
            return None, "this process does not host the watch"
        stale = self._session.stale(FRESH_WITHIN)
        return (None, f"caches are too old: {', '.join(stale)}") if stale else (self._session, "")

    async def _beat(self, session: Session, heartbeat: Callable[[WatchProgress], None]) -> None:
        deaf_since: float | None = None
        while True:
            heartbeat(WatchProgress(digests=dict(session.sent)))
            deaf_since = (deaf_since or time.monotonic()) if session.deaf() else None
            if deaf_since is not None and time.monotonic() - deaf_since > _DEAF_FOR:
                raise TryLater(f"no watch of the API server for {_DEAF_FOR:.0f} s; another replica may reach it")
            await asyncio.sleep(_HEARTBEAT_EVERY)

    async def _watch_others(self) -> None:
        while True:
            await asyncio.sleep(_LEASE_EVERY)
            try:
                await self._check_others()
            except TryLater as fault:
                log.warning("lease not read", fault=str(fault))

    async def _check_others(self) -> None:
        name = self._settings.others_lease
        holder = await self._kube.leases.holder("", name, now=_utc_now()) if name else ""
        if holder:
            raise Forbidden(
                f"{holder} renews the lease {name}: another controller of NodeClaims is at work in this cluster; "
                "scale it to zero, and Tenure goes on by itself"
            )

    async def _resync(self, session: Session) -> None:
        await session.plannable()
        for pause in chain(_RESYNC_FIRST, repeat(_RESYNC_EVERY)):
            await asyncio.sleep(pause)
            try:
                await session.resync()
            except Exception as error:
                log.warning("resync failed", error=str(error))

    async def _feed(self, session: Session) -> None:
        await session.plannable()
        while True:
            try:
                await session.feed()
            except Fault as fault:
                log.warning("planner not fed", fault=str(fault))
                await asyncio.sleep(1.0)
            await asyncio.sleep(_FEED_EVERY)

    async def _watch_drift(self, session: Session) -> None:
        """Once every kind is known, since a NodePool that is not known yet is not one that is gone."""
        await session.plannable()
        await session.watch_drift()

    async def _watch_disruption(self, session: Session) -> None:
        await session.plannable()
        await session.watch_disruption()

    async def _host_plan_queue(self, session: Session) -> None:
        """Plans are taken on only by the process that can make them, and only once it can."""
        await session.plannable()
        async with self._plan_worker():
            log.info("plans are taken on", cluster=self._settings.cluster)
            await asyncio.Event().wait()


def _first(faults: BaseExceptionGroup[Fault]) -> Fault:
    """What stopped the watch; a refusal by a person's doing before passing faults."""
    leaves: list[Fault] = []
    _flatten(faults, leaves)
    return next((one for one in leaves if isinstance(one, Forbidden)), leaves[0])


def _flatten(group: BaseExceptionGroup[Fault], leaves: list[Fault]) -> None:
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            _flatten(one, leaves)
        else:
            leaves.append(one)
