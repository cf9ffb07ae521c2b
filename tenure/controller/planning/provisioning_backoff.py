"""Stops launches that do not help: nodes that register for a pod, and are not used by it.

A NodeClaim names the groups of pods that it is launched for in an annotation. A registered node is unused by a group
if none of the group's pods was bound to it, and none is expected there any more. It counts when the next plan needs
another node for the group. A node with a taint that the pods do not tolerate may initialize late or never, and must
count as well. From the third on, pods of the group are planned onto existing nodes only, for a time that
doubles with each further unused node. After a restart, the time of the last pod event in the status of a NodeClaim
tells that it was used. The rule needs no knowledge of the cause (docs/decisions/nominated-pods.md).
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from tenure import metrics
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.changes import NodeClaimDeleted, PendingPodChanged, PodBound, PodDeleted
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import NOMINATION_TTL, Nominations
from tenure.controller.cache.tables import set_or_remove
from tenure.controller.planning.pod_groups import PendingGroups, PodGroups, launched_for, pod_group
from tenure.controller.planning.relevant_objects import RelevantObjects
from tenure.controller.signals.pending_pods import classify_pods
from tenure.metrics import Meter
from tenure.model.errors import Fault
from tenure.model.facts import NodeClaimFact, PodFact
from tenure.model.plan import MAX_COUNTED_NODECLAIMS, Plan, PlannedNodeClaim, ProvisioningBackoff, select_retained

log = structlog.get_logger(__name__)

MAX_POD_GROUPS: Final = 50
"""In the annotation of one NodeClaim."""
RECENT: Final = timedelta(minutes=10)
"""Older nodes are not checked: pods that ran there may be gone, and a new process would not know of them."""
MAX_MESSAGE_LENGTH: Final = 400


class SchedulerMessages(Protocol):
    async def read_scheduler_message(self, pod: PodFact) -> str:
        """The message of the pod's condition PodScheduled; empty without one."""
        ...


@dataclass(frozen=True)
class _WaitingGroup:
    """Pods of one group that need a node, pending or nominated."""

    name: str
    pods: Mapping[str, PodFact]
    """By UID."""
    context: str
    unused: Sequence[str]
    """NodeClaims that none of the group's pods used."""
    expecting: Mapping[str, Set[str]]
    """By NodeClaim, the UIDs of the pods that are nominated to it. All pods, if an earlier process nominated them."""

    @property
    def example(self) -> PodFact:
        return next(iter(self.pods.values()))

    def unused_if_moved(self, uids: Set[str]) -> list[str]:
        """The unused NodeClaims if these pods need another node: no other pod is nominated to them."""
        return [name for name in self.unused if self.expecting.get(name, frozenset()) <= uids]

    def find_blocked(
        self, stored: ProvisioningBackoff | None, now: datetime
    ) -> list[tuple[Set[str], ProvisioningBackoff]]:
        """Pods for which no node may be launched now. A nominated pod that needs another node does not use its own."""
        nominated = [self.expecting[name] for name in self.unused if name in self.expecting]
        others = self.pods.keys() - frozenset().union(*nominated)
        entries = ((uids, _count(stored, self, self.unused_if_moved(uids), now)) for uids in (others, *nominated))
        return [(uids, entry) for uids, entry in entries if uids and entry is not None and entry.is_active(now)]


@dataclass(frozen=True)
class BackoffPass:
    """Back-off of one plan."""

    now: datetime
    groups: PodGroups = field(default_factory=PodGroups)
    stored: Mapping[str, ProvisioningBackoff] = field(default_factory=dict)
    """By group, the entries that still apply, without new unused nodes."""
    waiting: Sequence[_WaitingGroup] = ()
    launch_blockers: Mapping[str, str] = field(default_factory=dict)
    """By UID of each pod for which no node may be launched: the reason."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """By group, the message of kube-scheduler; empty if it could not be read."""


class BackoffTracker:
    """One plan at a time calls `begin` and then `finish`."""

    def __init__(
        self,
        cache: ClusterCache,
        nominations: Nominations,
        not_ready: NotReadyTracker,
        messages: SchedulerMessages,
        meter: Meter,
        *,
        began: datetime,
    ) -> None:
        """`began`: when this process began."""
        self._cache, self._nominations, self._not_ready, self._messages = cache, nominations, not_ready, messages
        self._began, self._unused_nodes = began, metrics.NODES_UNUSED.bind(meter)
        self._blocked_pods: frozenset[str] = frozenset()
        """UIDs of the pods for which the last plan could not launch a node."""
        self._used: dict[str, set[str]] = {}
        """By NodeClaim: the groups that have had a pod there, of its annotation or of the first swapped pod."""
        self._deleted: dict[str, dict[str, datetime]] = {}
        """By group: the NodeClaims that were deleted while its pods were pending, and when they were initialized."""
        self._pending = PendingGroups()
        for uid, pod in cache.pending.items():
            self._pending.update(uid, pod)
        cache.subscribe(PendingPodChanged, lambda event: self._pending.update(event.uid, event.new))
        cache.subscribe(PodBound, lambda event: self._record_use(cache.pods[event.uid]))
        cache.subscribe(PodDeleted, lambda event: self._record_use(event.pod))
        cache.subscribe(NodeClaimDeleted, self._on_nodeclaim_deleted)

    def _record_use(self, pod: PodFact) -> None:
        """Of a bound or deleted pod. A pod may be bound before this process lists it, or before its Node is known."""
        claim = self._cache.nodeclaims.get(self._cache.nodeclaim_name_of(pod.node_name))
        if claim is None or not (groups := launched_for(claim)):
            return
        if (group := pod_group(pod)) in groups or self._is_swapped(claim, pod, group):
            self._used.setdefault(claim.name, set()).add(group)

    def _is_swapped(self, claim: NodeClaimFact, pod: PodFact, group: str) -> bool:
        """Whether the pod runs here in place of the pods that the node was launched for: another node was launched for
        it. kube-scheduler does not follow plans. Only the first such pod of a new node is looked up."""
        if pod.daemonset or pod.mirror or self._used.get(claim.name) or claim.created < self._began:
            return False
        return any(group in launched_for(one) for one in self._cache.nodeclaims.values())

    def _on_nodeclaim_deleted(self, event: NodeClaimDeleted) -> None:
        """Drop a NodeClaim. One that this process saw unused for its whole life still counts for its pending pods. An
        older one counts unless it had pods, whose groups are not known."""
        claim = event.claim
        used, groups = self._used.pop(claim.name, set()), launched_for(claim)
        if claim.initialized_at is None or claim.initialized_at < self._began or not groups:
            return
        if claim.created < self._began and claim.last_pod_event is not None:
            return
        if not used:
            self._unused_nodes.record(1, nodepool=claim.pool)
        for group in () if event.was_interrupted else groups - used:
            if group in self._pending:
                self._deleted.setdefault(group, {})[claim.name] = claim.initialized_at

    async def begin(self, stored: Sequence[ProvisioningBackoff], now: datetime) -> BackoffPass:
        """Find the pods for which no node may be launched now."""
        groups, nodes = PodGroups(), self._registered_by_group()
        unused = self._find_unused(nodes, groups, now)
        if not unused and not stored:
            self._blocked_pods = frozenset()
            return BackoffPass(now, groups)
        waiting = self._find_waiting(groups, unused, unused.keys() | {one.pod_group for one in stored}, now)
        context = {group.name: group.context for group in waiting}
        current = {
            one.pod_group: _reset(
                one,
                context.get(one.pod_group, one.context),
                is_used=self._is_used(one, nodes.get(one.pod_group, ()), groups),
            )
            for one in stored
        }
        launch_blockers: dict[str, str] = {}
        messages: dict[str, str] = {}
        for group in waiting:
            blocked = group.find_blocked(current.get(group.name), now)
            if blocked:
                messages[group.name] = await self._read_message(group.example)
            for uids, entry in blocked:
                reason = _with_message(entry, current.get(group.name), messages[group.name]).describe()
                launch_blockers.update(dict.fromkeys(uids, reason))
        return BackoffPass(now, groups, current, waiting, launch_blockers, messages)

    def _find_waiting(
        self, groups: PodGroups, unused: Mapping[str, Sequence[str]], names: Set[str], now: datetime
    ) -> list[_WaitingGroup]:
        """The groups with these names that have pods which need a node."""
        classified = classify_pods(self._cache, self._nominations, self._not_ready, now)
        pods: dict[str, dict[str, PodFact]] = {}
        expecting: dict[str, dict[str, set[str]]] = {}
        for uid in (*(pod.uid for pod in classified.pending), *sorted(classified.nominated)):
            pod, nomination = self._cache.pods[uid], self._nominations.nomination_of(uid)
            group = groups.group_of(pod)
            pods.setdefault(group, {})[uid] = pod
            if uid in classified.nominated and nomination is not None:
                expecting.setdefault(group, {}).setdefault(nomination.target, set()).add(uid)
        relevant = RelevantObjects(self._cache)
        return [
            _WaitingGroup(
                name=name,
                pods=pods[name],
                context=relevant.hash_for(next(iter(pods[name].values()))),
                unused=unused.get(name, ()),
                expecting={
                    **{claim: pods[name].keys() for claim in unused.get(name, ()) if not self._is_known(claim, now)},
                    **expecting.get(name, {}),
                },
            )
            for name in sorted(pods.keys() & names)
        ]

    def end_if_released(self) -> bool:
        """True once, when none of the blocked pods is pending any more. The stored entries then still count them."""
        is_released = bool(self._blocked_pods) and not any(uid in self._cache.pending for uid in self._blocked_pods)
        if is_released:
            self._blocked_pods = frozenset()
        return is_released

    def finish(
        self, begun: BackoffPass, plan: Plan, allowed: Sequence[PlannedNodeClaim]
    ) -> tuple[ProvisioningBackoff, ...]:
        """The entries to store after this plan. Unused nodes count only for groups that need another node: otherwise
        kube-scheduler may be late, and the plan keeps the pods on the nodes that exist."""
        blocked = {one.pod_uid for one in plan.unschedulable} & begun.launch_blockers.keys()
        needed = blocked.union(*(claim.pods for claim in allowed))
        self._blocked_pods = frozenset(blocked)
        entries = {one.pod_group: one for one in without_pods(begun.stored.values())}
        for group in begun.waiting:
            moved = needed & group.pods.keys()
            entry = before = entries.get(group.name)
            if moved:
                entry = _count(before, group, group.unused_if_moved(moved), begun.now)
            if entry is None:
                continue
            if before is None or entry.unused_nodes > before.unused_nodes:
                log.warning("nodes unused", pod=entry.pod, nodes=entry.unused_nodes, until=entry.until)
            entry = _with_message(entry, before, begun.messages.get(group.name, ""))
            entries[group.name] = entry.model_copy(update={"pods": len(blocked & group.pods.keys())})
        return select_retained(tuple(entries.values()), begun.now)

    def annotation_of(self, claim: PlannedNodeClaim, groups: PodGroups) -> str:
        """The value of `tenure.sh/pod-groups`, with at most MAX_POD_GROUPS."""
        names = {groups.group_of(pod) for uid in claim.pods if (pod := self._cache.pods.get(uid))}
        return ",".join(sorted(names)[:MAX_POD_GROUPS])

    def _registered_by_group(self) -> dict[str, list[NodeClaimFact]]:
        """The registered NodeClaims that were launched for each group."""
        found: dict[str, list[NodeClaimFact]] = {}
        for claim in self._cache.nodeclaims.values():
            for group in launched_for(claim) if _schedulable_since(claim) else ():
                found.setdefault(group, []).append(claim)
        return found

    def _find_unused(
        self, nodes: Mapping[str, Sequence[NodeClaimFact]], groups: PodGroups, now: datetime
    ) -> dict[str, list[str]]:
        """By group: the NodeClaims that may count, also deleted ones, and that none of its pods used."""
        found = {
            group: [
                claim.name
                for claim in claims
                if self._may_count(claim, now) and group not in self._used_groups(claim, groups)
            ]
            for group, claims in nodes.items()
        }
        for group, claims in list(self._deleted.items()):
            recent = {name: at for name, at in claims.items() if now - at <= RECENT}
            set_or_remove(self._deleted, group, recent or None)
            found.setdefault(group, []).extend(recent)
        return {group: names for group, names in found.items() if names}

    def _may_count(self, claim: NodeClaimFact, now: datetime) -> bool:
        """Whether its node is recent, and no pod ran there before this process began. Such a pod may be gone, for
        example evicted from a node that AWS reclaims, and its group is not known."""
        since = _schedulable_since(claim)
        assert since is not None
        had_pods = since < self._began and claim.last_pod_event is not None
        return now - since <= RECENT and claim.name not in self._cache.interrupted and not had_pods

    def _is_known(self, name: str, now: datetime) -> bool:
        """Whether this process knows the pods that are nominated to the NodeClaim. Those of an earlier process end
        after NOMINATION_TTL. Of deleted NodeClaims, only those of this process count."""
        claim = self._cache.nodeclaims.get(name)
        if claim is None:
            return True
        since = _schedulable_since(claim)
        assert since is not None
        return claim.created >= self._began or now - since >= NOMINATION_TTL

    def _used_groups(self, claim: NodeClaimFact, groups: PodGroups) -> set[str]:
        used, own = self._used.setdefault(claim.name, set()), launched_for(claim)
        if not own <= used:
            for node in self._cache.nodes_of(claim):
                pods = self._cache.occupancy.pods_on(node.name).values()
                used |= own & {groups.group_of(pod) for pod in pods if not (pod.daemonset or pod.mirror)}
        return used

    def _is_used(self, entry: ProvisioningBackoff, nodes: Iterable[NodeClaimFact], groups: PodGroups) -> bool:
        """A pod of the group was bound to a counted node after all, or to a node that became schedulable later."""
        return any(
            entry.pod_group in self._used_groups(claim, groups)
            for claim in nodes
            if claim.name in entry.nodeclaims or ((since := _schedulable_since(claim)) and since > entry.last_unused_at)
        )

    async def _read_message(self, pod: PodFact) -> str:
        try:
            return (await self._messages.read_scheduler_message(pod))[:MAX_MESSAGE_LENGTH]
        except Fault as fault:
            log.warning("kube-scheduler's message was not read", pod=f"{pod.namespace}/{pod.name}", fault=fault.message)
            return ""


def _schedulable_since(claim: NodeClaimFact) -> datetime | None:
    """When its node was initialized; until then, when it registered. None if no pod can be bound there."""
    if claim.initialized_at is not None:
        return claim.initialized_at
    return None if claim.deleting else claim.registered_at


def _reset(entry: ProvisioningBackoff, context: str, *, is_used: bool) -> ProvisioningBackoff:
    """The entry, without its count if a node was used after all or a relevant object changed."""
    if context == entry.context and not is_used:
        return entry
    if entry.unused_nodes:
        log.info("unused nodes no longer count", pod=entry.pod, reason="used" if is_used else "relevant change")
    return entry.model_copy(update={"unused_nodes": 0, "context": context})


def _count(
    entry: ProvisioningBackoff | None, group: _WaitingGroup, unused: Iterable[str], now: datetime
) -> ProvisioningBackoff | None:
    """The entry with these NodeClaims. None if there is nothing to count."""
    known = entry.nodeclaims if entry else ()
    added = tuple(name for name in unused if name not in known)
    if not added:
        return entry
    pod_name = f"{group.example.namespace}/{group.example.name}"
    before = entry or ProvisioningBackoff(
        pod_group=group.name, pod=pod_name, since=now, last_unused_at=now, context=group.context
    )
    return before.model_copy(
        update={
            "unused_nodes": before.unused_nodes + len(added),
            "nodeclaims": (*known, *added)[-MAX_COUNTED_NODECLAIMS:],
            "last_unused_at": now,
            "pod": pod_name,
        }
    )


def _with_message(entry: ProvisioningBackoff, before: ProvisioningBackoff | None, message: str) -> ProvisioningBackoff:
    """With kube-scheduler's message, if nodes were counted since. A later message is not about deleted nodes."""
    if before and entry.unused_nodes == before.unused_nodes and entry.scheduler_message:
        return entry
    return entry.model_copy(update={"scheduler_message": message or entry.scheduler_message})


def without_pods(entries: Iterable[ProvisioningBackoff]) -> tuple[ProvisioningBackoff, ...]:
    return tuple(one.model_copy(update={"pods": 0}) for one in entries)
