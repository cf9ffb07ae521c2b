"""Disruptions that a NodePool's budgets and LifecyclePolicies allow now, computed from live objects."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from temporalio import activity

from activities.ports.core import NodeFact, Ports, publish_event_on
from activities.runtime import map_faults
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.clock import utc_now
from tenure.model.disruption.permits import AllowedDisruptionsRequest
from tenure.model.nodeclaim.node_identity import NodeIdentity, identify_nodes
from tenure.policy.disruption.budgets import AllowedDisruptions, PermitCandidate
from tenure.policy.disruption.limits import (
    NodeCounted,
    PoolDisruptionRules,
    decide_limits,
    longest_rate,
    next_pool_opening,
)
from tenure.policy.disruption.permits import update_record
from tenure.policy.lifecycle.pauses import describe_pause, is_pause_active, pause_from_annotation


class AllowedDisruptionsActivities:
    def __init__(self, ports: Ports) -> None:
        self._pools, self._claims, self._nodes, self._events = ports.pools, ports.claims, ports.nodes, ports.events

    @activity.defn
    @map_faults
    async def read_allowed_disruptions(self, request: AllowedDisruptionsRequest) -> AllowedDisruptions:
        """Remaining disruptions for this reason; zero for a deleted NodePool."""
        pool = await self._pools.get(request.name)
        if pool is None:
            return AllowedDisruptions(allowed=0, why=f"NodePool {request.name} is gone")
        # Nodes of other NodePools count only for clusterNodes.
        everywhere = request.rules is not None and request.rules.cluster_nodes is not None
        selector = None if everywhere else {labels.NODEPOOL: request.name}
        claims = await self._claims.list(labels=selector)
        nodes = identify_nodes(claims, await self._nodes.list(labels=selector))
        now = utc_now()
        allowed_disruptions = _decide_allowed_disruptions(request, pool, claims, nodes, now)
        if allowed_disruptions.allowed == 0 and allowed_disruptions.count.total:
            message = f"No allowed disruptions for disruption reason {request.reason}: {allowed_disruptions.why}"
            await publish_event_on(self._events, "NodePool", pool, "DisruptionBlocked", message)
        return allowed_disruptions


def _decide_allowed_disruptions(
    request: AllowedDisruptionsRequest,
    pool: NodePool,
    claims: Sequence[NodeClaim],
    nodes: Mapping[str, NodeIdentity],
    now: datetime,
) -> AllowedDisruptions:
    counted = sorted(
        (_to_counted_node(claim, nodes[claim.uid].node, request) for claim in claims if _is_counted(claim)),
        key=lambda one: one.uid,
    )
    disrupted = {one.uid for one in counted if one.consuming and not one.unavailable}
    existing = {one.uid for one in counted} | {claim.metadata.uid for claim in claims if not _was_initialized(claim)}
    used_permits = [one for one in request.permits if one.claim_uid in disrupted or one.claim_uid not in existing]
    pool_rules = PoolDisruptionRules(request.name, pool.spec.disruption.budgets, request.rules, request.unread)
    past = update_record(request.past, used_permits, request.name, now - longest_rate(request.rules, request.unread))
    allowed_disruptions = decide_limits(pool_rules, counted, past, reason=request.reason, now=now)
    if pool.is_static and request.reason in ("Empty", "Underutilized"):
        why = f"NodePool {request.name} is static: its nodes are not consolidated"
        allowed_disruptions = allowed_disruptions.model_copy(update={"allowed": 0, "why": why, "fixed": True})
    candidates = {
        claim.metadata.uid: _to_permit_candidate(claim, nodes[claim.uid].node, now)
        for claim in claims
        if claim.metadata.uid in request.candidates
    }
    return allowed_disruptions.model_copy(
        update={"candidates": candidates, "opens": next_pool_opening(pool_rules, past, candidates.values(), now)}
    )


def _is_counted(claim: NodeClaim) -> bool:
    """Managed and initialized or rebooting, and its instance is not terminating yet (reference 4.4)."""
    pool = claim.metadata.labels.get(labels.NODEPOOL)
    return bool(pool) and _was_initialized(claim) and not claim.is_true(labels.INSTANCE_TERMINATING)


def _was_initialized(claim: NodeClaim) -> bool:
    return claim.is_true(labels.INITIALIZED_CONDITION) or claim.is_true(labels.REBOOTING)


def _to_counted_node(claim: NodeClaim, node: NodeFact | None, request: AllowedDisruptionsRequest) -> NodeCounted:
    """Nodes consume budgets if they are missing, NotReady, being disrupted (reference 4.4) or reserved by other
    NodePools."""
    is_disrupted = (
        claim.metadata.is_deleting
        or claim.is_true(labels.REBOOTING)
        or claim.metadata.uid in request.reserved_uids
        or (node is not None and node.being_disrupted and not _is_tainted_without_command(claim, request))
    )
    is_unavailable = node is None or not node.ready
    return NodeCounted(
        uid=claim.metadata.uid,
        pool=claim.metadata.labels[labels.NODEPOOL],
        zone=_find_zone(claim, node),
        consuming=is_disrupted or is_unavailable,
        unavailable=is_unavailable and not is_disrupted,
    )


def _is_tainted_without_command(claim: NodeClaim, request: AllowedDisruptionsRequest) -> bool:
    """The taint is from a failed attempt: the NodeClaim's workflow requests a permit, and no command includes it."""
    return claim.metadata.uid in request.requesting and not claim.disrupted_by


def _to_permit_candidate(claim: NodeClaim, node: NodeFact | None, now: datetime) -> PermitCandidate:
    written = claim.metadata.annotations.get(labels.PAUSE) or (node.annotations.get(labels.PAUSE) if node else None)
    pause = pause_from_annotation(written or "")
    paused = describe_pause(pause) if pause and is_pause_active(pause, now) else ""
    return PermitCandidate(
        zone=_find_zone(claim, node),
        initialized=_was_initialized(claim),
        created=claim.metadata.creation_timestamp,
        paused=paused,
    )


def _find_zone(claim: NodeClaim, node: NodeFact | None) -> str:
    found = claim.metadata.labels.get(labels.ZONE) or (node.labels.get(labels.ZONE) if node else None)
    return found or ""
