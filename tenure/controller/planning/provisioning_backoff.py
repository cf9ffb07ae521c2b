"""Stops launches that do not help: nodes that become ready for a pod, and are not used by it.

A NodeClaim names the groups of pods that it is launched for in an annotation. An initialized node is unused by a group
if none of the group's pods was bound to it, and none is expected there any more. It counts when the next plan needs
another node for the group. From the third on, pods of the group are planned onto existing nodes only, for a time that
doubles with each further unused node. The rule needs no knowledge of the cause
(docs/decisions/nominated-pods.md).
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from tenure import metrics
from tenure.apis import labels
from tenure.controller.cache.availability import NotReadyTracker
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.dirty import PodBound
from tenure.controller.cache.nominations import NOMINATION_TTL, Nominations
from tenure.controller.signals.pending_pods import classify_pods
from tenure.metrics import Meter
from tenure.model.errors import Fault
from tenure.model.facts import NodeClaimFact, PodFact
from tenure.model.plan import MAX_NODECLAIMS, Plan, PlannedNodeClaim, ProvisioningBackoff, select_retained

log = structlog.get_logger(__name__)

MAX_POD_GROUPS: Final = 50
"""In the annotation of one NodeClaim."""
RECENT: Final = timedelta(minutes=10)
"""Older nodes are not checked: pods that ran there may be gone, and a new process would not know of them."""
MAX_MESSAGE_LENGTH: Final = 400
_SHAPE_FIELDS: Final = (
    "namespace", "requests", "node_selector", "required_terms", "preferred_terms", "tolerations", "affinity",
    "anti_affinity", "spreads", "host_ports", "priority",
)  # fmt: skip
_GENERATED_SUFFIX: Final = re.compile(r"(-\d+)*-[a-z0-9]{5}$")
"""Of a Job's pod: the time of its CronJob, its completion index, and five random characters."""


class SchedulerMessages(Protocol):
    async def read_scheduler_message(self, pod: PodFact) -> str:
        """The message of the pod's condition PodScheduled; empty without one."""
        ...


def pod_group(pod: PodFact) -> str:
    """A hash that pods with the same owner and the same constraints share."""
    shape = [repr(getattr(pod, name)) for name in _SHAPE_FIELDS[:1]]
    shape += [repr(sorted(pod.requests.items())), repr(sorted(pod.node_selector.items()))]
    shape += [repr(getattr(pod, name)) for name in _SHAPE_FIELDS[3:]]
    own_volumes = f"{pod.name}-"
    shape += [name.removeprefix(own_volumes) for name in pod.volumes]
    return hashlib.sha256("\n".join([_workload(pod), *shape]).encode()).hexdigest()[:8]


def _workload(pod: PodFact) -> str:
    """Each run of a CronJob has an owner of its own, so the name without its suffix counts."""
    if pod.owner_kind == "Job":
        return _GENERATED_SUFFIX.sub("", pod.name)
    return pod.owner_uid or pod.name


class PodGroups:
    """Computes groups; pods of one owner that differ in no field are hashed once."""

    def __init__(self) -> None:
        self._last_by_owner: dict[str, tuple[PodFact, str]] = {}

    def group_of(self, pod: PodFact) -> str:
        last = self._last_by_owner.get(pod.owner_uid) if pod.owner_uid and pod.owner_kind != "Job" else None
        if last and not pod.volumes and all(getattr(last[0], one) == getattr(pod, one) for one in _SHAPE_FIELDS):
            return last[1]
        group = pod_group(pod)
        if not pod.volumes:
            self._last_by_owner[pod.owner_uid] = pod, group
        return group

    def groups_of(self, pods: Iterable[PodFact]) -> tuple[str, ...]:
        """Sorted, at most MAX_POD_GROUPS."""
        return tuple(sorted({self.group_of(pod) for pod in pods})[:MAX_POD_GROUPS])


@dataclass(frozen=True)
class BackoffPass:
    """Back-off of one plan."""

    stored: Mapping[str, ProvisioningBackoff] = field(default_factory=dict)
    """Entries that still apply, without new unused nodes."""
    updated: Mapping[str, ProvisioningBackoff] = field(default_factory=dict)
    """Entries with unused nodes that count if the plan needs another node for the group."""
    launch_blockers: Mapping[str, str] = field(default_factory=dict)
    """By UID of each pod for which no node may be launched: the reason."""


class BackoffTracker:
    """`subscribe` it to the cache. One plan at a time calls `begin` and then `finish`."""

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
        self._unused_nodes = metrics.NODES_UNUSED.bind(meter)
        self._began = began
        self._blocked_pod_count = metrics.PROVISIONING_BACKOFF_PODS.bind(meter)
        self._blocked_pods: frozenset[str] = frozenset()
        """UIDs of the pods for which the last plan could not launch a node."""
        self._used: dict[str, set[str]] = {}
        """By NodeClaim: the groups of its annotation that have had a pod there."""

    def subscribe_to(self, cache: ClusterCache) -> None:
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
        unused = self._find_unused(now)
        if not unused and not stored:
            self._set_blocked_pods(())
            return BackoffPass()
        groups, pending = PodGroups(), dict[str, list[PodFact]]()
        classified = classify_pods(self._cache, self._nominations, self._not_ready, now)
        for pod in classified.pending:
            pending.setdefault(groups.group_of(pod), []).append(pod)
        for uid in classified.nominated:
            self._discard_expecting(unused, groups.group_of(self._cache.pods[uid]), uid)
        current = {one.pod_group: self._reset(one, pending.get(one.pod_group, ())) for one in without_pods(stored)}
        updated = {
            group: entry
            for group in sorted(unused.keys() & pending.keys())
            if (entry := self._count(current.get(group), group, pending[group][0], unused[group], now))
        }
        launch_blockers: dict[str, str] = {}
        for group, entry in {**current, **updated}.items():
            if group in pending and entry.is_active(now):
                entry = await self._with_message(entry, pending[group])
                (updated if group in updated else current)[group] = entry
                launch_blockers.update((pod.uid, entry.describe()) for pod in pending[group])
        self._set_blocked_pods(launch_blockers)
        return BackoffPass(current, updated, launch_blockers)

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
            groups = PodGroups()
            uids = {uid for claim in allowed for uid in claim.pods}
            uids |= {one.pod_uid for one in plan.unschedulable if one.pod_uid in begun.launch_blockers}
            needed = {groups.group_of(pod) for uid in uids if (pod := self._cache.pods.get(uid))}
            for group, entry in begun.updated.items():
                if group in needed:
                    log.warning("nodes unused", pod=entry.pod, nodes=entry.unused_nodes, until=entry.until)
                    entries[group] = entry
        return select_retained(tuple(entries.values()), now)

    def groups_of(self, claim: PlannedNodeClaim) -> tuple[str, ...]:
        return PodGroups().groups_of(pod for uid in claim.pods if (pod := self._cache.pods.get(uid)))

    def _discard_expecting(self, unused: Mapping[str, list[str]], group: str, pod: str) -> None:
        """A node that still expects a pod of the group is not unused."""
        nomination = self._nominations.nomination_of(pod)
        if nomination is not None and nomination.target in unused.get(group, ()):
            unused[group].remove(nomination.target)

    def _find_unused(self, now: datetime) -> dict[str, list[str]]:
        """By group: recently initialized NodeClaims that were launched for it, and that none of its pods used. This
        process knows no nominations of an earlier one, so it waits for NOMINATION_TTL."""
        found: dict[str, list[str]] = {}
        for claim in self._cache.nodeclaims.values():
            initialized_at = claim.initialized_at
            if initialized_at is None or now - initialized_at > RECENT:
                continue
            is_known = claim.created >= self._began or now - initialized_at >= NOMINATION_TTL
            if is_known and claim.name not in self._cache.interrupted:
                for group in launched_for(claim) - self._used_groups(claim):
                    found.setdefault(group, []).append(claim.name)
        return found

    def _used_groups(self, claim: NodeClaimFact) -> set[str]:
        used, groups = self._used.setdefault(claim.name, set()), launched_for(claim)
        if not groups <= used:
            running = PodGroups()
            for node in self._cache.nodes_of(claim):
                pods = self._cache.occupancy.pods_on(node.name).values()
                used |= groups & {running.group_of(pod) for pod in pods if not (pod.daemonset or pod.mirror)}
        return used

    def _is_used(self, entry: ProvisioningBackoff) -> bool:
        """A pod of the group was bound to a counted node after all, or to a node that became ready later."""
        return any(
            entry.pod_group in self._used_groups(claim)
            for claim in self._cache.nodeclaims.values()
            if entry.pod_group in launched_for(claim)
            and claim.initialized_at
            and (claim.name in entry.nodeclaims or claim.initialized_at > entry.last_unused_at)
        )

    def _count(
        self, entry: ProvisioningBackoff | None, group: str, pod: PodFact, names: Sequence[str], now: datetime
    ) -> ProvisioningBackoff | None:
        """The entry with these NodeClaims; None if all were counted before."""
        known = entry.nodeclaims if entry else ()
        added = tuple(name for name in names if name not in known)
        if not added:
            return None
        before = entry or ProvisioningBackoff(
            pod_group=group,
            pod=f"{pod.namespace}/{pod.name}",
            since=now,
            last_unused_at=now,
            context=self._context_of(pod),
        )
        return before.model_copy(
            update={
                "unused_nodes": before.unused_nodes + len(added),
                "nodeclaims": (*known, *added)[-MAX_NODECLAIMS:],
                "last_unused_at": now,
                "pod": f"{pod.namespace}/{pod.name}",
            }
        )

    def _reset(self, entry: ProvisioningBackoff, pods: Sequence[PodFact]) -> ProvisioningBackoff:
        """The entry, without its count if a node was used after all or a relevant object changed."""
        context = self._context_of(pods[0]) if pods else entry.context
        if context == entry.context and not self._is_used(entry):
            return entry
        return entry.model_copy(update={"unused_nodes": 0, "context": context})

    def _context_of(self, pod: PodFact) -> str:
        text = "\n".join(sorted(self._context_lines(pod)))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def _context_lines(self, pod: PodFact) -> Iterator[str]:
        """The specs of the objects that determine where such a pod can run."""
        yield from (repr(view.fact.model_copy(update={"ready": True})) for view in self._cache.nodepools.values())
        for one in self._cache.nodeclasses.values():
            yield f"{one.name} {one.metadata.generation}"
        for daemon in self._cache.daemonsets.values():
            yield f"{daemon.uid} {pod_group(daemon.pod)}"
        yield from (repr(one) for one in self._cache.overlays.values())
        storage = self._cache.storage
        yield from (repr(storage.claims.get(f"{pod.namespace}/{name}")) for name in pod.volumes)

    async def _with_message(self, entry: ProvisioningBackoff, pods: Sequence[PodFact]) -> ProvisioningBackoff:
        """With the number of pods. Keeps the message of the entry if the pod cannot be read."""
        entry = entry.model_copy(update={"pods": len(pods)})
        try:
            message = await self._messages.read_scheduler_message(pods[0])
        except Fault as fault:
            log.warning("kube-scheduler's message was not read", pod=entry.pod, fault=fault.message)
            return entry
        return entry.model_copy(update={"scheduler_message": message[:MAX_MESSAGE_LENGTH]})


def without_pods(entries: Iterable[ProvisioningBackoff]) -> tuple[ProvisioningBackoff, ...]:
    return tuple(one.model_copy(update={"pods": 0}) for one in entries)


def launched_for(claim: NodeClaimFact) -> frozenset[str]:
    """The groups of pods that a plan launched this NodeClaim for."""
    return frozenset(filter(None, claim.annotations.get(labels.POD_GROUPS, "").split(",")))
