"""Registration and initialization of a Node: one live read and few writes each."""

from temporalio import activity

from activities.ports.core import ConditionPatch, NodeFact, Ports, find_nodeclaim, publish_event_on
from activities.runtime import map_faults
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.quantity import parse_resources
from tenure.apis.resources import missing_resources
from tenure.clock import utc_now
from tenure.model.nodeclaim.names import parse_dra_drivers
from tenure.model.nodeclaim.requests import InitializationResult, NodeClaimRef, RegistrationResult
from tenure.policy.lifecycle.initialization import (
    decide_undeclared,
    decide_waiting_for,
    describe_missing_resources,
    undeclared_message,
)


class RegistrationActivities:
    def __init__(self, ports: Ports) -> None:
        self._claims, self._nodes, self._events = ports.claims, ports.nodes, ports.events

    @activity.defn
    @map_faults
    async def register_node(self, ref: NodeClaimRef) -> RegistrationResult:
        """Set the Node's finalizer, labels and taints, remove `unregistered`, and update the NodeClaim.

        If `ref` has no Node name, or another Node has that name now, the Node is found by its provider ID. A retry
        reads all Nodes too, since another one may have joined with this provider ID. An initialized NodeClaim stays
        initialized (reference 3.4).
        """
        claim = await find_nodeclaim(self._claims, ref.name, ref.uid)
        if claim is None:
            return RegistrationResult(outcome="gone")
        node = await self._nodes.get(ref.node_name) if ref.node_name else None
        is_retry = activity.info().attempt > 1 and not claim.is_true(labels.REGISTERED_CONDITION)
        if is_retry or node is None or node.provider_id != claim.status.provider_id:
            found = await self._nodes.find_by_provider_id(claim.status.provider_id)
            if len(found) > 1:
                return RegistrationResult(outcome="several nodes")
            node = found[0] if found else None
        if node is None:
            return RegistrationResult(outcome="no node")
        await self._warn_if_open(claim, node)
        node = await self._nodes.register(node.name, claim)
        if node is None:
            return RegistrationResult(outcome="no node")
        waiting = await self._list_blockers(claim, node)
        conditions = [ConditionPatch(type=labels.REGISTERED_CONDITION, status="True")]
        if not claim.is_true(labels.INITIALIZED_CONDITION):
            conditions.append(_not_initialized_condition(waiting))
        await self._claims.patch(
            ref.name, ref.uid, status={"nodeName": node.name}, conditions=tuple(conditions), now=utc_now()
        )
        return RegistrationResult(
            outcome="registered",
            node_name=node.name,
            boot_id=node.boot_id,
            ready=not waiting,
            expires=claim.expires_at,
            lifetime=claim.spec.expire_after_delta,
        )

    @activity.defn
    @map_faults
    async def initialize_node(self, ref: NodeClaimRef) -> InitializationResult:
        """Last check before a node counts as ready, from live reads.

        If an earlier attempt has written Initialized, the result stays initialized whatever happened to the node since.
        The condition never reverts (reference 3.4), even after a reboot, which only the workflow knows of.
        """
        claim = await find_nodeclaim(self._claims, ref.name, ref.uid)
        if claim is None:
            return InitializationResult(outcome="gone")
        node = await self._nodes.get(ref.node_name)
        if node is not None and not ref.initialized and claim.is_true(labels.INITIALIZED_CONDITION):
            return _initialized_result(claim, node)
        waiting: tuple[str, ...] = (f"{labels.NODE_NOT_FOUND}: {ref.node_name} left the cluster",)
        if node:
            waiting = await self._list_blockers(claim, node)
        if node is None or waiting:
            if not claim.is_true(labels.INITIALIZED_CONDITION):
                conditions = (_not_initialized_condition(waiting),)
                await self._claims.patch(ref.name, ref.uid, conditions=conditions, now=utc_now())
            return InitializationResult(outcome="waiting", waiting_for=waiting[0])
        if not await self._nodes.mark_initialized(node.name):
            return InitializationResult(
                outcome="waiting", waiting_for=f"{labels.NODE_NOT_FOUND}: {node.name} left the cluster"
            )
        await self._explain_taints(claim, node)
        await self._claims.patch(ref.name, ref.uid, conditions=_initialized_conditions(claim, node), now=utc_now())
        return _initialized_result(claim, node)

    async def _list_blockers(self, claim: NodeClaim, node: NodeFact) -> tuple[str, ...]:
        """Blockers of initialization. DeviceClasses and ResourceSlices are read only for a node that may need them."""
        requests = parse_resources(claim.spec.resources.requests)
        missing = missing_resources(requests, node.allocatable)
        drivers = parse_dra_drivers(claim.metadata.annotations)
        return decide_waiting_for(
            ready=node.ready,
            taints=node.taints,
            startup_taints=claim.spec.startup_taints,
            allocatable=node.allocatable,
            requests=requests,
            dra_resources=await self._nodes.list_dra_resources(missing) if missing else (),
            missing_drivers=await self._nodes.list_missing_drivers(node.name, drivers) if drivers else (),
        )

    async def _explain_taints(self, claim: NodeClaim, node: NodeFact) -> None:
        """Publish an event for undeclared taints, which count as permanent. The expected pods may not tolerate them."""
        undeclared = decide_undeclared(node.taints, (*claim.spec.taints, *claim.spec.startup_taints))
        if undeclared:
            message = undeclared_message(node.name, undeclared)
            await publish_event_on(self._events, "NodeClaim", claim, "UndeclaredTaint", message)

    async def _warn_if_open(self, claim: NodeClaim, node: NodeFact) -> None:
        """Warn if the Node joined without the taint `unregistered`: pods may have been bound before it got its own
        taints (reference 3.3)."""
        tainted = any(one.key == labels.UNREGISTERED_TAINT_KEY for one in node.taints)
        if not tainted and labels.REGISTERED not in node.labels:
            message = (
                f"Missing {labels.UNREGISTERED_TAINT_KEY} taint which prevents registration related race conditions:"
                f" Node {node.name} joined without it; user data must add it"
            )
            await publish_event_on(self._events, "NodeClaim", claim, "UnregisteredTaintMissing", message)


def _initialized_result(claim: NodeClaim, node: NodeFact) -> InitializationResult:
    lifetime = claim.spec.expire_after_delta
    return InitializationResult(
        outcome="initialized", boot_id=node.boot_id, expires=claim.expires_at, lifetime=lifetime
    )


def _initialized_conditions(claim: NodeClaim, node: NodeFact) -> tuple[ConditionPatch, ...]:
    """Initialized, and ConsistentStateFound if the Node lacks no resource, so that the watch need not write it. The
    watch reports missing resources."""
    initialized = ConditionPatch(type=labels.INITIALIZED_CONDITION, status="True")
    requests, expected = parse_resources(claim.spec.resources.requests), parse_resources(claim.status.capacity)
    if describe_missing_resources(requests, expected, node.capacity):
        return (initialized,)
    return (initialized, ConditionPatch(type=labels.CONSISTENT_STATE_FOUND, status="True"))


def _not_initialized_condition(waiting: tuple[str, ...]) -> ConditionPatch:
    reason, _, message = waiting[0].partition(": ") if waiting else (labels.AWAITING_RECONCILIATION, "", "")
    return ConditionPatch(type=labels.INITIALIZED_CONDITION, status="Unknown", reason=reason, message=message)
