"""Replicas of a static NodePool: missing NodeClaims are created, surplus ones deleted.

Each step first reads live objects, so a retry does only the remaining work. Names are derived from the plan's ID and an
index, so two concurrent attempts create the same objects.
"""

from collections.abc import Iterator, Sequence
from itertools import count, islice

from temporalio import activity

from activities.ports.core import ConditionPatch, NodeFact, Ports, find_nodeclaim, publish_event_on
from activities.runtime import background_heartbeat, call_for_each, map_faults
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.apis.quantity import parse_resources
from tenure.apis.resources import NODES
from tenure.clock import utc_now
from tenure.model.extra_capacity import NodeLoad, ReplicasRequest, ReplicasResult
from tenure.model.nodeclaim.names import make_nodeclaim_name
from tenure.model.nodeclaim.node_identity import identify_nodes
from tenure.policy.nodepool import decide_nodeclass_ready, validate_nodepool
from tenure.policy.static_capacity import (
    MAX_CREATED_PER_PASS,
    MAX_DELETED_PER_PASS,
    Candidate,
    count_nodes,
    decide_missing,
    remaining_lifetime_share,
    sort_for_deletion,
)
from tenure.scheduling.nodeclaim_template import build_static_nodeclaim


class ReplicaActivities:
    def __init__(self, ports: Ports) -> None:
        self._pools, self._claims, self._nodes = ports.pools, ports.claims, ports.nodes
        self._node_classes, self._loads, self._events = ports.node_classes, ports.loads, ports.events

    @activity.defn
    @map_faults
    async def reconcile_replicas(self, request: ReplicasRequest) -> ReplicasResult:
        """Take one step towards spec.replicas; none if the NodePool is gone, terminating or not static."""
        async with background_heartbeat():
            pool = await self._pools.get(request.pool)
            if pool is None or pool.metadata.is_deleting or pool.spec.replicas is None:
                return ReplicasResult()
            claims = await self._claims.list(labels={labels.NODEPOOL: request.pool})
            desired = pool.spec.replicas
            existing = [claim for claim in claims if not claim.metadata.is_deleting]
            active = [claim for claim in existing if not claim.disrupted_by]
            counted = count_nodes(desired, active=len(active), replaced=len(existing) - len(active))
            if counted > desired:
                result = await self._delete_surplus(pool, desired, active, request.deletion_blocked_by)
            elif counted < desired:
                result = await self._create_missing(pool, desired, claims, request.plan_id)
            else:
                result = ReplicasResult(desired=desired, existing=counted)
            if result.waits_for:
                message = f"{result.existing} of {result.desired} nodes: {result.waits_for}"
                await publish_event_on(self._events, "NodePool", pool, labels.REPLICAS_WAIT, message)
            return result

    async def _create_missing(
        self, pool: NodePool, desired: int, claims: Sequence[NodeClaim], plan_id: str
    ) -> ReplicasResult:
        deleting = sum(claim.metadata.is_deleting for claim in claims)
        existing = len(claims) - deleting
        if why := await self._not_ready(pool):
            return ReplicasResult(desired=desired, existing=existing, waits_for=why)
        missing = decide_missing(
            pool.metadata.name,
            desired=desired,
            existing=existing,
            terminating=deleting,
            limit=parse_resources(pool.spec.limits).get(NODES),
        )
        number = min(missing.create, MAX_CREATED_PER_PASS)
        taken = {claim.metadata.name for claim in claims}
        created = [
            build_static_nodeclaim(pool, name=name, plan_id=plan_id)
            for name in islice(_generate_names(pool.metadata.name, plan_id, taken), number)
        ]
        await call_for_each(created, self._claims.create)
        return ReplicasResult(
            desired=desired,
            existing=existing + number,
            created=number,
            waits_for=missing.waits_for,
            more=number < missing.create,
        )

    async def _not_ready(self, pool: NodePool) -> str:
        """Why no node can be launched; empty if possible. Reads live objects, since the NodePool's status may be
        older."""
        if errors := validate_nodepool(pool):
            return errors[0]
        name = pool.spec.template.spec.node_class_ref.name
        status, _, message = decide_nodeclass_ready(name, await self._node_classes.get(name))
        return "" if status == "True" else message or f"EC2NodeClass {name} is not ready"

    async def _delete_surplus(
        self, pool: NodePool, desired: int, existing: Sequence[NodeClaim], blocker: str
    ) -> ReplicasResult:
        if blocker:
            return ReplicasResult(desired=desired, existing=len(existing), waits_for=blocker)
        surplus = len(existing) - desired
        selected = (await self._rank_candidates(existing, surplus))[: min(surplus, MAX_DELETED_PER_PASS)]
        deleted = sum(await call_for_each(selected, lambda one: self._delete(one, pool.metadata.name, desired)))
        remaining = len(existing) - deleted
        return ReplicasResult(desired=desired, existing=remaining, deleted=deleted, more=remaining > desired)

    async def _rank_candidates(self, existing: Sequence[NodeClaim], surplus: int) -> list[Candidate]:
        """Candidates in deletion order. Pods are read only if launched nodes must be deleted."""
        unlaunched = [claim for claim in existing if not claim.status.provider_id]
        if len(unlaunched) >= surplus:
            return sort_for_deletion(_build_candidate(claim, is_protected=False) for claim in unlaunched)
        now = utc_now()
        nodes = await self._nodes.list(labels={labels.NODEPOOL: existing[0].nodepool})
        identities = identify_nodes(existing, nodes)
        loads = await self._loads.on_nodes([one.status.node_name for one in existing if one.status.node_name], now=now)
        return sort_for_deletion(
            _build_candidate(
                claim,
                is_protected=_is_protected(identities[claim.uid].node),
                load=loads.get(claim.status.node_name, NodeLoad()),
                remaining_lifetime=remaining_lifetime_share(claim.metadata.creation_timestamp, claim.expires_at, now),
            )
            for claim in existing
        )

    async def _delete(self, one: Candidate, pool_name: str, desired: int) -> bool:
        """Read the NodeClaim again and delete it. False if its state differs, so that the decision must be made
        again."""
        pool = await self._pools.get(pool_name)
        claim = await find_nodeclaim(self._claims, one.name, one.uid)
        if pool is None or pool.spec.replicas != desired or claim is None:
            return False
        if claim.metadata.is_deleting or claim.disrupted_by or bool(claim.status.provider_id) != one.launched:
            return False
        if one.launched and one.is_empty and one.node_name:
            now = utc_now()
            load = (await self._loads.on_nodes([one.node_name], now=now))[one.node_name]
            if load != one.load:
                return False
        deleted = await self._claims.delete(one.name, one.uid)
        reason = ConditionPatch(type=labels.DISRUPTION_REASON, status="True", reason=labels.OVERPROVISIONED)
        await self._claims.patch(one.name, one.uid, conditions=(reason,), now=utc_now())
        message = f"deleted: NodePool {pool_name} has more nodes than spec.replicas={desired}"
        await publish_event_on(self._events, "NodeClaim", one, labels.OVERPROVISIONED, message)
        return deleted


def _generate_names(pool: str, plan_id: str, taken: set[str]) -> Iterator[str]:
    """Free names of the plan, in order of their index."""
    return (name for index in count() if (name := make_nodeclaim_name(pool, plan_id, index)) not in taken)


def _is_protected(node: NodeFact | None) -> bool:
    return node is not None and node.annotations.get(labels.DO_NOT_DISRUPT) == "true"


def _build_candidate(
    claim: NodeClaim, *, is_protected: bool, load: NodeLoad | None = None, remaining_lifetime: float = 1.0
) -> Candidate:
    return Candidate(
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        node_name=claim.status.node_name,
        launched=bool(claim.status.provider_id),
        do_not_disrupt=is_protected or claim.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true",
        load=load or NodeLoad(),
        remaining_lifetime_share=remaining_lifetime,
    )
