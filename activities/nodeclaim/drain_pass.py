"""One pass of a drain: read live state and take the next step.

A killed worker loses no state: the NodeClaim's annotation has the deadline, its condition Drained the start time, and
the workflow the last status.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from temporalio import activity

from activities.node_conditions import DRAIN_COMPLETED, DRAIN_FORCED, DRAIN_STARTED, set_node_conditions
from activities.nodeclaim.eviction import EvictionQueue, FirstEviction
from activities.ports.core import (
    AttachedVolume,
    ConditionPatch,
    DrainPod,
    NodeFact,
    Ports,
    find_node,
    find_nodeclaim,
    publish_event_on,
)
from tenure import metrics
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.base import parse_instance_id, parse_timestamp
from tenure.model.disruption.drain import DrainStatus, EvictionBlocker
from tenure.model.nodeclaim.requests import MAX_EVICTED_PODS, DrainRequest, DrainResult
from tenure.policy.drain.blockers import volume_blocker
from tenure.policy.drain.decision import (
    decide_drain_status,
    describe_next_step,
    earliest_deadline,
    escalation_deadline,
    next_change_at,
    not_ready_for,
    terminates_soon,
)

MIN_DRAIN = 5.0
"""Minimum seconds from the taint until a node counts as drained, since a scheduler that has not observed the taint may
bind a pod (reference 3.13)."""
REFRESH = 2.0
"""Seconds before NodeClaim and Node are read again. Pods are read in every pass."""
MAX_MESSAGE_LENGTH = 4000
"""Characters of a condition's message."""
DRAINED_CONDITIONS = (
    ConditionPatch(type=labels.DRAINED, status="True"),
    ConditionPatch(type=labels.VOLUMES_DETACHED, status="True"),
)
GRACE_PERIOD_CONDITIONS = (
    ConditionPatch(type=labels.VOLUMES_DETACHED, status="False", reason=labels.TERMINATION_GRACE_PERIOD_ELAPSED),
)
NOT_READY_CONDITIONS = (ConditionPatch(type=labels.VOLUMES_DETACHED, status="False", reason=labels.NODE_NOT_READY),)
_INVALID_TIMESTAMP = "invalid time, expected e.g. 2026-01-31T12:00:00Z"


class DrainPass:
    """`status`: from the last pass."""

    def __init__(self, ports: Ports, request: DrainRequest, first_eviction: FirstEviction) -> None:
        self._ports, self._request, self._ref, self._first_eviction = ports, request, request.claim, first_eviction
        self._claims, self._nodes, self._pods = ports.claims, ports.nodes, ports.pods
        self._eviction_queue: EvictionQueue | None = None
        self._tainted_at: datetime | None = None
        self._drained_pods: dict[str, str] = {}
        """`namespace/name` of all pods for which the drain waits or has waited, by UID."""
        self._is_draining_unwritten = False
        """The NodeClaim's condition Drained must still be written."""
        self._read_at: datetime | None = None
        """When NodeClaim and Node were read; None after this pass changed them."""
        self._nodeclaim: NodeClaim | None = None
        self._node: NodeFact | None = None
        self._deleted: set[str] = set()
        self._deadline = request.known.deadline if request.known else None
        self._escalated = not request.escalate
        self.defers_deletion = request.defers_deletion
        self.status = request.known or DrainStatus()
        self.rescheduled_pods: int | None = None
        """Reschedulable pods at the first pass."""
        self._next_change_at: datetime | None = None

    async def run_once(self, now: datetime) -> DrainResult | None:
        """Evict pods and update `status`. Returns a result when the drain is over."""
        claim, node = await self._read_objects(now)
        self.defers_deletion = (
            self.defers_deletion
            and claim is not None
            and not claim.metadata.is_deleting
            and not (node and node.deleting)
        )
        if node is None or await self._is_instance_terminated(node):
            if not self._request.stay:
                await self._delete_claim(claim)
            return DrainResult(outcome="drained")
        tainted_at = await self._taint_node(claim, node.name, now)
        found = await self._pods.on_node(node.name, now=now)
        if self.rescheduled_pods is None:
            self.rescheduled_pods = sum(pod.reschedulable for pod in found)
        pods = [pod for pod in found if pod.waits]
        self._drained_pods |= {pod.uid: f"{pod.namespace}/{pod.name}" for pod in pods}
        volumes = () if pods else await self._pods.attached_volumes(node.name)
        resolved = await self._resolve_deadline(claim, pods, now, is_blocked=bool(pods or volumes))
        deadline = self._deadline = earliest_deadline(self._deadline, resolved)
        not_ready = self._not_ready_since(node, now)
        try:
            blockers = await self._evict_pods(claim, pods, deadline, now)
            await self._first_eviction.finish_and_wait()
        finally:
            if self._eviction_queue:
                await self._eviction_queue.publish_events()
            await self._ensure_deleting(claim, node)
        await self._write_draining(node.name)
        self.status = self._evaluate_status(blockers, pods, volumes, not_ready, now)
        if not pods and not volumes and (now - tainted_at).total_seconds() >= MIN_DRAIN:
            return await self._finish_drain(claim, DRAINED_CONDITIONS, "drained")
        if deadline and now >= deadline:
            return await self._finish_drain(claim, GRACE_PERIOD_CONDITIONS, "deadline passed", len(pods))
        if self.status.not_ready_until and now >= self.status.not_ready_until:
            return await self._finish_drain(claim, NOT_READY_CONDITIONS, "not ready", len(pods))
        return None

    def next_pause(self, pause: float, now: datetime) -> float:
        """Seconds until the next pass; without pods and blockers, until MIN_DRAIN is over."""
        if self.status.pods or self.status.eviction_blockers or self._tainted_at is None:
            return pause
        return max(0.0, MIN_DRAIN - (now - self._tainted_at).total_seconds())

    def is_waiting(self, now: datetime, progress_seconds: float) -> bool:
        """Whether blockers are left, no pod left within the last `progress_seconds`, and no terminating pod is about to
        leave. Never True without the NodeClaim, since the watch signals only changes of its node."""
        progress = self.status.progress
        return (
            self._nodeclaim is not None
            and bool(self.status.eviction_blockers)
            and (progress is None or (now - progress).total_seconds() >= progress_seconds)
            and not any(terminates_soon(one, now) for one in self.status.eviction_blockers)
        )

    @property
    def drained_pods(self) -> tuple[str, ...]:
        return tuple(self._drained_pods.values())[:MAX_EVICTED_PODS]

    async def publish_status(self, *, is_waiting: bool = False) -> DrainResult:
        """Publish the status as conditions and events, and return it."""
        status = self.status.truncate()
        message = "; ".join(status.status_lines) or status.status_line
        await self._write_conditions(_waiting_conditions(status, message))
        if status.pods and status.blocker_summary:
            await self._publish_event("FailedDraining", f"Failed to drain node, {message}")
        elif status.eviction_blockers and not status.pods:
            event = f"Awaiting deletion of bound volumeattachments: {message}"
            await self._publish_event(labels.AWAITING_VOLUME_DETACHMENT, event)
        return DrainResult(
            outcome="waiting",
            blockers=status.status_line,
            pods=status.pods,
            deadline=status.deadline,
            status=status,
            defers_deletion=self.defers_deletion,
            is_waiting=is_waiting,
            next_change_at=self._next_change_at,
        )

    async def _read_objects(self, now: datetime) -> tuple[NodeClaim | None, NodeFact | None]:
        """NodeClaim and Node, read at most REFRESH seconds ago."""
        if self._read_at is None or (now - self._read_at).total_seconds() >= REFRESH:
            ref = self._ref
            self._nodeclaim, self._node = await asyncio.gather(
                find_nodeclaim(self._claims, ref.name, ref.uid), find_node(self._nodes, ref.node_name, ref.provider_id)
            )
            self._read_at = now
        return self._nodeclaim, self._node

    async def _is_instance_terminated(self, node: NodeFact) -> bool:
        """The node is NotReady and its instance is gone, so no kubelet can terminate pods (reference 3.13)."""
        return not node.ready and await self._ports.instances.get(parse_instance_id(node.provider_id)) is None

    async def _ensure_deleting(self, claim: NodeClaim | None, node: NodeFact) -> None:
        """Delete NodeClaim and Node, unless deferred. This follows the evictions: with hundreds of drains, pods are
        more urgent."""
        if not self.defers_deletion:
            # If a user has deleted only the Node, the NodeClaim is deleted too.
            await self._delete_claim(claim)
            await self._delete_node(node)

    async def _taint_node(self, claim: NodeClaim | None, node: str, now: datetime) -> datetime:
        """Taint the node in the first pass. Returns the time of the taint."""
        if self._tainted_at is None and self._request.reboots:
            await self._nodes.mark_rebooting(node)
            self._tainted_at = self._request.began or now
        if self._tainted_at is None:
            await self._nodes.mark_disrupted(node)
            before = claim.condition(labels.DRAINED) if claim else None
            if before is None or before.status == "False":
                self._is_draining_unwritten, before = True, None
            self._tainted_at = (before.last_transition_time if before else None) or now
        return self._tainted_at

    async def _write_draining(self, node: str) -> None:
        """Write the conditions once, after the first evictions, which are more urgent."""
        if self._is_draining_unwritten:
            # The Node first, so that a retry writes both.
            await set_node_conditions(self._nodes, node, DRAIN_STARTED)
            await self._write_conditions(
                (ConditionPatch(type=labels.DRAINED, status="Unknown", reason=labels.DRAINING),)
            )
            self._is_draining_unwritten = False

    async def _delete_claim(self, claim: NodeClaim | None) -> None:
        if claim is not None and not claim.metadata.is_deleting and claim.uid not in self._deleted:
            await self._claims.delete(self._ref.name, self._ref.uid)
            self._deleted.add(claim.uid)
            self._read_at = None

    async def _delete_node(self, node: NodeFact | None) -> None:
        if node is not None and not node.deleting and node.uid not in self._deleted:
            await self._nodes.delete(node.name, node.uid)
            self._deleted.add(node.uid)

    async def _resolve_deadline(
        self, claim: NodeClaim | None, pods: Sequence[DrainPod], now: datetime, *, is_blocked: bool
    ) -> datetime | None:
        """The deadline in the NodeClaim's annotation, written if necessary. An existing deadline only moves earlier."""
        if claim is None:
            return None
        text = claim.metadata.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP, "")
        written = parse_timestamp(text)
        grace = claim.spec.termination_grace_delta
        desired = written
        if written is None and grace is not None and not self.defers_deletion:
            desired = (claim.metadata.deletion_timestamp or now) + grace
        if is_blocked and not self._escalated:
            self._escalated, desired = True, earliest_deadline(desired, escalation_deadline(pods, now))
        if text and desired is None and self._deadline is None:
            await self._publish_event(
                "FailedDraining",
                f"Failed to drain node, {labels.NODECLAIM_TERMINATION_TIMESTAMP} '{text}': {_INVALID_TIMESTAMP}",
            )
        if desired is not None and desired != written:
            stamp = {labels.NODECLAIM_TERMINATION_TIMESTAMP: desired.isoformat().replace("+00:00", "Z")}
            await self._claims.patch(self._ref.name, self._ref.uid, annotations=stamp, now=now)
            self._read_at = None
            await self._publish_event(
                "TerminationGracePeriodExpiring", f"All pods will be deleted by {desired.isoformat()}"
            )
        return desired

    async def _evict_pods(
        self, claim: NodeClaim | None, pods: Sequence[DrainPod], deadline: datetime | None, now: datetime
    ) -> list[EvictionBlocker]:
        if not pods:
            return []
        if self._eviction_queue is None:
            condition = claim.condition(labels.DISRUPTION_REASON) if claim else None
            reason = condition.reason if condition and condition.is_true else ""
            if self._request.reboots:
                reason = labels.UNHEALTHY
            self._eviction_queue = EvictionQueue(self._ports, self._request, reason)
        return await self._eviction_queue.evict(pods, deadline=deadline, known=self.status, now=now)

    def _not_ready_since(self, node: NodeFact, now: datetime) -> datetime | None:
        return None if node.ready else self.status.not_ready_since or now

    def _evaluate_status(
        self,
        blockers: Sequence[EvictionBlocker],
        pods: Sequence[DrainPod],
        volumes: Sequence[AttachedVolume],
        not_ready: datetime | None,
        now: datetime,
    ) -> DrainStatus:
        found = decide_drain_status(
            [*blockers, *(volume_blocker(one, self._ref.name) for one in volumes)],
            self.status,
            waited=pods,
            began=self._request.began or self._tainted_at or now,
            now=now,
        )
        rules = self._request.rules
        not_ready_until = not_ready + not_ready_for(rules) if not_ready else None
        self._next_change_at = next_change_at(found.eviction_blockers, pods, self._deadline, not_ready_until, now)
        return found.model_copy(
            update={
                "deadline": self._deadline,
                "not_ready_since": not_ready,
                "not_ready_until": not_ready_until,
                "follows": describe_next_step(
                    rules, found.blocked_since, cancellable=self.defers_deletion, has_pods=bool(pods)
                ),
            }
        )

    async def _finish_drain(
        self, claim: NodeClaim | None, conditions: Sequence[ConditionPatch], outcome: str, pods: int = 0
    ) -> DrainResult:
        if self._node is not None and not self._request.reboots:
            node_conditions = DRAIN_COMPLETED if outcome == "drained" else DRAIN_FORCED
            await set_node_conditions(self._nodes, self._node.name, node_conditions)
        await self._write_conditions(conditions)
        if self.defers_deletion and not self._request.stay:
            await self._delete_claim(claim)
            await self._delete_node(self._node)
        if outcome == "drained":
            metrics.NODES_DRAINED.record(activity.metric_meter(), nodepool=claim.nodepool if claim else "")
        return DrainResult.model_validate({"outcome": outcome, "pods": pods, "deadline": self._deadline})

    async def _write_conditions(self, conditions: Sequence[ConditionPatch]) -> None:
        if not self._request.reboots:
            await self._claims.patch(self._ref.name, self._ref.uid, conditions=conditions, now=utc_now())

    async def _publish_event(self, reason: str, message: str) -> None:
        """Publish the event on the NodeClaim and, as Karpenter does, on the Node."""
        await publish_event_on(self._ports.events, "NodeClaim", self._ref, reason, message)
        if self._node is not None:
            await publish_event_on(self._ports.events, "Node", self._node, reason, message)


def _waiting_conditions(status: DrainStatus, message: str) -> Sequence[ConditionPatch]:
    """Volumes are checked only when the drain no longer waits for pods (reference 3.13)."""
    if status.pods:
        return (
            ConditionPatch(
                type=labels.DRAINED, status="Unknown", reason=labels.DRAINING, message=message[:MAX_MESSAGE_LENGTH]
            ),
        )
    return (
        ConditionPatch(type=labels.DRAINED, status="True"),
        ConditionPatch(
            type=labels.VOLUMES_DETACHED,
            status="Unknown",
            reason=labels.AWAITING_VOLUME_DETACHMENT,
            message=message[:MAX_MESSAGE_LENGTH],
        ),
    )
