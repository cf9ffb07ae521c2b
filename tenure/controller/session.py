"""One stay of the watch in this process: its caches, what it told whom, its planner. Made anew at every start.

`host.py` runs it; nothing in here outlives it but what was written to Kubernetes and Temporal.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from temporalio.client import Client

from activities.ports.core import Instances, Offerings
from activities.ports.interruption import InterruptedNode
from tenure.apis.feature_gates import FeatureGate
from tenure.controller import settings as gates
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.dirty import ChangeSet, SingleFlight
from tenure.controller.cache.expected_pods import ExpectedPods, ExpectedPodsGauge
from tenure.controller.cache.nominations import Nominations
from tenure.controller.capacity_buffers import CapacityBuffers
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.consistency import ConsistencyChecker
from tenure.controller.disruption.facade import VoluntaryDisruption
from tenure.controller.disruption.status import OverlayStatusWriter
from tenure.controller.drift import DriftDetector
from tenure.controller.interruption import InterruptedCapacity
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.metrics.nodeclaims import NodeClaimMetrics, OverdueMetrics
from tenure.controller.metrics.nodepools import NodePoolMetrics, OfferingMetrics, meter_of
from tenure.controller.metrics.planner import CreatedNodeClaimsCounter, PlanMetrics
from tenure.controller.planning.discovered_capacity import DiscoveredCapacityNotifier
from tenure.controller.planning.pod_nominator import PodNominator
from tenure.controller.planning.provisioner import Provisioner
from tenure.controller.planning.undersized_nodes import PlanningWarmUp
from tenure.controller.resync import (
    list_coordinators,
    list_nodeclaim_workflows,
    notify_orphaned_coordinators,
    repair_nodeclaim_workflows,
)
from tenure.controller.settings import ControllerSettings
from tenure.controller.signals.digests import short_hash
from tenure.controller.signals.disruption_trigger import BudgetHeadroomNotifier
from tenure.controller.signals.lifecycle_observers import LifecycleObservers
from tenure.controller.signals.notifier import SyncedKinds, WorkflowNotifier
from tenure.controller.signals.pending_pods import nomination_target
from tenure.controller.signals.provisioning_trigger import ProvisioningTrigger
from tenure.controller.signals.signaller import Signal, SignalQueue, Start
from tenure.controller.startup_durations import StartupDurations
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.kube.client.list_watch import Delta, ListWatch
from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.facts import PodFact
from tenure.model.interruption.notices import InterruptionMessage
from tenure.model.observations import ObservedDemand, ObservedUnavailableOfferings
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlanOutcome, PlanRequest
from tenure.model.workflow_states import ProvisioningState
from workflows import ids

GATHER_SECONDS: Final = 0.1
"""Seconds for which changes are gathered before anything is made of them, ..."""
REST_FACTOR: Final = 4
"""... and times as long as it took to make something of the last ones, since most of the process is for its activities
and workflows; ..."""
MAX_REST_SECONDS: Final = 0.6
"""... at most so many seconds: what comes still comes before a batch of pods has waited its idle time."""
WATCHED: Final = (
    resources.NODE_CLAIMS,
    resources.NODES,
    resources.PODS,
    resources.NODE_POOLS,
    resources.EC2_NODE_CLASSES,
    resources.LIFECYCLE_POLICIES,
    resources.DAEMON_SETS,
    resources.NAMESPACES,
    resources.STORAGE_CLASSES,
    resources.PERSISTENT_VOLUMES,
    resources.PERSISTENT_VOLUME_CLAIMS,
    resources.CSI_NODES,
    resources.POD_DISRUPTION_BUDGETS,
)


class ControllerSession:
    def __init__(
        self,
        *,
        settings: ControllerSettings,
        kube: KubeAdapters,
        temporal: Client,
        offerings: Offerings,
        instances: Instances,
        sent: dict[str, str],
        now: Callable[[], datetime],
    ) -> None:
        self._settings, self._temporal, self._now = settings, temporal, now
        self._awake = asyncio.Event()
        self.sent = sent
        self.cache = ClusterCache(now, self._awake.set)
        self._nominations = Nominations(self.cache.owner_of)
        self._buffers = (
            CapacityBuffers(self.cache, kube.buffers, now) if FeatureGate.CAPACITY_BUFFER in settings.gates else None
        )
        port, default_deadlines = kube.lifecycle_policies, settings.deadlines
        self._policies = LifecyclePolicies(
            self.cache, port, default_deadlines=default_deadlines, now=now, on_change=self._awake.set
        )
        self._cluster_pause = ClusterPause(settings.namespace, self.cache, self._awake.set)
        meter = meter_of(temporal)
        self._nodeclaim_metrics = NodeClaimMetrics(self.cache, self._cluster_pause, meter)
        gauges = (OverdueMetrics(self.cache, meter), self._nodeclaim_metrics, NodePoolMetrics(self.cache, meter))
        startup = StartupDurations(self.cache, self._policies.deadlines_of)
        headroom_notifier = BudgetHeadroomNotifier(
            self.cache,
            rules_of=self._policies.rules_of,
            is_drifted=lambda one: bool(self._drift_detector.verdict_of(one)),
        )
        self._observers = LifecycleObservers(self._policies, startup, gauges, self._cluster_pause, headroom_notifier)
        self.cache.on_pod_bound = self._on_pod_bound
        self.cache.on_pod_deleted = self._on_pod_deleted
        self._not_ready = NotReadyTracker(self.cache, self._policies.not_ready_grace_of)
        self._expected_pods_gauge = ExpectedPodsGauge(
            ExpectedPods(self.cache, self._nominations, self._not_ready), meter
        )
        self._signal_queue = SignalQueue(temporal, settings.task_queue, sent)
        self._began = now()
        self._notifier = self._make_notifier()
        self._provisioning_trigger = ProvisioningTrigger(
            self.cache, self._nominations, self._not_ready, self._buffers, self._signal_pending_pods
        )
        self._provisioner = self._make_provisioner(kube, offerings)
        self._warm_up = PlanningWarmUp(
            self.cache,
            has_planned=lambda: self._provisioner.passes > 0,
            is_uncertain=lambda: self._buffers is not None and self._buffers.is_uncertain,
        )
        self._interrupted_capacity = InterruptedCapacity(
            self.cache, self._policies.rules_of, self._signal_unavailable_offerings, now
        )
        self._provisioner.planner_client.interrupted_offerings, self._provisioner.burst_ends_at = (
            self._interrupted_capacity.unavailable_offerings,
            self._interrupted_capacity.burst.ends_at,
        )
        feed = self._provisioner.catalogue
        self._drift_detector = DriftDetector(
            cache=self.cache, types=feed.types_of, instances=instances, events=kube.events, now=now
        )
        self._consistency_checker = ConsistencyChecker(
            cache=self.cache, claims=kube.claims, events=kube.events, now=now
        )
        self._offering_metrics = OfferingMetrics(meter)
        feed.on_changed = self._on_catalogue_changed
        nomination_port = kube.pods if settings.nominate_pods else None
        self._pod_nominator = (
            PodNominator(self.cache, self._nominations, nomination_port, now) if nomination_port else None
        )
        self._discovered_capacity_notifier = DiscoveredCapacityNotifier(
            settings.cluster, self._provisioner.capacity_discovery, self._signal_queue
        )
        self._single_flight = SingleFlight()
        self._voluntary_disruption = VoluntaryDisruption(
            host=settings,
            kube=kube,
            cache=self.cache,
            provisioner=self._provisioner,
            nominations=self._nominations,
            not_ready=self._not_ready,
            policies=self._policies,
            signal_queue=self._signal_queue,
            cluster_pause=self._cluster_pause,
            meter=meter,
            now=now,
        )
        self._watches = {
            one.plural: ListWatch(kube.client, one, on_deltas=self._make_handler(one.plural), now=time.monotonic)
            for one in (*WATCHED, *gates.gated_kinds(settings.gates))
        }

    def _make_notifier(self) -> WorkflowNotifier:
        return WorkflowNotifier(
            cluster=self._settings.cluster,
            deadlines=self._settings.deadlines,
            cache=self.cache,
            nominations=self._nominations,
            not_ready=self._not_ready,
            signal_queue=self._signal_queue,
            began=self._began,
            drift=lambda claim: self._drift_detector.verdict_of(claim),
            observers=self._observers,
            buffer_needing=self._buffers.buffer_needing if self._buffers else lambda claim: "",
            discovered=lambda node_class: self._provisioner.capacity_discovery.for_node_class(node_class),
            static_capacity=FeatureGate.STATIC_CAPACITY in self._settings.gates,
            node_repair=FeatureGate.NODE_REPAIR in self._settings.gates,
        )

    def _make_provisioner(self, kube: KubeAdapters, offerings: Offerings) -> Provisioner:
        return Provisioner(
            cache=self.cache,
            nominations=self._nominations,
            not_ready=self._not_ready,
            claims=kube.claims,
            events=kube.events,
            offerings=offerings,
            settings=self._settings.planning,
            not_ready_grace=self._settings.not_ready_grace,
            not_ready_grace_periods=self._policies.not_ready_grace_periods,
            now=self._now,
            overlay_status=OverlayStatusWriter(self.cache, kube.overlays, self._now),
            buffers=self._buffers,
            metrics=PlanMetrics(meter_of(self._temporal)),
            created_counter=CreatedNodeClaimsCounter(meter_of(self._temporal)),
        )

    def _on_catalogue_changed(self) -> None:
        self._drift_detector.schedule_full_pass()
        self._voluntary_disruption.disruption_trigger.trigger()
        self._nodeclaim_metrics.update_prices(self._provisioner.catalogue.catalogue)
        asyncio.get_running_loop().run_in_executor(
            None, self._offering_metrics.record, self._provisioner.catalogue.catalogue
        )

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, watch in self._watches.items():
                group.create_task(watch.run(), name=f"watch-{name}")
                group.create_task(self._requeue_pods_once_synced(watch), name=f"watch-{name}-synced")
            group.create_task(self._signal_queue.run(), name="watch-signals")
            group.create_task(self._notify_on_changes(), name="watch-tell")
            if self._pod_nominator:
                group.create_task(self._pod_nominator.run(), name="watch-placing")
            group.create_task(self._observers.run(), name="watch-policies")
            if self._buffers:
                group.create_task(self._watch_buffers(self._buffers), name="watch-buffers")

    async def close(self) -> None:
        self._expected_pods_gauge.close()
        await self._single_flight.close()
        await self._provisioner.close()

    async def wait_until_synced(self) -> None:
        """Until every kind is known, since a plan looks at all of them."""
        for watch in self._watches.values():
            await watch.synced.wait()

    def stale_kinds(self, within: float) -> list[str]:
        """The kinds that were not heard of lately."""
        return [name for name, watch in self._watches.items() if not watch.is_fresh(within)]

    def is_disconnected(self) -> bool:
        """No watch is open at all."""
        return all(watch.cut_since is not None for watch in self._watches.values())

    def observe_interruption(self, instance_id: str, notices: Sequence[InterruptionMessage]) -> None:
        """What AWS says, before anybody is told of it."""
        claim = self.cache.nodeclaim_of_instance(instance_id)
        if claim is not None:
            self._interrupted_capacity.observe(claim, notices)

    def start_early_eviction(self, instance_id: str, notices: Sequence[InterruptionMessage]) -> InterruptedNode | None:
        claim = self.cache.nodeclaim_of_instance(instance_id)
        return self._interrupted_capacity.start_early_eviction(claim, notices) if claim is not None else None

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        """A try of a plan that is under way joins it, so that nothing is created twice."""
        return await self._single_flight.run(f"plan/{request.plan_id}", lambda: self._plan(request))

    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision:
        key = f"decide/{request.model_dump_json()}"
        return await self._single_flight.run(
            key, lambda: self._voluntary_disruption.controller.compute_disruption(request)
        )

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult:
        key = f"replace/{replace_request.plan_id}"
        return await self._single_flight.run(
            key, lambda: self._voluntary_disruption.controller.create_replacements(replace_request)
        )

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        key = f"show/{request.name}"
        return await self._single_flight.run(
            key, lambda: self._voluntary_disruption.previewer.preview_disruption(request)
        )

    async def watch_disruption(self) -> None:
        """Until cancelled: say when it is worth a look, and what came of it."""
        await self._voluntary_disruption.run()

    async def watch_drift(self) -> None:
        """Until cancelled; and whether nodes are what was bought."""
        await asyncio.gather(self._drift_detector.run(), self._consistency_checker.run())

    async def sync_planner(self) -> None:
        await self._provisioner.sync_planner()

    async def resync(self) -> None:
        cluster = self._settings.cluster
        running = await list_nodeclaim_workflows(self._temporal, cluster)
        coordinators = await list_coordinators(self._temporal, cluster)
        if not self.stale_kinds(60.0):
            repair_nodeclaim_workflows(
                running, self.cache, self._notifier, self._signal_queue, self._synced_kinds(), self._now()
            )
            notify_orphaned_coordinators(coordinators, cluster, self.cache, self._notifier)

    async def _plan(self, request: PlanRequest) -> PlanOutcome:
        before = self._nominations.nominated_nodes()
        outcome = await self._provisioner.plan(request)
        if self._discovered_capacity_notifier.discard_if_lost():
            self._awake.set()
        first = self._provisioner.passes == 1
        for name in tuple(self.cache.nodeclaims) if first else {*before, *self._nominations.nominated_nodes()}:
            self.cache.requeue_nodeclaim(name)
        self.cache.requeue_pods()
        return outcome

    async def _watch_buffers(self, buffers: CapacityBuffers) -> None:
        """Once they are known, since a PodTemplate that is not known yet is not one that is missing."""
        for kind in gates.gated_kinds((FeatureGate.CAPACITY_BUFFER,)):
            await self._watches[kind.plural].synced.wait()
        await buffers.run()

    async def _requeue_pods_once_synced(self, watch: ListWatch) -> None:
        await watch.synced.wait()
        self.cache.requeue_pods()

    async def _notify_on_changes(self) -> None:
        """Wait for a change or for a time that was set, gather what comes with it, and tell whom it concerns."""
        rests_until = 0.0
        while True:
            await self._wait_until_awake()
            await asyncio.sleep(max(GATHER_SECONDS, rests_until - time.monotonic()))
            began = time.monotonic()
            self._awake.clear()
            now = self._now()
            changes = self.cache.drain_changes()
            self._drift_detector.observe(changes)
            known = self._synced_kinds()
            if self._pod_nominator:
                self._pod_nominator.update(changes.nodeclaims)
            self._observers.update(changes, known.policies, counted=known.nodeclaims and known.nodes and known.pods)
            self._voluntary_disruption.on_change(nodeclaims_deleted=bool(changes.deleted_nodeclaims))
            self._notifier.notify(changes, known, now)
            self._expected_pods_gauge.record(now)
            if known.pauses:
                self._cluster_pause.notify(self._settings.cluster, self._signal_queue, time.time_ns())
            if known.nodeclaims and known.nodes and known.nodeclasses:
                self._discover_capacity(changes, now)
            self._interrupted_capacity.expire(now)
            self._provisioning_trigger.update(changes, now, known=known.pods)
            over = time.monotonic()
            rests_until = over + min(MAX_REST_SECONDS, REST_FACTOR * (over - began))

    def _discover_capacity(self, changes: ChangeSet, now: datetime) -> None:
        """From nodes that came or changed; what they turn out to be too small for is demand again."""
        self._provisioner.capacity_discovery.discover(sorted(changes.nodeclaims))
        self._provisioner.undersized_nodes.forget_nodeclaims(changes.deleted_nodeclaims)
        changes.pods |= self._provisioner.undersized_nodes.release(changes.nodeclaims)
        self._discovered_capacity_notifier.notify(self._provisioning_start(), now)

    async def _wait_until_awake(self) -> None:
        wake_times = (
            self._notifier.next_due_at(),
            self._discovered_capacity_notifier.next_attempt_at,
            self._interrupted_capacity.next_expiry,
            *self._provisioning_trigger.wake_times,
        )
        times = [at for at in wake_times if at is not None]
        remaining = (min(times) - self._now()).total_seconds() if times else None
        try:
            await asyncio.wait_for(self._awake.wait(), None if remaining is None else max(remaining, 0.0))
        except TimeoutError:
            return

    def _signal_pending_pods(self, observed: ObservedDemand) -> None:
        workflow = ids.provisioning(self._settings.cluster)
        self._signal_queue.enqueue(
            Signal(workflow, "pending_pods", observed, str(observed.number), self._provisioning_start())
        )

    def _signal_unavailable_offerings(self, observed: ObservedUnavailableOfferings) -> None:
        """All that are marked at once, so that a later word may take an earlier one's place."""
        workflow, digest = ids.provisioning(self._settings.cluster), short_hash(observed.model_dump_json())
        self._signal_queue.enqueue(
            Signal(workflow, "offerings_unavailable", observed, digest, self._provisioning_start(), topic="taken back")
        )

    def _provisioning_start(self) -> Start:
        cluster = self._settings.cluster
        state = ProvisioningState(cluster=cluster, window=self._settings.window)
        return Start("Provisioning", state, summary=f"provisioning of {cluster}")

    def _synced_kinds(self) -> SyncedKinds:
        synced = {name: watch.synced.is_set() for name, watch in self._watches.items()}
        return SyncedKinds(
            nodeclaims=synced["nodeclaims"],
            nodes=synced["nodes"],
            pods=synced["pods"],
            nodepools=synced["nodepools"],
            nodeclasses=synced["ec2nodeclasses"],
            policies=synced["lifecyclepolicies"] and synced["nodepools"],
            pauses=synced["namespaces"],
            warm_up_until=self._warm_up.ends_at(
                self._now(), synced=all(synced[one] for one in ("nodeclaims", "nodes", "pods", "nodepools"))
            ),
        )

    def _make_handler(self, kind: str) -> Callable[[list[Delta]], None]:
        if self._buffers and kind in {one.plural for one in gates.gated_kinds((FeatureGate.CAPACITY_BUFFER,))}:
            return functools.partial(self._buffers.on_deltas, kind)
        if kind == resources.LIFECYCLE_POLICIES.plural:
            return self._policies.on_deltas
        if kind == resources.NAMESPACES.plural:
            return self._on_namespaces
        return lambda deltas: self.cache.on_deltas(kind, deltas)

    def _on_namespaces(self, deltas: list[Delta]) -> None:
        self.cache.on_deltas(resources.NAMESPACES.plural, deltas)
        self._cluster_pause.on_deltas(deltas)

    def _on_pod_bound(self, uid: str) -> None:
        now, location = self._now(), nomination_target(self.cache.pods[uid].node_name, self.cache)
        vacated = self._nominations.on_pod_arrived(uid, location, now)
        for target in (vacated, self._nominations.on_pod_bound(uid, now)):
            if target:
                self.cache.requeue_nodeclaim(target)

    def _on_pod_deleted(self, pod: PodFact) -> None:
        target = self._nominations.on_pod_deleted(pod.uid, pod.owner_uid, self._now())
        if target:
            self.cache.requeue_nodeclaim(target)
