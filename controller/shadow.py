"""What a worker would make of a cluster that another controller runs: the worker's own code over one reading of it.

`tenure adopt --dry-run` asks. Nothing is written, nothing is made in AWS, and no Temporal is needed: the objects are
read once, laid into the watch's caches as they would be after Tenure's first pass, and judged there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from activities.ports import Instances, Offerings
from controller import gates
from controller.allowing import Allowing
from controller.away import Away
from controller.brake import ClusterBrake
from controller.caches import Caches
from controller.disrupting import Disrupting
from controller.disrupting import settings as disruption_settings
from controller.drift import Drifting
from controller.filling import Filling
from controller.holding import Holding
from controller.nominations import Nominations
from controller.policies import Policies
from controller.session import WATCHED
from controller.settings import HostSettings
from controller.showing import Showing
from controller.taken_over import readable, taken_over
from kube import resources
from kube.adapters import KubeAdapters
from kube.errors import Json
from kube.inventory import claim_mark
from kube.listwatch import Delta
from kube.objects import Objects
from kube.resources import Resource
from model.catalogue import InstanceType
from model.facts import ClaimFact, NodeFact, PodFact
from model.faults import Fault, NotFound
from model.kinds import EC2NodeClass
from model.lifecycle import Phase
from model.outcomes import InstanceFacts, Resolved
from model.plans import Plan
from model.showing import ShowAsked, Shown
from policy.adoption import decide_first_phase
from policy.drift import Drift
from policy.upkeep import decide_unowned


class Previews(Protocol):
    """`aws.node_class` satisfies it."""

    async def preview(self, node_class: EC2NodeClass) -> Resolved: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A NodeClaim as it would be taken over."""

    claim: ClaimFact
    phase: Phase
    """In which its life would begin."""
    node: NodeFact | None
    instance: InstanceFacts | None
    tagged: bool
    """EC2 lists its instance by the tags that Tenure looks for."""
    drift: Drift | None
    """What Tenure would say; `claim.drifted` is what its condition says now."""
    judged: bool
    """Instance types and NodeClass are known, so that no drift is no drift."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    at: datetime
    objects: Mapping[str, Sequence[Json]]
    """As they are, by plural."""
    unreadable: tuple[tuple[str, str, str], ...]
    """Kind, name, and what is wrong: a worker would leave these out."""
    claims: tuple[Taken, ...] = ()
    classes: Mapping[str, Resolved] = field(default_factory=dict)
    """What their selectors mean now, by name."""
    unowned: tuple[InstanceFacts, ...] = ()
    """That upkeep would end."""
    pods: Mapping[str, PodFact] = field(default_factory=dict)
    plan: Plan | None = None
    """For the pods that wait; None where none could be made, for the reason that `shown` has."""
    types: Mapping[str, Mapping[str, InstanceType]] = field(default_factory=dict)
    """By NodePool and name."""
    shown: Shown = field(default_factory=Shown)


class Shadow:
    def __init__(
        self,
        *,
        settings: HostSettings,
        kube: KubeAdapters,
        offerings: Offerings,
        instances: Instances,
        resolver: Previews,
        now: Callable[[], datetime],
    ) -> None:
        self._settings, self._kube, self._now = settings, kube, now
        self._offerings, self._instances, self._resolver = offerings, instances, resolver

    async def look(self) -> Foreseen:
        """Raises model.faults where the API server or EC2 does not answer."""
        objects, unreadable = readable(await self._read())
        ours = [
            EC2NodeClass.from_object(one) for one in objects[resources.EC2_NODE_CLASSES.plural] if not _deleting(one)
        ]
        answers = await asyncio.gather(*(self._resolver.preview(one) for one in ours))
        resolved = {one.name: answer for one, answer in zip(ours, answers, strict=True)}
        caches = Caches(self._now)
        for kind, raw in taken_over(objects, resolved).items():
            caches.hear(kind, [Delta(one) for one in raw])
        return await self._judge(objects, unreadable, resolved, caches)

    async def _read(self) -> dict[str, list[Json]]:
        """A kind that is not installed has no objects."""
        kinds: Sequence[Resource] = (*WATCHED, *gates.kinds(self._settings.gates))
        found = await asyncio.gather(*(self._list(kind) for kind in kinds))
        return {kind.plural: objects for kind, objects in zip(kinds, found, strict=True)}

    async def _list(self, kind: Resource) -> list[Json]:
        try:
            return await Objects(self._kube.client, kind).list()
        except NotFound:
            return []

    async def _judge(
        self,
        objects: Mapping[str, Sequence[Json]],
        unreadable: tuple[tuple[str, str, str], ...],
        resolved: Mapping[str, Resolved],
        caches: Caches,
    ) -> Foreseen:
        policies = self._policies(objects, caches)
        filling = Filling(
            caches=caches,
            offerings=self._offerings,
            events=_Silent(),
            settings=self._settings.planning,
            now=self._now,
        )
        try:
            plan = await self._plan(caches, filling, policies)
            shown = await self._show(objects, caches, filling, policies)
        finally:
            await filling.close()
        drifting = Drifting(
            caches=caches,
            types=filling.catalogue.types_of,
            instances=self._instances,
            events=_Silent(),
            now=self._now,
        )
        drifting.look_at_all()
        await drifting.look()
        listed = {one.instance_id: one for one in await self._instances.list_managed()}
        catalogue = filling.catalogue.catalogue.by_node_class
        marks = [claim_mark(one) for one in objects[resources.NODE_CLAIMS.plural]]
        return Foreseen(
            at=self._now(),
            objects=objects,
            unreadable=unreadable,
            claims=tuple(await self._take(caches, drifting, filling, listed)),
            classes=resolved,
            unowned=tuple(decide_unowned(listed.values(), marks, cluster=self._settings.cluster, now=self._now())),
            pods=dict(caches.pods),
            plan=plan,
            types={
                name: {one.name: one for one in catalogue.get(view.fact.node_class, ())}
                for name, view in caches.pools.items()
            },
            shown=shown,
        )

    def _policies(self, objects: Mapping[str, Sequence[Json]], caches: Caches) -> Policies:
        found = Policies(caches, self._kube.lifecycle_policies, usual=self._settings.deadlines, now=self._now)
        found.hear(Delta(one) for one in objects.get(resources.LIFECYCLE_POLICIES.plural, ()))
        found.look(caches.take_dirty())
        return found

    async def _plan(self, caches: Caches, filling: Filling, policies: Policies) -> Plan | None:
        async with filling.lock:
            process = await filling.fill()
            if filling.doubt():
                return None
            now = self._now()
            goods = await filling.goods(now)
            return await process.provision(
                now=now,
                unavailable=goods.unavailable,
                not_ready_grace=self._settings.not_ready_grace,
                pool_graces=dict(policies.graces()),
                reservations=goods.reservations,
            )

    async def _show(
        self, objects: Mapping[str, Sequence[Json]], caches: Caches, filling: Filling, policies: Policies
    ) -> Shown:
        nominations, brake = Nominations(caches.owner_of), ClusterBrake(self._settings.namespace, caches)
        brake.hear(Delta(one) for one in objects[resources.NAMESPACES.plural])
        disrupting = Disrupting(
            caches=caches,
            filling=filling,
            nominations=nominations,
            away=Away(caches, policies.grace_of),
            allowing=Allowing(caches, policies.rules_of, policies.unread_of),
            claims=self._kube.claims,
            events=_Silent(),
            settings=disruption_settings(spot_to_spot=gates.SPOT_TO_SPOT in self._settings.gates),
            not_ready_grace=self._settings.not_ready_grace,
            graces=policies.graces,
            now=self._now,
            paused=Holding(caches, brake),
        )
        return await Showing(caches, disrupting).show(ShowAsked(cluster=self._settings.cluster))

    async def _take(
        self, caches: Caches, drifting: Drifting, filling: Filling, listed: Mapping[str, InstanceFacts]
    ) -> list[Taken]:
        async def take(claim: ClaimFact) -> Taken:
            wanted = claim.provider_id.rpartition("/")[2]
            node_class = caches.node_classes.get(claim.node_class)
            return Taken(
                claim=claim,
                phase=decide_first_phase(claim),
                node=next(iter(caches.nodes_of(claim)), None),
                instance=listed.get(wanted) or (await self._instance(wanted) if wanted else None),
                tagged=wanted in listed,
                drift=drifting.of(claim),
                judged=node_class is not None and filling.catalogue.types_of(node_class) is not None,
            )

        return list(await asyncio.gather(*(take(caches.claims[name]) for name in sorted(caches.claims))))

    async def _instance(self, instance_id: str) -> InstanceFacts | None:
        try:
            return await self._instances.get(instance_id)
        except Fault:
            return None


class _Silent:
    """Satisfies `activities.ports.Events`: whoever only looks tells nobody."""

    async def publish(self, **said: Any) -> None:
        return


def _deleting(raw: Json) -> bool:
    return "deletionTimestamp" in raw["metadata"]
