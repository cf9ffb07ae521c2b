"""Keeping the number of a static pool's NodeClaims: creating what is missing, deleting what is too much.

Every step looks at live objects first, so that a repeated one finds what the one before it did and does the rest. What
it creates is named after the plan's id and a place in the plan: two tries at once make the same objects.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count, islice

from temporalio import activity

from activities.ports.core import Claims, ConditionPatch, Events, NodeClasses, Nodes, Pools, claim_of
from activities.ports.disruption import Loads
from activities.runtime import each, faults_mapped, heartbeating
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.apis.quantity import parse_resources
from tenure.apis.resources import NODES
from tenure.model.extra_capacity import NodeLoad, ReplicasAsked, ReplicasKept
from tenure.model.nodeclaim_naming import claim_name
from tenure.policy.nodepool import decide_node_class_ready, validate_node_pool
from tenure.policy.static_capacity import MOST_DELETED, MOST_MADE, Candidate, decide_missing, in_order, life_left
from tenure.scheduling.static_nodeclaim import static_claim


class ReplicaActivities:
    def __init__(
        self,
        *,
        pools: Pools,
        claims: Claims,
        nodes: Nodes,
        node_classes: NodeClasses,
        loads: Loads,
        events: Events,
    ) -> None:
        self._pools, self._claims, self._nodes = pools, claims, nodes
        self._node_classes, self._loads, self._events = node_classes, loads, events

    @activity.defn
    @faults_mapped
    async def keep_replicas(self, asked: ReplicasAsked) -> ReplicasKept:
        """One step towards spec.replicas. A pool that is gone, going or not static has nothing to keep."""
        async with heartbeating():
            pool = await self._pools.get(asked.pool)
            if pool is None or pool.metadata.deleting or pool.spec.replicas is None:
                return ReplicasKept()
            claims = await self._claims.list(labels={labels.NODEPOOL: asked.pool})
            standing = [claim for claim in claims if not claim.metadata.deleting]
            surplus = len(standing) - pool.spec.replicas
            if surplus > 0:
                kept = await self._shrink(pool, pool.spec.replicas, standing, asked.hold)
            elif surplus < 0:
                kept = await self._grow(pool, pool.spec.replicas, claims, asked.plan_id)
            else:
                kept = ReplicasKept(desired=pool.spec.replicas, standing=len(standing))
            if kept.waits_for:
                await self._say_waiting(pool, kept)
            return kept

    async def _grow(self, pool: NodePool, desired: int, claims: Sequence[NodeClaim], plan_id: str) -> ReplicasKept:
        going = sum(claim.metadata.deleting for claim in claims)
        standing = len(claims) - going
        if why := await self._not_ready(pool):
            return ReplicasKept(desired=desired, standing=standing, waits_for=why)
        missing = decide_missing(
            pool.metadata.name,
            desired=desired,
            standing=standing,
            going=going,
            limit=parse_resources(pool.spec.limits).get(NODES),
        )
        number = min(missing.create, MOST_MADE)
        taken = {claim.metadata.name for claim in claims}
        made = [
            static_claim(pool, name=name, plan_id=plan_id)
            for name in islice(_names(pool.metadata.name, plan_id, taken), number)
        ]
        await each(made, self._claims.create)
        return ReplicasKept(
            desired=desired,
            standing=standing + number,
            created=number,
            waits_for=missing.waits_for,
            more=number < missing.create,
        )

    async def _not_ready(self, pool: NodePool) -> str:
        """Why nothing can be launched for the pool; empty when it can. Its status may be older than the objects."""
        if errors := validate_node_pool(pool):
            return errors[0]
        name = pool.spec.template.spec.node_class_ref.name
        status, _, message = decide_node_class_ready(name, await self._node_classes.get(name))
        return "" if status == "True" else message or f"EC2NodeClass {name} is not ready"

    async def _shrink(self, pool: NodePool, desired: int, standing: Sequence[NodeClaim], hold: str) -> ReplicasKept:
        if hold:
            return ReplicasKept(desired=desired, standing=len(standing), waits_for=hold)
        surplus = len(standing) - desired
        victims = (await self._candidates(standing, surplus))[: min(surplus, MOST_DELETED)]
        gone = sum(await each(victims, lambda one: self._delete(one, pool.metadata.name, desired)))
        left = len(standing) - gone
        return ReplicasKept(desired=desired, standing=left, deleted=gone, more=left > desired)

    async def _candidates(self, standing: Sequence[NodeClaim], surplus: int) -> list[Candidate]:
        """First to go first. What nodes carry is asked only where it matters."""
        unlaunched = [claim for claim in standing if not claim.status.provider_id]
        if len(unlaunched) >= surplus:
            return in_order(_candidate(claim, held=False) for claim in unlaunched)
        now = datetime.now(UTC)
        nodes = await self._nodes.list(labels={labels.NODEPOOL: standing[0].nodepool})
        held = {node.provider_id for node in nodes if node.annotations.get(labels.DO_NOT_DISRUPT) == "true"}
        loads = await self._loads.on_nodes([one.status.node_name for one in standing if one.status.node_name], now=now)
        return in_order(
            _candidate(
                claim,
                held=claim.status.provider_id in held,
                load=loads.get(claim.status.node_name, NodeLoad()),
                left=life_left(claim.metadata.creation_timestamp, claim.expires_at, now),
            )
            for claim in standing
        )

    async def _delete(self, one: Candidate, pool_name: str, desired: int) -> bool:
        """After a last look. False: it is not what was decided on any more, so that all is to be looked at again."""
        pool = await self._pools.get(pool_name)
        claim = await claim_of(self._claims, one.name, one.uid)
        if pool is None or pool.spec.replicas != desired or claim is None:
            return False
        if claim.metadata.deleting or bool(claim.status.provider_id) != one.launched:
            return False
        if one.launched and one.empty and one.node_name:
            now = datetime.now(UTC)
            load = (await self._loads.on_nodes([one.node_name], now=now))[one.node_name]
            if load != one.load:
                return False
        deleted = await self._claims.delete(one.name, one.uid)
        reason = ConditionPatch(type=labels.DISRUPTION_REASON, status="True", reason=labels.OVERPROVISIONED)
        await self._claims.patch(one.name, one.uid, conditions=(reason,), now=datetime.now(UTC))
        await self._events.publish(
            kind="NodeClaim",
            name=one.name,
            uid=one.uid,
            reason=labels.OVERPROVISIONED,
            message=f"deleted: NodePool {pool_name} has more nodes than spec.replicas={desired}",
        )
        return deleted

    async def _say_waiting(self, pool: NodePool, kept: ReplicasKept) -> None:
        await self._events.publish(
            kind="NodePool",
            name=pool.metadata.name,
            uid=pool.metadata.uid,
            reason=labels.REPLICAS_WAIT,
            message=f"{kept.standing} of {kept.desired} nodes: {kept.waits_for}",
            warning=True,
        )


def _names(pool: str, plan_id: str, taken: set[str]) -> Iterator[str]:
    """Of the plan, in order; what an earlier try made is not made again under another name."""
    return (name for place in count() if (name := claim_name(pool, plan_id, place)) not in taken)


def _candidate(claim: NodeClaim, *, held: bool, load: NodeLoad | None = None, left: float = 1.0) -> Candidate:
    return Candidate(
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        node_name=claim.status.node_name,
        launched=bool(claim.status.provider_id),
        held=held or claim.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true",
        load=load or NodeLoad(),
        life_left=left,
    )
