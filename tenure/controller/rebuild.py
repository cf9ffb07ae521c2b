"""Workflows and Schedules that a cluster should have in Temporal and has not, and the start of them.

For `tenure rebuild`, after Temporal's database was lost or set back. What is started is started by the very code that
the watch (`telling.py`) and the worker (`temporal.py`, `schedules.py`) start it with: whoever comes first, it is there
once.

The cluster as it is at one moment, and what a watch would tell workflows of it: for `rebuild.py`.

The same caches, digests and starts as those of `session.py`, fed by one list of each kind and by nothing after it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller import settings as gates
from tenure.controller.cache.availability import Away
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.lifecycle_policies import Policies, PolicyPort
from tenure.controller.planning.replanning import UNPLANNED
from tenure.controller.resync import needs_life, open_coordinators, open_lives, retire
from tenure.controller.settings import HostSettings
from tenure.controller.signals.disruption_trigger import Rooms
from tenure.controller.signals.lifecycle_observers import NodeLives
from tenure.controller.signals.notifier import Known, Telling
from tenure.controller.signals.pending_pods import wants_a_plan
from tenure.controller.signals.signaller import AT_ONCE, Signaller
from tenure.controller.startup_durations import Startup
from tenure.controller.temporal.client import start_singletons
from tenure.controller.temporal.namespace import listed, register_attributes, start_schedules
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.kube.client.errors import Json
from tenure.kube.client.list_watch import Delta
from tenure.kube.client.objects import Objects
from tenure.model.base import Value
from tenure.model.errors import TryLater
from tenure.model.facts import ClaimFact
from tenure.model.workflow_states import BatchWindow
from workflows import ids, search_attributes
from workflows.garbage_collection import TASKS

READ: Final = (
    resources.EC2_NODE_CLASSES,
    resources.LIFECYCLE_POLICIES,
    resources.NAMESPACES,
    resources.NODE_POOLS,
    resources.NODES,
    resources.PODS,
    # Last: what is younger than the workflows that were listed before may have none yet, and none is taken for gone.
    resources.NODE_CLAIMS,
)


class Snapshot:
    def __init__(
        self,
        settings: HostSettings,
        objects: Mapping[str, Sequence[Json]],
        policies: PolicyPort,
        *,
        now: datetime,
        number: int,
    ) -> None:
        """`objects` by the plural of their kind. `number`: of all that is told; what a watch saw later is newer."""
        self.settings, self.now = settings, now
        self.caches = Caches(lambda: now)
        self._policies = Policies(self.caches, policies, usual=settings.deadlines, now=lambda: now)
        self._brake = ClusterBrake(settings.namespace, self.caches)
        for plural, found in objects.items():
            self._hear(plural, [Delta(one) for one in found])
        self._number = number
        self._lives = self._look()

    def telling(self, signaller: Signaller) -> Telling:
        """Tells through this signaller; of nothing before it is asked to."""
        settings = self.settings
        return Telling(
            cluster=settings.cluster,
            deadlines=settings.deadlines,
            caches=self.caches,
            nominations=Nominations(),
            away=Away(self.caches, self._policies.grace_of),
            signaller=signaller,
            began=self.now,
            number=lambda: self._number,
            lives=self._lives,
            static_capacity=gates.STATIC_CAPACITY in settings.gates,
            node_repair=gates.NODE_REPAIR in settings.gates,
        )

    @property
    def known(self) -> Known:
        """All of it; but no plan has said yet where pods that wait will go."""
        until = self.now + UNPLANNED if wants_a_plan(self.caches, self.now) else None
        return Known(claims=True, nodes=True, pods=True, pools=True, node_classes=True, unplanned=until)

    def start(self, telling: Telling, claims: Sequence[ClaimFact], pools: set[str], node_classes: set[str]) -> None:
        """Workflows of these, each with what there is to tell it; those that run meanwhile know it already."""
        telling.tell(Dirty(pools=pools, node_classes=node_classes), self.known, self.now)
        for claim in claims:
            telling.revive(claim, self.known, self.now)

    def _hear(self, plural: str, deltas: list[Delta]) -> None:
        if plural == resources.LIFECYCLE_POLICIES.plural:
            self._policies.hear(deltas)
            return
        if plural == resources.NAMESPACES.plural:
            self._brake.hear(deltas)
        self.caches.hear(plural, deltas)

    def _look(self) -> NodeLives:
        caches, rules_of = self.caches, self._policies.rules_of
        rooms = Rooms(caches, rules_of=rules_of, drifted=lambda one: False)
        lives = NodeLives(self._policies, Startup(caches, self._policies.deadlines_of), (), self._brake, rooms)
        lives.look(caches.take_dirty(), True, counted=True)
        return lives


async def read(kube: KubeAdapters, settings: HostSettings, now: datetime) -> Snapshot:
    """Raises Fault where the API server does not answer or refuses."""
    number = time.time_ns()
    *first, last = READ
    lists = await asyncio.gather(*(Objects(kube.client, one).list() for one in first))
    objects = {one.plural: found for one, found in zip(first, lists, strict=True)}
    objects[last.plural] = await Objects(kube.client, last).list()
    return Snapshot(settings, objects, kube.lifecycle_policies, now=now, number=number)


Kind = Literal["SearchAttribute", "Cluster", "Schedule", "EC2NodeClass", "NodePool", "NodeClaim"]
SILENCE: Final = 30.0
"""Seconds in which Temporal accepts nothing, after which nobody waits any longer."""
_LOOK_EVERY: Final = 0.05


class Astray(Value):
    """Something that is in the cluster and not in Temporal, or the other way round."""

    kind: Kind
    name: str
    workflow: str = ""
    """Its id, or that of the Schedule."""
    gone: bool = False
    """A workflow runs whose object is gone; else it is the workflow that is missing."""


async def running(temporal: Client, cluster: str) -> frozenset[str]:
    """The lives and coordinators that visibility shows.

    To be asked before the cluster is read: then no workflow is taken for one whose object is gone."""
    lives, coordinators = await open_lives(temporal, cluster), await open_coordinators(temporal, cluster)
    return frozenset(lives) | frozenset(coordinators)


class Rebuild:
    """`look`, then `mend` what was found, once."""

    def __init__(self, temporal: Client, snapshot: Snapshot, seen: frozenset[str]) -> None:
        self._temporal, self._snapshot, self._seen = temporal, snapshot, seen
        self._cluster = snapshot.settings.cluster
        self._signaller = Signaller(temporal, snapshot.settings.task_queue, {})
        self._telling = snapshot.telling(self._signaller)
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def look(self) -> list[Astray]:
        """In the order in which it is mended. Raises RPCError."""
        return [
            *await self._attributes(),
            *await self._singletons(),
            *await self._schedules(),
            *await self._coordinators(),
            *await self._lives(),
            *await self._orphans(),
        ]

    async def mend(self, found: Sequence[Astray], window: BatchWindow, *, events: str = "") -> None:
        """`events`: the queue of EC2's. Raises RPCError, BadInput, and TryLater where Temporal stops accepting."""
        kinds = {one.kind for one in found}
        if "SearchAttribute" in kinds:
            await register_attributes(self._temporal)
        if singletons := {one.workflow for one in found if one.kind == "Cluster"}:
            # No others: one that reads a queue may know it from a worker, and these settings may not.
            await start_singletons(self._temporal, self._cluster, window, events=events, only=singletons)
        if "Schedule" in kinds:
            await start_schedules(self._temporal, self._cluster)
        missing = {kind: {one.name for one in found if one.kind == kind and not one.gone} for kind in kinds}
        claims = [self._snapshot.caches.claims[name] for name in sorted(missing.get("NodeClaim", ()))]
        pools, classes = missing.get("NodePool", set()), missing.get("EC2NodeClass", set())
        self._snapshot.start(self._telling, claims, pools, classes)
        gone = [one for one in found if one.gone]
        for life in gone:
            if life.kind == "NodeClaim":
                self._telling.say_gone(life.workflow)
        coordinators = [one.workflow for one in gone if one.kind != "NodeClaim"]
        retire(coordinators, self._cluster, self._snapshot.caches, self._telling)
        await self._until_sent()

    # --- what is missing ---

    async def _attributes(self) -> list[Astray]:
        """None where these credentials may not see them, as a worker's need not."""
        there = await listed(self._temporal)
        if there is None:
            return []
        return [Astray(kind="SearchAttribute", name=name) for name in search_attributes.ALL if name not in there]

    async def _singletons(self) -> list[Astray]:
        wanted = [make(self._cluster) for make in (ids.watch, ids.provisioning, ids.cluster, ids.interruption)]
        found = await self._without(wanted, self._is_open)
        return [Astray(kind="Cluster", name=key.rpartition("/")[2], workflow=key) for key in found]

    async def _schedules(self) -> list[Astray]:
        wanted = {ids.upkeep(self._cluster, name): name for name in TASKS}
        found = await self._without(wanted, self._is_scheduled)
        return [Astray(kind="Schedule", name=wanted[key], workflow=key) for key in found]

    async def _coordinators(self) -> list[Astray]:
        caches = self._snapshot.caches
        kinds: dict[str, tuple[Kind, str]] = {
            **{ids.nodeclass(self._cluster, name): ("EC2NodeClass", name) for name in sorted(caches.node_classes)},
            **{ids.nodepool(self._cluster, name): ("NodePool", name) for name in sorted(caches.pools)},
        }
        found = set(await self._without(kinds, self._is_open))
        return [Astray(kind=kinds[key][0], name=kinds[key][1], workflow=key) for key in kinds if key in found]

    async def _lives(self) -> list[Astray]:
        claims = self._claims()
        wanted = [key for key, claim in claims.items() if needs_life(claim)]
        found = set(await self._without(wanted, self._is_open))
        return [Astray(kind="NodeClaim", name=one.name, workflow=key) for key, one in claims.items() if key in found]

    async def _orphans(self) -> list[Astray]:
        """Workflows without their object; each looks for itself before it believes that."""
        caches, cluster = self._snapshot.caches, self._cluster
        pools, classes, lives = ids.nodepool(cluster, ""), ids.nodeclass(cluster, ""), f"{cluster}/nodeclaim/"
        objects: dict[str, tuple[Kind, set[str]]] = {
            classes: ("EC2NodeClass", {f"{classes}{name}" for name in caches.node_classes}),
            pools: ("NodePool", {f"{pools}{name}" for name in caches.pools}),
            lives: ("NodeClaim", set(self._claims())),
        }
        found = [
            Astray(kind=kind, name=key.removeprefix(prefix).partition("/")[0], workflow=key, gone=True)
            for prefix, (kind, there) in objects.items()
            for key in sorted(self._seen)
            if key.startswith(prefix) and key not in there
        ]
        ended = set(await self._without([one.workflow for one in found], self._is_open))
        return [one for one in found if one.workflow not in ended]

    def _claims(self) -> dict[str, ClaimFact]:
        claims = self._snapshot.caches.claims
        return {self._telling.workflow_id(claims[name]): claims[name] for name in sorted(claims)}

    # --- asking, and waiting ---

    async def _without(self, keys: Iterable[str], there: Callable[[str], Awaitable[bool]]) -> list[str]:
        """Those that Temporal itself does not know, whatever visibility shows: that comes later, and after a restore it
        may be of another time."""

        async def asked(key: str) -> bool:
            async with self._limit:
                return await there(key)

        wanted = sorted(keys)
        answers = await asyncio.gather(*(asked(key) for key in wanted))
        return [key for key, known in zip(wanted, answers, strict=True) if not known]

    async def _is_open(self, key: str) -> bool:
        try:
            described = await self._temporal.get_workflow_handle(key).describe()
        except RPCError as error:
            return _absent(error)
        return described.status is WorkflowExecutionStatus.RUNNING

    async def _is_scheduled(self, key: str) -> bool:
        try:
            await self._temporal.get_schedule_handle(key).describe()
        except RPCError as error:
            return _absent(error)
        return True

    async def _until_sent(self) -> None:
        sending = asyncio.create_task(self._signaller.run())
        try:
            await self._accepted()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _accepted(self) -> None:
        loop, count = asyncio.get_running_loop(), self._signaller.count
        since = loop.time()
        while not self._signaller.idle:
            if self._signaller.count != count:
                count, since = self._signaller.count, loop.time()
            if loop.time() - since > SILENCE:
                raise TryLater(f"Temporal accepted nothing for {SILENCE:.0f} s, after {count} workflows")
            await asyncio.sleep(_LOOK_EVERY)


def _absent(error: RPCError) -> bool:
    """False: it is not there. Raises what says something else."""
    if error.status is not RPCStatusCode.NOT_FOUND:
        raise error
    return False
