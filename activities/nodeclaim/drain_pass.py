"""One stay of the drain activity with one node: each look reads what is so now, and does the next thing.

Nothing is remembered that a killed worker would take along: the NodeClaim's annotation holds the deadline, its
condition Drained when the drain began, and the workflow the last verdict.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio import activity

from activities.nodeclaim.eviction import Evictor, FirstLook
from activities.ports.core import ConditionPatch, DrainPod, NodeState, claim_of
from activities.ports.disruption import DrainPorts
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.base import instance_id_of, read_moment
from tenure.model.disruption.drain import DrainVerdict, Hold
from tenure.model.nodeclaim_requests import TOLD_OF, DrainAsked, Drained
from tenure.policy.drain.blockers import attached
from tenure.policy.drain.decision import decide_verdict, escalation, follows, not_ready_for, tightest

MIN_DRAIN = 5.0
"""Seconds from the taint until a node counts as drained: schedulers that have not seen it yet may bind one more pod
(reference 3.13)."""
REFRESH = 2.0
"""Seconds for which NodeClaim and Node are not read again, while pods are looked at more often."""
LONGEST = 4000
"""Characters of a condition's message."""
DRAINED_NODES = "karpenter_nodes_drained_total"
DONE = (
    ConditionPatch(type=labels.DRAINED, status="True"),
    ConditionPatch(type=labels.VOLUMES_DETACHED, status="True"),
)
LATE = (ConditionPatch(type=labels.VOLUMES_DETACHED, status="False", reason=labels.TERMINATION_GRACE_PERIOD_ELAPSED),)
NOT_READY = (ConditionPatch(type=labels.VOLUMES_DETACHED, status="False", reason=labels.NODE_NOT_READY),)
_NO_MOMENT = (
    f"the annotation {labels.NODECLAIM_TERMINATION_TIMESTAMP} of the NodeClaim is no moment: write one such as "
    "2026-01-31T12:00:00Z in the place of"
)


class Stay:
    """`verdict` is that of the last look."""

    def __init__(self, ports: DrainPorts, asked: DrainAsked, first: FirstLook) -> None:
        self._ports, self._asked, self._ref, self._first = ports, asked, asked.claim, first
        self._claims, self._nodes, self._pods = ports.claims, ports.nodes, ports.pods
        self._evictor: Evictor | None = None
        self._marked: datetime | None = None
        self._left: dict[str, str] = {}
        """Pods that were found here and had to go, by UID."""
        self._unnoted = False
        """The NodeClaim does not say yet that it is drained."""
        self._looked: datetime | None = None
        """When NodeClaim and Node were read; None where they have changed since."""
        self._found: NodeClaim | None = None
        self._node: NodeState | None = None
        self._deleted: set[str] = set()
        self._deadline = asked.known.deadline if asked.known else None
        self._escalated = not asked.escalate
        self.keep = asked.keep
        self.verdict = asked.known or DrainVerdict()

    async def look(self, now: datetime) -> Drained | None:
        """Push what is to leave, and find out what holds it. An answer when the drain is over."""
        claim, node = await self._read(now)
        self.keep = self.keep and claim is not None and not claim.metadata.deleting and not (node and node.deleting)
        if node is None or await self._is_gone(node):
            if not self._asked.stay:
                await self._delete_claim(claim)
            return Drained(outcome="drained")
        marked = await self._mark(claim, node.name, now)
        pods = [pod for pod in await self._pods.on_node(node.name, now=now) if pod.waits]
        self._left |= {pod.uid: f"{pod.namespace}/{pod.name}" for pod in pods}
        deadline = self._deadline = tightest(self._deadline, await self._written(claim, pods, now))
        not_ready = self._not_ready_since(node, now)
        try:
            holds = await self._push(claim, pods, deadline, now)
            await self._first.pushed()
        finally:
            if self._evictor:
                await self._evictor.tell()
            await self._let_go(claim, node)
        await self._note_draining()
        volumes = () if pods else await self._pods.attached_volumes(node.name)
        self.verdict = self._judged(holds, pods, volumes, not_ready, now)
        if not pods and not volumes and (now - marked).total_seconds() >= MIN_DRAIN:
            return await self._finish(claim, DONE, "drained")
        if deadline and now >= deadline:
            return await self._finish(claim, LATE, "deadline passed", len(pods))
        if self.verdict.not_ready_until and now >= self.verdict.not_ready_until:
            return await self._finish(claim, NOT_READY, "not ready", len(pods))
        return None

    def rest(self, pause: float, now: datetime) -> float:
        """Seconds until the next look: where nothing is left to wait for, what is left of the least time."""
        if self.verdict.pods or self.verdict.holds or self._marked is None:
            return pause
        return max(0.0, MIN_DRAIN - (now - self._marked).total_seconds())

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(self._left.values())[:TOLD_OF]

    async def tell(self) -> Drained:
        """Say the verdict on the NodeClaim and in events, and answer with it."""
        verdict = self.verdict.shortened()
        said = "; ".join(verdict.lines) or verdict.line
        await self._write(_waiting(verdict, said))
        if verdict.pods and verdict.blockers:
            await self._say("FailedDraining", said, warning=True)
        elif not verdict.pods:
            await self._say(labels.AWAITING_VOLUME_DETACHMENT, said)
        return Drained(
            outcome="waiting",
            blockers=verdict.line,
            pods=verdict.pods,
            deadline=verdict.deadline,
            verdict=verdict,
            keep=self.keep,
        )

    async def _read(self, now: datetime) -> tuple[NodeClaim | None, NodeState | None]:
        """NodeClaim and Node, at most so long ago."""
        if self._looked is None or (now - self._looked).total_seconds() >= REFRESH:
            ref = self._ref
            self._found, self._node = await asyncio.gather(claim_of(self._claims, ref.name, ref.uid), self._own_node())
            self._looked = now
        return self._found, self._node

    async def _own_node(self) -> NodeState | None:
        """The claim's own: a name that comes from an address may be another instance's by now."""
        node = await self._nodes.get(self._ref.node_name)
        return node if node is not None and node.provider_id == self._ref.provider_id else None

    async def _is_gone(self, node: NodeState) -> bool:
        """Nobody is there who could end pods: not Ready, and its instance is gone (reference 3.13)."""
        return not node.ready and await self._ports.instances.get(instance_id_of(node.provider_id)) is None

    async def _let_go(self, claim: NodeClaim | None, node: NodeState) -> None:
        """See to it that NodeClaim and Node are being deleted. Of hundreds at once the pods come first."""
        if not self.keep:
            # A person may have deleted the Node alone: the NodeClaim goes with it.
            await self._delete_claim(claim)
            await self._delete_node(node)

    async def _mark(self, claim: NodeClaim | None, node: str, now: datetime) -> datetime:
        """Taint the node; since when pods are kept away."""
        if self._marked is None:
            await self._nodes.mark_disrupted(node)
            before = claim.condition(labels.DRAINED) if claim else None
            if before is None or before.status == "False":
                self._unnoted, before = True, None
            self._marked = (before.last_transition_time if before else None) or now
        return self._marked

    async def _note_draining(self) -> None:
        """Once; pods that have two minutes do not wait for it."""
        if self._unnoted:
            await self._write((ConditionPatch(type=labels.DRAINED, status="Unknown", reason=labels.DRAINING),))
            self._unnoted = False

    async def _delete_claim(self, claim: NodeClaim | None) -> None:
        if claim is not None and not claim.metadata.deleting and claim.uid not in self._deleted:
            await self._claims.delete(self._ref.name, self._ref.uid)
            self._deleted.add(claim.uid)
            self._looked = None

    async def _delete_node(self, node: NodeState | None) -> None:
        if node is not None and not node.deleting and node.uid not in self._deleted:
            await self._nodes.delete(node.name)
            self._deleted.add(node.uid)

    async def _written(self, claim: NodeClaim | None, pods: Sequence[DrainPod], now: datetime) -> datetime | None:
        """The deadline as the NodeClaim's annotation has it: written down once, by whoever, it only comes nearer."""
        if claim is None:
            return None
        text = claim.metadata.annotations.get(labels.NODECLAIM_TERMINATION_TIMESTAMP, "")
        written = read_moment(text)
        grace = claim.spec.termination_grace_delta
        wanted = written
        if written is None and grace is not None and not self.keep:
            wanted = (claim.metadata.deletion_timestamp or now) + grace
        if pods and not self._escalated:
            self._escalated, wanted = True, tightest(wanted, escalation(pods, now))
        if text and wanted is None and self._deadline is None:
            await self._say("FailedDraining", f"{_NO_MOMENT} '{text}'", warning=True)
        if wanted is not None and wanted != written:
            stamp = {labels.NODECLAIM_TERMINATION_TIMESTAMP: wanted.isoformat().replace("+00:00", "Z")}
            await self._claims.patch(self._ref.name, self._ref.uid, annotations=stamp, now=now)
            self._looked = None
            await self._say(
                "TerminationGracePeriodExpiring", f"all pods must be gone by {wanted.isoformat()}", warning=True
            )
        return wanted

    async def _push(
        self, claim: NodeClaim | None, pods: Sequence[DrainPod], deadline: datetime | None, now: datetime
    ) -> list[Hold]:
        if not pods:
            return []
        if self._evictor is None:
            told = claim.condition(labels.DISRUPTION_REASON) if claim else None
            reason = told.reason if told and told.is_true else ""
            self._evictor = Evictor(self._ports, self._asked, reason)
        return await self._evictor.push(pods, deadline=deadline, known=self.verdict, now=now)

    def _not_ready_since(self, node: NodeState, now: datetime) -> datetime | None:
        return None if node.ready else self.verdict.not_ready_since or now

    def _judged(
        self,
        holds: Sequence[Hold],
        pods: Sequence[DrainPod],
        volumes: Sequence[str],
        not_ready: datetime | None,
        now: datetime,
    ) -> DrainVerdict:
        found = decide_verdict(
            [*holds, *(attached(one) for one in volumes)],
            self.verdict,
            waited=pods,
            began=self._asked.began or self._marked or now,
            now=now,
        )
        rules = self._asked.rules
        return found.model_copy(
            update={
                "deadline": self._deadline,
                "not_ready_since": not_ready,
                "not_ready_until": not_ready + not_ready_for(rules) if not_ready else None,
                "follows": follows(rules, found.blocked_since, keep=self.keep),
            }
        )

    async def _finish(
        self, claim: NodeClaim | None, conditions: Sequence[ConditionPatch], outcome: str, pods: int = 0
    ) -> Drained:
        await self._write(conditions)
        if self.keep and not self._asked.stay:
            await self._delete_claim(claim)
            await self._delete_node(self._node)
        if outcome == "drained":
            pool = claim.nodepool if claim else ""
            counter = activity.metric_meter().create_counter(DRAINED_NODES, "Nodes whose pods and volumes have left")
            counter.add(1, {"nodepool": pool})
        return Drained.model_validate({"outcome": outcome, "pods": pods, "deadline": self._deadline})

    async def _write(self, conditions: Sequence[ConditionPatch]) -> None:
        await self._claims.patch(self._ref.name, self._ref.uid, conditions=conditions, now=datetime.now(UTC))

    async def _say(self, reason: str, message: str, *, warning: bool = False) -> None:
        """On the NodeClaim, and on the Node, where Karpenter says it."""
        ref, node = self._ref, self._node
        await self._ports.events.publish(
            kind="NodeClaim", name=ref.name, uid=ref.uid, reason=reason, message=message, warning=warning
        )
        if node is not None:
            await self._ports.events.publish(
                kind="Node", name=node.name, uid=node.uid, reason=reason, message=message, warning=warning
            )


def _waiting(verdict: DrainVerdict, said: str) -> Sequence[ConditionPatch]:
    """Pods first; volumes are only looked at once no pod waits (reference 3.13)."""
    if verdict.pods:
        return (ConditionPatch(type=labels.DRAINED, status="Unknown", reason=labels.DRAINING, message=said[:LONGEST]),)
    return (
        ConditionPatch(type=labels.DRAINED, status="True"),
        ConditionPatch(
            type=labels.VOLUMES_DETACHED,
            status="Unknown",
            reason=labels.AWAITING_VOLUME_DETACHMENT,
            message=said[:LONGEST],
        ),
    )
