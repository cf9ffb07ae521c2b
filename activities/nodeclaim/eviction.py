"""Evictions from one node: group by group, with a surge if a policy sets one, and forced after the deadline.

Pods with responders are evicted by an EvictionRequest first, if the setting EVICTION_REQUESTS is on.

Drains that start together evict the pods of all their nodes before any other write. Pods of interrupted nodes have only
two minutes, so the process that reads the queue evicts them early. That takes two requests per node, far fewer than a
workflow with an activity. The later drain finds the taint and continues.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

import structlog
from temporalio import activity
from temporalio.common import MetricMeter

from activities.node_conditions import DRAIN_CLEARED, set_node_conditions
from activities.ports.core import Claims, ConditionPatch, Deployments, DrainPod, Eviction, Nodes, Ports
from activities.ports.interruption import InterruptedNode
from tenure import metrics
from tenure.apis import labels
from tenure.clock import utc_now, wait_until_set
from tenure.model.disruption.drain import DeploymentRollout, DrainStatus, EvictionBlocker
from tenure.model.disruption.pod_budgets import PodBudgetIndex
from tenure.model.errors import Fault, Throttled
from tenure.model.nodeclaim.requests import DrainRequest, NodeClaimRef
from tenure.policy.drain.blockers import (
    budget_blocker,
    do_not_disrupt_blocker,
    policy_blocker,
    rejection_blocker,
    responder_blocker,
    surge_blocker,
    terminating_blocker,
)
from tenure.policy.drain.decision import (
    creates_pod_first,
    has_surge,
    is_late,
    is_request_pending,
    needs_restart,
    surge_limit,
    with_known_since,
)

log = structlog.get_logger(__name__)

FORCEFUL = "Forceful Termination"


class EvictionQueue:
    """Evicts the pods of one node. `reason`: disruption reason, for metrics and events. `meter`: None in activities."""

    def __init__(self, ports: Ports, request: DrainRequest, reason: str, meter: MetricMeter | None = None) -> None:
        self._meter = meter or activity.metric_meter()
        self._pods, self._budgets, self._rollouts = ports.pods, ports.pod_disruption_budgets, ports.deployments
        self._events, self._request, self._reason = ports.events, request, reason or FORCEFUL
        self._without_surge: set[str] = set()
        """UIDs of pods that are evicted without a surge."""
        self._requests = ports.eviction_requests
        self._without_request: set[str] = set()
        """UIDs of pods that are evicted through the Eviction API although they have responders."""
        self._undeletable: set[str] = set()
        """UIDs of overdue pods whose deletion the API server rejected; they are counted once."""
        self._unreported: list[DrainPod] = []
        """Evicted pods without an event yet."""

    async def evict(
        self, waited: Sequence[DrainPod], *, deadline: datetime | None, known: DrainStatus | None, now: datetime
    ) -> list[EvictionBlocker]:
        """Delete pods past their own deadline, and evict the first group of the others. Returns the group's
        blockers."""
        overdue = [pod for pod in waited if is_late(pod, deadline, now)]
        remaining_seconds = int((deadline - now).total_seconds()) if deadline else 0
        rejected = [one for pod in overdue if (one := await self._force_delete(pod, remaining_seconds))]
        first = min(pod.group for pod in waited)
        group = [pod for pod in waited if pod.group == first and pod not in overdue]
        blockers = [*rejected, *(terminating_blocker(pod) for pod in group if pod.deletion is not None)]
        remaining = [pod for pod in group if pod.deletion is None]
        policy_blockers = {pod.uid: one for pod in remaining if (one := self._find_policy_blocker(pod))}
        blockers += policy_blockers.values()
        remaining = [pod for pod in remaining if pod.uid not in policy_blockers]
        blockers += [do_not_disrupt_blocker(pod) for pod in remaining if not self._is_evictable(pod) and pod.why_not]
        to_evict = []
        for pod in remaining:
            if self._is_evictable(pod):
                hold = await self._wait_for_surge(pod, known, now) or await self._wait_for_responder(pod, now)
                if hold is None:
                    to_evict.append(pod)
                else:
                    blockers.append(hold)
        return [*blockers, *await self._evict_pods(to_evict)]

    @property
    def unreported_pods(self) -> Sequence[DrainPod]:
        """Evicted pods without an event yet."""
        return tuple(self._unreported)

    async def publish_events(self) -> None:
        """Separate from `evict`: with hundreds of nodes, evictions must not wait for the events of other nodes."""
        while self._unreported:
            await self._publish_event(self._unreported.pop(0), "Evicted", f"Evicted pod: {self._reason}")

    def _find_policy_blocker(self, pod: DrainPod) -> EvictionBlocker | None:
        """The blocker of the first rule that matches the pod; None if it does not block."""
        matching = (one for one in self._request.pod_rules if one.match_labels.items() <= pod.labels.items())
        first = next(matching, None)
        return policy_blocker(pod, first) if first and first.blocked else None

    def _is_evictable(self, pod: DrainPod) -> bool:
        return pod.evictable or (self._request.override and pod.protected)

    async def _force_delete(self, pod: DrainPod, seconds: int) -> EvictionBlocker | None:
        """The blocker if the API server rejects the deletion. Other pods leave, and the deadline ends the instance.

        Publish the event before the deletion, since a retry finds the pod terminating and publishes no event."""
        grace = max(seconds, 1)
        if pod.deletion is None and pod.uid not in self._undeletable:
            self._count_drained()
            why = f"its grace period is {grace} s"
            await self._publish_event(
                pod, "Disrupted", f"Deleting the pod to accommodate the terminationTime of the node: {why}"
            )
        try:
            await self._pods.force_delete(pod, grace_seconds=grace)
        except Throttled:
            raise
        except Fault as fault:
            self._undeletable.add(pod.uid)
            return rejection_blocker(pod, fault.message)
        return None

    async def _evict_pods(self, pods: Sequence[DrainPod]) -> list[EvictionBlocker]:
        """After a budget rejects the eviction of a pod, similar pods are not tried in this pass."""
        blockers: list[EvictionBlocker] = []
        budgets: dict[str, PodBudgetIndex] = {}
        rejections: dict[tuple[object, ...], Eviction] = {}
        for pod in pods:
            known = rejections.get(_rejection_key(pod, budgets))
            try:
                eviction = known or await self._pods.evict(pod)
            except Throttled as fault:
                self._count_eviction(fault.status)
                raise
            except Fault as fault:
                self._count_eviction(fault.status)
                blockers.append(rejection_blocker(pod, fault.message))
                continue
            if known is None:
                self._count_eviction(200 if eviction.accepted and not eviction.not_found else eviction.status)
            if eviction.accepted:
                if not eviction.not_found:
                    self._count_drained()
                    self._unreported.append(pod)
                continue
            if pod.namespace not in budgets:
                budgets[pod.namespace] = await self._read_budgets(pod.namespace)
            rejections[_rejection_key(pod, budgets)] = eviction
            blockers.append(budget_blocker(pod, eviction, budgets[pod.namespace]))
        return blockers

    async def _read_budgets(self, namespace: str) -> PodBudgetIndex:
        """The budgets of a namespace, to explain a rejection. After a fault, the API server's message is used
        instead."""
        try:
            return PodBudgetIndex(await self._budgets.in_namespace(namespace))
        except Fault as fault:
            log.warning("reading PodDisruptionBudgets failed", namespace=namespace, fault=fault.message)
            return PodBudgetIndex()

    async def _wait_for_surge(self, pod: DrainPod, known: DrainStatus | None, now: datetime) -> EvictionBlocker | None:
        """The blocker while the Deployment creates a new pod; None if the pod can be evicted."""
        began = self._request.began
        serves = pod.ready or pod.controller_set_not_ready
        rollouts = self._rollouts if has_surge(self._request.rules) else None
        if rollouts is None or began is None or not serves or pod.uid in self._without_surge:
            return None
        try:
            rollout = await rollouts.find_for_pod(pod)
            if rollout is not None and creates_pod_first(rollout):
                return await self._start_surge(rollouts, pod, rollout, began, known, now)
        except Throttled:
            raise
        except Fault as fault:
            await self._publish_event(pod, "SurgeFailed", f"Evicting pod without a replacement: {fault.message}")
        self._without_surge.add(pod.uid)
        return None

    async def _start_surge(
        self,
        rollouts: Deployments,
        pod: DrainPod,
        rollout: DeploymentRollout,
        began: datetime,
        known: DrainStatus | None,
        now: datetime,
    ) -> EvictionBlocker | None:
        limit = surge_limit(rollout)
        (blocker,) = with_known_since([surge_blocker(pod, rollout.name, now + limit)], known, now)
        assert blocker.since is not None
        if now >= blocker.since + limit:
            self._without_surge.add(pod.uid)
            return None
        # A restarted Deployment immediately deletes pods that are not Ready.
        if pod.ready and needs_restart(rollout, began):
            await rollouts.restart_deployment(rollout, began.isoformat().replace("+00:00", "Z"))
            await self._publish_event(
                pod, "SurgeStarted", f"Restarted Deployment {rollout.name} to create a replacement first"
            )
        return blocker.model_copy(update={"passes_at": blocker.since + limit})

    async def _wait_for_responder(self, pod: DrainPod, now: datetime) -> EvictionBlocker | None:
        """The blocker while a responder of the pod handles its EvictionRequest; None if the Eviction API is used."""
        if self._requests is None or not pod.has_responders or pod.uid in self._without_request:
            return None
        try:
            progress = await self._requests.request(pod)
        except Throttled:
            raise
        except Fault as fault:
            log.warning("requesting eviction failed", Pod=pod.name, namespace=pod.namespace, error=fault.message)
            progress = None
        if progress is not None and is_request_pending(progress, now):
            return responder_blocker(pod, progress)
        self._without_request.add(pod.uid)
        return None

    def _count_eviction(self, status: int) -> None:
        """As Karpenter, count responses only, with 200 for an accepted eviction."""
        if status:
            metrics.PODS_EVICTION_REQUESTS.record(self._meter, code=str(status))

    def _count_drained(self) -> None:
        metrics.PODS_DRAINED.record(self._meter, reason=self._reason)

    async def _publish_event(self, pod: DrainPod, reason: str, message: str) -> None:
        await self._events.publish(
            kind="Pod", name=pod.name, uid=pod.uid, namespace=pod.namespace, reason=reason, message=message
        )


def _rejection_key(pod: DrainPod, budgets: dict[str, PodBudgetIndex]) -> tuple[object, ...]:
    """Equal for pods that the same budgets count in the same way; unique for a pod without budgets."""
    budget_names = tuple(one.name for one in budgets.get(pod.namespace, PodBudgetIndex()).selecting_budgets(pod))
    return (pod.namespace, pod.ready, budget_names) if budget_names else (pod.uid,)


MAX_WAIT_SECONDS = 5.0
"""Seconds that a drain waits for the first evictions of other drains."""


class FirstEviction:
    """The first eviction of one drain, until `finish_and_wait`."""

    def __init__(self, drains: "BatchedFirstEviction") -> None:
        self._drains = drains

    async def finish_and_wait(self) -> None:
        """Wait, at the first call, until the other drains have evicted their pods."""
        if self._drains.finish(self):
            await self._drains.wait_for_others()


class BatchedFirstEviction:
    """First evictions of all drains of a process."""

    def __init__(self) -> None:
        self._open: set[FirstEviction] = set()
        self._none = asyncio.Event()
        self._none.set()

    @asynccontextmanager
    async def track(self) -> AsyncIterator[FirstEviction]:
        first_eviction = FirstEviction(self)
        self._open.add(first_eviction)
        self._none.clear()
        try:
            yield first_eviction
        finally:
            self.finish(first_eviction)

    def finish(self, first_eviction: FirstEviction) -> bool:
        """False if it was finished before."""
        if first_eviction not in self._open:
            return False
        self._open.remove(first_eviction)
        if not self._open:
            self._none.set()
        return True

    async def wait_for_others(self) -> None:
        """Wait until no first eviction is open, at most MAX_WAIT_SECONDS."""
        await wait_until_set(self._none, MAX_WAIT_SECONDS)


EARLY_EVICTION_TIMEOUT_SECONDS: Final = 10.0
"""After this time, the drain of the node evicts the remaining pods."""
REPEAT_INTERVAL: Final = timedelta(minutes=2)
"""A repeated message within this time causes no second eviction. Later, the workflow drains the node."""


async def withdraw_requests(ports: Ports, node: str) -> None:
    """Withdraw the EvictionRequests of a drain that is undone."""
    if ports.eviction_requests is not None:
        for pod in await ports.pods.on_node(node, now=utc_now()):
            if pod.has_responders:
                await ports.eviction_requests.withdraw(pod)


async def untaint_node(claims: Claims, nodes: Nodes, claim: str, uid: str, node: str) -> None:
    """Also remove the deadline of the drain from the NodeClaim: the next drain would keep it."""
    await nodes.unmark_disrupted(node)
    await claims.patch_annotations(claim, {labels.NODECLAIM_TERMINATION_TIMESTAMP: None}, uid=uid)


async def uncordon(ports: Ports, claim: str, uid: str, node: str) -> None:
    """Undo the changes of a drain to the Node and its pods. The reason for the taint stays on the NodeClaim."""
    await untaint_node(ports.claims, ports.nodes, claim, uid, node)
    await withdraw_requests(ports, node)
    await set_node_conditions(ports.nodes, node, DRAIN_CLEARED)


async def return_to_service(ports: Ports, claim: str, uid: str, node: str) -> None:
    """Undo a drain that was cancelled or is unknown. The taint is removed first, since the condition explains it."""
    await uncordon(ports, claim, uid, node)
    cleared = ConditionPatch(type=labels.DISRUPTION_REASON, status="")
    await ports.claims.patch(claim, uid, conditions=(cleared,), now=utc_now())


class NodeEarlyEviction:
    def __init__(self, ports: Ports, interrupted_node: InterruptedNode, meter: MetricMeter) -> None:
        self._ports, self._interrupted_node = ports, interrupted_node
        request = DrainRequest(claim=NodeClaimRef(name="", uid="", node_name=interrupted_node.node))
        self._eviction_queue = EvictionQueue(ports, request, "", meter)

    async def run(self, within: float = EARLY_EVICTION_TIMEOUT_SECONDS) -> None:
        """Taint the node and evict its first group of pods. After a failure, the drain evicts them."""
        node = self._interrupted_node
        try:
            async with asyncio.timeout(within):
                now = utc_now()
                if await self._ports.nodes.mark_early_evicted(node.node, node.uid, tainted=node.tainted, at=now):
                    await self._eviction_queue.evict(node.pods, deadline=None, known=None, now=now)
        except (Fault, TimeoutError) as error:
            log.warning("early eviction failed, drain takes over", node=node.node, error=str(error)[:300])
        except Exception as error:
            log.error("early eviction failed, drain takes over", node=node.node, error=str(error)[:300])

    @property
    def evicted_pods(self) -> Sequence[str]:
        """As `namespace/name`."""
        return [f"{pod.namespace}/{pod.name}" for pod in self._eviction_queue.unreported_pods]

    async def publish_events(self) -> None:
        try:
            await self._eviction_queue.publish_events()
        except Fault as fault:
            log.warning("publishing eviction events failed", node=self._interrupted_node.node, fault=str(fault))


class EarlyEvictions:
    def __init__(self, ports: Ports, meter: MetricMeter) -> None:
        self._ports, self._meter = ports, meter
        self._begun: dict[str, datetime] = {}
        """By the Node's UID."""

    def begin_for(self, interrupted_node: InterruptedNode) -> NodeEarlyEviction | None:
        """None if there is no pod to evict, or the eviction has already started."""
        now = utc_now()
        if not interrupted_node.pods or not self._is_first(interrupted_node.uid, now):
            return None
        return NodeEarlyEviction(self._ports, interrupted_node, self._meter)

    def _is_first(self, uid: str, now: datetime) -> bool:
        self._begun = {one: at for one, at in self._begun.items() if now - at < REPEAT_INTERVAL}
        return self._begun.setdefault(uid, now) is now
