"""Roll-outs of drift: how a NodePool stands, from live objects, and what is said of it on the NodePool.

`policy/rollout.py` decides on it in the NodePool's workflow (`workflows/rollouts.py`).
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from temporalio import activity

from activities.errors import faults_mapped
from activities.ports import Claims, Events, NodeClasses, Nodes, NodeState, Pods, Pools
from activities.several import each
from model import labels
from model.kinds import NodeClaim
from model.outcomes import DrainPod
from model.rollouts import RolloutAsked, RolloutSeen, RolloutTold, Target
from policy.rollout_target import is_made_of, target_of

MOST_NODES: Final = 100
"""New nodes whose pods are looked at: the youngest. Each is a call."""


class RolloutActivities:
    def __init__(
        self, *, pools: Pools, claims: Claims, nodes: Nodes, pods: Pods, node_classes: NodeClasses, events: Events
    ) -> None:
        self._pools, self._claims, self._nodes = pools, claims, nodes
        self._pods, self._node_classes, self._events = pods, node_classes, events

    @activity.defn
    @faults_mapped
    async def look_at_rollout(self, asked: RolloutAsked) -> RolloutSeen:
        """Nothing of a NodePool that is gone. What the workflow knows itself it adds: rules, wishes, permits."""
        pool = await self._pools.get(asked.name)
        if pool is None:
            return RolloutSeen()
        node_class = await self._node_classes.get(pool.spec.template.spec.node_class_ref.name)
        claims = await self._claims.list(labels={labels.NODEPOOL: asked.name})
        nodes = {one.provider_id: one for one in await self._nodes.list(labels={labels.NODEPOOL: asked.name})}
        drifted = [claim for claim in claims if claim.is_true(labels.DRIFTED)]
        target = target_of(pool, node_class)
        new = [one for one in claims if _is_new(one, nodes.get(one.status.provider_id), target)]
        pods = await self._pods_on(new, nodes) if asked.pods else ()
        return RolloutSeen(
            target=target,
            drifted=tuple(sorted(claim.uid for claim in drifted)),
            out=tuple(sorted(one.uid for one in drifted if _is_going(one, nodes.get(one.status.provider_id)))),
            new=len(new),
            ready=sum(node.ready for claim in new if (node := nodes.get(claim.status.provider_id))),
            pods=len(pods),
            pods_ready=sum(pod.ready for pod in pods),
            kept=pool.metadata.annotations.get(labels.ROLLOUT, ""),
        )

    @activity.defn
    @faults_mapped
    async def tell_rollout(self, told: RolloutTold) -> None:
        """Events, and the state as an annotation."""
        pool = await self._pools.get(told.name)
        if pool is None:
            return
        for one in told.news:
            await self._events.publish(
                kind="NodePool",
                name=told.name,
                uid=pool.metadata.uid,
                reason=one.reason,
                message=one.message,
                warning=one.warning,
            )
        if told.kept != pool.metadata.annotations.get(labels.ROLLOUT, ""):
            now = datetime.now(UTC)
            await self._pools.patch_status(told.name, annotations={labels.ROLLOUT: told.kept}, now=now)

    async def _pods_on(self, new: Iterable[NodeClaim], nodes: dict[str, NodeState]) -> Sequence[DrainPod]:
        """Those that stay, and would need a place elsewhere."""
        youngest = sorted(new, key=_born, reverse=True)[:MOST_NODES]
        names = [node.name for claim in youngest if (node := nodes.get(claim.status.provider_id))]
        now = datetime.now(UTC)
        found = await each(names, lambda name: self._pods.on_node(name, now=now))
        return [pod for pods in found for pod in pods if pod.reschedulable and pod.deletion is None]


def _is_new(claim: NodeClaim, node: NodeState | None, target: Target | None) -> bool:
    """Initialized, made of what is asked for, and not on its way out. One whose Node is lost is not Ready.

    That an older node has drifted may be found a moment after the target changed: its stamps tell at once."""
    if target is None or not claim.is_true(labels.INITIALIZED_CONDITION) or claim.is_true(labels.DRIFTED):
        return False
    return is_made_of(claim, target) and not _is_going(claim, node)


def _is_going(claim: NodeClaim, node: NodeState | None) -> bool:
    return claim.metadata.deleting or (node is not None and node.being_disrupted)


def _born(claim: NodeClaim) -> datetime:
    return claim.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
