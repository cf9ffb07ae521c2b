"""All of voluntary disruption in one stay of the watch: deciding, telling that something changed, showing verdicts.

`session.py` runs it and hands on what the Cluster workflow asks.

What people are shown of voluntary disruption, from a pass that is made for them. Pure but for that pass.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

from temporalio.common import MetricMeter

from tenure.apis.feature_gates import FeatureGate
from tenure.apis.labels import INSTANCE_TYPE
from tenure.controller.cache.availability import ActivePauses, NotReadyTracker, early_eviction_holds
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.disruption.budgets import NodePoolBudgets
from tenure.controller.disruption.controller import DisruptionController, make_disruption_settings
from tenure.controller.disruption.status import VerdictReporter
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.metrics.planner import CreatedNodeClaimsCounter, DisruptionMetrics
from tenure.controller.planning.provisioner import Provisioner
from tenure.controller.pod_events import LastPodEventWriter
from tenure.controller.settings import ControllerSettings
from tenure.controller.signals.disruption_trigger import DisruptionTrigger
from tenure.controller.signals.signaller import SignalQueue
from tenure.kube.adapters.build import KubeAdapters
from tenure.model.disruption.decision import Command, Decision
from tenure.model.facts import PodFact
from tenure.model.operator_requests import CommandPreview, DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import PlannedNodeClaim

MAX_COMMANDS: Final = 100
"""Commands."""
_TYPES: Final = 3


class DisruptionPreviewer:
    def __init__(self, cache: ClusterCache, controller: DisruptionController) -> None:
        self._cache, self._controller = cache, controller

    async def preview_disruption(self, request: DisruptionPreviewRequest) -> DisruptionStatus:
        """Raises TryLater when there is no planner to be had."""
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
        pods = [one for one in self._cache.pods.values() if name in (one.name, f"{one.namespace}/{one.name}")]
        if not pods:
            return DisruptionStatus(messages=(f"no NodeClaim, Node or pod of the name {name} is there",))
        return self._pod_status(pods[0], decision, len(pods) - 1)

    def _pod_status(self, pod: PodFact, decision: Decision, others: int) -> DisruptionStatus:
        verdicts = [one for one in decision.nodes if one.node == pod.node_name and pod.node_name]
        messages = [f"{others} more pods have this name: write namespace/name"] if others else []
        if not pod.node_name:
            messages.append("it has no node yet")
        elif not verdicts:
            messages.append(f"it runs on {pod.node_name}, which is no node of a NodePool")
        messages += [message for command in decision.commands for message in _describe_moves(pod, command)]
        return DisruptionStatus(pod=f"{pod.namespace}/{pod.name}", messages=tuple(messages), verdicts=tuple(verdicts))


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
        host: ControllerSettings,
        kube: KubeAdapters,
        cache: ClusterCache,
        provisioner: Provisioner,
        nominations: Nominations,
        not_ready: NotReadyTracker,
        policies: LifecyclePolicies,
        signal_queue: SignalQueue,
        cluster_pause: ClusterPause,
        meter: MetricMeter,
        now: Callable[[], datetime],
    ) -> None:
        self.disruption_trigger = DisruptionTrigger(
            cache, signal_queue, host.cluster, last_pass_seconds=lambda: self._metrics.last_pass_seconds
        )
        self._last_pod_event_writer = LastPodEventWriter(cache, kube.claims, now)
        self.verdict_reporter, self._metrics = VerdictReporter(cache, kube.events, meter), DisruptionMetrics(meter)
        self.controller = DisruptionController(
            cache=cache,
            planner_client=provisioner.planner_client,
            nominations=nominations,
            not_ready=not_ready,
            budgets=NodePoolBudgets(cache, policies.rules_of, policies.unread_of),
            claims=kube.claims,
            events=kube.events,
            settings=make_disruption_settings(spot_to_spot=FeatureGate.SPOT_TO_SPOT in host.gates),
            not_ready_grace=host.not_ready_grace,
            not_ready_grace_periods=policies.not_ready_grace_periods,
            now=now,
            paused=ActivePauses(cache, cluster_pause),
            early_evicted=partial(early_eviction_holds, cache),
            on_decided=self.verdict_reporter.update,
            on_passed=lambda disruption_pass: self._metrics.record_pass(
                disruption_pass.allowed_disruptions, disruption_pass.consuming, disruption_pass.seconds
            ),
            created_counter=CreatedNodeClaimsCounter(meter),
        )
        self.previewer = DisruptionPreviewer(cache, self.controller)

    def on_change(self, *, nodeclaims_deleted: bool) -> None:
        """After every burst of changes. `nodeclaims_deleted`: NodeClaims are."""
        self.disruption_trigger.on_change(nodeclaims_deleted=nodeclaims_deleted)
        self._last_pod_event_writer.collect()

    async def run(self) -> None:
        """Until cancelled; once every kind is known."""
        try:
            await asyncio.gather(
                self.disruption_trigger.run(), self.verdict_reporter.run(), self._last_pod_event_writer.run()
            )
        finally:
            self._metrics.close()
