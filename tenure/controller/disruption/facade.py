"""Voluntary disruption in one session: drift, the disruption controller, its trigger, and previews."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from temporalio.common import MetricMeter

from activities.ports.core import Instances
from tenure.apis.feature_gates import FeatureGate
from tenure.apis.labels import INSTANCE_TYPE
from tenure.controller.cache.availability import ActivePauses, early_eviction_holds
from tenure.controller.cache.changes import ChangeBatch, OfferingsAvailable
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.pod_verdicts import PodVerdicts
from tenure.controller.consistency import ConsistencyChecker
from tenure.controller.disruption.cached_budgets import NodePoolBudgets
from tenure.controller.disruption.controller import DisruptionController, DisruptionPass, make_disruption_settings
from tenure.controller.disruption.deletion_costs import DeletionCostWriter
from tenure.controller.disruption.status import VerdictReporter
from tenure.controller.drift import DriftDetector
from tenure.controller.metrics import DisruptionMetrics
from tenure.controller.planning.planner_process import PlannerClient
from tenure.controller.pod_events import LastPodEventWriter
from tenure.controller.settings import ControllerSettings
from tenure.controller.signals.disruption_trigger import DisruptionTrigger
from tenure.controller.signals.signaller import SignalQueue
from tenure.controller.watched_cluster import WatchedCluster
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.disruption.decision import Command, Decision
from tenure.model.facts import PodFact
from tenure.model.operator_requests import CommandPreview, DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlannedNodeClaim

MAX_COMMANDS: Final = 100
MAX_POD_GROUPS: Final = 100
_TYPES: Final = 3


class DisruptionPreviewer:
    def __init__(
        self,
        cache: ClusterCache,
        pod_verdicts: PodVerdicts,
        controller: DisruptionController,
        now: Callable[[], datetime],
    ) -> None:
        self._cache, self._pod_verdicts, self._controller, self._now = cache, pod_verdicts, controller, now

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        """Raises TryLater when no planner is available, which pending pods do not need."""
        if request.pending_pods:
            groups = self._pod_verdicts.list_groups(self._now(), clearing=request.clearing_pods)
            listed = tuple(groups[:MAX_POD_GROUPS])
            not_ready = {name: dict(one.not_ready) for name, one in self._cache.nodepools.items() if one.not_ready}
            return DisruptionStatus(
                at=self._now(), pending_pods=listed, more=len(groups) - len(listed), nodepools_not_ready=not_ready
            )
        pods = self._find_pods(request.name)
        if pods and not pods[0].node_name:
            verdict = self._pod_verdicts.verdict_of(pods[0], self._now())
            return _pod_status(pods).model_copy(update={"at": self._now(), "verdict": verdict})
        disruption_pass = await self._controller.evaluate()
        if disruption_pass.decision is None:
            return DisruptionStatus(at=disruption_pass.at, blocked=disruption_pass.blocked)
        found = self._cluster_status(disruption_pass.decision)
        if request.name:
            found = self._node_status(request.name, disruption_pass.decision)
        return found.model_copy(update={"at": disruption_pass.at})

    def _cluster_status(self, decision: Decision) -> DisruptionStatus:
        return DisruptionStatus(
            commands=tuple(_command_status(one) for one in decision.commands[:MAX_COMMANDS]),
            more=max(0, len(decision.commands) - MAX_COMMANDS),
            nodes=len(decision.nodes),
            eligible=sum(bool(one.eligible) for one in decision.nodes),
            ineligible=dict(decision.count_by_cause.most_common()),
        )

    def _node_status(self, name: str, decision: Decision) -> DisruptionStatus:
        verdicts = [one for one in decision.nodes if name in (one.claim, one.node)]
        if verdicts:
            node = verdicts[0].node
            commands = [_command_status(one) for one in decision.commands if node and node in one.node_names]
            return DisruptionStatus(verdicts=tuple(verdicts), commands=tuple(commands))
        pods = self._find_pods(name)
        if not pods:
            return DisruptionStatus(messages=(f"no NodeClaim, Node or pod has the name {name}",))
        status, pod = _pod_status(pods), pods[0]
        of_node = tuple(one for one in decision.nodes if one.node == pod.node_name)
        messages = list(status.messages)
        if not of_node:
            messages.append(f"it runs on {pod.node_name}, which belongs to no NodePool")
        messages += [message for command in decision.commands for message in _describe_moves(pod, command)]
        return status.model_copy(update={"messages": tuple(messages), "verdicts": of_node})

    def _find_pods(self, name: str) -> list[PodFact]:
        if name in self._cache.nodeclaims or name in self._cache.nodes:
            return []
        return [one for one in self._cache.pods.values() if name in (one.name, f"{one.namespace}/{one.name}")]


def _pod_status(pods: Sequence[PodFact]) -> DisruptionStatus:
    """Of the first of the pods with one name."""
    others = f"{len(pods) - 1} more pods have this name: write namespace/name"
    messages = (others,) if len(pods) > 1 else ()
    return DisruptionStatus(pod=f"{pods[0].namespace}/{pods[0].name}", messages=messages)


def _describe_moves(pod: PodFact, command: Command) -> Iterator[str]:
    for one in command.moves:
        if one.pod_uid == pod.uid:
            where = one.target or f"a new node of NodePool {command.replacements[one.replacement].pool}"
            yield f"it would move from {one.source} to {where}: {command.why}"


def _command_status(command: Command) -> CommandPreview:
    return CommandPreview(
        reason=command.reason,
        nodes=command.node_names,
        replacements=tuple(_describe_replacement(one) for one in command.replacements),
        pods=len(command.moves),
        price_before=command.price_before,
        price_after=command.price_after,
        why=command.why,
    )


def _describe_replacement(planned: PlannedNodeClaim) -> str:
    types = next((one.values for one in planned.requirements if one.key == INSTANCE_TYPE), ())
    more = f" or {len(types) - _TYPES} more" if len(types) > _TYPES else ""
    return f"{planned.pool}: {', '.join(types[:_TYPES]) or 'any type'}{more}"


class VoluntaryDisruption:
    def __init__(
        self,
        *,
        settings: ControllerSettings,
        kube: KubeAdapters,
        cluster: WatchedCluster,
        planner_client: PlannerClient,
        instances: Instances,
        signal_queue: SignalQueue,
        meter: MetricMeter,
        now: Callable[[], datetime],
    ) -> None:
        cache, policies, catalogue = cluster.cache, cluster.policies, planner_client.catalogue
        self.drift_detector = DriftDetector(
            cache=cache, types=catalogue.types_of, instances=instances, events=kube.events, now=now
        )
        self._consistency_checker = ConsistencyChecker(cache=cache, claims=kube.claims, events=kube.events, now=now)
        self._last_pod_event_writer = LastPodEventWriter(cache, kube.claims, now)
        self._verdict_reporter, self._metrics = VerdictReporter(cache, kube.events), DisruptionMetrics(meter)
        self._deletion_costs = (
            DeletionCostWriter(cache, kube.pods, meter) if FeatureGate.POD_DELETION_COST in settings.gates else None
        )
        self.controller = DisruptionController(
            cache=cache,
            planner_client=planner_client,
            nominations=cluster.nominations,
            not_ready=cluster.not_ready,
            budgets=NodePoolBudgets(cache, policies.rules_of, policies.unread_of),
            claims=kube.claims,
            events=kube.events,
            settings=make_disruption_settings(settings.gates),
            not_ready_grace=settings.deadlines.not_ready_grace,
            not_ready_grace_periods=policies.not_ready_grace_periods,
            expiry_jitters=policies.expiry_jitters,
            now=now,
            paused=ActivePauses(cache, cluster.pause),
            early_evicted=partial(early_eviction_holds, cache),
            on_passed=self._on_passed,
            meter=meter,
        )
        self._trigger = DisruptionTrigger(
            cache, signal_queue, settings.cluster, last_pass_seconds=lambda: self.controller.last_pass_seconds
        )
        self.previewer = DisruptionPreviewer(cache, cluster.pod_verdicts, self.controller, now)
        catalogue.subscribe(lambda _: self.drift_detector.schedule_full_pass())
        cache.subscribe(OfferingsAvailable, lambda _: self._trigger.trigger())

    def on_changes(self, batch: ChangeBatch) -> None:
        self.drift_detector.observe(batch.changes)
        self._trigger.on_change(nodeclaims_deleted=bool(batch.changes.deleted_nodeclaims))
        self._last_pod_event_writer.collect()

    async def run(self) -> None:
        """Runs until cancelled. Start it once every kind is synced: an unknown NodePool must not count as deleted."""
        concerns = (
            self.drift_detector,
            self._consistency_checker,
            self._trigger,
            self._verdict_reporter,
            self._last_pod_event_writer,
            *((self._deletion_costs,) if self._deletion_costs else ()),
        )
        async with asyncio.TaskGroup() as group:
            for one in concerns:
                group.create_task(one.run(), name=f"watch-{type(one).__name__}")

    def close(self) -> None:
        self._metrics.close()

    def _on_passed(self, disruption_pass: DisruptionPass, decision: Decision) -> None:
        self._verdict_reporter.update(decision)
        self._metrics.record_pass(disruption_pass, decision)
        if self._deletion_costs:
            self._deletion_costs.update(decision.nodes, disruption_pass.allowed_disruptions)
