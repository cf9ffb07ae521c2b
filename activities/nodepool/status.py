"""The status of NodePools."""

from collections.abc import Sequence
from datetime import datetime

from temporalio import activity

from activities.nodeclaim.annotations import restamp_nodepool
from activities.ports.core import ConditionPatch, Ports
from activities.runtime import map_faults
from tenure.apis import labels
from tenure.apis.durations import DurationError
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodepool_hash
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.apis.quantity import format_resources, parse_resources
from tenure.apis.resources import sum_resources
from tenure.clock import utc_now
from tenure.model.disruption.decision import PastDisruption
from tenure.model.disruption.permits import RecentDisruptions
from tenure.model.nodeclaim.requests import NodePoolRequest, NodePoolResult
from tenure.model.observations import Registrations
from tenure.policy.disruption import permits
from tenure.policy.disruption.permits import disruptions_of
from tenure.policy.nodepool import (
    add_outcomes,
    decide_healthy,
    decide_nodeclass_ready,
    refresh_registrations,
    registered_outcomes,
    reject_static,
    validate_nodepool,
)

BASE = {"cpu": 0, "memory": 0, "pods": 0, "ephemeral-storage": 0, "nodes": 0}
"""Resources that are shown as zero if unused (reference 3.7)."""


class NodePoolActivities:
    def __init__(self, ports: Ports) -> None:
        self._pools, self._claims, self._node_classes = ports.pools, ports.claims, ports.node_classes

    @activity.defn
    @map_faults
    async def update_nodepool_status(self, request: NodePoolRequest) -> NodePoolResult:
        """Write the status from live objects."""
        pool = await self._pools.get(request.name)
        if pool is None:
            return NodePoolResult(exists=False)
        claims = await self._claims.list(labels={labels.NODEPOOL: request.name})
        stamp = _hash_of(pool)
        if stamp:
            await restamp_nodepool(self._claims, claims, stamp)
        now = utc_now()
        node_class = await self._node_classes.get(pool.spec.template.spec.node_class_ref.name)
        generation = node_class.metadata.generation if node_class else 0
        registrations = add_outcomes(
            refresh_registrations(request.registrations, pool, generation, now), registered_outcomes(pool, claims)
        )
        past = _recent_disruptions(request.recent_disruptions, pool, claims, now)
        exists = await self._pools.patch_status(
            request.name,
            status={
                "resources": _sum_usage(claims),
                "nodes": _count_nodes(claims),
                "nodeClassObservedGeneration": generation,
            },
            conditions=(
                *_build_conditions(pool, node_class, gate_off=request.gate_off),
                _health_condition(registrations),
            ),
            annotations={**_hash_annotations(stamp), **_disruption_annotations(past, pool)},
            now=now,
        )
        return NodePoolResult(
            exists=exists,
            registrations=registrations,
            recent_disruptions=request.recent_disruptions.model_copy(update={"past": past}),
        )


def _hash_of(pool: NodePool) -> str:
    """Empty for an invalid duration, which the condition ValidationSucceeded reports."""
    try:
        return nodepool_hash(pool)
    except DurationError:
        return ""


def _hash_annotations(stamp: str) -> dict[str, str]:
    return {labels.NODEPOOL_HASH: stamp, labels.NODEPOOL_HASH_VERSION: HASH_VERSION} if stamp else {}


def _recent_disruptions(
    request: RecentDisruptions, pool: NodePool, claims: Sequence[NodeClaim], now: datetime
) -> tuple[PastDisruption, ...]:
    """Disruptions within the lookback: from the workflow, from the annotation in case the workflow has lost some, and
    from used permits."""
    if not request.lookback:
        return ()
    name = pool.metadata.name
    recorded = permits.parse_record(pool.metadata.annotations.get(labels.RECENT_DISRUPTIONS, ""), name)
    existing = {one.metadata.uid for one in claims if not one.metadata.is_deleting}
    used_permits = [one for one in request.permits if one.claim_uid not in existing]
    return permits.merge_records(
        request.past, recorded, disruptions_of(used_permits, name), since=now - request.lookback
    )


def _disruption_annotations(past: Sequence[PastDisruption], pool: NodePool) -> dict[str, str]:
    """Empty for NodePools without rates."""
    text = permits.serialize_record(past)
    return {labels.RECENT_DISRUPTIONS: text} if text or labels.RECENT_DISRUPTIONS in pool.metadata.annotations else {}


def _build_conditions(pool: NodePool, node_class: EC2NodeClass | None, *, gate_off: bool) -> Sequence[ConditionPatch]:
    errors = (*validate_nodepool(pool), *(reject_static(pool) if gate_off else ()))
    valid = ConditionPatch(
        type=labels.VALIDATION_SUCCEEDED,
        status="False" if errors else "True",
        reason=labels.NODEPOOL_VALIDATION_FAILED if errors else "",
        message="; ".join(errors)[:1000],
    )
    status, reason, message = decide_nodeclass_ready(pool.spec.template.spec.node_class_ref.name, node_class)
    return (valid, ConditionPatch(type=labels.NODECLASS_READY, status=status, reason=reason, message=message[:1000]))


def _health_condition(registrations: Registrations) -> ConditionPatch:
    status, reason, message = decide_healthy(registrations)
    return ConditionPatch(type=labels.NODE_REGISTRATION_HEALTHY, status=status, reason=reason, message=message[:1000])


def _count_nodes(claims: Sequence[NodeClaim]) -> int:
    return sum(1 for claim in claims if claim.status.provider_id)


def _sum_usage(claims: Sequence[NodeClaim]) -> dict[str, str]:
    used = sum_resources(parse_resources(claim.status.capacity) for claim in claims)
    return format_resources({**BASE, **used, "nodes": _count_nodes(claims)})
