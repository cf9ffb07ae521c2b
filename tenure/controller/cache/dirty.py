"""Changes of the cache, for subscribers, workflows and the planner, and the structures that collect them."""

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import nodepool_hash
from tenure.apis.labels import CLUSTER_NAME_TAGGED, NODE_REGISTRATION_HEALTHY, NODEPOOL_CONDITIONS, PAUSE, TAGGED
from tenure.apis.nodepool import Budget, NodePool
from tenure.kube.client.errors import Json
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODE_POOLS, PERSISTENT_VOLUME_CLAIMS, PODS
from tenure.kube.facts.objects import nodepool_fact
from tenure.model.errors import TryLater
from tenure.model.facts import NodeClaimFact, NodePoolFact, PodDisruptionBudgetFact, PodFact
from tenure.scheduling.snapshot import Change, Fact, FactKind

TAGS: Final = (TAGGED, CLUSTER_NAME_TAGGED)


class PlannerChanges:
    def __init__(self) -> None:
        self._pending: dict[tuple[FactKind, str], Change] = {}
        self.disruption_changes = 0
        """Incremented by every change that may affect voluntary disruption."""
        self._pod_events: set[str] = set()

    def record(self, kind: FactKind, key: str, fact: Fact | None, *, affects_disruption: bool = True) -> None:
        self.disruption_changes += affects_disruption
        # A later change of an object replaces an earlier one and goes last, so order holds between kinds.
        self._pending.pop((kind, key), None)
        self._pending[kind, key] = make_change(kind, key, fact)

    def record_pod_event(self, claim: NodeClaimFact) -> None:
        """Record that a pod was bound to the claim's node, left it or changed."""
        self._pod_events.add(claim.name)
        self.record("claim", claim.name, claim, affects_disruption=False)

    def drain_pod_events(self) -> set[str]:
        names, self._pod_events = self._pod_events, set()
        return names

    def drain(self, claim_of: Callable[[str], NodeClaimFact]) -> tuple[Change, ...]:
        """`claim_of`: the current fact of a NodeClaim, by name."""
        changes, self._pending = tuple(self._pending.values()), {}
        return tuple(
            make_change("claim", one.key, claim_of(one.key)) if one.kind == "claim" and one.fact else one
            for one in changes
        )


def make_change(kind: FactKind, key: str, fact: Fact | None) -> Change:
    return Change.model_construct(kind=kind, key=key, fact=fact)


def all_changes(tables: Mapping[FactKind, Mapping[str, Fact]]) -> tuple[Change, ...]:
    return tuple(make_change(kind, key, fact) for kind, table in tables.items() for key, fact in table.items())


def with_last_pod_event(claim: NodeClaimFact, last_event: datetime | None) -> NodeClaimFact:
    """The claim with the time of its last pod event, if this process observed a later one than the claim has."""
    if last_event is None or (claim.last_pod_event is not None and last_event <= claim.last_pod_event):
        return claim
    return claim.model_copy(update={"last_pod_event": last_event})


def has_foreign_changes(old: NodeClaimFact | None, new: NodeClaimFact) -> bool:
    """Whether fields changed that Tenure does not write itself. It writes the last pod event and tag annotations."""
    if old is None:
        return True
    annotations = {key: value for key, value in new.annotations.items() if key not in TAGS}
    annotations |= {key: value for key, value in old.annotations.items() if key in TAGS}
    return new.model_copy(update={"last_pod_event": old.last_pod_event, "annotations": annotations}) != old


def changes_disruption(old: PodFact | None, new: PodFact | None) -> bool:
    """Whether this change of a pod may affect voluntary disruption. Readiness does so only through its budgets."""
    return _disruption_state(old) != _disruption_state(new)


def _disruption_state(pod: PodFact | None) -> object:
    if pod is None or ((pod.daemonset or pod.mirror) and not pod.do_not_disrupt):
        return None
    status = (pod.node_name, pod.is_finished, pod.deleting, pod.do_not_disrupt, pod.priority, pod.deletion_cost)
    return status, pod.requests, pod.devices, pod.labels, pod.unplannable


def budget_state(budget: PodDisruptionBudgetFact | None) -> object:
    """The part of a budget that plans depend on."""
    if budget is None:
        return None
    return budget.selector, budget.disruptions_allowed, budget.never, budget.needs_all, budget.always_allow_unhealthy


@dataclass(frozen=True)
class NodePoolView:
    """A NodePool: fields for planning, and fields that the decisions about its ready nodes depend on."""

    fact: NodePoolFact
    consolidation: str
    """`<consolidationPolicy>/<consolidateAfter>`."""
    budgets: tuple[Budget, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the NodePool itself; LifecyclePolicies select by them."""
    pause: str = ""
    """The annotation tenure.sh/pause."""
    healthy_at: tuple[int, int] | None = None
    """Generations of the pool and its NodeClass for which the condition NodeRegistrationHealthy is True."""
    not_ready: Mapping[str, str] = field(default_factory=dict)
    """Message of each condition that is False and keeps it from being Ready."""


@dataclass
class ChangeSet:
    nodeclaims: set[str] = field(default_factory=set)
    nodepools: set[str] = field(default_factory=set)
    nodeclasses: set[str] = field(default_factory=set)
    pods: bool = False
    """Whether the pods that need a node, or the time of the next check, may have changed."""
    volume_claims: set[str] = field(default_factory=set)
    """PersistentVolumeClaims as `namespace/name`: pods that wait for them may be planned now."""
    deleted_nodeclaims: dict[str, NodeClaimFact] = field(default_factory=dict)
    """By UID: NodeClaims that no longer exist in the API server."""
    deleted_nodepools: set[str] = field(default_factory=set)
    deleted_nodeclasses: set[str] = field(default_factory=set)

    def split(self) -> Iterator[tuple[str, str, "ChangeSet"]]:
        """Kind and name of each object, with the changes of this object alone. Changed pods come last, as one."""
        for uid, claim in self.deleted_nodeclaims.items():
            yield NODE_CLAIMS.kind, claim.name, ChangeSet(deleted_nodeclaims={uid: claim})
        for attribute, kind in _KINDS.items():
            for name in sorted(getattr(self, attribute)):
                changes = ChangeSet()
                getattr(changes, attribute).add(name)
                yield kind, name, changes
        if self.pods:
            yield PODS.kind, "", ChangeSet(pods=True)

    def merge(self, other: "ChangeSet") -> None:
        for attribute in (*_KINDS, "deleted_nodeclaims"):
            getattr(self, attribute).update(getattr(other, attribute))
        self.pods |= other.pods

    def has_object(self, kind: str, name: str) -> bool:
        return any((kind, name) == (one_kind, one_name) for one_kind, one_name, _ in self.split())


_KINDS: Final[Mapping[str, str]] = {
    "nodeclaims": NODE_CLAIMS.kind,
    "nodepools": NODE_POOLS.kind,
    "nodeclasses": EC2_NODE_CLASSES.kind,
    "volume_claims": PERSISTENT_VOLUME_CLAIMS.kind,
    "deleted_nodepools": NODE_POOLS.kind,
    "deleted_nodeclasses": EC2_NODE_CLASSES.kind,
}


@dataclass(frozen=True)
class SyncedKinds:
    """Which kinds are synced, and for how long pods may still be expected on nodes that look empty."""

    nodeclaims: bool
    nodes: bool
    pods: bool
    nodepools: bool
    nodeclasses: bool
    warm_up_until: datetime | None
    """Set on a new host while pending pods or buffers wait for their first plan, which will nominate nodes to them."""
    policies: bool = True
    """LifecyclePolicies, and the NodePools that they select."""
    drains: bool = True
    """PodDisruptionBudgets and VolumeAttachments."""
    pauses: bool = True
    """Namespaces; an annotation of the worker's namespace pauses the whole cluster."""


@dataclass(frozen=True, slots=True)
class CacheChanged:
    """Published after every change: a `ChangeBatch` is due."""


@dataclass(frozen=True, slots=True)
class PendingPodChanged:
    """A pod became pending, changed while it was, or is no longer pending."""

    uid: str
    new: PodFact | None
    """None: it is no longer pending."""


@dataclass(frozen=True, slots=True)
class PodBound:
    """A pending pod was bound to a node."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodReady:
    """A pod became Ready."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod was deleted, or is no longer alive (`PodFact.is_alive`)."""

    pod: PodFact


@dataclass(frozen=True, slots=True)
class NodeClaimDeleted:
    """A NodeClaim no longer exists."""

    claim: NodeClaimFact
    was_interrupted: bool
    """AWS had announced the end of its instance."""


@dataclass(frozen=True, slots=True)
class CapacityLacking:
    """EC2 has no capacity for a NodeClaim; `capacity_error` has its message."""

    claim: NodeClaimFact


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """A burst of changes. Subscribers receive it in the order of subscription; later ones see additions that earlier
    ones made to `changes`."""

    changes: ChangeSet
    known: SyncedKinds
    now: datetime


CacheEvent = (
    CacheChanged
    | PendingPodChanged
    | PodBound
    | PodReady
    | PodDeleted
    | NodeClaimDeleted
    | CapacityLacking
    | ChangeBatch
)


def pool_view(pool: Json) -> NodePoolView:
    """Raises ValueError for an invalid pool."""
    typed = NodePool.from_object(pool)
    disruption = typed.spec.disruption
    # A static pool keeps its nodes whether or not pods run on them (reference 4.5).
    after = "Never" if typed.spec.replicas is not None else disruption.consolidate_after
    return NodePoolView(
        fact=nodepool_fact(pool).model_copy(update={"hash": nodepool_hash(typed)}),
        budgets=disruption.budgets,
        consolidation=f"{disruption.consolidation_policy}/{after}",
        labels=typed.metadata.labels,
        pause=typed.metadata.annotations.get(PAUSE, ""),
        healthy_at=_healthy_at(typed),
        not_ready=false_conditions(typed, NODEPOOL_CONDITIONS),
    )


def false_conditions(found: NodePool | EC2NodeClass, types: Iterable[str]) -> dict[str, str]:
    """Message of each of these conditions that is False."""
    return {one.type: one.message for one in found.conditions if one.type in types and one.status == "False"}


def _healthy_at(pool: NodePool) -> tuple[int, int] | None:
    condition = pool.condition(NODE_REGISTRATION_HEALTHY)
    if condition is None or not condition.is_true:
        return None
    return condition.observed_generation, pool.status.node_class_observed_generation


K = TypeVar("K")
T = TypeVar("T")


def set_or_remove(table: dict[K, T], key: K, value: T | None) -> None:
    """None removes the key."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def discard_member(index: dict[K, set[str]], key: K, value: str) -> None:
    """Removes a key together with its last member."""
    members = index.get(key)
    if members is not None:
        members.discard(value)
        if not members:
            del index[key]


class DelayingQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[datetime, str]] = []
        self._times: dict[str, datetime] = {}

    def schedule(self, key: str, at: datetime | None) -> None:
        """None cancels the key."""
        if at is None:
            self._times.pop(key, None)
        elif self._times.get(key) != at:
            self._times[key] = at
            heapq.heappush(self._heap, (at, key))

    def pop_due(self, now: datetime) -> list[str]:
        """Remove and return the keys that are due."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._times.get(key) == at:
                del self._times[key]
                due.append(key)
        return due

    def next_due_at(self) -> datetime | None:
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class SingleFlight:
    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def run(self, key: str, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Join the call that runs for this key, or begin it. Raises TryLater if it is closed meanwhile."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(begin())
            task.add_done_callback(lambda _: self._tasks.pop(key, None))
        try:
            result: T = await asyncio.shield(task)
        except asyncio.CancelledError as cancelled:
            if task.cancelled():
                raise TryLater("the watch moved to another process meanwhile") from cancelled
            raise
        return result

    async def close(self) -> None:
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
