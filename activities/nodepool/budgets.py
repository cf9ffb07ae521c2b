"""What a NodePool's budgets and LifecyclePolicies leave at this moment, from live objects."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from temporalio import activity

from activities.ports.core import Claims, Events, Nodes, NodeState, Pools
from activities.runtime import faults_mapped
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.model.disruption.permits import AllowanceAsked
from tenure.policy.disruption.budgets import Allowance, Asking
from tenure.policy.disruption.limits import NodeCounted, PoolWishes, decide_limits, longest_rate, opens
from tenure.policy.disruption.permits import after
from tenure.policy.lifecycle.pauses import found_in, holds, words


class AllowanceActivities:
    def __init__(self, *, pools: Pools, claims: Claims, nodes: Nodes, events: Events) -> None:
        self._pools, self._claims, self._nodes, self._events = pools, claims, nodes, events

    @activity.defn
    @faults_mapped
    async def read_allowance(self, asked: AllowanceAsked) -> Allowance:
        """How many more nodes may go for this reason; nothing of a pool that is gone."""
        pool = await self._pools.get(asked.name)
        if pool is None:
            return Allowance(allowed=0, why=f"NodePool {asked.name} is gone")
        # Nodes of other NodePools are counted only where a rule is about them.
        everywhere = asked.rules is not None and asked.rules.cluster_nodes is not None
        mine = None if everywhere else {labels.NODEPOOL: asked.name}
        claims = await self._claims.list(labels=mine)
        nodes = {node.provider_id: node for node in await self._nodes.list(labels=mine) if node.provider_id}
        now = datetime.now(UTC)
        allowance = _decide(asked, pool, claims, nodes, now)
        if allowance.allowed == 0 and allowance.count.total:
            await self._say(pool, allowance.why)
        return allowance

    async def _say(self, pool: NodePool, why: str) -> None:
        await self._events.publish(
            kind="NodePool", name=pool.metadata.name, uid=pool.metadata.uid, reason="DisruptionBlocked", message=why
        )


def _decide(
    asked: AllowanceAsked,
    pool: NodePool,
    claims: Sequence[NodeClaim],
    nodes: Mapping[str, NodeState],
    now: datetime,
) -> Allowance:
    counted = sorted(
        (_counted(claim, nodes.get(claim.status.provider_id), asked) for claim in claims if _counts(claim)),
        key=lambda one: one.uid,
    )
    consuming = {one.uid for one in counted if one.consuming}
    standing = {one.uid for one in counted}
    gone = [one for one in asked.permits if one.claim_uid in consuming or one.claim_uid not in standing]
    wishes = PoolWishes(asked.name, pool.spec.disruption.budgets, asked.rules, asked.unread)
    past = after(asked.past, gone, asked.name, now - longest_rate(asked.rules, asked.unread))
    allowance = decide_limits(wishes, counted, past, reason=asked.reason, now=now)
    if pool.is_static and asked.reason in ("Empty", "Underutilized"):
        why = f"NodePool {asked.name} is static: its nodes are not consolidated"
        allowance = allowance.model_copy(update={"allowed": 0, "why": why, "fixed": True})
    asking = {
        claim.metadata.uid: _asking(claim, nodes.get(claim.status.provider_id), now)
        for claim in claims
        if claim.metadata.uid in asked.asking
    }
    return allowance.model_copy(update={"asking": asking, "opens": opens(wishes, past, asking.values(), now)})


def _counts(claim: NodeClaim) -> bool:
    """Managed, initialized, its instance not terminating yet (reference 4.4)."""
    pool = claim.metadata.labels.get(labels.NODEPOOL)
    return bool(pool) and claim.is_true(labels.INITIALIZED_CONDITION) and not claim.is_true(labels.INSTANCE_TERMINATING)


def _counted(claim: NodeClaim, node: NodeState | None, asked: AllowanceAsked) -> NodeCounted:
    """Consuming are those NotReady or going (reference 4.4), and those that other NodePools have let go."""
    unwell = node is not None and (not node.ready or (node.being_disrupted and not _is_left_over(claim, asked)))
    return NodeCounted(
        uid=claim.metadata.uid,
        pool=claim.metadata.labels[labels.NODEPOOL],
        zone=_zone(claim, node),
        consuming=claim.metadata.deleting or unwell or claim.metadata.uid in asked.booked,
    )


def _is_left_over(claim: NodeClaim, asked: AllowanceAsked) -> bool:
    """Its taint is of a try that came to nothing: it waits for a permit, and no command has it."""
    told = claim.condition(labels.DISRUPTION_REASON)
    commanded = told is not None and told.is_true and bool(told.message)
    return claim.metadata.uid in asked.wishing and not commanded


def _asking(claim: NodeClaim, node: NodeState | None, now: datetime) -> Asking:
    written = claim.metadata.annotations.get(labels.PAUSE) or (node.annotations.get(labels.PAUSE) if node else None)
    pause = found_in(written or "")
    paused = words(pause) if pause and holds(pause, now) else ""
    return Asking(zone=_zone(claim, node), created=claim.metadata.creation_timestamp, paused=paused)


def _zone(claim: NodeClaim, node: NodeState | None) -> str:
    found = claim.metadata.labels.get(labels.ZONE) or (node.labels.get(labels.ZONE) if node else None)
    return found or ""
