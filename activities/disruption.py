"""The step that cannot be undone, deleting a NodeClaim, with a last look at the live state; and saying things."""

from contextlib import suppress
from datetime import UTC, datetime

from temporalio import activity

from activities.errors import faults_mapped
from activities.keeping import kept_by_node, kept_by_pods
from activities.ports import Claims, ConditionPatch, Events, Nodes, NodeState, Pods
from activities.reading import claim_of
from model import labels
from model.faults import Fault
from model.kinds import NodeClaim
from model.moments import read_moment
from model.steps import ClaimRef, Disrupted, DisruptionAsked, Report


class DisruptionActivities:
    def __init__(self, *, claims: Claims, nodes: Nodes, pods: Pods, events: Events) -> None:
        self._claims, self._nodes, self._pods, self._events = claims, nodes, pods, events

    @activity.defn
    @faults_mapped
    async def disrupt_claim(self, asked: DisruptionAsked) -> Disrupted:
        """Delete the NodeClaim, if it is there and, for a voluntary reason, if the reason still holds. One that is to
        be kept for now is only taken out of service, and says why.

        The node is tainted before the last look, so that no pod lands between looking and deleting. Killed
        anywhere in between, a repeat finds the same state and goes on.
        """
        ref = asked.claim
        claim = await claim_of(self._claims, ref.name, ref.uid)
        if claim is None:
            return Disrupted(outcome="gone")
        if asked.voluntary and not claim.metadata.deleting:
            return await self._delete_unless_used(asked, claim)
        if asked.keep and not claim.metadata.deleting:
            await self._nodes.mark_disrupted(ref.node_name)
            await self._claims.patch(ref.name, ref.uid, conditions=_marks(asked), now=datetime.now(UTC))
            return Disrupted(outcome="deleting")
        if asked.at_once:
            await self._stamp(claim)
        await self._claims.delete(ref.name, ref.uid)
        return Disrupted(outcome="deleting")

    async def _stamp(self, claim: NodeClaim) -> None:
        """The end of the grace period is now (reference 3.12); one that is written and earlier stays."""
        now, meta = datetime.now(UTC), claim.metadata
        written = read_moment(meta.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP, ""))
        if written is None or written > now:
            stamp = {labels.NODECLAIM_TERMINATION_TIMESTAMP: now.isoformat().replace("+00:00", "Z")}
            await self._claims.patch(meta.name, meta.uid, annotations=stamp, now=now)

    @activity.defn
    @faults_mapped
    async def put_back(self, ref: ClaimRef) -> None:
        """A node that `disrupt_claim` has taken out of service, perhaps, and that does not go, is in service again.
        What a command has taken is the command's."""
        claim = await claim_of(self._claims, ref.name, ref.uid)
        if claim is None or claim.metadata.deleting:
            return
        told = claim.condition(labels.DISRUPTION_REASON)
        if told is None or not told.is_true or not told.message:
            await self._restore(ref)

    async def _restore(self, ref: ClaimRef) -> None:
        """First the taint: while the reason stands, it is known why the node has it."""
        await self._nodes.unmark_disrupted(ref.node_name)
        cleared = ConditionPatch(type=labels.DISRUPTION_REASON, status="")
        await self._claims.patch(ref.name, ref.uid, conditions=(cleared,), now=datetime.now(UTC))

    async def _delete_unless_used(self, asked: DisruptionAsked, claim: NodeClaim) -> Disrupted:
        """A fault on the way puts the node back into service: when the next try comes, nobody knows."""
        ref = asked.claim
        try:
            why_not = await self._still_in_use(ref)
            if why_not:
                if claim.is_true(labels.DISRUPTION_REASON):
                    await self._restore(ref)
                return Disrupted(outcome="not now", why=why_not)
            marks = (ConditionPatch(type=labels.CONSOLIDATABLE, status="True"), *_marks(asked))
            await self._claims.patch(ref.name, ref.uid, conditions=marks, now=datetime.now(UTC))
            if not asked.keep:
                await self._claims.delete(ref.name, ref.uid)
        except Fault:
            with suppress(Fault):
                await self._restore(ref)
            raise
        return Disrupted(outcome="deleting")

    async def _still_in_use(self, ref: ClaimRef) -> str:
        """Why the node must stay. Looked at before it is taken out of service, lest a busy one be tainted for nothing,
        and again after, since a pod may have come in between."""
        node = await self._nodes.get(ref.node_name)
        if node is None or node.provider_id != ref.provider_id:
            return ""
        why_not = await self._in_use(node)
        if not why_not:
            marked = await self._nodes.mark_disrupted(node.name)
            why_not = await self._in_use(marked) if marked else ""
        if why_not:
            await self._nodes.unmark_disrupted(node.name)
        return why_not

    async def _in_use(self, node: NodeState) -> str:
        if why := kept_by_node(node):
            return why
        pods = await self._pods.on_node(node.name, now=datetime.now(UTC))
        stay = [f"{pod.namespace}/{pod.name}" for pod in pods if pod.reschedulable]
        if stay:
            return f"not empty: {', '.join(stay[:3])}"
        return kept_by_pods(pods)

    @activity.defn
    @faults_mapped
    async def report(self, report: Report) -> None:
        """A condition and an event on the NodeClaim."""
        ref = report.claim
        if report.condition:
            condition = ConditionPatch(
                type=report.condition, status=report.status, reason=report.reason, message=report.message
            )
            await self._claims.patch(ref.name, ref.uid, conditions=(condition,), now=datetime.now(UTC))
        if report.event:
            await self._publish(ref, report)

    async def _publish(self, ref: ClaimRef, report: Report) -> None:
        await self._events.publish(
            kind="NodeClaim",
            name=ref.name,
            uid=ref.uid,
            reason=report.event,
            message=report.message,
            warning=report.warning,
        )


def _marks(asked: DisruptionAsked) -> tuple[ConditionPatch, ...]:
    return (ConditionPatch(type=labels.DISRUPTION_REASON, status="True", reason=asked.reason),)
