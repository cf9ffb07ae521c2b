"""The watch: list-watches, signals, planning and disruption, while this process hosts it.

`LeaderElector` runs it in one process at a time. Signals start for each kind as it syncs; only planning, disruption and
the readers of AWS messages wait for all kinds.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final

import structlog
from temporalio.client import Client

from activities.ports.core import Instances, Offerings
from activities.ports.interruption import InterruptedNode, NotifyOutcome
from tenure.clock import utc_now
from tenure.controller.disruption.controller import RETRY_AFTER
from tenure.controller.interruption.notifier import InterruptionNotifier
from tenure.controller.session import ControllerSession
from tenure.controller.settings import ControllerSettings
from tenure.controller.temporal.client import reset_sticky_queue, try_signal
from tenure.endpoints import Endpoints
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.errors import Fault, Forbidden, TryLater
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlanOutcome, PlanRequest
from tenure.model.workflow_states import WatchHost
from workflows import ids

log = structlog.get_logger(__name__)

_LEASE_EVERY: Final = 10.0
_CONNECTION_CHECK_EVERY: Final = 1.0
_NO_WATCH_TIMEOUT: Final = 60.0
"""Seconds without any watch of the API server after which another process should try."""
FRESH_WITHIN: Final = 5.0
"""Seconds; a plan on older caches is rejected."""


_REPORT_TIMEOUT: Final = timedelta(seconds=3)


class KarpenterActive(Forbidden):
    """Another controller manages the same objects."""


async def _read_nothing() -> None:
    """Without readers."""


class ClusterController:
    """One per process; `run` is called again after every fail-over back to it."""

    def __init__(
        self,
        *,
        settings: ControllerSettings,
        kube: KubeAdapters,
        temporal: Client,
        offerings: Offerings,
        instances: Instances,
        plan_worker: Callable[[], AbstractAsyncContextManager[None]],
        read_interruptions: Callable[[], Awaitable[None]] = _read_nothing,
        is_leading: Callable[[], bool] = lambda: True,
        endpoints: Endpoints | None = None,
    ) -> None:
        """`read_interruptions` runs until cancelled. `is_leading`: false while a Lease could not be renewed in time, so
        that another process may host the watch. `endpoints` outlives sessions: the next session continues to track
        an unreachable Temporal."""
        self._settings, self._kube, self._temporal = settings, kube, temporal
        self._offerings, self._instances = offerings, instances
        self._plan_worker, self._read_interruptions, self._endpoints = plan_worker, read_interruptions, endpoints
        self._is_leading = is_leading
        self._session: ControllerSession | None = None
        self._reported_fault = ""
        self._interruption_notifier = InterruptionNotifier(temporal, settings.cluster)

    async def run(self) -> None:
        """Runs until cancelled. Raises KarpenterActive, or TryLater while no API server responds."""
        try:
            await self._check_karpenter_lease()
            await self._run_session()
        except Fault as fault:
            await self._report_host(str(fault))
            raise

    async def _run_session(self) -> None:
        session = ControllerSession(
            settings=self._settings,
            kube=self._kube,
            temporal=self._temporal,
            offerings=self._offerings,
            instances=self._instances,
            now=utc_now,
            endpoints=self._endpoints,
            is_leading=self._is_leading,
        )
        self._session = session
        log.info("watch hosted", cluster=self._settings.cluster)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(session.run(), name="watch-session")
                group.create_task(self._check_connection(session), name="watch-connection")
                group.create_task(self._free_coordinators(), name="watch-free")
                group.create_task(self._watch_karpenter_lease(), name="watch-others")
                group.create_task(self._host_plan_queue(session), name="watch-plan-queue")
                group.create_task(self._read_once_synced(session), name="watch-interruptions")
        except* Fault as faults:
            raise _most_severe(faults) from faults
        finally:
            # After a fail-over back to this process, the next session may begin before this one ends.
            if self._session is session:
                self._session = None
            await session.close()
            log.info("watch released", cluster=self._settings.cluster)

    async def _free_coordinators(self) -> None:
        """Reset the sticky queues of the cluster's workflows. The previous host was probably killed with them in its
        cache."""
        for workflow_id in (ids.provisioning, ids.interruption, ids.cluster, ids.watch):
            await reset_sticky_queue(self._temporal, workflow_id(self._settings.cluster))
        await self._report_host()

    async def _report_host(self, fault: str = "") -> None:
        """For the Temporal UI. A repeated fault is reported once, since each signal is a Temporal action. After a
        failed signal, the workflow shows the previous host."""
        if fault and fault == self._reported_fault:
            return
        host = WatchHost(identity=self._temporal.identity, at=utc_now(), fault=fault)
        workflow_id = ids.watch(self._settings.cluster)
        if await try_signal(self._temporal, workflow_id, "report_host", host, _REPORT_TIMEOUT):
            self._reported_fault = fault

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        """The result is `blocked` if this process does not host the watch or its caches are stale."""
        session, why = self._ready_session()
        return await session.plan(request) if session else PlanOutcome(plan_id=request.plan_id, blocked=why)

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        session, why = self._ready_session()
        if session is None:
            return DisruptionDecision(blocked=why, first=request.first, next_pass_at=utc_now() + RETRY_AFTER)
        return await session.compute_disruption(request)

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult:
        session, why = self._ready_session()
        return (
            await session.create_replacements(replace_request)
            if session
            else ReplacementResult(outcome="not now", why=why)
        )

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        session, why = self._ready_session()
        return await session.preview_disruption(request) if session else DisruptionStatus(blocked=why)

    def find_owned(self, instance_ids: Collection[str]) -> frozenset[str]:
        cache = self._session.cluster.cache if self._session else None
        return frozenset(one for one in instance_ids if cache and cache.nodeclaim_of_instance(one))

    def find_interrupted_node(
        self, instance_id: str, messages: Sequence[InterruptionMessage]
    ) -> InterruptedNode | None:
        """The instance's node if its pods must be evicted before its workflow decides. None while caches are stale,
        since an unknown LifecyclePolicy may apply."""
        session, _ = self._ready_session()
        return session.provisioning.start_early_eviction(instance_id, messages) if session else None

    async def notify(
        self, instance_id: str, messages: Sequence[InterruptionMessage], evicted_pods: Sequence[str] = ()
    ) -> NotifyOutcome:
        """Signal AWS messages to the NodeClaim workflow of the instance. Stale caches still resolve known instances."""
        session = self._session
        if session is None:
            return "later"
        session.provisioning.observe_interruption(instance_id, messages)
        known = resources.NODE_CLAIMS.plural not in session.cluster.stale_kinds(FRESH_WITHIN)
        return await self._interruption_notifier.notify(
            session.cluster.cache, instance_id, messages, evicted_pods=evicted_pods, known=known
        )

    def _ready_session(self) -> tuple[ControllerSession | None, str]:
        """The session if its caches are fresh and no other process can host the watch; else None and the reason."""
        if self._session is None:
            return None, "this process does not host the watch"
        if not self._is_leading():
            return None, "the Lease could not be renewed in time"
        stale = self._session.cluster.stale_kinds(FRESH_WITHIN)
        return (None, f"caches are too old: {', '.join(stale)}") if stale else (self._session, "")

    async def _check_connection(self, session: ControllerSession) -> None:
        disconnected_since: float | None = None
        while True:
            disconnected_since = (disconnected_since or time.monotonic()) if session.cluster.is_disconnected() else None
            if disconnected_since is not None and time.monotonic() - disconnected_since > _NO_WATCH_TIMEOUT:
                raise TryLater(
                    f"no watch of the API server for {_NO_WATCH_TIMEOUT:.0f} s; another replica may reach it"
                )
            await asyncio.sleep(_CONNECTION_CHECK_EVERY)

    async def _watch_karpenter_lease(self) -> None:
        """A failed read does not count as a holder: the next session would have to list all objects again."""
        while True:
            await asyncio.sleep(_LEASE_EVERY)
            try:
                await self._check_karpenter_lease()
            except KarpenterActive:
                raise
            except Fault as fault:
                log.warning("lease not read", fault=str(fault))

    async def _check_karpenter_lease(self) -> None:
        name = self._settings.karpenter_lease
        holder = await self._kube.leases.find_holder("", name, now=utc_now()) if name else ""
        if holder:
            raise KarpenterActive(
                f"{holder} renews the lease {name}: another NodeClaim controller is active in this cluster; "
                "scale it to zero, and Tenure continues automatically"
            )

    async def _host_plan_queue(self, session: ControllerSession) -> None:
        """Poll the plan queue once every kind is synced. Only the process that hosts the watch can plan."""
        await session.cluster.wait_until_synced()
        async with self._plan_worker():
            log.info("accepting plans", cluster=self._settings.cluster)
            await asyncio.Event().wait()

    async def _read_once_synced(self, session: ControllerSession) -> None:
        await session.cluster.wait_until_synced()
        await self._read_interruptions()


def _most_severe(faults: BaseExceptionGroup[Fault]) -> Fault:
    """The fault that stopped the watch. Forbidden, which a person has to resolve, comes before transient faults."""
    found: BaseException = faults.subgroup(Forbidden) or faults
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, Fault)
    return found
