"""The live acts of a command of voluntary disruption: nodes are taken out of service, deleted, or put back.

Whose a node is stands on its NodeClaim: the condition DisruptionReason names the command's workflow. So each act finds
what an earlier try of it did, and leaves alone what goes for another reason. Before each there is a look at the live
state; whoever is killed in between has it looked at again.

The step that cannot be undone, deleting a NodeClaim, with a last look at the live state; and saying things.

What people said that keeps a node from voluntary steps, in words: do-not-disrupt (reference 4.2).

The last looks before a node goes, `commands.py` and `disruption.py`, ask the Node first and its pods second.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from temporalio import activity

from activities.ports.core import Claims, ConditionPatch, DrainPod, Events, Nodes, NodeState, Pods, claim_of
from activities.runtime import each, faults_mapped, heartbeating
from tenure.apis import labels
from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.base import read_moment
from tenure.model.disruption.commands import CommandActed, CommandAsked
from tenure.model.disruption.planning import Leaving
from tenure.model.errors import Fault
from tenure.model.nodeclaim_requests import ClaimRef, Disrupted, DisruptionAsked, Report


def kept_by_node(node: NodeState) -> str:
    """Empty when it may go."""
    return f"Node {node.name} is annotated {DO_NOT_DISRUPT}" if node.annotations.get(DO_NOT_DISRUPT) == "true" else ""


def kept_by_pods(pods: Iterable[DrainPod]) -> str:
    """Names three of those that hold it; those on their way out do not. Empty when it may go."""
    held = [f"{pod.namespace}/{pod.name}" for pod in pods if pod.protected and pod.deletion is None]
    return f"annotation {DO_NOT_DISRUPT} on {', '.join(held[:3])}" if held else ""


class CommandActivities:
    def __init__(self, *, claims: Claims, nodes: Nodes, pods: Pods, events: Events) -> None:
        self._claims, self._nodes, self._pods, self._events = claims, nodes, pods, events

    @activity.defn
    @faults_mapped
    async def begin_command(self, asked: CommandAsked) -> CommandActed:
        """Take all candidates out of service, or none. They are looked at before, lest a node be tainted for nothing,
        and again after, since what keeps one may have come in between. A fault puts all of them back: when the next
        try comes, nobody knows."""
        async with heartbeating():
            try:
                held = await self._held(asked)
                if not held:
                    await each(asked.candidates, lambda one: self._mark(asked, one))
                    held = await self._held(asked)
            except Fault:
                with suppress(Fault):
                    await self._put_back(asked)
                raise
            if held:
                await self._put_back(asked)
            return _answer(held)

    @activity.defn
    @faults_mapped
    async def finish_command(self, asked: CommandAsked) -> CommandActed:
        """Delete the candidates' NodeClaims, once their replacements carry pods and if still nothing keeps them. One
        that goes by itself is left to itself. A repeat deletes the rest."""
        async with heartbeating():
            left = [one for one in asked.candidates if not await self._goes(one)]
            if not left:
                return CommandActed(outcome="done")
            rest = asked.model_copy(update={"candidates": tuple(left)})
            held = [(one, why) for one, why in await self._held(rest) if not await self._goes(one)]
            if held:
                return _answer(held)
            waiting = await self._waits_for(asked.replacements)
            if waiting:
                return waiting
            await each(left, lambda one: self._delete(asked, one))
            return CommandActed(outcome="done")

    @activity.defn
    @faults_mapped
    async def undo_command(self, asked: CommandAsked) -> CommandActed:
        """Put what does not go back into service. Its replacements go, unless pods run there: or will, since one of the
        candidates is going all the same."""
        async with heartbeating():
            put_back = await self._put_back(asked)
            if not any([await self._goes(one) for one in asked.candidates]):
                made = [one for one in await self._claims.list() if _replaces(one, asked.workflow_id)]
                await each(made, lambda one: self._remove(asked, one))
            for one in put_back:
                await self._say(one, "DisruptionBlocked", f"{asked.reason}: {asked.why}")
            return CommandActed(outcome="done")

    async def _held(self, asked: CommandAsked) -> list[tuple[Leaving, str]]:
        """The candidates that have to stay, and why."""
        found = await each(asked.candidates, lambda one: self._why_not(asked, one))
        return [(one, why) for one, why in zip(asked.candidates, found, strict=True) if why]

    async def _why_not(self, asked: CommandAsked, one: Leaving) -> str:
        claim = await claim_of(self._claims, one.claim, one.claim_uid)
        if claim is None:
            return f"NodeClaim {one.claim} is gone"
        if claim.metadata.deleting:
            return f"NodeClaim {one.claim} is being deleted"
        told = claim.condition(labels.DISRUPTION_REASON)
        if told and told.is_true and not _is_ours(claim, asked):
            return f"NodeClaim {one.claim} goes for another reason: {told.reason}"
        node = await self._nodes.get(one.node)
        if node is None or node.provider_id != claim.status.provider_id or node.deleting:
            return f"Node {one.node} is gone"
        return await self._protected(asked, claim, node)

    async def _protected(self, asked: CommandAsked, claim: NodeClaim, node: NodeState) -> str:
        """What a person said (reference 4.2). A drift that has an end goes ahead whatever its pods say."""
        why = kept_by_node(node)
        if why or (asked.reason == "Drifted" and claim.spec.termination_grace_period):
            return why
        return kept_by_pods(await self._pods.on_node(node.name, now=datetime.now(UTC)))

    async def _mark(self, asked: CommandAsked, one: Leaving) -> None:
        """Whose it is first: a taint that nobody owned would stay."""
        mark = ConditionPatch(
            type=labels.DISRUPTION_REASON, status="True", reason=asked.reason, message=asked.workflow_id
        )
        await self._claims.patch(one.claim, one.claim_uid, conditions=(mark,), now=datetime.now(UTC))
        await self._nodes.mark_disrupted(one.node)

    async def _put_back(self, asked: CommandAsked) -> Sequence[Leaving]:
        """Those that were out of service for this command, and need not be."""
        found = await each(asked.candidates, lambda one: self._unmark(asked, one))
        return [one for one, done in zip(asked.candidates, found, strict=True) if done]

    async def _unmark(self, asked: CommandAsked, one: Leaving) -> bool:
        claim = await claim_of(self._claims, one.claim, one.claim_uid)
        if claim is None or claim.metadata.deleting or not _is_ours(claim, asked):
            return False
        await self._nodes.unmark_disrupted(one.node)
        cleared = ConditionPatch(type=labels.DISRUPTION_REASON, status="")
        await self._claims.patch(one.claim, one.claim_uid, conditions=(cleared,), now=datetime.now(UTC))
        return True

    async def _goes(self, one: Leaving) -> bool:
        claim = await claim_of(self._claims, one.claim, one.claim_uid)
        return claim is None or claim.metadata.deleting

    async def _waits_for(self, replacements: Sequence[str]) -> CommandActed | None:
        """A replacement that is not there, or not yet what it has to be; None when all are."""
        for name in replacements:
            claim = await self._claims.get(name)
            if claim is None or claim.metadata.deleting:
                return CommandActed(outcome="lost", why=f"replacement {name} is gone")
            if not claim.is_true(labels.INITIALIZED_CONDITION):
                return CommandActed(outcome="waiting", why=f"replacement {name} is not initialized")
            node = await self._nodes.get(claim.status.node_name)
            if node is None or not node.ready:
                return CommandActed(outcome="waiting", why=f"the Node of replacement {name} is not Ready")
        return None

    async def _delete(self, asked: CommandAsked, one: Leaving) -> None:
        await self._mark(asked, one)
        await self._claims.delete(one.claim, one.claim_uid)
        await self._say(one, "DisruptionTerminating", f"{asked.reason}: {asked.why}")

    async def _remove(self, asked: CommandAsked, claim: NodeClaim) -> None:
        """A replacement that nobody needs. Tainted before the last look, so that no pod lands in between."""
        name = claim.status.node_name
        if name and not await self._carries_pods(name):
            await self._nodes.mark_disrupted(name)
        if name and await self._carries_pods(name):
            await self._nodes.unmark_disrupted(name)
            return
        await self._claims.delete(claim.name, claim.uid)
        message = f"not needed, since the disruption that it replaces nodes for came to nothing: {asked.why}"
        await self._publish(claim.name, claim.uid, "DisruptionTerminating", message)

    async def _carries_pods(self, node: str) -> bool:
        return any(pod.reschedulable for pod in await self._pods.on_node(node, now=datetime.now(UTC)))

    async def _say(self, one: Leaving, reason: str, message: str) -> None:
        await self._publish(one.claim, one.claim_uid, reason, message)

    async def _publish(self, name: str, uid: str, reason: str, message: str) -> None:
        await self._events.publish(kind="NodeClaim", name=name, uid=uid, reason=reason, message=message)


def _answer(held: Sequence[tuple[Leaving, str]]) -> CommandActed:
    if not held:
        return CommandActed(outcome="done")
    nodes = tuple(one.claim_uid for one, _ in held)
    return CommandActed(outcome="held", why="; ".join(why for _, why in held[:3]), nodes=nodes)


def _is_ours(claim: NodeClaim, asked: CommandAsked) -> bool:
    told = claim.condition(labels.DISRUPTION_REASON)
    return told is not None and told.is_true and told.message == asked.workflow_id


def _replaces(claim: NodeClaim, workflow_id: str) -> bool:
    return claim.metadata.annotations.get(labels.REPLACES) == workflow_id and not claim.metadata.deleting


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
