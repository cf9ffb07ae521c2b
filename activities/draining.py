"""Draining: taint, delete the Node object, evict in order, wait for pods and volumes.

One activity stays with a node while pods leave, and comes back when they are gone, when what blocks them changes,
or when its patience ends; the workflow shows the verdict in between.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities.errors import faults_mapped
from activities.heartbeats import heartbeating
from activities.ports import Claims, ConditionPatch, DrainPod, Events, Instances, Nodes, NodeState, Pods
from model import labels
from model.ids import instance_id_of
from model.kinds import NodeClaim
from model.steps import ClaimRef, DrainAsked, Drained

LOOK_FIRST = 0.5
LOOK_SLOWEST = 5.0
"""Seconds between looks at a node whose pods are leaving."""
SETTLED = 3.0
RESAID = 30.0
"""Seconds for which a first blocker, or another one than known, has to hold before it is worth a word: pods that
leave in order are refused and let go by their budgets all the time."""
ENDING = "pods are ending"
DONE = (
    ConditionPatch(type=labels.DRAINED, status="True"),
    ConditionPatch(type=labels.VOLUMES_DETACHED, status="True"),
)
LATE = (ConditionPatch(type=labels.VOLUMES_DETACHED, status="False", reason=labels.TERMINATION_GRACE_PERIOD_ELAPSED),)


class DrainActivities:
    def __init__(self, *, claims: Claims, nodes: Nodes, pods: Pods, instances: Instances, events: Events) -> None:
        self._claims, self._nodes, self._pods, self._events = claims, nodes, pods, events
        self._instances = instances

    @activity.defn
    @faults_mapped
    async def drain_node(self, asked: DrainAsked) -> Drained:
        async with heartbeating():
            claim = await self._begin(asked.claim)
            node = await self._node(asked.claim)
            if node is None or await self._is_dead(node):
                return Drained(outcome="drained")
            deadline = await self._deadline(claim, asked.claim)
            await self._nodes.mark_disrupted(node.name)
            await self._nodes.delete(node.name)
            return await self._leave(asked, node.name, deadline)

    async def _node(self, ref: ClaimRef) -> NodeState | None:
        """The claim's own: a name that comes from an address may be another instance's by now."""
        node = await self._nodes.get(ref.node_name)
        return node if node is not None and node.provider_id == ref.provider_id else None

    async def _is_dead(self, node: NodeState) -> bool:
        """Nobody is there who could end pods: not Ready, and its instance is gone (reference 3.13)."""
        return not node.ready and await self._instances.get(instance_id_of(node.provider_id)) is None

    async def _begin(self, ref: ClaimRef) -> NodeClaim | None:
        """A person may have deleted the Node alone: the NodeClaim goes with it."""
        claim = await self._claims.get(ref.name)
        if claim is None or claim.metadata.uid != ref.uid:
            return None
        if not claim.metadata.deleting:
            await self._claims.delete(ref.name, ref.uid)
        return claim

    async def _deadline(self, claim: NodeClaim | None, ref: ClaimRef) -> datetime | None:
        """The end of the termination grace period, written down once so that it never moves (reference 3.12)."""
        if claim is None:
            return None
        written = claim.metadata.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP)
        if written:
            return datetime.fromisoformat(written)
        grace = claim.spec.termination_grace_delta
        if grace is None:
            return None
        deadline = (claim.metadata.deletion_timestamp or datetime.now(UTC)) + grace
        stamp = {labels.NODECLAIM_TERMINATION_TIMESTAMP: deadline.isoformat().replace("+00:00", "Z")}
        await self._claims.patch(ref.name, ref.uid, annotations=stamp, now=datetime.now(UTC))
        await self._say(ref, "TerminationGracePeriodExpiring", f"all pods must be gone by {deadline.isoformat()}")
        return deadline

    async def _leave(self, asked: DrainAsked, node: str, deadline: datetime | None) -> Drained:
        began, pause = datetime.now(UTC), LOOK_FIRST
        while True:
            now = datetime.now(UTC)
            waited = [pod for pod in await self._pods.on_node(node, now=now) if pod.waits]
            blockers = await self._push(waited, deadline, now) if waited else ""
            volumes = () if waited else await self._pods.attached_volumes(node)
            if not waited and not volumes:
                await self._write(asked.claim, DONE)
                return Drained(outcome="drained", deadline=deadline)
            if deadline and now >= deadline:
                await self._write(asked.claim, LATE)
                return Drained(outcome="deadline passed", pods=len(waited), deadline=deadline)
            blockers = blockers or (f"volumes are still attached: {', '.join(volumes[:3])}" if volumes else "")
            if _is_due(asked, blockers, (now - began).total_seconds()):
                await self._write(asked.claim, _waiting(blockers, waited), say=blockers)
                said = blockers or f"{ENDING}: {', '.join(f'{one.namespace}/{one.name}' for one in waited[:3])}"
                return Drained(outcome="waiting", blockers=said, pods=len(waited), deadline=deadline)
            await asyncio.sleep(pause)
            pause = min(LOOK_SLOWEST, pause * 1.5)

    async def _push(self, waited: Sequence[DrainPod], deadline: datetime | None, now: datetime) -> str:
        """Past its own deadline a pod is deleted whatever its group; otherwise the first group is evicted."""
        blockers = []
        late = [pod for pod in waited if deadline and now > deadline - timedelta(seconds=pod.grace_seconds)]
        for pod in late:
            left = int((deadline - now).total_seconds()) if deadline else 0
            await self._pods.force_delete(pod, grace_seconds=max(left, 1))
        group = min(pod.group for pod in waited)
        for pod in waited:
            if pod.group != group or pod in late:
                continue
            if pod.evictable:
                eviction = await self._pods.evict(pod)
                if not eviction.accepted:
                    blockers.append(f"{eviction.pod}: {eviction.blocked_by}")
            elif pod.why_not and pod.deletion is None:
                blockers.append(f"{pod.namespace}/{pod.name}: {pod.why_not}")
        return "; ".join(sorted(blockers)[:5])

    async def _write(self, ref: ClaimRef, conditions: Sequence[ConditionPatch], say: str = "") -> None:
        await self._claims.patch(ref.name, ref.uid, conditions=conditions, now=datetime.now(UTC))
        if say:
            await self._say(ref, "FailedDraining", say)

    async def _say(self, ref: ClaimRef, reason: str, message: str) -> None:
        await self._events.publish(
            kind="NodeClaim", name=ref.name, uid=ref.uid, reason=reason, message=message, warning=True
        )


def _is_due(asked: DrainAsked, blockers: str, since: float) -> bool:
    """Whether the verdict is to be shown now, `since` seconds after the look at this node began."""
    known = "" if asked.known_blockers.startswith(ENDING) else asked.known_blockers
    settled = SETTLED if not known else RESAID
    return since >= asked.patience or (blockers != known and since >= settled)


def _waiting(blockers: str, waited: Sequence[DrainPod]) -> Sequence[ConditionPatch]:
    """Pods first; volumes are only looked at once no pod waits (reference 3.13)."""
    if waited:
        return (ConditionPatch(type=labels.DRAINED, status="Unknown", reason=labels.DRAINING, message=blockers),)
    return (
        ConditionPatch(type=labels.DRAINED, status="True"),
        ConditionPatch(
            type=labels.VOLUMES_DETACHED,
            status="Unknown",
            reason=labels.AWAITING_VOLUME_DETACHMENT,
            message=blockers,
        ),
    )
