"""Signals changes of the cache to NodeClaim, NodePool and EC2NodeClass workflows.

A kind that is not synced yet delays only the signals that depend on it."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from tenure.apis.labels import LAUNCH_GROUP, LAUNCH_REASON, NODECLASS, REPLACES
from tenure.clock import CLOCK
from tenure.controller.cache.availability import NotReadyTracker, early_eviction_until
from tenure.controller.cache.changes import ChangeSet, SyncedKinds
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.nodeclaim_factory import launch_hash
from tenure.controller.signals.delaying_queue import DelayingQueue
from tenure.controller.signals.digests import (
    Digest,
    NodeClaimView,
    hash_observation,
    nodeclaim_digest,
    nodeclass_digest,
    nodepool_digest,
)
from tenure.controller.signals.drain_changes import DrainChanges
from tenure.controller.signals.lifecycle_observers import LifecycleObservers
from tenure.controller.signals.signaller import Signal, SignalQueue, Start
from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODE_POOLS, Resource
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY, DiscoveredCapacity
from tenure.model.facts import NodeClaimFact, NodeFact
from tenure.model.invalid_objects import ObjectKey
from tenure.model.node_health import RepairMode
from tenure.model.nodeclaim.state import Deadlines, NodeClaimIdentity, NodeClaimState
from tenure.model.observations import ObservedNodeClaim, ObservedNodeClass, ObservedNodePool
from tenure.model.plan import ExpectedDurations
from tenure.model.workflow_states import NodeClassState, NodePoolState
from tenure.policy.disruption.drift import Drift
from workflows import ids
from workflows.visibility import claim_start

NODEPOOL_SIGNAL_INTERVAL: Final = timedelta(seconds=1)
"""Between two signals to one NodePool workflow."""
USAGE_SIGNAL_INTERVAL_PER_NODECLAIM: Final = timedelta(milliseconds=2)
"""Between two signals that report only usage: each status lists the NodePool's NodeClaims, in 0.3 CPU milliseconds
each."""
DELETED_NOTIFY_DELAY: Final = timedelta(seconds=5)
"""Workflows usually delete their NodeClaims. Only one that still runs after this delay receives the deletion."""
_DELETED_DIGEST: Final = "gone"
NODEPOOL_DETAILS: Final = "Disruption permits, static capacity and rollouts of the NodePool"
NODECLASS_DETAILS: Final = "Images, subnets and security groups of the EC2NodeClass, and its status"


class _NotifiedNodePool(NamedTuple):
    checked_at: datetime
    """Computing its digest reads all of its NodeClaims."""
    notified_at: datetime
    observed: ObservedNodePool


class WorkflowNotifier:
    def __init__(
        self,
        *,
        cluster: str,
        deadlines: Deadlines,
        cache: ClusterCache,
        nominations: Nominations,
        not_ready: NotReadyTracker,
        expected_pods: ExpectedPods,
        signal_queue: SignalQueue,
        observers: LifecycleObservers,
        began: datetime,
        number: Callable[[], int] = CLOCK.next_number,
        drift: Callable[[NodeClaimFact], Drift | None] = lambda claim: None,
        buffer_needing: Callable[[str], str] = lambda claim: "",
        discovered: Callable[[str], DiscoveredCapacity] = lambda node_class: NO_DISCOVERED_CAPACITY,
        static_capacity: bool = False,
        repair_mode: RepairMode | None = None,
    ) -> None:
        """`buffer_needing`: the name of the CapacityBuffer that needs headroom on a NodeClaim's node, or empty."""
        self.cluster, self._deadlines = cluster, deadlines
        self._cache, self._nominations, self._signal_queue = cache, nominations, signal_queue
        self._began, self._number, self._drift, self._buffer_needing = began, number, drift, buffer_needing
        self._not_ready, self._expected_pods = not_ready, expected_pods
        self._observers, self._policies = observers, observers.policies
        self._static_capacity, self._repair_mode, self._discovered = static_capacity, repair_mode, discovered
        self._due, self._drain_changes = DelayingQueue(), DrainChanges(cache)
        self._deferred: dict[str, set[str]] = {}
        self._awaiting_plan: set[str] = set()
        """The NodeClaims that were observed before the first plan."""
        self._nodepools: dict[str, _NotifiedNodePool] = {}

    def next_due_at(self) -> datetime | None:
        return self._due.next_due_at()

    def notify(self, changes: ChangeSet, known: SyncedKinds, now: datetime) -> None:
        """Enqueue a signal for each object that changed or is due, if the kinds that it depends on are synced."""
        self._notify_deleted_objects(changes, now)
        self._requeue_due(changes, now)
        if not known.warm_up_until:
            changes.nodeclaims |= self._awaiting_plan
            self._awaiting_plan = set()
        self._for_each(
            NODE_CLAIMS,
            self._take_ready(changes.nodeclaims, "claim", known.nodeclaims and known.nodes and known.policies),
            lambda name: self._notify_nodeclaim(name, known, now),
        )
        pools_known = known.nodepools and known.nodeclaims and known.nodeclasses and known.policies and known.pauses
        self._for_each(
            NODE_POOLS,
            self._take_ready(changes.nodepools, "pool", pools_known),
            lambda name: self._notify_nodepool(name, now),
        )
        classes_known = known.nodeclasses and known.nodeclaims
        self._for_each(
            EC2_NODE_CLASSES, self._take_ready(changes.nodeclasses, "class", classes_known), self._notify_nodeclass
        )

    def _for_each(self, resource: Resource, names: Iterable[str], notify: Callable[[str], None]) -> None:
        for name in names:
            with self._cache.invalid_objects.guard(ObjectKey(resource.kind, name, step="signal")):
                notify(name)

    def _requeue_due(self, changes: ChangeSet, now: datetime) -> None:
        for key in self._due.pop_due(now):
            kind, _, name = key.partition("/")
            if kind == "claim":
                changes.nodeclaims.add(name)
            elif kind == "pool":
                changes.nodepools.add(name)
            else:
                self.notify_deleted(name)

    def _take_ready(self, names: set[str], kind: str, known: bool) -> set[str]:
        """The names that can be signaled now; the others are deferred until their kinds are synced."""
        deferred = self._deferred.pop(kind, set()) | names
        if known:
            return deferred
        self._deferred[kind] = deferred
        return set()

    def identity_of(self, claim: NodeClaimFact) -> NodeClaimIdentity:
        return NodeClaimIdentity(
            cluster=self.cluster,
            name=claim.name,
            uid=claim.uid,
            pool=claim.pool,
            node_class=claim.labels.get(NODECLASS, claim.node_class),
            group_id=claim.annotations.get(LAUNCH_GROUP, ""),
            launch_hash=launch_hash(claim),
            created=claim.created,
            why=claim.annotations.get(LAUNCH_REASON, ""),
            replaces=claim.annotations.get(REPLACES, ""),
            termination_grace_period=claim.termination_grace_period,
        )

    def workflow_id(self, claim: NodeClaimFact) -> str:
        return ids.nodeclaim(self.cluster, claim.name, claim.uid)

    def restart_workflow(self, claim: NodeClaimFact, known: SyncedKinds, now: datetime) -> None:
        """Start the workflow of an existing NodeClaim that is not running, regardless of earlier signals."""
        self._signal_queue.discard(self.workflow_id(claim))
        self._for_each(
            NODE_CLAIMS, [claim.name], lambda name: self._notify_nodeclaim(name, known, now, allow_restart=True)
        )

    def restart_coordinators(
        self, nodepools: set[str], nodeclasses: set[str], known: SyncedKinds, now: datetime
    ) -> None:
        """Start the workflows of existing NodePools and EC2NodeClasses that are not running, regardless of earlier
        signals."""
        for name in nodepools:
            self._signal_queue.discard(ids.nodepool(self.cluster, name))
            self._nodepools.pop(name, None)
        for name in nodeclasses:
            self._signal_queue.discard(ids.nodeclass(self.cluster, name))
        self.notify(ChangeSet(nodepools=nodepools, nodeclasses=nodeclasses), known, now)

    def notify_deleted(self, workflow_id: str) -> None:
        observed = ObservedNodeClaim(number=self._number(), exists=False)
        self._signal_queue.enqueue(Signal(workflow_id, "observe", observed, _DELETED_DIGEST))

    # --- claims ---

    def _notify_nodeclaim(self, name: str, known: SyncedKinds, now: datetime, *, allow_restart: bool = False) -> None:
        claim = self._cache.nodeclaims.get(name)
        if claim is None:
            return
        if claim.deleting:
            self._nominations.forget_target(name)
        is_ready = claim.initialized and not claim.deleting
        if (is_ready and not (known.pods and known.nodepools)) or (
            claim.drain_waits and not (known.pods and known.drains)
        ):
            self._deferred.setdefault("claim", set()).add(name)
            return
        workflow_id = self.workflow_id(claim)
        drain, drain_recheck_at = self._drain_changes.digest_of(claim, self._cache.nodes_of(claim), now)
        digest = nodeclaim_digest(self._build_view(claim, workflow_id, drain, known, now), now)
        recheck_at = self._recheck_at(digest, claim, now)
        self._due.schedule(f"claim/{name}", min((at for at in (recheck_at, drain_recheck_at) if at), default=None))
        if digest.observed.hold_until:
            self._awaiting_plan.add(name)
        identity = self.identity_of(claim)
        start = Start(
            "NodeClaim",
            NodeClaimState(identity=identity, deadlines=self._deadlines, discovered=self._discovered_capacity(claim)),
            claim_start(identity, identity.created + self._policies.deadlines_of(claim.pool).launch),
            identity.summary,
            identity.details,
            allow_restart=allow_restart,
        )
        observed = digest.observed.model_copy(
            update={"number": self._number(), "expected": self._expected_durations(claim)}
        )
        is_settled = claim.initialized and not claim.deleting and observed.node_ready
        is_routine = is_settled and not observed.drift and not observed.hold_until
        self._signal_queue.enqueue(
            Signal(
                workflow_id,
                "observe",
                observed,
                _stored_digest(digest.observed),
                start,
                low_priority=is_routine and not allow_restart and not self._signal_queue.last_digest(workflow_id),
            )
        )

    def _discovered_capacity(self, claim: NodeClaimFact) -> DiscoveredCapacity:
        """For a NodeClaim without NodePool, which launches by itself; Provisioning has it for others."""
        return NO_DISCOVERED_CAPACITY if claim.pool or claim.provider_id else self._discovered(claim.node_class)

    def _expected_durations(self, claim: NodeClaimFact) -> ExpectedDurations | None:
        """For a starting node. A change alone causes no signal."""
        starts = claim.pool and not (claim.initialized or claim.deleting)
        return self._observers.startup.expected_durations(claim.pool) if starts else None

    def _build_view(
        self, claim: NodeClaimFact, workflow_id: str, drain: str, known: SyncedKinds, now: datetime
    ) -> NodeClaimView:
        nodes = self._cache.nodes_of(claim)
        notified_vacant_since = _parse_vacant_since(self._signal_queue.last_digest(workflow_id))
        vacated_times = [at for node in nodes if (at := self._cache.occupancy.vacated_at(node.name))]
        pool = self._cache.nodepools.get(claim.pool)
        vacant_since = max(vacated_times) if vacated_times else notified_vacant_since
        occupied = self._is_occupied(claim, nodes, now)
        expected = self._expected_pods.expectation_for(claim, now, occupied=occupied)
        return NodeClaimView(
            claim=claim,
            nodes=nodes,
            consolidation=pool.consolidation if pool else "",
            occupied=occupied,
            expected=expected.is_expected,
            expected_until=expected.until,
            expected_pods=expected.description,
            expected_pods_since=expected.since,
            vacant_since=vacant_since or self._unobserved_since(claim),
            drift=self._drift(claim),
            is_vacancy_unobserved=vacant_since is None,
            warm_up_until=known.warm_up_until,
            needed_by_buffer=self._buffer_needing(claim.name),
            drain=drain,
            not_ready=self._not_ready.grace_for(claim),
            rules=self._policies.rules_of(claim.pool),
            event_policies=self._policies.event_policies_of(claim.pool),
            hook_policies=self._policies.hook_policies_of(claim.pool),
            events_unread=self._policies.unread_of(claim.pool).interruption,
            repair_mode=self._repair_mode,
        )

    def _is_occupied(self, claim: NodeClaimFact, nodes: Sequence[NodeFact], now: datetime) -> bool:
        """Whether pods occupy the node. A node that is evicted early counts too: it must not be disrupted as empty."""
        if claim.name in self._cache.early_evicted or early_eviction_until(nodes, now) is not None:
            return True
        return any(self._cache.occupancy.is_occupied(node.name) for node in nodes)

    def _unobserved_since(self, claim: NodeClaimFact) -> datetime | None:
        """The start of the watch, for a node initialized before: its last pod may have left until then."""
        before = claim.initialized_at is not None and claim.initialized_at < self._began
        return self._began if before else None

    def _recheck_at(self, digest: Digest, claim: NodeClaimFact, now: datetime) -> datetime | None:
        eviction_until = early_eviction_until(self._cache.nodes_of(claim), now)
        times = (digest.observed.hold_until, digest.recheck_at, eviction_until)
        return min((one for one in times if one), default=None)

    def _notify_deleted_objects(self, changes: ChangeSet, now: datetime) -> None:
        for claim in changes.deleted_nodeclaims.values():
            workflow_id = self.workflow_id(claim)
            self._signal_queue.discard(workflow_id)
            self._nominations.forget_target(claim.name)
            self._drain_changes.forget(claim.name)
            self._due.schedule(f"claim/{claim.name}", None)
            self._due.schedule(f"gone/{workflow_id}", now + DELETED_NOTIFY_DELAY)
        for name in changes.deleted_nodepools:
            self._nodepools.pop(name, None)
            self.notify_coordinator_deleted(ids.nodepool(self.cluster, name))
        for name in changes.deleted_nodeclasses:
            self.notify_coordinator_deleted(ids.nodeclass(self.cluster, name))

    def notify_coordinator_deleted(self, workflow_id: str) -> None:
        """The NodePool or EC2NodeClass of this workflow is gone."""
        is_nodepool = workflow_id.startswith(ids.nodepool(self.cluster, ""))
        observed = (ObservedNodePool if is_nodepool else ObservedNodeClass)(number=self._number(), exists=False)
        self._signal_queue.discard(workflow_id)
        self._signal_queue.enqueue(Signal(workflow_id, "observe", observed, _DELETED_DIGEST))

    # --- coordinators ---

    def _notify_nodepool(self, name: str, now: datetime) -> None:
        view = self._cache.nodepools.get(name)
        if view is None:
            return
        last = self._nodepools.get(name)
        if last is not None and now < last.checked_at + NODEPOOL_SIGNAL_INTERVAL:
            self._due.schedule(f"pool/{name}", last.checked_at + NODEPOOL_SIGNAL_INTERVAL)
            return
        claims = tuple(self._cache.nodeclaims_of_nodepool(name))
        observed = nodepool_digest(
            view.fact,
            claims,
            self._cache.nodeclasses.get(view.fact.node_class),
            static_capacity=self._static_capacity,
            healthy_at=view.healthy_at,
            **self._observers.nodepool_fields(name, view.pause),
        )
        if last is not None and observed.rollout is None and observed.is_usage_only(last.observed):
            due_at = last.notified_at + len(claims) * USAGE_SIGNAL_INTERVAL_PER_NODECLAIM
            if now < due_at:
                self._nodepools[name] = last._replace(checked_at=now)
                self._due.schedule(f"pool/{name}", due_at)
                return
        start = Start(
            "NodePool",
            NodePoolState(cluster=self.cluster, name=name),
            summary=f"NodePool {name}",
            details=NODEPOOL_DETAILS,
        )
        if self._enqueue_observation(ids.nodepool(self.cluster, name), observed, start):
            self._nodepools[name] = _NotifiedNodePool(now, now, observed)

    def _notify_nodeclass(self, name: str) -> None:
        node_class = self._cache.nodeclasses.get(name)
        if node_class is None:
            return
        claims = [claim for claim in self._cache.nodeclaims.values() if claim.node_class == name]
        observed = nodeclass_digest(node_class, claims)
        start = Start(
            "EC2NodeClass",
            NodeClassState(cluster=self.cluster, name=name),
            summary=f"EC2NodeClass {name}",
            details=NODECLASS_DETAILS,
        )
        self._enqueue_observation(ids.nodeclass(self.cluster, name), observed, start)

    def _enqueue_observation(
        self, workflow_id: str, observed: ObservedNodePool | ObservedNodeClass, start: Start
    ) -> bool:
        numbered = observed.model_copy(update={"number": self._number()})
        return self._signal_queue.enqueue(Signal(workflow_id, "observe", numbered, hash_observation(observed), start))


def _stored_digest(observed: ObservedNodeClaim) -> str:
    """The digest that the signal queue stores. It includes the start of emptiness, which no object stores."""
    known = observed.empty_since is not None and not observed.empty_since_unseen
    since = f"@{observed.empty_since.isoformat()}" if observed.empty_since and known else ""
    return hash_observation(observed) + since


def _parse_vacant_since(digest: str) -> datetime | None:
    _, _, since = digest.partition("@")
    return datetime.fromisoformat(since) if since else None
