"""`tenure rebuild`: finds and starts workflows and search attributes that Temporal lacks.

The cluster is listed once, and the caches, digests and starts are those of a session, so that both start the same."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Final, Literal

from temporalio.client import Client

from tenure.apis.feature_gates import FeatureGate
from tenure.clock import CLOCK
from tenure.controller.cache.changes import ChangeSet, SyncedKinds
from tenure.controller.planning.undersized_nodes import WARM_UP
from tenure.controller.resync import (
    expected_coordinators,
    list_coordinators,
    list_nodeclaim_workflows,
    needs_workflow,
    notify_orphaned_coordinators,
)
from tenure.controller.settings import ControllerSettings
from tenure.controller.signals.lifecycle_observers import LifecycleObservers
from tenure.controller.signals.notifier import WorkflowNotifier
from tenure.controller.signals.pending_pods import needs_plan
from tenure.controller.signals.signaller import MAX_CONCURRENT_SIGNALS, SignalQueue
from tenure.controller.temporal.client import Installation, is_open, list_singletons, start_singletons
from tenure.controller.temporal.namespace import list_attributes, register_attributes
from tenure.controller.watched_cluster import WatchedCluster
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.kube.client.errors import Json
from tenure.kube.client.list_watch import Delta
from tenure.kube.client.objects import Objects
from tenure.model.base import Value
from tenure.model.errors import TryLater
from tenure.model.facts import NodeClaimFact
from workflows import ids, search_attributes

READ: Final = (
    resources.EC2_NODE_CLASSES,
    resources.LIFECYCLE_POLICIES,
    resources.NAMESPACES,
    resources.NODE_POOLS,
    resources.NODES,
    resources.PODS,
    # Last: an object created after the workflows were listed may have none yet, and no object counts as gone.
    resources.NODE_CLAIMS,
)


class Snapshot:
    """Call `add` for every object, and then `complete`. Objects are not stored: 100,000 NodeClaims would need 2 GB."""

    def __init__(self, settings: ControllerSettings, kube: KubeAdapters, *, now: datetime, number: int) -> None:
        """`number`: of these observations; later ones have higher numbers."""
        self.settings, self.now = settings, now
        self._workflow_ids = set[str]()
        self._cluster = WatchedCluster(settings, kube, lambda: now)
        self.cache = self._cluster.cache
        self._number = number
        self._observers = LifecycleObservers(self.cache, self._cluster.policies, self._cluster.pause)

    def add(self, plural: str, item: Json) -> None:
        cluster, name, uid = self.settings.cluster, item["metadata"]["name"], item["metadata"]["uid"]
        match plural:
            case resources.NODE_CLAIMS.plural:
                self._workflow_ids.add(ids.nodeclaim(cluster, name, uid))
            case resources.NODE_POOLS.plural:
                self._workflow_ids.add(ids.nodepool(cluster, name))
            case resources.EC2_NODE_CLASSES.plural:
                self._workflow_ids.add(ids.nodeclass(cluster, name))
        self._cluster.on_deltas(plural, [Delta(item)])

    def complete(self) -> None:
        self._observers.update(self.cache.drain_changes(), True, counted=True)

    def make_notifier(self, signal_queue: SignalQueue) -> WorkflowNotifier:
        settings = self.settings
        return WorkflowNotifier(
            cluster=settings.cluster,
            deadlines=settings.deadlines,
            cache=self.cache,
            nominations=self._cluster.nominations,
            not_ready=self._cluster.not_ready,
            expected_pods=self._cluster.expected_pods,
            signal_queue=signal_queue,
            began=self.now,
            number=lambda: self._number,
            observers=self._observers,
            static_capacity=FeatureGate.STATIC_CAPACITY in settings.gates,
            repair_mode=settings.repair_mode,
        )

    def workflow_ids(self) -> frozenset[str]:
        """Of NodeClaims, NodePools and EC2NodeClasses, also of invalid ones, which the cache lacks."""
        return frozenset(self._workflow_ids)

    @cached_property
    def synced_kinds(self) -> SyncedKinds:
        """All kinds are synced, but no plan has nominated nodes to pending pods yet. It takes time that grows with the
        cluster."""
        until = self.now + WARM_UP if needs_plan(self.cache, self.now) else None
        return SyncedKinds(
            nodeclaims=True, nodes=True, pods=True, nodepools=True, nodeclasses=True, warm_up_until=until
        )

    def start(
        self, notifier: WorkflowNotifier, claims: Sequence[NodeClaimFact], pools: set[str], node_classes: set[str]
    ) -> None:
        """Start the workflows of these objects with their observations. Those that run by now have them already."""
        notifier.notify(ChangeSet(nodepools=pools, nodeclasses=node_classes), self.synced_kinds, self.now)
        for claim in claims:
            notifier.restart_workflow(claim, self.synced_kinds, self.now)


async def read(kube: KubeAdapters, settings: ControllerSettings, now: datetime) -> Snapshot:
    """Raises Fault when the API server does not respond or rejects a request."""
    snapshot = Snapshot(settings, kube, now=now, number=CLOCK.next_number())

    async def read_kind(resource: resources.Resource) -> None:
        async for item in Objects(kube.client, resource).iterate():
            snapshot.add(resource.plural, item)

    *first, last = READ
    await asyncio.gather(*map(read_kind, first))
    await read_kind(last)
    snapshot.complete()
    return snapshot


Kind = Literal["SearchAttribute", "Cluster", "EC2NodeClass", "NodePool", "NodeClaim"]
ACCEPT_TIMEOUT_SECONDS: Final = 30.0
"""Seconds without an accepted signal after which the rebuild fails."""
_POLL_SECONDS: Final = 0.05


class Discrepancy(Value):
    """An object without its workflow or search attribute, or a workflow without its object."""

    kind: Kind
    name: str
    workflow: str = ""
    """The ID of the workflow."""
    is_orphaned: bool = False
    """True for a workflow whose object is gone; False for a missing workflow."""


async def list_running_workflows(temporal: Client, cluster: str) -> frozenset[str]:
    """The NodeClaim workflows and coordinators that visibility shows.

    Call it before the cluster is read, so that no new workflow looks orphaned."""
    nodeclaim_workflows, coordinators = (
        await list_nodeclaim_workflows(temporal, cluster),
        await list_coordinators(temporal, cluster),
    )
    return frozenset(nodeclaim_workflows) | frozenset(coordinators)


class Rebuild:
    def __init__(self, temporal: Client, snapshot: Snapshot, running: frozenset[str]) -> None:
        self._temporal, self._snapshot, self._running = temporal, snapshot, running
        self._cluster = snapshot.settings.cluster
        self._signal_queue = SignalQueue(temporal, self._cluster)
        self._notifier = snapshot.make_notifier(self._signal_queue)
        self._limit = asyncio.Semaphore(MAX_CONCURRENT_SIGNALS)

    async def find_discrepancies(self) -> list[Discrepancy]:
        """Discrepancies in the order of repair. Raises RPCError."""
        return [
            *await self._missing_attributes(),
            *await self._missing_singletons(),
            *await self._missing_coordinators(),
            *await self._missing_nodeclaim_workflows(),
            *await self._orphaned_workflows(),
        ]

    async def repair(
        self,
        found: Sequence[Discrepancy],
        installation: Installation,
        on_accepted: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`on_accepted` receives the number of signals that Temporal has accepted.

        Raises RPCError, BadInput, and TryLater if Temporal accepts no signal."""
        kinds = {one.kind for one in found}
        if "SearchAttribute" in kinds:
            await register_attributes(self._temporal)
        if singletons := {one.workflow for one in found if one.kind == "Cluster"}:
            # Only missing ones: a running Interruption workflow may know its queue from a worker, unlike this call.
            await start_singletons(self._temporal, installation, only=singletons)
        missing = {kind: {one.name for one in found if one.kind == kind and not one.is_orphaned} for kind in kinds}
        claims = [self._snapshot.cache.nodeclaims[name] for name in sorted(missing.get("NodeClaim", ()))]
        pools, classes = missing.get("NodePool", set()), missing.get("EC2NodeClass", set())
        self._snapshot.start(self._notifier, claims, pools, classes)
        orphaned = [one for one in found if one.is_orphaned]
        for discrepancy in orphaned:
            if discrepancy.kind == "NodeClaim":
                self._notifier.notify_deleted(discrepancy.workflow)
        coordinators = [one.workflow for one in orphaned if one.kind != "NodeClaim"]
        notify_orphaned_coordinators(
            coordinators, self._cluster, self._snapshot.cache, self._notifier, self._signal_queue
        )
        await self._until_sent(on_accepted)

    # --- discrepancies ---

    async def _missing_attributes(self) -> list[Discrepancy]:
        """Empty if these credentials may not list search attributes, which a worker does not need either."""
        existing = await list_attributes(self._temporal)
        if existing is None:
            return []
        return [
            Discrepancy(kind="SearchAttribute", name=name) for name in search_attributes.ALL if name not in existing
        ]

    async def _missing_singletons(self) -> list[Discrepancy]:
        found = await self._unknown_to_temporal(list_singletons(self._cluster), partial(is_open, self._temporal))
        return [Discrepancy(kind="Cluster", name=key.rpartition("/")[2], workflow=key) for key in found]

    async def _missing_coordinators(self) -> list[Discrepancy]:
        kinds = expected_coordinators(self._cluster, self._snapshot.cache)
        found = set(await self._unknown_to_temporal(kinds, partial(is_open, self._temporal)))
        return [Discrepancy(kind=kinds[key][0], name=kinds[key][1], workflow=key) for key in kinds if key in found]

    async def _missing_nodeclaim_workflows(self) -> list[Discrepancy]:
        claims = self._nodeclaims_by_workflow()
        expected = [key for key, claim in claims.items() if needs_workflow(claim)]
        found = set(await self._unknown_to_temporal(expected, partial(is_open, self._temporal)))
        return [
            Discrepancy(kind="NodeClaim", name=one.name, workflow=key) for key, one in claims.items() if key in found
        ]

    async def _orphaned_workflows(self) -> list[Discrepancy]:
        """Workflows without their object. Each verifies that with a live read before it ends."""
        there, cluster = self._snapshot.workflow_ids(), self._cluster
        prefixes: dict[str, Kind] = {
            ids.nodeclass(cluster, ""): "EC2NodeClass",
            ids.nodepool(cluster, ""): "NodePool",
            ids.nodeclaims(cluster): "NodeClaim",
        }
        found = [
            Discrepancy(kind=kind, name=key.removeprefix(prefix).partition("/")[0], workflow=key, is_orphaned=True)
            for prefix, kind in prefixes.items()
            for key in sorted(self._running - there)
            if key.startswith(prefix)
        ]
        ended = set(await self._unknown_to_temporal([one.workflow for one in found], partial(is_open, self._temporal)))
        return [one for one in found if one.workflow not in ended]

    def _nodeclaims_by_workflow(self) -> dict[str, NodeClaimFact]:
        claims = self._snapshot.cache.nodeclaims
        return {self._notifier.workflow_id(claims[name]): claims[name] for name in sorted(claims)}

    # --- requests to Temporal ---

    async def _unknown_to_temporal(self, keys: Iterable[str], exists: Callable[[str], Awaitable[bool]]) -> list[str]:
        """The keys that Temporal itself does not know. Visibility lags, and after a restore it may be older."""

        async def is_known(key: str) -> bool:
            async with self._limit:
                return await exists(key)

        ordered = sorted(keys)
        results = await asyncio.gather(*(is_known(key) for key in ordered))
        return [key for key, known in zip(ordered, results, strict=True) if not known]

    async def _until_sent(self, on_accepted: Callable[[int], None]) -> None:
        sending = asyncio.create_task(self._signal_queue.run())
        try:
            await self._wait_until_accepted(on_accepted)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _wait_until_accepted(self, on_accepted: Callable[[int], None]) -> None:
        loop, count = asyncio.get_running_loop(), self._signal_queue.count
        since = loop.time()
        while not self._signal_queue.is_idle:
            if self._signal_queue.count != count:
                count, since = self._signal_queue.count, loop.time()
                on_accepted(count)
            if loop.time() - since > ACCEPT_TIMEOUT_SECONDS:
                raise TryLater(f"Temporal accepted nothing for {ACCEPT_TIMEOUT_SECONDS:.0f} s, after {count} workflows")
            await asyncio.sleep(_POLL_SECONDS)
