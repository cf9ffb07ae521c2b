"""One session of the controller: one object per concern, and the loop that publishes changes to them.

`ClusterController` creates a new one at every start. Only state in Kubernetes and Temporal outlives it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import chain, repeat
from typing import Final

import structlog
from temporalio.client import Client

from activities.ports.core import Instances, Offerings
from tenure.clock import wait_until_set
from tenure.controller.cache.changes import CacheChanged, ChangeBatch, SyncedKinds
from tenure.controller.disruption.facade import VoluntaryDisruption
from tenure.controller.invalid_object_reporter import InvalidObjectReporter
from tenure.controller.metrics import ControllerMetrics, meter_of
from tenure.controller.planning.controller import ProvisioningController
from tenure.controller.resync import YOUNG, restore_abandoned_nodes, restore_early_evicted_nodes
from tenure.controller.settings import ControllerSettings
from tenure.controller.signals.controller import SignalController
from tenure.controller.signals.signaller import SignalQueue
from tenure.controller.temporal.single_flight import SingleFlight
from tenure.controller.watched_cluster import WatchedCluster
from tenure.endpoints import Endpoints
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.errors import Fault
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlanOutcome, PlanRequest

log = structlog.get_logger(__name__)

GATHER_SECONDS: Final = 0.1
"""Seconds during which changes are collected into a batch."""
REST_FACTOR: Final = 4
"""Pause after a batch, in multiples of its duration: most of the process is for activities and workflows."""
MAX_REST_SECONDS: Final = 0.6
"""Shorter than the idle time that closes a batch of pods."""
_RESYNC_FIRST: Final = (3.0, YOUNG.total_seconds())
"""Seconds before the first two resyncs: for objects deleted while no process watched, and for those that were young."""
_RESYNC_EVERY: Final = 60.0
"""A workflow that a person terminates runs again within two minutes."""
_SYNC_EVERY: Final = 0.5
_RETRY_SYNC_SECONDS: Final = 10.0
"""After an unexpected error."""


class ControllerSession:
    def __init__(
        self,
        *,
        settings: ControllerSettings,
        kube: KubeAdapters,
        temporal: Client,
        offerings: Offerings,
        instances: Instances,
        now: Callable[[], datetime],
        endpoints: Endpoints | None = None,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """`endpoints`: of the process. `is_leading`: while it is false, another process may have acquired the Lease."""
        meter = meter_of(temporal)
        self._now, self._temporal, self._kube = now, temporal, kube
        self._awake = asyncio.Event()
        self._single_flight = SingleFlight()
        self._signal_queue = SignalQueue(temporal, settings.cluster, endpoints, is_leading)
        self.cluster = WatchedCluster(settings, kube, now)
        self.provisioning = ProvisioningController(
            settings=settings,
            kube=kube,
            cluster=self.cluster,
            offerings=offerings,
            signal_queue=self._signal_queue,
            meter=meter,
            now=now,
            is_leading=is_leading,
        )
        planner_client = self.provisioning.planner_client
        self._disruption = VoluntaryDisruption(
            settings=settings,
            kube=kube,
            cluster=self.cluster,
            planner_client=planner_client,
            instances=instances,
            signal_queue=self._signal_queue,
            meter=meter,
            now=now,
        )
        self.signals = SignalController(
            settings=settings,
            temporal=temporal,
            cluster=self.cluster,
            signal_queue=self._signal_queue,
            drift=self._disruption.drift_detector.drift_of,
            discovered=planner_client.capacity_discovery.for_node_class,
            meter=meter,
            now=now,
        )
        self._metrics = ControllerMetrics(self.cluster, meter, now)
        self._invalid_objects = InvalidObjectReporter(
            settings, self.cluster.cache, kube.events, self._signal_queue, meter, now
        )
        planner_client.catalogue.subscribe(self._metrics.on_catalogue)
        self.cluster.cache.subscribe(CacheChanged, lambda _: self._awake.set())
        # Signals come first: LifecyclePolicies, pauses and budget headroom add to the changes that the others see.
        concerns = (self.signals, self._metrics, self._disruption, self.provisioning, self._invalid_objects)
        for concern in concerns:
            self.cluster.cache.subscribe(ChangeBatch, concern.on_changes)

    async def run(self) -> None:
        """Runs until cancelled. Tasks that need every kind start once all are synced."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.cluster.run(), name="watch-cluster")
            group.create_task(self._signal_queue.run(), name="watch-signals")
            group.create_task(self._publish_changes(), name="watch-changes")
            group.create_task(self._invalid_objects.run(), name="watch-invalid-objects")
            group.create_task(self._run_once_synced(self._metrics.run), name="watch-metrics")
            if self.provisioning.pod_nominator:
                group.create_task(self.provisioning.pod_nominator.run(), name="watch-nominations")
            group.create_task(self.provisioning.capacity_events.run(), name="watch-capacity-events")
            publish_verdicts = self.provisioning.pod_verdict_events.run
            group.create_task(self._run_once_synced(publish_verdicts), name="watch-pod-verdicts")
            group.create_task(self._run_once_synced(self._resync_periodically), name="watch-resync")
            synced = group.create_task(self.cluster.wait_until_synced(), name="watch-synced")
            group.create_task(self._sync_planner(synced), name="watch-planner")
            group.create_task(self._run_once_synced(self._disruption.run), name="watch-disruption")
            limited_capacity = self.provisioning.planner_client.limited_capacity
            group.create_task(limited_capacity.run(), name="watch-limited-capacity")

    async def close(self) -> None:
        """After `run`. Plans and passes that still run record metrics until they are cancelled here."""
        await self._single_flight.close()
        await self.provisioning.provisioner.close()
        for one in (self._metrics, self._disruption, self._invalid_objects):
            one.close()

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        """A retry joins the running plan, so that nothing is created twice."""
        return await self._single_flight.run(f"plan/{request.plan_id}", lambda: self.provisioning.plan(request))

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        """The first plan comes first. Later plans preempt the pass within `PREEMPTION_LIMIT`."""
        while self._warm_up_ends_at() and self._is_planning_synced:  # noqa: ASYNC110 - it also ends by time
            await asyncio.sleep(GATHER_SECONDS)
        key, controller = f"decide/{request.model_dump_json()}", self._disruption.controller
        return await self._single_flight.run(key, lambda: controller.compute_disruption(request))

    async def create_replacements(self, request: ReplacementRequest) -> ReplacementResult:
        key, controller = f"replace/{request.plan_id}", self._disruption.controller
        return await self._single_flight.run(key, lambda: controller.create_replacements(request))

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        key, previewer = f"show/{request.model_dump_json()}", self._disruption.previewer
        return await self._single_flight.run(key, lambda: previewer.preview_disruption(request))

    async def resync(self) -> None:
        await self.signals.resync(self._synced_kinds)
        cache, claims, nodes = self.cluster.cache, self._kube.claims, self._kube.nodes
        await restore_abandoned_nodes(self._temporal, cache, claims, nodes)
        await restore_early_evicted_nodes(cache, claims, nodes, self._now())

    async def _run_once_synced(self, run: Callable[[], Awaitable[None]]) -> None:
        await self.cluster.wait_until_synced()
        await run()

    async def _resync_periodically(self) -> None:
        for pause in chain(_RESYNC_FIRST, repeat(_RESYNC_EVERY)):
            await asyncio.sleep(pause)
            try:
                await self.resync()
            except Exception as error:
                log.warning("resync failed", error=str(error))

    async def _sync_planner(self, synced: asyncio.Task[None]) -> None:
        """Start with the lists, so that the planner knows most objects when they are complete. An error delays only
        plans."""
        provisioner = self.provisioning.provisioner
        while True:
            try:
                await (provisioner.sync_planner() if synced.done() else provisioner.preload_planner())
            except Fault as fault:
                log.warning("planner sync failed", fault=str(fault))
                await asyncio.sleep(1.0)
            except Exception:
                log.exception("planner sync failed")
                await asyncio.sleep(_RETRY_SYNC_SECONDS)
            await asyncio.sleep(_SYNC_EVERY)

    async def _publish_changes(self) -> None:
        """Wait for a change or a timer, gather the changes that arrive together, and publish them as one batch."""
        rests_until = 0.0
        while True:
            await self._wait_until_awake()
            await asyncio.sleep(max(GATHER_SECONDS, rests_until - time.monotonic()))
            began = time.monotonic()
            self._awake.clear()
            now, cache = self._now(), self.cluster.cache
            cache.publish(ChangeBatch(cache.drain_changes(), self._synced_kinds(), now))
            over = time.monotonic()
            rests_until = over + min(MAX_REST_SECONDS, REST_FACTOR * (over - began))

    async def _wait_until_awake(self) -> None:
        times = [at for at in (self.signals.notifier.next_due_at(), *self.provisioning.wake_times) if at is not None]
        remaining = (min(times) - self._now()).total_seconds() if times else None
        await wait_until_set(self._awake, remaining)

    def _synced_kinds(self) -> SyncedKinds:
        is_synced = self.cluster.is_synced
        return SyncedKinds(
            nodeclaims=is_synced(resources.NODE_CLAIMS),
            nodes=is_synced(resources.NODES),
            pods=is_synced(resources.PODS),
            nodepools=is_synced(resources.NODE_POOLS),
            nodeclasses=is_synced(resources.EC2_NODE_CLASSES),
            policies=is_synced(resources.LIFECYCLE_POLICIES, resources.NODE_POOLS),
            drains=is_synced(
                resources.POD_DISRUPTION_BUDGETS, resources.VOLUME_ATTACHMENTS, resources.PERSISTENT_VOLUMES
            ),
            plans=self.cluster.are_all_kinds_synced,
            pauses=is_synced(resources.NAMESPACES),
            warm_up_until=self._warm_up_ends_at(),
        )

    def _warm_up_ends_at(self) -> datetime | None:
        return self.provisioning.warm_up.ends_at(self._now(), synced=self._is_planning_synced)

    @property
    def _is_planning_synced(self) -> bool:
        return self.cluster.is_synced(resources.NODE_CLAIMS, resources.NODES, resources.PODS, resources.NODE_POOLS)
