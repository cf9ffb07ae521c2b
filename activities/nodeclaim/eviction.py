"""Pods on their way out of one node: forced where their time is up, evicted group by group, surged where asked.

`draining.py` looks at a node again and again; each look pushes the pods once, and answers with what holds them.

Drains that begin together: pods are told to go from all of their nodes before anything else is written of one.

Evacuation: pods of nodes that AWS takes back are told to go by whoever reads its word, before any workflow is asked.

Of hundreds of nodes at once that is two requests each; the way through a workflow, an activity and a live look costs
many times as much, and pods have two minutes. It does what the first look of the node's drain would do and nothing that
has to be remembered: the drain finds the taint and the pods on their way, and does the rest.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from temporalio import activity

from activities.ports.core import DrainPod, Eviction
from activities.ports.disruption import DrainPorts
from activities.ports.interruption import Leaving
from tenure.model.disruption.drain import BudgetFact, DrainVerdict, Hold, Rollout
from tenure.model.errors import Fault, Throttled
from tenure.model.nodeclaim_requests import ClaimRef, DrainAsked
from tenure.policy.drain.blockers import budgets_of, held_back, protected, refused, rejected, surging, terminating
from tenure.policy.drain.decision import SURGE, is_late, needs_restart, since_known, surged, surges

DRAINED_PODS = "karpenter_pods_drained_total"
EVICTIONS = "karpenter_pods_eviction_requests_total"
FORCEFUL = "Forceful Termination"


class Evictor:
    """For one stay with one node. `reason` is why the node goes, as metrics and events have it."""

    def __init__(self, ports: DrainPorts, asked: DrainAsked, reason: str) -> None:
        self._pods, self._budgets, self._rollouts = ports.pods, ports.budgets, ports.rollouts
        self._events, self._asked, self._reason = ports.events, asked, reason or FORCEFUL
        self._unsurged: set[str] = set()
        """UIDs of pods that are evicted as they are."""
        self._evicted: list[DrainPod] = []
        """Those of which nobody was told yet."""

    async def push(
        self, waited: Sequence[DrainPod], *, deadline: datetime | None, known: DrainVerdict | None, now: datetime
    ) -> list[Hold]:
        """Past its own deadline a pod is deleted whatever its group; otherwise the first group is evicted."""
        late = [pod for pod in waited if is_late(pod, deadline, now)]
        for pod in late:
            await self._force(pod, int((deadline - now).total_seconds()) if deadline else 0)
        first = min(pod.group for pod in waited)
        group = [pod for pod in waited if pod.group == first and pod not in late]
        holds = [terminating(pod) for pod in group if pod.deletion is not None]
        staying = [pod for pod in group if pod.deletion is None]
        back = {pod.uid: one for pod in staying if (one := self._held_back(pod))}
        holds += back.values()
        staying = [pod for pod in staying if pod.uid not in back]
        holds += [protected(pod) for pod in staying if not self._evictable(pod) and pod.why_not]
        leaving = []
        for pod in staying:
            if self._evictable(pod):
                surge = await self._surge(pod, known, now)
                if surge is None:
                    leaving.append(pod)
                else:
                    holds.append(surge)
        return [*holds, *await self._evict(leaving)]

    @property
    def evicted(self) -> Sequence[DrainPod]:
        """Those that `tell` will speak of."""
        return tuple(self._evicted)

    async def tell(self) -> None:
        """Of the pods that were evicted since the last time; with hundreds of nodes no other's pods wait for it."""
        while self._evicted:
            await self._say(self._evicted.pop(0), "Evicted", f"Evicted pod: {self._reason}")

    def _held_back(self, pod: DrainPod) -> Hold | None:
        """A LifecyclePolicy lets it go later; the first class that it is of counts."""
        mine = (one for one in self._asked.held if one.match_labels.items() <= pod.labels.items())
        first = next(mine, None)
        return held_back(pod, first) if first and first.held else None

    def _evictable(self, pod: DrainPod) -> bool:
        return pod.evictable or (self._asked.override and pod.protected)

    async def _force(self, pod: DrainPod, seconds: int) -> None:
        """Said first: a repeat of a try that was cut off finds the pod on its way, and says nothing."""
        grace = max(seconds, 1)
        if pod.deletion is None:
            self._count_left()
            await self._say(pod, "Disrupted", f"deleted with {grace} s to end, since its node has to be gone then")
        await self._pods.force_delete(pod, grace_seconds=grace)

    async def _evict(self, pods: Sequence[DrainPod]) -> list[Hold]:
        """Where a budget refused one pod in this look it is not asked for others that are like it."""
        holds: list[Hold] = []
        budgets: dict[str, Sequence[BudgetFact]] = {}
        refusals: dict[tuple[object, ...], Eviction] = {}
        for pod in pods:
            known = refusals.get(_alike(pod, budgets))
            try:
                eviction = known or await self._pods.evict(pod)
            except Throttled:
                raise
            except Fault as fault:
                _count(EVICTIONS, "Evictions that were asked for", code=fault.code or "fault")
                holds.append(rejected(pod, fault.message))
                continue
            if known is None:
                _count(EVICTIONS, "Evictions that were asked for", code="200" if eviction.accepted else "429")
            if eviction.accepted:
                if not eviction.gone:
                    self._count_left()
                    self._evicted.append(pod)
                continue
            if pod.namespace not in budgets:
                budgets[pod.namespace] = await self._read(pod.namespace)
            refusals[_alike(pod, budgets)] = eviction
            holds.append(refused(pod, eviction, budgets[pod.namespace]))
        return holds

    async def _read(self, namespace: str) -> Sequence[BudgetFact]:
        """They only explain: where they cannot be read, the API server's words do."""
        try:
            return await self._budgets.in_namespace(namespace)
        except Fault as fault:
            activity.logger.warning("budgets not read", extra={"namespace": namespace, "fault": fault.message})
            return ()

    async def _surge(self, pod: DrainPod, known: DrainVerdict | None, now: datetime) -> Hold | None:
        """What the pod waits for while its Deployment makes another; None when it is to be evicted now."""
        began = self._asked.began
        serves = pod.ready or pod.marked_not_ready
        if began is None or not serves or pod.uid in self._unsurged or not surges(self._asked.rules):
            return None
        try:
            rollout = await self._rollouts.of(pod)
            if rollout is not None and surged(rollout):
                return await self._surged(pod, rollout, began, known, now)
        except Throttled:
            raise
        except Fault as fault:
            await self._say(pod, "SurgeFailed", f"evicted without a new pod first: {fault.message}", warning=True)
        self._unsurged.add(pod.uid)
        return None

    async def _surged(
        self, pod: DrainPod, rollout: Rollout, began: datetime, known: DrainVerdict | None, now: datetime
    ) -> Hold | None:
        (hold,) = since_known([surging(pod, rollout.name, now + SURGE)], known, now)
        assert hold.since is not None
        if now >= hold.since + SURGE:
            self._unsurged.add(pod.uid)
            return None
        # A Deployment that restarts deletes old pods that are not Ready at once.
        if pod.ready and needs_restart(rollout, began):
            await self._rollouts.restart(rollout, began.isoformat().replace("+00:00", "Z"))
            await self._say(
                pod, "SurgeStarted", f"Deployment {rollout.name} is restarted, so that a new pod comes first"
            )
        return hold.model_copy(update={"passes_at": hold.since + SURGE})

    def _count_left(self) -> None:
        _count(DRAINED_PODS, "Pods that were told to leave their node", reason=self._reason)

    async def _say(self, pod: DrainPod, reason: str, message: str, *, warning: bool = False) -> None:
        await self._events.publish(
            kind="Pod",
            name=pod.name,
            uid=pod.uid,
            namespace=pod.namespace,
            reason=reason,
            message=message,
            warning=warning,
        )


def _alike(pod: DrainPod, budgets: dict[str, Sequence[BudgetFact]]) -> tuple[object, ...]:
    """Pods for which one refusal stands: one budget counts them, and alike. Others stand for themselves."""
    mine = tuple(one.name for one in budgets_of(pod, budgets.get(pod.namespace, ())))
    return (pod.namespace, pod.ready, mine) if mine else (pod.uid,)


def _count(name: str, about: str, **attributes: str) -> None:
    activity.metric_meter().create_counter(name, about).add(1, attributes)


OTHERS_FIRST = 5.0
"""Seconds at most for which a drain that has pushed its pods waits for those that have not."""


class FirstLook:
    """Of one drain. `pushed` ends it."""

    def __init__(self, drains: "FirstLooks") -> None:
        self._drains = drains

    async def pushed(self) -> None:
        """Its pods have been told to go. The first time it returns when those of the others have, too."""
        if self._drains.end(self):
            await self._drains.others()


class FirstLooks:
    """Of all drains of a process."""

    def __init__(self) -> None:
        self._open: set[FirstLook] = set()
        self._none = asyncio.Event()
        self._none.set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[FirstLook]:
        look = FirstLook(self)
        self._open.add(look)
        self._none.clear()
        try:
            yield look
        finally:
            self.end(look)

    def end(self, look: FirstLook) -> bool:
        """False where it had ended before."""
        if look not in self._open:
            return False
        self._open.remove(look)
        if not self._open:
            self._none.set()
        return True

    async def others(self) -> None:
        """Until no drain is at its first look, or so long."""
        try:
            await asyncio.wait_for(self._none.wait(), OTHERS_FIRST)
        except TimeoutError:
            return


log = structlog.get_logger(__name__)

WITHIN: Final = 10.0
"""Seconds; after them the node's drain does what is left."""
ONCE_IN: Final = timedelta(minutes=2)
"""Of what is repeated nothing follows anew; a node that the first word left standing has its workflow by then."""


class NodeEvacuation:
    def __init__(self, ports: DrainPorts, leaving: Leaving) -> None:
        self._ports, self._leaving = ports, leaving
        asked = DrainAsked(claim=ClaimRef(name="", uid="", node_name=leaving.node))
        self._evictor = Evictor(ports, asked, "")

    async def run(self, within: float = WITHIN) -> None:
        """Keep pods away from the node and evict those that are first. What goes wrong is the drain's to try again."""
        node = self._leaving
        try:
            async with asyncio.timeout(within):
                now = datetime.now(UTC)
                if await self._ports.nodes.mark_evacuated(node.node, node.uid, tainted=node.tainted, at=now):
                    await self._evictor.push(node.pods, deadline=None, known=None, now=now)
        except (Fault, TimeoutError) as error:
            log.warning("pods not told to go by the first word", node=node.node, error=str(error)[:300])
        except Exception as error:
            log.error("node not evacuated; its drain does it", node=node.node, error=str(error)[:300])

    @property
    def pods(self) -> Sequence[str]:
        """Told to go so far, as `namespace/name`."""
        return [f"{pod.namespace}/{pod.name}" for pod in self._evictor.evicted]

    async def tell(self) -> None:
        """Say of each of them that it was evicted."""
        try:
            await self._evictor.tell()
        except Fault as fault:
            log.warning("evictions not said", node=self._leaving.node, fault=str(fault))


class Evacuation:
    def __init__(self, ports: DrainPorts) -> None:
        self._ports = ports
        self._begun: dict[str, datetime] = {}
        """By the Node's UID."""

    def of(self, leaving: Leaving) -> NodeEvacuation | None:
        """None where there is nothing to do, or where it was begun before."""
        now = datetime.now(UTC)
        if not leaving.pods or not self._is_first(leaving.uid, now):
            return None
        return NodeEvacuation(self._ports, leaving)

    def _is_first(self, uid: str, now: datetime) -> bool:
        self._begun = {one: at for one, at in self._begun.items() if now - at < ONCE_IN}
        return self._begun.setdefault(uid, now) is now
