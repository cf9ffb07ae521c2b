"""Repair: one step for a node that is unhealthy, after a last look at it and at the others of its NodePool.

The breaker is counted here, live and by the one who acts: numbers that the watch told could be old, and a NodeClaim
without a NodePool has no workflow to ask.
"""

from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities.ports.core import Claims, Events, Instances, Nodes, NodeState, claim_of
from activities.runtime import faults_mapped
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.base import instance_id_of, read_moment
from tenure.model.errors import Fault, TryLater
from tenure.model.node_health import RepairAsked, Repaired
from tenure.policy.lifecycle.repair import decide_breaker, is_unhealthy

SAME_EPISODE = timedelta(hours=1)
"""For so long a NodeClaim's word that it was rebooted counts: the workflow that did it may have been lost."""


class RepairActivities:
    def __init__(self, *, claims: Claims, nodes: Nodes, instances: Instances, events: Events) -> None:
        self._claims, self._nodes, self._instances, self._events = claims, nodes, instances, events

    @activity.defn
    @faults_mapped
    async def repair_node(self, asked: RepairAsked) -> Repaired:
        """Reboot or replace, unless the node is well after all or too many are not."""
        claim = await claim_of(self._claims, asked.name, asked.uid)
        if claim is None:
            return Repaired(outcome="gone")
        if asked.step == "reboot" and _was_rebooted(claim, asked, datetime.now(UTC)):
            return Repaired(outcome="done", why="it was rebooted already")
        node = await self._nodes.get(asked.node_name)
        if node is None or node.provider_id != asked.provider_id or _is_well(node, asked):
            return Repaired(outcome="not now", why=f"Node {asked.node_name} is well, or gone")
        if why := await self._breaker(asked):
            await self._say("Node", node.name, node.uid, "NodeRepairBlocked", why)
            return Repaired(outcome="held", why=why)
        return await (self._reboot(asked) if asked.step == "reboot" else self._replace(asked, claim, node))

    async def _breaker(self, asked: RepairAsked) -> str:
        """A standalone NodeClaim is counted among all nodes of the cluster (reference 3.11)."""
        nodes = await self._nodes.list(labels={labels.NODEPOOL: asked.pool} if asked.pool else None)
        unhealthy = sum(is_unhealthy(node.conditions, asked.conditions) for node in nodes)
        where = f"of NodePool {asked.pool}" if asked.pool else "of the cluster"
        return decide_breaker(unhealthy, len(nodes), asked.max_unhealthy, where=where)

    async def _reboot(self, asked: RepairAsked) -> Repaired:
        """Written down before it is asked for, since what may have happened is not done twice; what EC2 refused has
        not."""
        instance = instance_id_of(asked.provider_id)
        await self._mark(asked, f"{asked.rung}@{datetime.now(UTC).isoformat()}")
        try:
            there = await self._instances.reboot(instance)
        except TryLater:
            raise
        except Fault:
            await self._mark(asked, "")
            raise
        if there:
            await self._tell(asked, "Rebooting", f"{asked.condition}: instance {instance} reboots")
        return Repaired(outcome="done" if there else "gone")

    async def _mark(self, asked: RepairAsked, mark: str) -> None:
        await self._claims.patch(asked.name, asked.uid, annotations={labels.REBOOTED: mark}, now=datetime.now(UTC))

    async def _replace(self, asked: RepairAsked, claim: NodeClaim, node: NodeState) -> Repaired:
        """As Karpenter: its time is up at once, which no budget, annotation or grace period of the pool holds up.
        A graceful drain has its own time, where there is a kubelet that can end pods."""
        now = datetime.now(UTC)
        own = claim.spec.termination_grace_delta
        wanted = asked.graceful_for if asked.graceful_for and node.ready else timedelta(0)
        grace = wanted if own is None else min(wanted, own)
        before = read_moment(claim.metadata.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP, ""))
        ends = min(now + grace, before or now + grace)
        stamp = {labels.NODECLAIM_TERMINATION_TIMESTAMP: ends.isoformat(timespec="seconds").replace("+00:00", "Z")}
        await self._claims.patch(asked.name, asked.uid, annotations=stamp, now=now)
        how = f"pods have until {stamp[labels.NODECLAIM_TERMINATION_TIMESTAMP]}" if grace else "pods are deleted"
        await self._tell(asked, labels.UNHEALTHY, f"{asked.condition}: the node is replaced, {how}")
        await self._claims.delete(asked.name, asked.uid)
        return Repaired(outcome="done")

    async def _tell(self, asked: RepairAsked, reason: str, message: str) -> None:
        await self._say("NodeClaim", asked.name, asked.uid, reason, message)

    async def _say(self, kind: str, name: str, uid: str, reason: str, message: str) -> None:
        await self._events.publish(kind=kind, name=name, uid=uid, reason=reason, message=message, warning=True)


def _is_well(node: NodeState, asked: RepairAsked) -> bool:
    return not is_unhealthy(node.conditions, asked.conditions) and (node.ready or not asked.after_reboot)


def _was_rebooted(claim: NodeClaim, asked: RepairAsked, now: datetime) -> bool:
    rung, _, at = claim.metadata.annotations.get(labels.REBOOTED, "").partition("@")
    moment = read_moment(at)
    return bool(moment and rung.isdigit() and int(rung) >= asked.rung and moment + SAME_EPISODE > now)
