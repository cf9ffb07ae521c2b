"""Nodes smaller than planned, the warm-up of a new host, and events that explain why additional nodes are launched.

Pods planned onto a node that is too small need a plan again at once. The planner knows the real capacity, so pods that
still fit are nominated to the same node."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from activities.ports.core import Events, publish_event_on
from tenure.apis.labels import INSTANCE_TYPE
from tenure.apis.resources import MEMORY, Resources, elementwise_max, sum_resources
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import REPLAN_WITHIN, Nominations
from tenure.controller.planning.discovered_capacity import CapacityDiscovery
from tenure.controller.signals.pending_pods import needs_plan
from tenure.model.facts import NodeClaimFact, NodeFact
from tenure.policy.lifecycle.initialization import decide_undeclared, undeclared_message
from tenure.scheduling.not_ready_grace import WINDOW_IN_GRACE_PERIODS, NotReadyGrace
from tenure.scheduling.snapshot import with_discovered_memory


@dataclass(frozen=True)
class Shortfall:
    """Amounts are in the units of `model.resources`."""

    claim: str
    uid: str
    resource: str
    required: int
    available: int
    subject: str
    """The Node; before registration, the instance type of the NodeClaim."""


RESTART_TIME: Final = timedelta(minutes=5)
"""Between the end of one process and the start of the next. An older shortfall was reported by the previous process."""


class UndersizedNodes:
    """Each NodeClaim is measured at most twice: by memory discovered on similar Nodes, and by its own Node."""

    def __init__(
        self, cache: ClusterCache, nominations: Nominations, capacity_discovery: CapacityDiscovery, *, began: datetime
    ) -> None:
        self._cache, self._nominations, self._capacity_discovery, self._began = (
            cache,
            nominations,
            capacity_discovery,
            began,
        )
        self._discovered = capacity_discovery.discovered
        self._measured: set[tuple[str, bool]] = set()
        self._found: list[Shortfall] = []

    def release(self, claims: Iterable[str]) -> bool:
        """Remove the nominations to those of these NodeClaims that are too small; True if there were any."""
        shortfalls = [
            found for name in sorted({*claims, *self._unregistered()}) if (found := self._find_shortfall(name))
        ]
        released = {one.claim for one in shortfalls if self._nominations.forget_target(one.claim)}
        self._found += [one for one in shortfalls if one.claim in released or self._lost_nominations(one.claim)]
        return bool(released)

    def _lost_nominations(self, name: str) -> bool:
        """Whether a previous process planned the NodeClaim, and its Node registered recently. Its nominations are lost,
        and its shortfall may be unreported."""
        claim = self._cache.nodeclaims[name]
        registered_at = claim.registered_at
        return claim.created < self._began and registered_at is not None and registered_at > self._began - RESTART_TIME

    def drain_shortfalls(self) -> list[Shortfall]:
        """Return and clear the shortfalls found since the last call."""
        found, self._found = self._found, []
        return found

    def forget_nodeclaims(self, uids: Iterable[str]) -> None:
        self._measured -= {(uid, registered) for uid in uids for registered in (True, False)}

    def _unregistered(self) -> set[str]:
        """After a discovery: launched NodeClaims whose Nodes are not registered yet. Otherwise empty."""
        if self._capacity_discovery.discovered is self._discovered:
            return set()
        self._discovered = self._capacity_discovery.discovered
        return {name for name, claim in self._cache.nodeclaims.items() if claim.launched and not claim.registered}

    def _find_shortfall(self, name: str) -> Shortfall | None:
        claim = self._cache.nodeclaims.get(name)
        measured = self._measure_allocatable(claim) if claim and not claim.deleting else None
        if claim is None or measured is None or (claim.uid, claim.registered) in self._measured:
            return None
        self._measured.add((claim.uid, claim.registered))
        self._record_shortfall(claim)
        subject, allocatable = measured
        for resource, required in sorted(self._required_resources(claim).items()):
            # A resource that is missing entirely may still appear, as devices do.
            if required > allocatable.get(resource, 0) > 0:
                return Shortfall(name, claim.uid, resource, required, allocatable[resource], subject)
        return None

    def _measure_allocatable(self, claim: NodeClaimFact) -> tuple[str, Resources] | None:
        """The measured subject and its allocatable resources; None while only the planned values are known."""
        if claim.registered:
            node = next(iter(self._cache.nodes_of(claim)), None)
            return (node.name, node.allocatable) if node and node.allocatable.get(MEMORY) else None
        adjusted = with_discovered_memory(claim, self._capacity_discovery.discovered)
        return None if adjusted is claim else (claim.labels[INSTANCE_TYPE], adjusted.allocatable)

    def _record_shortfall(self, claim: NodeClaimFact) -> None:
        """Only for nodes initialized since this process began. On older ones, allocatable memory may have shrunk since
        for other reasons."""
        is_new = claim.registered and (claim.initialized_at is None or claim.initialized_at >= self._began)
        for node in self._cache.nodes_of(claim)[:1] if is_new else ():
            self._capacity_discovery.record_shortfall(claim, node)

    def _required_resources(self, claim: NodeClaimFact) -> Resources:
        """For each resource, the larger of the NodeClaim's requests and its pods' requests."""
        pods = [
            self._cache.pods[uid] for uid in self._nominations.pods_expected_on(claim.name) if uid in self._cache.pods
        ]
        for node in self._cache.nodes_of(claim):
            pods += self._cache.occupancy.pods_on(node.name).values()
        return elementwise_max(claim.requests, sum_resources(pod.requests for pod in pods))


WARM_UP: Final = REPLAN_WITHIN
"""Starts when the caches are synced."""


class PlanningWarmUp:
    """`has_planned`: a plan was made; `is_uncertain`: the nodes that CapacityBuffers need are not known yet."""

    def __init__(
        self, cache: ClusterCache, *, has_planned: Callable[[], bool], is_uncertain: Callable[[], bool]
    ) -> None:
        self._cache, self._has_planned, self._is_uncertain = cache, has_planned, is_uncertain
        self._synced_at: datetime | None = None

    def ends_at(self, now: datetime, *, synced: bool) -> datetime | None:
        """None when no wait is needed or the warm-up is over. `synced`: whether NodeClaims, Nodes, pods and NodePools
        are synced."""
        self._synced_at = self._synced_at or (now if synced else None)
        until = (self._synced_at or now) + WARM_UP
        if now >= until:
            return None
        return until if self._is_uncertain() or (not self._has_planned() and needs_plan(self._cache, now)) else None


GRACE_OVER: Final = "NotReadyGraceOver"
TAINT_EVENT_WINDOW: Final = timedelta(minutes=30)
"""No event reports an older taint: it concerns only the client that set it."""


class ExpiredGraceEvents:
    def __init__(self, cache: ClusterCache, not_ready: NotReadyTracker, events: Events) -> None:
        self._cache, self._not_ready, self._events = cache, not_ready, events

    async def publish(self, pools: Iterable[str], vacated: Iterable[str], now: datetime) -> None:
        """`pools`: NodePools of new NodeClaims; `vacated`: NodeClaims whose pods were planned elsewhere."""
        pool_members = {claim.name for pool in pools for claim in self._cache.nodeclaims_of_nodepool(pool)}
        for name in sorted(pool_members | set(vacated)):
            claim = self._cache.nodeclaims.get(name)
            if claim is None or claim.deleting or not claim.initialized:
                continue
            for node in self._cache.nodes_of(claim)[:1]:
                if not node.deleting:
                    await self._publish_for(claim, node, now, pool_launches=name in pool_members)

    async def _publish_for(self, claim: NodeClaimFact, node: NodeFact, now: datetime, *, pool_launches: bool) -> None:
        found = self._not_ready.grace_for(claim)
        if found is not None and found.presence(now) == "lost":
            message = format_expired_grace(node, found, now)
            await publish_event_on(self._events, "NodeClaim", claim, GRACE_OVER, message)
        recent = {name for name, since in node.tainted.items() if now - since < TAINT_EVENT_WINDOW}
        undeclared = [name for name in undeclared_taints(claim, node) if pool_launches and name in recent]
        if undeclared:
            message = undeclared_message(node.name, undeclared)
            await publish_event_on(self._events, "NodeClaim", claim, "UndeclaredTaint", message)


def format_expired_grace(node: NodeFact, grace: NotReadyGrace, now: datetime) -> str:
    """Explain an expired grace period: its start and causes, the time used, and its length."""
    times = grace.interval_count(now)
    used, length = _format_seconds(grace.used_time(now)), _format_seconds(grace.length)
    since = f"{grace.not_ready_since:%Y-%m-%d %H:%M:%S} UTC"
    repeated = (
        f", {used} s of the last {_format_seconds(WINDOW_IN_GRACE_PERIODS * grace.length)} s in {times} intervals"
        if times > 1
        else ""
    )
    return (
        f"Node {node.name} has been unavailable since {since} ({grace.describe_causes}){repeated}, longer than the "
        f"grace period of {length} s: its capacity no longer counts, and its pods are rescheduled"
    )


def undeclared_taints(claim: NodeClaimFact, node: NodeFact) -> tuple[str, ...]:
    return decide_undeclared(node.taints, (*claim.taints, *claim.startup_taints))


def _format_seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.0f}"
