"""Draining: taint, delete the Node object, evict in order, wait for pods and volumes.

One activity stays with a node while pods leave, and comes back when they are gone, when what blocks them changes,
or when its patience ends; the workflow shows the verdict in between. A drain that may be given up leaves NodeClaim and
Node undeleted until the pods are gone.
"""

import asyncio
from datetime import UTC, datetime

from temporalio import activity

from activities.nodeclaim.drain_pass import Stay
from activities.nodeclaim.eviction import FirstLooks
from activities.ports.core import ConditionPatch, claim_of
from activities.ports.disruption import DrainPorts
from activities.runtime import EVERY, SELDOM, faults_mapped, heartbeating
from tenure.apis import labels
from tenure.model.base import LANE
from tenure.model.disruption.drain import DrainVerdict
from tenure.model.nodeclaim_requests import ClaimRef, DrainAsked, Drained, GiveUpAsked

LOOK_FIRST = 0.5
LOOK_SLOWEST = 3.0
"""Seconds between looks at a node whose pods are leaving."""
SETTLED = 3.0
RESAID = 30.0
"""Seconds for which a first blocker, or another one than known, has to hold before it is worth a word: pods that
leave in order are refused and let go by their budgets all the time. That the node turned NotReady is said at once."""
ENDING_SETTLED = 60.0
"""The same for pods that are merely ending."""
SHARE = 0.4
"""Of the requests that the API server may be sent: so many are for looking again, by all drains of a process."""
LOOK_COSTS = 3
"""Requests: NodeClaim, Node, pods."""


class DrainActivities:
    def __init__(self, ports: DrainPorts, *, qps: float = 200.0, first_looks: FirstLooks | None = None) -> None:
        """`qps`: requests a second that the API server may be sent; `first_looks`: of all drains of the process."""
        self._ports = ports
        self._looks_a_second = qps * SHARE / LOOK_COSTS
        self._under_way = 0
        self._first_looks = first_looks or FirstLooks()

    @activity.defn
    @faults_mapped
    async def drain_node(self, asked: DrainAsked) -> Drained:
        LANE.set("crowd")
        self._under_way += 1
        try:
            async with heartbeating(every=EVERY if asked.stoppable else SELDOM), self._first_looks.one() as first:
                stay = Stay(self._ports, asked, first)
                answer = await self._until_news(stay, asked)
                return answer.model_copy(update={"left": stay.left})
        finally:
            self._under_way -= 1

    async def _until_news(self, stay: Stay, asked: DrainAsked) -> Drained:
        began, pause = datetime.now(UTC), LOOK_FIRST
        patience = _patience(asked, began)
        while True:
            over = await stay.look(datetime.now(UTC))
            if over is not None:
                return over
            since = (datetime.now(UTC) - began).total_seconds()
            if _is_due(asked, stay.verdict, since, patience):
                return await stay.tell()
            turn = min(self._in_turn(), max(pause, patience - since))
            await asyncio.sleep(max(stay.rest(pause, datetime.now(UTC)), turn))
            pause = min(LOOK_SLOWEST, pause * 1.5)

    def _in_turn(self) -> float:
        """Seconds between looks of one drain beside so many others: first looks, which evict, wait for nobody."""
        return self._under_way / self._looks_a_second

    @activity.defn
    @faults_mapped
    async def keep_node(self, asked: GiveUpAsked) -> bool:
        """Put a node back into service whose drain is given up; False where NodeClaim or Node are being deleted."""
        ref = asked.claim
        claims, nodes = self._ports.claims, self._ports.nodes
        claim, node = await claim_of(claims, ref.name, ref.uid), await nodes.get(ref.node_name)
        if claim is None or claim.metadata.deleting or node is None or node.deleting:
            return False
        await nodes.unmark_disrupted(node.name)
        told = (
            ConditionPatch(type=labels.DISRUPTION_REASON, status=""),
            ConditionPatch(type=labels.DRAINED, status="False", reason=labels.GAVE_UP, message=asked.why),
        )
        await claims.patch(ref.name, ref.uid, conditions=told, now=datetime.now(UTC))
        await self._say(ref, asked.event, f"the node is kept: {asked.why}", warning=asked.warning)
        return True

    async def _say(self, ref: ClaimRef, reason: str, message: str, *, warning: bool) -> None:
        await self._ports.events.publish(
            kind="NodeClaim", name=ref.name, uid=ref.uid, reason=reason, message=message, warning=warning
        )


def _patience(asked: DrainAsked, began: datetime) -> float:
    """Seconds for this try; what an earlier try that was killed has used up is gone."""
    info = activity.info()
    used = (began - info.scheduled_time).total_seconds() if info.attempt > 1 else 0.0
    return asked.patience - min(max(used, 0.0), asked.patience)


def _is_due(asked: DrainAsked, verdict: DrainVerdict, since: float, patience: float) -> bool:
    """Whether the verdict is to be shown now, `since` seconds after the look at this node began. A fault that came in
    between may have taken its place."""
    known = asked.known.blockers if asked.known else asked.known_blockers
    if since >= patience:
        return True
    if verdict.blockers != known:
        turned = asked.known is not None and bool(asked.known.not_ready_since) != bool(verdict.not_ready_since)
        return since >= (RESAID if known and not turned else SETTLED)
    if asked.known is not None:
        return since >= SETTLED and asked.known.line != asked.known_blockers
    return bool(verdict.holds) and since >= ENDING_SETTLED
