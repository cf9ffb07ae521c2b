"""Provisioning in one session: signals pending pods and unavailable offerings to the workflow, and makes its plans.

The Provisioning workflow freezes and launches the launch groups of each plan.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from temporalio.common import MetricMeter

from activities.ports.core import Offerings
from activities.ports.interruption import InterruptedNode
from tenure.clock import CLOCK
from tenure.controller.cache.changes import ChangeBatch, ChangeSet, OfferingsAvailable
from tenure.controller.disruption.status import OverlayStatusWriter
from tenure.controller.interruption.notifier import InterruptedCapacity
from tenure.controller.planning.discovered_capacity import DiscoveredCapacityNotifier
from tenure.controller.planning.planner_process import PlannerClient
from tenure.controller.planning.pod_nominator import PodNominator
from tenure.controller.planning.pod_verdict_events import CapacityEvents, PodVerdictEvents
from tenure.controller.planning.provisioner import Provisioner
from tenure.controller.planning.undersized_nodes import PlanningWarmUp
from tenure.controller.settings import ControllerSettings
from tenure.controller.signals.digests import short_hash
from tenure.controller.signals.pending_pods import ProvisioningTrigger
from tenure.controller.signals.signaller import Signal, SignalQueue, Start
from tenure.controller.watched_cluster import WatchedCluster
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.observations import ObservedDemand, ObservedUnavailableOfferings
from tenure.model.plan import PlanOutcome, PlanRequest
from tenure.model.workflow_states import ProvisioningState
from tenure.tracing.recorder import TRACES
from tenure.tracing.spans import span_of_pending_pods
from workflows import ids

_SYNC_LIMIT: Final = timedelta(minutes=1)
"""A new host signals pending pods and discovered capacity once all kinds are synced. While it lists thousands of
objects, a replay of Provisioning takes longer than the timeout of a workflow task, ten seconds."""


class ProvisioningController:
    def __init__(
        self,
        *,
        settings: ControllerSettings,
        kube: KubeAdapters,
        cluster: WatchedCluster,
        offerings: Offerings,
        signal_queue: SignalQueue,
        meter: MetricMeter,
        now: Callable[[], datetime],
        is_leading: Callable[[], bool],
    ) -> None:
        self._cache, self._nominations, self._buffers = cluster.cache, cluster.nominations, cluster.buffers
        self._now = now
        self._signals_allowed_at = now() + _SYNC_LIMIT
        """Pods and capacity are signaled from then on, although no plan is possible without all kinds."""
        self._signal_queue, self._workflow_id = signal_queue, ids.provisioning(settings.cluster)
        state = ProvisioningState(cluster=settings.cluster, window=settings.window)
        self._start = Start("Provisioning", state, summary=f"provisioning of {settings.cluster}")
        self._interrupted_capacity = InterruptedCapacity(
            self._cache, cluster.policies.rules_of, self._signal_unavailable_offerings, now
        )
        self.planner_client = PlannerClient(
            cache=self._cache,
            offerings=offerings,
            events=kube.events,
            settings=settings.planning,
            now=now,
            overlay_status=OverlayStatusWriter(self._cache, kube.overlays, now),
            interrupted_offerings=self._interrupted_capacity.unavailable_offerings,
            is_leading=is_leading,
        )
        self.pod_verdict_events = PodVerdictEvents(self._cache, cluster.pod_verdicts, kube.events, now)
        self.capacity_events = CapacityEvents(self._cache, self._nominations, kube.events)
        self.provisioner = Provisioner(
            cache=self._cache,
            nominations=self._nominations,
            not_ready=cluster.not_ready,
            expected_pods=cluster.expected_pods,
            verdict_events=self.pod_verdict_events,
            planner_client=self.planner_client,
            claims=kube.claims,
            events=kube.events,
            scheduler_messages=kube.pods,
            not_ready_grace=settings.deadlines.not_ready_grace,
            not_ready_grace_periods=cluster.policies.not_ready_grace_periods,
            now=now,
            buffers=self._buffers,
            meter=meter,
            burst_ends_at=self._interrupted_capacity.burst.ends_at,
        )
        self._backoff_tracker = self.provisioner.backoff_tracker
        self._trigger = ProvisioningTrigger(
            self._cache, self._nominations, cluster.not_ready, self._buffers, self._signal_pending_pods
        )
        self.warm_up = PlanningWarmUp(
            self._cache,
            has_planned=lambda: self.provisioner.passes > 0,
            is_uncertain=lambda: self._buffers is not None and self._buffers.is_uncertain,
        )
        self.pod_nominator = (
            PodNominator(self._cache, self._nominations, kube.pods, now) if settings.nominate_pods else None
        )
        self._discovered_capacity_notifier = DiscoveredCapacityNotifier(
            settings.cluster, self.planner_client.capacity_discovery, signal_queue
        )
        self._cache.subscribe(OfferingsAvailable, self._on_offerings_available)

    def on_changes(self, batch: ChangeBatch) -> None:
        changes, known, now = batch.changes, batch.known, batch.now
        may_signal = known.plans or now >= self._signals_allowed_at
        if self.pod_nominator:
            self.pod_nominator.update(changes.nodeclaims)
        if known.nodeclaims and known.nodes and known.nodeclasses:
            self._discover_capacity(changes)
            if may_signal:
                self._discovered_capacity_notifier.notify(self._start, now)
        self._interrupted_capacity.expire(now)
        if known.pods and self._backoff_tracker.end_if_released():
            no_pods = ObservedDemand(number=CLOCK.next_number(), pods=0, newest_pod_at=now, at_once=True)
            self._signal_pending_pods(no_pods)
        changes.pods |= may_signal and not known.plans
        self._trigger.update(changes, now, known=known.pods and may_signal)

    @property
    def wake_times(self) -> list[datetime | None]:
        """Times at which to check again without a change."""
        return [
            self._signals_allowed_at if self._now() < self._signals_allowed_at else None,
            self._discovered_capacity_notifier.next_attempt_at,
            self._interrupted_capacity.next_expiry,
            *self._trigger.wake_times,
        ]

    async def plan(self, request: PlanRequest) -> PlanOutcome:
        before, began = self._nominations.nominated_nodes(), self._now()
        outcome = await self.provisioner.plan(request)
        self._record_pending_pods(outcome, began)
        self._trigger.expect_offerings(self.planner_client.next_available_at(began))
        self._discovered_capacity_notifier.discard_if_lost()
        for name in {*before, *self._nominations.nominated_nodes()}:
            self._cache.requeue_nodeclaim(name)
        self._cache.requeue_pods()
        return outcome

    def _on_offerings_available(self, _: OfferingsAvailable) -> None:
        """Pods that no plan has seen yet are signaled anyway."""
        if self.provisioner.passes:
            self._trigger.expect_offerings(self._now())
        self._cache.requeue_pods()

    def _record_pending_pods(self, outcome: PlanOutcome, began: datetime) -> None:
        """Record the root of the plan's trace. A blocked pass is repeated with the same ID."""
        if TRACES.recorder is None or outcome.blocked:
            return
        nodeclaims = (member.name for draft in outcome.drafts for member in draft.members)
        uids = (uid for name in nodeclaims for uid in self._nominations.pods_expected_on(name))
        pods = [pod for uid in uids if (pod := self._cache.pods.get(uid))]
        created = {f"{pod.namespace}/{pod.name}": pod.created for pod in pods}
        TRACES.record(span_of_pending_pods(outcome.plan_id, created, began=began, end=self._now()))

    def observe_interruption(self, instance_id: str, messages: Sequence[InterruptionMessage]) -> None:
        """Apply messages from AWS before the workflow receives them."""
        claim = self._cache.nodeclaim_of_instance(instance_id)
        if claim is not None:
            self._interrupted_capacity.observe(claim, messages)

    def start_early_eviction(self, instance_id: str, messages: Sequence[InterruptionMessage]) -> InterruptedNode | None:
        claim = self._cache.nodeclaim_of_instance(instance_id)
        return self._interrupted_capacity.start_early_eviction(claim, messages) if claim is not None else None

    def _discover_capacity(self, changes: ChangeSet) -> None:
        """Discover the memory of new and changed nodes. Pods of nodes that are too small need a plan again."""
        self.planner_client.capacity_discovery.discover(sorted(changes.nodeclaims))
        self.provisioner.undersized_nodes.forget_nodeclaims(changes.deleted_nodeclaims)
        changes.pods |= self.provisioner.undersized_nodes.release(changes.nodeclaims)

    def _signal_pending_pods(self, observed: ObservedDemand) -> None:
        self._signal_queue.enqueue(
            Signal(self._workflow_id, "pending_pods", observed, str(observed.number), self._start)
        )

    def _signal_unavailable_offerings(self, observed: ObservedUnavailableOfferings) -> None:
        """The observation has all unavailable offerings, so that a later signal may replace an earlier one."""
        digest = short_hash(observed.model_dump_json())
        self._signal_queue.enqueue(
            Signal(self._workflow_id, "offerings_unavailable", observed, digest, self._start, topic="taken back")
        )
