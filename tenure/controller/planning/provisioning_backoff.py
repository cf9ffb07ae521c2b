"""Stops launches that do not help: nodes that become ready for a pod, and are not used by it.

A NodeClaim names the groups of pods that it is launched for in an annotation. An initialized node is unused by a group
if none of the group's pods was bound to it, and none is expected there any more. It counts when the next plan needs
another node for the group. From the third on, pods of the group are planned onto existing nodes only, for a time that
doubles with each further unused node. The rule needs no knowledge of the cause
(docs/decisions/nominated-pods.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from tenure import metrics
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.dirty import PodBound
from tenure.controller.cache.nominations import NOMINATION_TTL, Nominations
from tenure.controller.planning.pod_groups import PodGroups, launched_for, pod_group
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
class BackoffPass:
    """Back-off of one plan."""

    groups: PodGroups = field(default_factory=PodGroups)
    stored: Mapping[str, ProvisioningBackoff] = field(default_factory=dict)
    """Entries that still apply, without new unused nodes."""
    updated: Mapping[str, ProvisioningBackoff] = field(default_factory=dict)
    """Entries with unused nodes that count if the plan needs another node for the group."""
    launch_blockers: Mapping[str, str] = field(default_factory=dict)
    """By UID of each pod for which no node may be launched: the reason."""


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
        self._blocked_pod_count = metrics.PROVISIONING_BACKOFF_PODS.bind(meter)
        self._blocked_pods: frozenset[str] = frozenset()
        """UIDs of the pods for which the last plan could not launch a node."""
        self._used: dict[str, set[str]] = {}
        """By NodeClaim: the groups of its annotation that have had a pod there."""
        cache.subscribe(PodBound, self._on_pod_bound)

    def _on_pod_bound(self, event: PodBound) -> None:
        pod = self._cache.pods[event.uid]
        claim = self._cache.nodeclaims.get(self._cache.nodeclaim_name_of(pod.node_name))
        if claim is not None and (groups := launched_for(claim)):
            self._used.setdefault(claim.name, set()).update(groups & {pod_group(pod)})

    def forget(self, deleted: Iterable[NodeClaimFact]) -> None:
        """Drop NodeClaims that no longer exist, and count those that this process saw unused for their whole life."""
        for claim in deleted:
            used = self._used.pop(claim.name, set())
            was_observed = claim.initialized_at is not None and claim.initialized_at >= self._began
            if was_observed and launched_for(claim) and not used:
                self._unused_nodes.record(1, nodepool=claim.pool)

    async def begin(self, stored: Sequence[ProvisioningBackoff], now: datetime) -> BackoffPass:
        """Find the pods for which no node may be launched now."""
        groups, nodes = PodGroups(), self._initialized_by_group()
        unused = self._find_unused(nodes, groups, now)
        if not unused and not stored:
            self._set_blocked_pods(())
            return BackoffPass(groups)
        pending: dict[str, list[PodFact]] = {}
        classified = classify_pods(self._cache, self._nominations, self._not_ready, now)
        for pod in classified.pending:
            pending.setdefault(groups.group_of(pod), []).append(pod)
        for uid in classified.nominated:
            self._discard_expecting(unused, groups.group_of(self._cache.pods[uid]), uid)
        relevant, known = RelevantObjects(self._cache), {one.pod_group for one in stored}.union(unused)
        context = {group: relevant.hash_for(pods[0]) for group, pods in pending.items() if group in known}
        current = {
            one.pod_group: _reset(
                one,
                context.get(one.pod_group, one.context),
                is_used=self._is_used(one, nodes.get(one.pod_group, ()), groups),
            )
            for one in without_pods(stored)
        }
        updated = {
            group: entry
            for group in sorted(unused.keys() & pending.keys())
            if (entry := _count(current.get(group), group, pending[group][0], unused[group], context[group], now))
        }
        launch_blockers: dict[str, str] = {}
        for group, entry in {**current, **updated}.items():
            if group in pending and entry.is_active(now):
                entry = await self._with_message(entry, pending[group])
                (updated if group in updated else current)[group] = entry
                launch_blockers.update((pod.uid, entry.describe()) for pod in pending[group])
        self._set_blocked_pods(launch_blockers)
        return BackoffPass(groups, current, updated, launch_blockers)

    def end_if_released(self) -> bool:
        """True once, when none of the blocked pods is pending any more. The stored entries then still count them."""
        is_released = bool(self._blocked_pods) and not any(uid in self._cache.pending for uid in self._blocked_pods)
        if is_released:
            self._set_blocked_pods(())
        return is_released

    def close(self) -> None:
        self._set_blocked_pods(())

    def _set_blocked_pods(self, uids: Iterable[str]) -> None:
        self._blocked_pods = frozenset(uids)
        self._blocked_pod_count.record(len(self._blocked_pods))

    def finish(
        self, begun: BackoffPass, plan: Plan, allowed: Sequence[PlannedNodeClaim], now: datetime
    ) -> tuple[ProvisioningBackoff, ...]:
        """The entries to store after this plan. Unused nodes count only for groups that need another node: otherwise
        kube-scheduler may be late, and the plan keeps the pods on the nodes that exist."""
        entries = dict(begun.stored)
        if begun.updated:
            uids = [uid for claim in allowed for uid in claim.pods]
            uids += [one.pod_uid for one in plan.unschedulable if one.pod_uid in begun.launch_blockers]
            needed = self._groups_of(uids, begun.groups)
            for group, entry in begun.updated.items():
                if group in needed:
                    log.warning("nodes unused", pod=entry.pod, nodes=entry.unused_nodes, until=entry.until)
                    entries[group] = entry
        return select_retained(tuple(entries.values()), now)

    def annotation_of(self, claim: PlannedNodeClaim, groups: PodGroups) -> str:
        """The value of `tenure.sh/pod-groups`, with at most MAX_POD_GROUPS."""
        return ",".join(sorted(self._groups_of(claim.pods, groups))[:MAX_POD_GROUPS])

    def _groups_of(self, uids: Iterable[str], groups: PodGroups) -> set[str]:
        return {groups.group_of(pod) for uid in uids if (pod := self._cache.pods.get(uid))}

    def _discard_expecting(self, unused: Mapping[str, list[str]], group: str, pod: str) -> None:
        """A node that still expects a pod of the group is not unused."""
        nomination = self._nominations.nomination_of(pod)
        if nomination is not None and nomination.target in unused.get(group, ()):
            unused[group].remove(nomination.target)

    def _initialized_by_group(self) -> dict[str, list[NodeClaimFact]]:
        """The initialized NodeClaims that were launched for each group."""
        found: dict[str, list[NodeClaimFact]] = {}
        for claim in self._cache.nodeclaims.values():
            for group in launched_for(claim) if claim.initialized_at else ():
                found.setdefault(group, []).append(claim)
        return found

    def _find_unused(
        self, nodes: Mapping[str, Sequence[NodeClaimFact]], groups: PodGroups, now: datetime
    ) -> dict[str, list[str]]:
        """By group: the NodeClaims that may count, and that none of its pods used."""
        found = {
            group: [
                claim.name
                for claim in claims
                if self._may_count(claim, now) and group not in self._used_groups(claim, groups)
            ]
            for group, claims in nodes.items()
        }
        return {group: names for group, names in found.items() if names}

    def _may_count(self, claim: NodeClaimFact, now: datetime) -> bool:
        """Whether it was initialized recently. This process knows no nominations of an earlier one, so it waits for
        NOMINATION_TTL."""
        assert claim.initialized_at is not None
        age = now - claim.initialized_at
        is_known = claim.created >= self._began or age >= NOMINATION_TTL
        return is_known and age <= RECENT and claim.name not in self._cache.interrupted

    def _used_groups(self, claim: NodeClaimFact, groups: PodGroups) -> set[str]:
        used, own = self._used.setdefault(claim.name, set()), launched_for(claim)
        if not own <= used:
            for node in self._cache.nodes_of(claim):
                pods = self._cache.occupancy.pods_on(node.name).values()
                used |= own & {groups.group_of(pod) for pod in pods if not (pod.daemonset or pod.mirror)}
        return used

    def _is_used(self, entry: ProvisioningBackoff, nodes: Iterable[NodeClaimFact], groups: PodGroups) -> bool:
        """A pod of the group was bound to a counted node after all, or to a node that became ready later."""
        return any(
            entry.pod_group in self._used_groups(claim, groups)
            for claim in nodes
            if claim.name in entry.nodeclaims or (claim.initialized_at and claim.initialized_at > entry.last_unused_at)
        )

    async def _with_message(self, entry: ProvisioningBackoff, pods: Sequence[PodFact]) -> ProvisioningBackoff:
        """With the number of pods. Keeps the message of the entry if the pod cannot be read."""
        entry = entry.model_copy(update={"pods": len(pods)})
        try:
            message = await self._messages.read_scheduler_message(pods[0])
        except Fault as fault:
            log.warning("kube-scheduler's message was not read", pod=entry.pod, fault=fault.message)
            return entry
        return entry.model_copy(update={"scheduler_message": message[:MAX_MESSAGE_LENGTH]})


def _reset(entry: ProvisioningBackoff, context: str, *, is_used: bool) -> ProvisioningBackoff:
    """The entry, without its count if a node was used after all or a relevant object changed."""
    if context == entry.context and not is_used:
        return entry
    if entry.unused_nodes:
        log.info("unused nodes no longer count", pod=entry.pod, reason="used" if is_used else "relevant change")
    return entry.model_copy(update={"unused_nodes": 0, "context": context})


def _count(
    entry: ProvisioningBackoff | None, group: str, pod: PodFact, names: Sequence[str], context: str, now: datetime
) -> ProvisioningBackoff | None:
    """The entry with these NodeClaims; None if all were counted before."""
    known = entry.nodeclaims if entry else ()
    added = tuple(name for name in names if name not in known)
    if not added:
        return None
    pod_name = f"{pod.namespace}/{pod.name}"
    before = entry or ProvisioningBackoff(pod_group=group, pod=pod_name, since=now, last_unused_at=now, context=context)
    return before.model_copy(
        update={
            "unused_nodes": before.unused_nodes + len(added),
            "nodeclaims": (*known, *added)[-MAX_COUNTED_NODECLAIMS:],
            "last_unused_at": now,
            "pod": pod_name,
        }
    )


def without_pods(entries: Iterable[ProvisioningBackoff]) -> tuple[ProvisioningBackoff, ...]:
    return tuple(one.model_copy(update={"pods": 0}) for one in entries)
