"""Repair: one step for an unhealthy node, after live reads of it and of the other nodes of its NodePool."""

from datetime import datetime, timedelta

from temporalio import activity

from activities.nodeclaim.circuit_breaker import CircuitBreaker
from activities.ports.core import NodeFact, Ports, find_nodeclaim, publish_event_on
from activities.runtime import map_faults
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.base import parse_instance_id, parse_timestamp
from tenure.model.errors import Fault, TryLater
from tenure.model.node_health import RepairDue, RepairRequest, RepairResult
from tenure.policy.lifecycle.repair import DO_NOT_REPAIR_MESSAGE, is_unhealthy

REBOOT_MEMORY = timedelta(hours=1)
"""How long the NodeClaim's reboot annotation prevents another reboot, since the workflow may have been rebuilt."""


class RepairActivities:
    def __init__(self, ports: Ports) -> None:
        self._claims, self._nodes, self._instances = ports.claims, ports.nodes, ports.instances
        self._events, self._breaker = ports.events, CircuitBreaker(ports)

    @activity.defn
    @map_faults
    async def repair_node(self, request: RepairRequest) -> RepairResult:
        """Reboot or replace the node, unless it is healthy or too many nodes are unhealthy."""
        claim = await find_nodeclaim(self._claims, request.name, request.uid)
        if claim is None:
            return RepairResult(outcome="gone")
        if request.step == "withdraw":
            await self._annotate(request, labels.REPAIR_DUE, "")
            return RepairResult(outcome="done")
        if request.step == "reboot" and _was_rebooted(claim, request, utc_now()):
            return RepairResult(outcome="done", why="it was already rebooted")
        node = await self._nodes.get(request.node_name)
        if node is None or node.provider_id != request.provider_id or _is_healthy(node, request):
            return RepairResult(outcome="not now", why=f"Node {request.node_name} is healthy or gone")
        if request.mode != "legacy" and node.annotations.get(labels.DO_NOT_REPAIR) == "true":
            return RepairResult(outcome="not now", why=DO_NOT_REPAIR_MESSAGE)
        if why := await self._breaker.check(claim, node, request.pool, request.conditions, request.max_unhealthy):
            return RepairResult(outcome="held", why=why)
        if request.step == "reboot":
            return await self._reboot_instance(request)
        if request.due is not None:
            return await self._request_replacement(request, request.due)
        return await self._replace_node(request, claim, node)

    async def _request_replacement(self, request: RepairRequest, due: RepairDue) -> RepairResult:
        await self._annotate(request, labels.REPAIR_DUE, due.format())
        await self._publish_event(request, labels.UNHEALTHY, f"{request.condition}: the node is replaced")
        return RepairResult(outcome="requested")

    async def _reboot_instance(self, request: RepairRequest) -> RepairResult:
        """Annotate the reboot before the request, so that a retry does not reboot twice. A rejected request removes the
        annotation."""
        instance = parse_instance_id(request.provider_id)
        await self._annotate(request, labels.REBOOTED, f"{request.step_index}@{utc_now().isoformat()}")
        try:
            exists = await self._instances.reboot(instance)
        except TryLater:
            raise
        except Fault:
            await self._annotate(request, labels.REBOOTED, "")
            raise
        if exists:
            await self._publish_event(request, "Rebooting", f"{request.condition}: instance {instance} reboots")
        return RepairResult(outcome="done" if exists else "gone")

    async def _annotate(self, request: RepairRequest, name: str, text: str) -> None:
        await self._claims.patch(request.name, request.uid, annotations={name: text}, now=utc_now())

    async def _replace_node(self, request: RepairRequest, claim: NodeClaim, node: NodeFact) -> RepairResult:
        """As in Karpenter, the termination grace period ends immediately, whatever budgets, annotations or the
        NodePool's grace period say. A graceful drain has its own time if the kubelet can terminate pods."""
        now = utc_now()
        nodeclaim_grace = claim.spec.termination_grace_delta
        requested_grace = request.graceful_for if request.graceful_for and node.ready else timedelta(0)
        grace = requested_grace if nodeclaim_grace is None else min(requested_grace, nodeclaim_grace)
        before = parse_timestamp(claim.metadata.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP, ""))
        ends = min(now + grace, before or now + grace)
        stamp = {labels.NODECLAIM_TERMINATION_TIMESTAMP: ends.isoformat(timespec="seconds").replace("+00:00", "Z")}
        await self._claims.patch(request.name, request.uid, annotations=stamp, now=now)
        how = f"pods have until {stamp[labels.NODECLAIM_TERMINATION_TIMESTAMP]}" if grace else "pods are deleted"
        await self._publish_event(request, labels.UNHEALTHY, f"{request.condition}: the node is replaced, {how}")
        await self._claims.delete(request.name, request.uid)
        return RepairResult(outcome="done")

    async def _publish_event(self, request: RepairRequest, reason: str, message: str) -> None:
        await publish_event_on(self._events, "NodeClaim", request, reason, message)


def _is_healthy(node: NodeFact, request: RepairRequest) -> bool:
    return not is_unhealthy(node, request.conditions) and (node.ready or not request.after_reboot)


def _was_rebooted(claim: NodeClaim, request: RepairRequest, now: datetime) -> bool:
    rung, _, timestamp = claim.metadata.annotations.get(labels.REBOOTED, "").partition("@")
    rebooted_at = parse_timestamp(timestamp)
    return bool(
        rebooted_at and rung.isdigit() and int(rung) >= request.step_index and rebooted_at + REBOOT_MEMORY > now
    )
