"""Pods on their way out of one node: forced where their time is up, evicted group by group, surged where asked.

`draining.py` looks at a node again and again; each look pushes the pods once, and answers with what holds them.
"""

from collections.abc import Sequence
from datetime import datetime

from temporalio import activity

from activities.drain_ports import DrainPorts
from activities.ports import DrainPod, Eviction
from model.drains import BudgetFact, DrainVerdict, Hold, Rollout
from model.faults import Fault, Throttled
from model.steps import DrainAsked
from policy.drain import SURGE, is_late, needs_restart, since_known, surged, surges
from policy.drain_holds import budgets_of, held_back, protected, refused, rejected, surging, terminating

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
        if began is None or not pod.ready or pod.uid in self._unsurged or not surges(self._asked.rules):
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
        if needs_restart(rollout, began):
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
