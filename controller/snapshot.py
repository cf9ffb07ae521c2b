"""The cluster as it is at one moment, and what a watch would tell workflows of it: for `rebuild.py`.

The same caches, digests and starts as those of `session.py`, fed by one list of each kind and by nothing after it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from controller import gates
from controller.away import Away
from controller.brake import ClusterBrake
from controller.caches import Caches
from controller.demand import wants_a_plan
from controller.dirty import Dirty
from controller.nodelives import NodeLives
from controller.nominations import Nominations
from controller.policies import Policies, PolicyPort
from controller.rooms import Rooms
from controller.settings import HostSettings
from controller.signaller import Signaller
from controller.startup import Startup
from controller.telling import Known, Telling
from controller.unplanned import UNPLANNED
from kube import resources
from kube.adapters import KubeAdapters
from kube.errors import Json
from kube.listwatch import Delta
from kube.objects import Objects
from model.facts import ClaimFact

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
