"""Live steps of voluntary disruption: take nodes out of service, delete their NodeClaims, or restore them.

The condition DisruptionReason of a NodeClaim names the workflow of its command. From it, a repeated step knows the
effect of an earlier attempt, and does not change a NodeClaim that is disrupted for another reason. Each step first
reads live state: the Node, then its pods.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

import structlog
from temporalio import activity

from activities.node_conditions import set_node_conditions
from activities.nodeclaim.eviction import return_to_service, untaint_node
from activities.nodeclaim.repair import CircuitBreaker
from activities.ports.core import (
    Claims,
    ConditionPatch,
    DrainPod,
    NodeFact,
    Nodes,
    Ports,
    find_node,
    find_nodeclaim,
    publish_event_on,
)
from activities.runtime import background_heartbeat, call_for_each, map_faults
from tenure.apis import labels
from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.base import parse_timestamp
from tenure.model.disruption.commands import CommandRequest, CommandResult
from tenure.model.disruption.decision import CommandCandidate
from tenure.model.disruption.pod_budgets import PodBudgetIndex
from tenure.model.errors import Fault
from tenure.model.node_health import RepairDue
from tenure.model.nodeclaim.requests import DisruptionResult, NodeClaimDisruptionRequest, NodeClaimRef, ReportRequest
from tenure.policy.drain.blockers import find_budget_rejection
from tenure.policy.lifecycle.repair import DO_NOT_REPAIR_MESSAGE

log = structlog.get_logger(__name__)


def _repair_due(claim: NodeClaim) -> RepairDue | None:
    return RepairDue.parse(claim.metadata.annotations.get(labels.REPAIR_DUE, ""))


def node_blocker(node: NodeFact) -> str:
    """Why the node may not be disrupted; empty if it may."""
    if node.annotations.get(DO_NOT_DISRUPT) == "true":
        return f"Node {node.name} is annotated {DO_NOT_DISRUPT}"
    return maintenance_blocker(node)


def maintenance_blocker(node: NodeFact) -> str:
    """The maintenance by another controller, during which the node may not be disrupted; empty without one."""
    return f"Node {node.name}: {why}" if (why := node.maintained_by_others) else ""


def pods_blocker(pods: Iterable[DrainPod]) -> str:
    """Up to three protected pods; empty if the node may be disrupted. Terminating pods do not block."""
    protected = [f"{pod.namespace}/{pod.name}" for pod in pods if pod.protected and pod.deletion is None]
    return f"annotation {DO_NOT_DISRUPT} on {', '.join(protected[:3])}" if protected else ""


async def restore_node(claims: Claims, nodes: Nodes, claim: str, uid: str, node: str) -> None:
    """Return a node to service. The taint is removed first, since the condition explains it."""
    await untaint_node(claims, nodes, claim, uid, node)
    await claims.patch(
        claim, uid, conditions=(ConditionPatch(type=labels.DISRUPTION_REASON, status=""),), now=utc_now()
    )


async def restore_candidate(claims: Claims, nodes: Nodes, one: CommandCandidate, workflow_id: str) -> bool:
    """Return a node to service that the command of this workflow took out of service. False if it must not."""
    claim = await find_nodeclaim(claims, one.claim, one.claim_uid)
    if claim is None or claim.metadata.is_deleting or claim.disrupted_by != workflow_id:
        return False
    await restore_node(claims, nodes, one.claim, one.claim_uid, one.node)
    return True


class DisruptionActivities:
    def __init__(self, ports: Ports) -> None:
        self._claims, self._nodes, self._pods, self._events = ports.claims, ports.nodes, ports.pods, ports.events
        self._ports, self._budgets, self._breaker = ports, ports.pod_disruption_budgets, CircuitBreaker(ports)

    @activity.defn
    @map_faults
    async def begin_command(self, request: CommandRequest) -> CommandResult:
        """Take all candidates out of service, or none. They are checked before and after they are tainted. A fault
        restores all of them, since there may be no further attempt."""
        async with background_heartbeat():
            try:
                blocked = await self._find_blocked(request) or await self._find_blocked_by_breaker(request)
                if not blocked:
                    await call_for_each(request.candidates, lambda one: self._taint_candidate(request, one))
                    blocked = await self._find_blocked(request)
            except Fault:
                with suppress(Fault):
                    await self._restore_candidates(request)
                raise
            if blocked:
                await self._restore_candidates(request)
            return _blocked_result(blocked)

    @activity.defn
    @map_faults
    async def finish_command(self, request: CommandRequest) -> CommandResult:
        """Delete the candidates' NodeClaims if all replacements are ready and no candidate is blocked. A retry skips
        candidates that are already being deleted."""
        async with background_heartbeat():
            remaining = [one for one in request.candidates if not await self._is_deleting(one)]
            if not remaining:
                return CommandResult(outcome="done")
            remaining_request = request.model_copy(update={"candidates": tuple(remaining)})
            blocked = [
                (one, why)
                for one, why in await self._find_blocked(remaining_request)
                if not await self._is_deleting(one)
            ]
            if blocked:
                return _blocked_result(blocked)
            waiting = await self._check_replacements(request.replacements)
            if waiting:
                return waiting
            await call_for_each(remaining, lambda one: self._delete_candidate(request, one))
            return CommandResult(outcome="done")

    @activity.defn
    @map_faults
    async def roll_back_command(self, request: CommandRequest) -> CommandResult:
        """Restore the candidates that are not being deleted. Replacements are deleted unless pods run on them, or a
        candidate is being deleted and its pods need them. They are deleted first, since a static NodePool would have
        more nodes than replicas and could delete another one."""
        async with background_heartbeat():
            if not any([await self._is_deleting(one) for one in request.candidates]):
                replacements = [
                    one for one in await self._claims.list() if _is_replacement_for(one, request.workflow_id)
                ]
                await call_for_each(replacements, lambda one: self._delete_replacement(request, one))
            restored = await self._restore_candidates(request)
            for one in restored:
                await self._publish_candidate_event(one, "DisruptionBlocked", f"{request.reason}: {request.why}")
            return CommandResult(outcome="done")

    async def _find_blocked(self, request: CommandRequest) -> list[tuple[CommandCandidate, str]]:
        """The candidates that may not be disrupted, with the cause."""
        found = await call_for_each(request.candidates, lambda one: self._blocker(request, one))
        return [(one, why) for one, why in zip(request.candidates, found, strict=True) if why]

    async def _find_blocked_by_breaker(self, request: CommandRequest) -> list[tuple[CommandCandidate, str]]:
        """For repair: the candidates of NodePools with too many unhealthy nodes, with the cause."""
        if request.reason != labels.UNHEALTHY:
            return []
        found = []
        for one in request.candidates:
            claim, node = await find_nodeclaim(self._claims, one.claim, one.claim_uid), await self._nodes.get(one.node)
            due = _repair_due(claim) if claim else None
            if claim and node and due:
                why = await self._breaker.check(claim, node, one.pool, due.conditions, due.max_unhealthy)
                found.append((one, why))
        return [(one, why) for one, why in found if why]

    async def _blocker(self, request: CommandRequest, one: CommandCandidate) -> str:
        claim = await find_nodeclaim(self._claims, one.claim, one.claim_uid)
        if claim is None:
            return f"NodeClaim {one.claim} is gone"
        if claim.metadata.is_deleting:
            return f"NodeClaim {one.claim} is being deleted"
        condition = claim.condition(labels.DISRUPTION_REASON)
        if condition and condition.is_true and claim.disrupted_by != request.workflow_id:
            return f"NodeClaim {one.claim} is being disrupted for another reason: {condition.reason}"
        node = await self._nodes.get(one.node)
        if node is None or node.provider_id != claim.status.provider_id or node.deleting:
            return f"Node {one.node} is gone"
        return await self._protection(request, claim, node)

    async def _protection(self, request: CommandRequest, claim: NodeClaim, node: NodeFact) -> str:
        """Why the reason does not apply now, or the blocking do-not-disrupt annotation (reference 4.2). The annotation
        does not delay expiration, and pods do not protect a drifted node with a terminationGracePeriod."""
        if request.reason == labels.UNHEALTHY:
            return await self._repair_blocker(claim, node)
        if request.reason == "Expired":
            return maintenance_blocker(node)
        if request.reason == "Drifted" and not claim.is_true(labels.DRIFTED):
            return f"NodeClaim {claim.name} has not drifted"
        why = node_blocker(node)
        if why or (request.reason == "Drifted" and claim.spec.termination_grace_period):
            return why
        return pods_blocker(await self._pods.on_node(node.name, now=utc_now()))

    async def _repair_blocker(self, claim: NodeClaim, node: NodeFact) -> str:
        """do-not-disrupt of the Node does not prevent repair, and that of pods only if the drain has no bound
        (reference 1.15, section 3.3)."""
        due = _repair_due(claim)
        if due is None or not due.counts(node.conditions):
            return f"Node {node.name} is healthy"
        if node.annotations.get(labels.DO_NOT_REPAIR) == "true":
            return f"Node {node.name}: {DO_NOT_REPAIR_MESSAGE}"
        if why := maintenance_blocker(node):
            return why
        if due.grace is not None or claim.spec.termination_grace_period:
            return ""
        return pods_blocker(await self._pods.on_node(node.name, now=utc_now()))

    async def _taint_candidate(self, request: CommandRequest, one: CommandCandidate) -> None:
        """Set the condition with the owner first, since a taint without an owner would remain."""
        condition = ConditionPatch(
            type=labels.DISRUPTION_REASON, status="True", reason=request.reason, message=request.workflow_id
        )
        await self._set_condition(one.claim, one.claim_uid, condition)
        await self._nodes.mark_disrupted(one.node)

    async def _restore_candidates(self, request: CommandRequest) -> Sequence[CommandCandidate]:
        """Restore the candidates that this command took out of service, and return them."""
        found = await call_for_each(
            request.candidates, lambda one: restore_candidate(self._claims, self._nodes, one, request.workflow_id)
        )
        return [one for one, done in zip(request.candidates, found, strict=True) if done]

    async def _is_deleting(self, one: CommandCandidate) -> bool:
        claim = await find_nodeclaim(self._claims, one.claim, one.claim_uid)
        return claim is None or claim.metadata.is_deleting

    async def _check_replacements(self, replacements: Sequence[str]) -> CommandResult | None:
        """The first replacement that is gone or not ready; None if all are ready."""
        for name in replacements:
            claim = await self._claims.get(name)
            if claim is None or claim.metadata.is_deleting:
                return CommandResult(outcome="lost", why=f"replacement {name} is gone")
            if not claim.is_true(labels.INITIALIZED_CONDITION):
                return CommandResult(outcome="waiting", why=f"replacement {name} is not initialized")
            node = await self._nodes.get(claim.status.node_name)
            if node is None or not node.ready:
                return CommandResult(outcome="waiting", why=f"the Node of replacement {name} is not Ready")
        return None

    async def _delete_candidate(self, request: CommandRequest, one: CommandCandidate) -> None:
        await self._taint_candidate(request, one)
        if request.reason == labels.UNHEALTHY:
            await self._bound_repair_drain(one)
        await self._claims.delete(one.claim, one.claim_uid)
        reason, details = "DisruptionTerminating", f"{request.reason}: {request.why}"
        await self._publish_candidate_event(one, reason, f"Disrupting NodeClaim: {details}")
        node = await self._nodes.get(one.node)
        if node is not None:
            await publish_event_on(self._events, "Node", node, reason, f"Disrupting Node: {details}")

    async def _bound_repair_drain(self, one: CommandCandidate) -> None:
        """The shorter grace period of policy and NodeClaim starts with the deletion, since the launch of a replacement
        must not shorten it (reference 1.15, section 3.6)."""
        claim = await find_nodeclaim(self._claims, one.claim, one.claim_uid)
        due = _repair_due(claim) if claim else None
        if claim is not None and due is not None and due.grace is not None:
            own = claim.spec.termination_grace_delta
            await self._bound_grace_period(claim, due.grace if own is None else min(due.grace, own))

    async def _delete_replacement(self, request: CommandRequest, claim: NodeClaim) -> None:
        """Delete a replacement without pods. It is tainted before the last check, so that no pod is bound in
        between."""
        name = claim.status.node_name
        if name and not await self._has_reschedulable_pods(name):
            await self._nodes.mark_disrupted(name)
        if name and await self._has_reschedulable_pods(name):
            await self._nodes.unmark_disrupted(name)
            return
        await self._claims.delete(claim.name, claim.uid)
        message = f"replacement not needed: its disruption command failed: {request.why}"
        await publish_event_on(self._events, "NodeClaim", claim, "DisruptionTerminating", message)

    async def _has_reschedulable_pods(self, node: str) -> bool:
        return any(pod.reschedulable for pod in await self._pods.on_node(node, now=utc_now()))

    async def _publish_candidate_event(self, one: CommandCandidate, reason: str, message: str) -> None:
        await self._events.publish(kind="NodeClaim", name=one.claim, uid=one.claim_uid, reason=reason, message=message)

    @activity.defn
    @map_faults
    async def disrupt_nodeclaim(self, request: NodeClaimDisruptionRequest) -> DisruptionResult:
        """Delete the NodeClaim, for a voluntary reason or a missing Node only if it still holds. With
        `defers_deletion`, the node is only tainted. The node is tainted before the last check, so that no pod is bound
        before the deletion."""
        ref = request.claim
        claim = await find_nodeclaim(self._claims, ref.name, ref.uid)
        if claim is None:
            return DisruptionResult(outcome="gone")
        if request.voluntary and not claim.metadata.is_deleting:
            return await self._delete_unless_used(request, claim)
        if request.defers_deletion and not claim.metadata.is_deleting:
            await self._nodes.mark_disrupted(ref.node_name)
            await self._set_condition(ref.name, ref.uid, _disruption_condition(request))
            return DisruptionResult(outcome="deleting")
        if request.reason == labels.NODE_NOT_FOUND and await self._nodes.find_by_provider_id(ref.provider_id):
            return DisruptionResult(outcome="not now", why="its Node exists")
        if request.at_once:
            await self._bound_grace_period(claim, timedelta(0))
        await self._claims.delete(ref.name, ref.uid)
        return DisruptionResult(outcome="deleting")

    async def _bound_grace_period(self, claim: NodeClaim, grace: timedelta) -> None:
        """End the grace period after `grace` (reference 3.12), unless it ends earlier."""
        now, meta = utc_now(), claim.metadata
        written = parse_timestamp(meta.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP, ""))
        if written is None or written > now + grace:
            stamp = {labels.NODECLAIM_TERMINATION_TIMESTAMP: (now + grace).isoformat().replace("+00:00", "Z")}
            await self._claims.patch(meta.name, meta.uid, annotations=stamp, now=now)

    @activity.defn
    @map_faults
    async def restore_schedulable(self, ref: NodeClaimRef) -> None:
        """Undo the changes of `disrupt_nodeclaim` and of a drain to a node that is kept. The taint of a command is not
        removed."""
        claim = await find_nodeclaim(self._claims, ref.name, ref.uid)
        if claim is None or claim.metadata.is_deleting:
            return
        condition = claim.condition(labels.DISRUPTION_REASON)
        if condition is None or not condition.is_true or not condition.message:
            await return_to_service(self._ports, ref.name, ref.uid, ref.node_name)

    async def _restore_node(self, claim: str, uid: str, node: str) -> None:
        await restore_node(self._claims, self._nodes, claim, uid, node)

    async def _set_condition(self, claim: str, uid: str, *conditions: ConditionPatch) -> None:
        await self._claims.patch(claim, uid, conditions=conditions, now=utc_now())

    async def _delete_unless_used(self, request: NodeClaimDisruptionRequest, claim: NodeClaim) -> DisruptionResult:
        """A fault restores the node, since there may be no further attempt."""
        ref = request.claim
        try:
            blocker = await self._taint_unless_used(ref)
            if blocker:
                if claim.is_true(labels.DISRUPTION_REASON):
                    await self._restore_node(ref.name, ref.uid, ref.node_name)
                return DisruptionResult(outcome="not now", why=blocker)
            consolidatable = ConditionPatch(type=labels.CONSOLIDATABLE, status="True")
            await self._set_condition(ref.name, ref.uid, consolidatable, _disruption_condition(request))
            if not request.defers_deletion:
                await self._claims.delete(ref.name, ref.uid)
        except Fault:
            with suppress(Fault):
                await self._restore_node(ref.name, ref.uid, ref.node_name)
            raise
        return DisruptionResult(outcome="deleting")

    async def _taint_unless_used(self, ref: NodeClaimRef) -> str:
        """Taint the node, or return why it may not be disrupted. It is checked before and after it is tainted, since a
        pod may have been bound in between."""
        node = await self._nodes.get(ref.node_name)
        if node is None or node.provider_id != ref.provider_id:
            return ""
        blocker = await self._usage_blocker(node)
        if not blocker:
            tainted = await self._nodes.mark_disrupted(node.name)
            blocker = await self._usage_blocker(tainted) if tainted else ""
        if blocker:
            await self._nodes.unmark_disrupted(node.name)
        return blocker

    async def _usage_blocker(self, node: NodeFact) -> str:
        if why := node_blocker(node):
            return why
        pods = await self._pods.on_node(node.name, now=utc_now())
        reschedulable = [f"{pod.namespace}/{pod.name}" for pod in pods if pod.reschedulable]
        if reschedulable:
            return f"not empty: {', '.join(reschedulable[:3])}"
        return pods_blocker(pods) or await self._budget_blocker(pods)

    async def _budget_blocker(self, pods: Iterable[DrainPod]) -> str:
        """Of an empty node: a PodDisruptionBudget that allows no eviction of a pod of a DaemonSet (reference 4.2)."""
        evicted = [pod for pod in pods if pod.evictable]
        for namespace in sorted({pod.namespace for pod in evicted}):
            budgets = PodBudgetIndex(await self._budgets.in_namespace(namespace))
            for pod in evicted:
                if pod.namespace == namespace and (why := find_budget_rejection(pod, budgets)):
                    return why
        return ""

    @activity.defn
    @map_faults
    async def publish_event(self, request: ReportRequest) -> None:
        """Set a condition on the NodeClaim and publish an event, if requested; with `on_node` on its Node too."""
        ref = request.claim
        node = await find_node(self._nodes, ref.node_name, ref.provider_id) if request.on_node else None
        if request.condition:
            condition = ConditionPatch(
                type=request.condition, status=request.status, reason=request.reason, message=request.message
            )
            await self._set_condition(ref.name, ref.uid, condition)
            if node:
                await set_node_conditions(self._nodes, node.name, (condition,))
        if request.event:
            await publish_event_on(self._events, "NodeClaim", ref, request.event, request.message)
            if node:
                await publish_event_on(self._events, "Node", node, request.event, request.message)


def _blocked_result(blocked: Sequence[tuple[CommandCandidate, str]]) -> CommandResult:
    if not blocked:
        return CommandResult(outcome="done")
    nodes = tuple(one.claim_uid for one, _ in blocked)
    return CommandResult(outcome="held", why="; ".join(why for _, why in blocked[:3]), nodes=nodes)


def _is_replacement_for(claim: NodeClaim, workflow_id: str) -> bool:
    return claim.metadata.annotations.get(labels.REPLACES) == workflow_id and not claim.metadata.is_deleting


def _disruption_condition(request: NodeClaimDisruptionRequest) -> ConditionPatch:
    return ConditionPatch(type=labels.DISRUPTION_REASON, status="True", reason=request.reason)
