"""NodePools: their status. `allowances.py` reads what their budgets allow."""

from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio import activity

from activities.nodeclaim.annotations import restamp_pool
from activities.ports.core import Claims, ConditionPatch, NodeClasses, Pools
from activities.runtime import faults_mapped
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodepool_hash
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.apis.quantity import format_resources, parse_resources
from tenure.apis.resources import total
from tenure.model.disruption.permits import Went
from tenure.model.disruption.planning import Disrupted
from tenure.model.nodeclaim_requests import PoolAsked, PoolWritten
from tenure.model.observations import Registrations
from tenure.policy.disruption import permits
from tenure.policy.disruption.permits import used
from tenure.policy.nodepool import (
    added,
    decide_healthy,
    decide_node_class_ready,
    refuse_static,
    registered,
    renewed,
    validate_node_pool,
)

BASE = {"cpu": 0, "memory": 0, "pods": 0, "ephemeral-storage": 0, "nodes": 0}
"""Shown as zero where nothing is used (reference 3.7)."""


class PoolActivities:
    def __init__(self, *, pools: Pools, claims: Claims, node_classes: NodeClasses) -> None:
        self._pools, self._claims, self._node_classes = pools, claims, node_classes

    @activity.defn
    @faults_mapped
    async def update_pool(self, asked: PoolAsked) -> PoolWritten:
        """Write the status as the live objects have it."""
        pool = await self._pools.get(asked.name)
        if pool is None:
            return PoolWritten(exists=False)
        claims = await self._claims.list(labels={labels.NODEPOOL: asked.name})
        stamp = nodepool_hash(pool)
        await restamp_pool(self._claims, claims, stamp)
        now = datetime.now(UTC)
        node_class = await self._node_classes.get(pool.spec.template.spec.node_class_ref.name)
        generation = node_class.metadata.generation if node_class else 0
        registrations = added(renewed(asked.registrations, pool, generation, now), registered(pool, claims))
        past = _past(asked.went, pool, claims, now)
        exists = await self._pools.patch_status(
            asked.name,
            status={
                "resources": _usage(claims),
                "nodes": _nodes(claims),
                "nodeClassObservedGeneration": generation,
            },
            conditions=(*_conditions(pool, node_class, gate_off=asked.gate_off), _health(registrations)),
            annotations={
                labels.NODEPOOL_HASH: stamp,
                labels.NODEPOOL_HASH_VERSION: HASH_VERSION,
                **_recorded(past, pool),
            },
            now=now,
        )
        return PoolWritten(
            exists=exists, registrations=registrations, went=asked.went.model_copy(update={"past": past})
        )


def _past(asked: Went, pool: NodePool, claims: Sequence[NodeClaim], now: datetime) -> tuple[Disrupted, ...]:
    """What went as far back as rates look: what the workflow knows, what it may have lost, and permits used since."""
    if not asked.over:
        return ()
    name = pool.metadata.name
    kept = permits.read(pool.metadata.annotations.get(labels.DISRUPTED_LATELY, ""), name)
    standing = {one.metadata.uid for one in claims if not one.metadata.deleting}
    went = [one for one in asked.permits if one.claim_uid not in standing]
    return permits.merged(asked.past, kept, used(went, name), since=now - asked.over)


def _recorded(past: Sequence[Disrupted], pool: NodePool) -> dict[str, str]:
    """NodePools without rates carry none."""
    text = permits.written(past)
    return {labels.DISRUPTED_LATELY: text} if text or labels.DISRUPTED_LATELY in pool.metadata.annotations else {}


def _conditions(pool: NodePool, node_class: EC2NodeClass | None, *, gate_off: bool) -> Sequence[ConditionPatch]:
    errors = (*validate_node_pool(pool), *(refuse_static(pool) if gate_off else ()))
    valid = ConditionPatch(
        type=labels.VALIDATION_SUCCEEDED,
        status="False" if errors else "True",
        reason=labels.NODEPOOL_VALIDATION_FAILED if errors else "",
        message="; ".join(errors)[:1000],
    )
    status, reason, message = decide_node_class_ready(pool.spec.template.spec.node_class_ref.name, node_class)
    return (valid, ConditionPatch(type=labels.NODECLASS_READY, status=status, reason=reason, message=message))


def _health(registrations: Registrations) -> ConditionPatch:
    status, reason, message = decide_healthy(registrations)
    return ConditionPatch(type=labels.NODE_REGISTRATION_HEALTHY, status=status, reason=reason, message=message[:1000])


def _nodes(claims: Sequence[NodeClaim]) -> int:
    return sum(1 for claim in claims if claim.status.provider_id)


def _usage(claims: Sequence[NodeClaim]) -> dict[str, str]:
    used = total(parse_resources(claim.status.capacity) for claim in claims)
    return format_resources({**BASE, **used, "nodes": _nodes(claims)})
