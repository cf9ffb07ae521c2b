"""Repair: one step for an unhealthy node, after live reads of it and of the other nodes of its NodePool. Also the end
of its reboot, and the circuit breaker, which holds repairs while too many nodes of a NodePool are unhealthy."""

from collections.abc import Collection
from datetime import datetime, timedelta

from temporalio import activity

from activities.nodeclaim.eviction import withdraw_requests
from activities.ports.core import ConditionPatch, NodeFact, Ports, find_node, find_nodeclaim, publish_event_on
from activities.runtime import map_faults
from tenure.apis import labels
from tenure.apis.durations import format_duration
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.base import parse_instance_id, parse_timestamp
from tenure.model.errors import TryLater
from tenure.model.node_health import RebootEnd, RepairDue, RepairRequest, RepairResult
from tenure.model.nodeclaim.node_identity import NodeStatus, identify_nodes
from tenure.policy.lifecycle.repair import DO_NOT_REPAIR_MESSAGE, decide_breaker, is_unhealthy

_BREAKER_EVENT = "NodeRepairBlocked"


class CircuitBreaker:
    """Too many nodes are unhealthy for the nodes to be the cause. It counts live nodes, since counts of the watch may
    be outdated, and a NodeClaim without a NodePool has no NodePool workflow."""

    def __init__(self, ports: Ports) -> None:
        self._pools, self._claims, self._nodes, self._events = ports.pools, ports.claims, ports.nodes, ports.events

    async def check(
        self, claim: NodeClaim, node: NodeFact, pool: str, conditions: Collection[tuple[str, str]], max_unhealthy: str
    ) -> str:
        """Why no node may be repaired; empty if allowed. The Node, the NodeClaim and the NodePool get an event.

        `pool`: empty for a standalone NodeClaim.
        """
        why = await self._rejection_reason(pool, conditions, max_unhealthy)
        if why:
            scope = "nodepool" if pool else "cluster"
            message = f"more than {max_unhealthy} nodes are unhealthy in the {scope}: {why}"
            await publish_event_on(self._events, "Node", node, _BREAKER_EVENT, message)
            await publish_event_on(self._events, "NodeClaim", claim, _BREAKER_EVENT, message)
            nodepool = await self._pools.get(pool) if pool else None
            if nodepool is not None:
                await publish_event_on(self._events, "NodePool", nodepool, _BREAKER_EVENT, message)
        return why

    async def _rejection_reason(self, pool: str, conditions: Collection[tuple[str, str]], max_unhealthy: str) -> str:
        """A missing Node is unhealthy. For a standalone NodeClaim, the whole cluster counts (reference 3.11)."""
        selector = {labels.NODEPOOL: pool} if pool else None
        nodes = await self._nodes.list(labels=selector)
        claims = [one for one in await self._claims.list(labels=selector) if not one.metadata.is_deleting]
        identities = identify_nodes(claims, nodes).values()
        strangers = {node.name for one in identities for node in one.strangers}
        missing = sum(one.status is NodeStatus.MISSING for one in identities)
        counted = [node for node in nodes if node.name not in strangers]
        unhealthy = missing + sum(is_unhealthy(node, conditions) for node in counted)
        where = f"of NodePool {pool}" if pool else "of the cluster"
        return decide_breaker(unhealthy, missing + len(counted), max_unhealthy, where=where)


REBOOT_MEMORY = timedelta(hours=1)
"""How long the NodeClaim's reboot annotation prevents another reboot, since the workflow may have been rebuilt."""


class RepairActivities:
    def __init__(self, ports: Ports) -> None:
        self._claims, self._nodes, self._instances = ports.claims, ports.nodes, ports.instances
        self._events, self._breaker = ports.events, CircuitBreaker(ports)

    @activity.defn
    @map_faults
    async def repair_node(self, request: RepairRequest) -> RepairResult:
        """Begin a reboot, reboot or replace the node, unless it is healthy or too many nodes are unhealthy."""
        claim = await find_nodeclaim(self._claims, request.name, request.uid)
        if claim is None:
            return RepairResult(outcome="gone")
        if request.step == "withdraw":
            await self._annotate(request, labels.REPAIR_DUE, "")
            return RepairResult(outcome="done")
        node = await find_node(self._nodes, request.node_name, request.provider_id)
        if request.step == "reboot" and (_is_recorded(claim, request, utc_now()) or _has_rebooted(node, request)):
            await self._mark_issued(request, claim, node)
            return RepairResult(outcome="done", why="it was already rebooted")
        blocker = await self._find_blocker(request, claim, node)
        if blocker is not None:
            if request.step == "begin" and claim.is_true(labels.REBOOTING):
                await self._undo_begin(request, node)
            return blocker
        assert node is not None
        if request.step == "begin":
            return await self._begin_reboot(request, node)
        if request.step == "reboot":
            return await self._reboot_instance(request, claim, node)
        if request.due is not None:
            return await self._request_replacement(request, request.due)
        return await self._replace_node(request, claim, node)

    async def _find_blocker(
        self, request: RepairRequest, claim: NodeClaim, node: NodeFact | None
    ) -> RepairResult | None:
        """Why live state does not allow the step."""
        if node is None or _is_healthy(node, request):
            return _postpone(f"Node {request.node_name} is healthy or gone")
        if request.step != "replace" and claim.metadata.is_deleting:
            return _postpone(f"NodeClaim {request.name} is being deleted")
        if request.mode != "legacy" and node.annotations.get(labels.DO_NOT_REPAIR) == "true":
            return _postpone(DO_NOT_REPAIR_MESSAGE)
        why = await self._breaker.check(claim, node, request.pool, request.conditions, request.max_unhealthy)
        return RepairResult(outcome="held", why=why) if why else None

    async def _request_replacement(self, request: RepairRequest, due: RepairDue) -> RepairResult:
        await self._annotate(request, labels.REPAIR_DUE, due.format())
        await self._publish_event(request, labels.UNHEALTHY, f"{request.condition}: the node is replaced")
        return RepairResult(outcome="requested")

    async def _begin_reboot(self, request: RepairRequest, node: NodeFact) -> RepairResult:
        """Annotate the bound of the drain, set Rebooting and taint the node (reference 1.15, section 3.7).

        The condition precedes the taint, so that `_undo_begin` can recognize an attempt that ended between them.
        """
        grace = request.reboot.grace if request.reboot else None
        bound = None if grace is None else format_duration(grace)
        bounds = {labels.REBOOT_TERMINATION_GRACE_PERIOD: bound}
        await self._claims.patch_annotations(request.name, bounds, uid=request.uid)
        requested = rebooting_condition(labels.REBOOT_REQUESTED, f"rebooting for {request.condition}")
        await self._claims.patch(request.name, request.uid, conditions=(requested,), now=utc_now())
        await self._nodes.mark_rebooting(request.node_name)
        return RepairResult(outcome="done", boot_id=node.boot_id)

    async def _undo_begin(self, request: RepairRequest, node: NodeFact | None) -> None:
        """Undo an earlier attempt to begin the reboot."""
        if node is not None:
            await self._nodes.unmark_rebooting(node.name)
        unset = ConditionPatch(type=labels.REBOOTING, status="")
        await self._claims.patch(request.name, request.uid, conditions=(unset,), now=utc_now())

    async def _mark_issued(self, request: RepairRequest, claim: NodeClaim, node: NodeFact | None) -> None:
        """Record the reboot. The node counts as not initialized until it is initialized again afterwards."""
        now = utc_now()
        conditions = (
            rebooting_condition(labels.REBOOT_ISSUED, f"rebooting for {request.condition}"),
            ConditionPatch(type=labels.INITIALIZED_CONDITION, status="Unknown", reason=labels.REBOOTING),
        )
        record = {labels.REBOOTED: f"{request.step_index}@{now.isoformat()}"}
        issued = {} if _is_recorded(claim, request, now) else record
        await self._claims.patch(request.name, request.uid, annotations=issued, conditions=conditions, now=now)
        if node is not None:
            await self._nodes.patch_labels(node.name, node.uid, {labels.INITIALIZED: None})

    async def _reboot_instance(self, request: RepairRequest, claim: NodeClaim, node: NodeFact) -> RepairResult:
        """Annotate the boot ID, reboot the instance, and record the reboot only after EC2 has accepted it.

        A retry after a killed worker therefore repeats the call, unless the boot ID has changed (reference 1.15,
        section 3.7). An accepted call may then be repeated while the instance shuts down or boots. Raises TryLater
        during a zonal shift of its zone.
        """
        instance = parse_instance_id(request.provider_id)
        zone = claim.metadata.labels.get(labels.ZONE_ID) or node.labels.get(labels.ZONE_ID) or ""
        if zone and await self._instances.is_zone_shifted(zone):
            raise TryLater(f"{instance} is not rebooted during a zonal shift of {zone}")
        await self._annotate(request, labels.REBOOT_PRE_BOOT_ID, node.boot_id)
        if not await self._instances.reboot(instance):
            return RepairResult(outcome="gone")
        await self._mark_issued(request, claim, node)
        await self._publish_event(request, "Rebooting", f"{request.condition}: instance {instance} reboots")
        return RepairResult(outcome="done")

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


def _postpone(why: str) -> RepairResult:
    return RepairResult(outcome="not now", why=why)


def _is_healthy(node: NodeFact, request: RepairRequest) -> bool:
    return not is_unhealthy(node, request.conditions) and (node.ready or not request.after_reboot)


def rebooting_condition(reason: str, message: str, *, status: str = "True") -> ConditionPatch:
    return ConditionPatch(type=labels.REBOOTING, status=status, reason=reason, message=message)


def _has_rebooted(node: NodeFact | None, request: RepairRequest) -> bool:
    """Whether the boot ID has changed since the decision to reboot."""
    before = request.reboot.boot_id if request.reboot else ""
    return bool(before and node is not None and node.boot_id and node.boot_id != before)


def _is_recorded(claim: NodeClaim, request: RepairRequest, now: datetime) -> bool:
    """Whether EC2 has accepted the reboot of this step, or of a later one."""
    rung, _, timestamp = claim.metadata.annotations.get(labels.REBOOTED, "").partition("@")
    rebooted_at = parse_timestamp(timestamp)
    return bool(
        rebooted_at and rung.isdigit() and int(rung) >= request.step_index and rebooted_at + REBOOT_MEMORY > now
    )


class RebootActivities:
    """The steps of a reboot that follow the request to EC2."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._claims, self._nodes, self._events = ports.claims, ports.nodes, ports.events

    @activity.defn
    @map_faults
    async def observe_reboot(self, request: RepairRequest) -> bool:
        """Remove the taint of a node that reports another boot ID. Returns true."""
        await self._nodes.unmark_rebooting(request.node_name)
        message = f"{request.condition}: the instance rebooted, boot ID changed"
        await publish_event_on(self._events, "NodeClaim", request, "RebootObserved", message)
        return True

    @activity.defn
    @map_faults
    async def end_reboot(self, end: RebootEnd) -> bool:
        """Remove the taint, and set Rebooting to False. A cancelled reboot leaves no condition. Returns true.

        An instance that did not reboot is as initialized as before.
        """
        request = end.repair
        claim = await find_nodeclaim(self._claims, request.name, request.uid)
        node = await find_node(self._nodes, request.node_name, request.provider_id)
        if node is not None:
            await self._nodes.unmark_rebooting(node.name)
            await withdraw_requests(self._ports, node.name)
        if claim is None or claim.metadata.is_deleting:
            return True
        if node is not None and end.outcome != "succeeded":
            await self._restore_initialized(claim, node, before=request.reboot.boot_id if request.reboot else "")
        await self._claims.patch(claim.name, claim.uid, conditions=(_ended_condition(end),), now=utc_now())
        await self._claims.patch_annotations(claim.name, {labels.REBOOT_PRE_BOOT_ID: None}, uid=claim.uid)
        if end.outcome == "failed":
            await publish_event_on(self._events, "NodeClaim", claim, labels.REBOOT_FAILED, end.why)
        return True

    async def _restore_initialized(self, claim: NodeClaim, node: NodeFact, *, before: str) -> None:
        condition = claim.condition(labels.INITIALIZED_CONDITION)
        if condition is not None and condition.reason == labels.REBOOTING and node.boot_id == before:
            await self._nodes.mark_initialized(node.name)
            initialized = ConditionPatch(type=labels.INITIALIZED_CONDITION, status="True")
            await self._claims.patch(claim.name, claim.uid, conditions=(initialized,), now=utc_now())


def _ended_condition(end: RebootEnd) -> ConditionPatch:
    if end.outcome == "cancelled":
        return ConditionPatch(type=labels.REBOOTING, status="")
    reason = labels.REBOOT_SUCCEEDED if end.outcome == "succeeded" else labels.REBOOT_FAILED
    return rebooting_condition(reason, end.why, status="False")
