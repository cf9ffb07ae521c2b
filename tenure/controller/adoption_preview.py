"""What a worker would make of a cluster that another controller runs: the worker's own code over one reading of it.

`tenure adopt --dry-run` asks. Nothing is written, nothing is made in AWS, and no Temporal is needed: the objects are
read once, laid into the watch's caches as they would be after Tenure's first pass, and judged there.

Objects of a cluster that another controller runs, as Tenure's first pass would leave them. Pure.

`shadow.py` lays them into the watch's caches and judges there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from pydantic import ValidationError

from activities.ports.core import Instances, Offerings
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash, nodepool_hash
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.controller import settings
from tenure.controller.cache.availability import Away, Holding
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.disruption.budgets import Allowing
from tenure.controller.disruption.controller import Disrupting
from tenure.controller.disruption.controller import settings as disruption_settings
from tenure.controller.disruption.facade import Showing
from tenure.controller.drift import Drifting
from tenure.controller.lifecycle_policies import Policies
from tenure.controller.planning.planner_process import Filling
from tenure.controller.session import WATCHED
from tenure.controller.settings import HostSettings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.garbage_collection import claim_mark
from tenure.kube.client import resources
from tenure.kube.client.errors import Json
from tenure.kube.client.list_watch import Delta
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import Resource
from tenure.model.errors import Fault, NotFound
from tenure.model.facts import ClaimFact, NodeFact, PodFact
from tenure.model.instance_types import InstanceType
from tenure.model.nodeclaim_state import Phase
from tenure.model.operator_requests import ShowAsked, Shown
from tenure.model.provider_results import InstanceFacts, Resolved
from tenure.model.provisioning import Plan
from tenure.policy.disruption.drift import Drift
from tenure.policy.garbage_collection import decide_unowned
from tenure.policy.lifecycle.adoption import decide_first_phase, decide_stamp

_READERS: Final[Mapping[str, type[NodePool] | type[NodeClaim] | type[EC2NodeClass]]] = {
    resources.NODE_POOLS.plural: NodePool,
    resources.NODE_CLAIMS.plural: NodeClaim,
    resources.EC2_NODE_CLASSES.plural: EC2NodeClass,
}


def taken_over(objects: Mapping[str, Sequence[Json]], resolved: Mapping[str, Resolved]) -> dict[str, Sequence[Json]]:
    """The objects as Tenure's first pass leaves them: classes resolved, and stamps of its own version of the hash."""
    classes = [
        _class_taken(one, resolved.get(one["metadata"]["name"])) for one in objects[resources.EC2_NODE_CLASSES.plural]
    ]
    by_class = {one["metadata"]["name"]: _note(one, labels.NODECLASS_HASH) for one in classes if _is_stamped(one)}
    by_pool = {
        one["metadata"]["name"]: nodepool_hash(NodePool.from_object(one))
        for one in objects[resources.NODE_POOLS.plural]
    }
    claims = [_claim_taken(one, by_pool, by_class) for one in objects[resources.NODE_CLAIMS.plural]]
    kinds = {**objects, resources.EC2_NODE_CLASSES.plural: classes, resources.NODE_CLAIMS.plural: claims}
    kinds.pop(resources.LIFECYCLE_POLICIES.plural, None)
    # Pods of CapacityBuffers have a reader of their own, and are nobody's yet.
    for kind in settings.kinds((settings.CAPACITY_BUFFER,)):
        kinds.pop(kind.plural, None)
    return kinds


def _class_taken(raw: Json, resolved: Resolved | None) -> Json:
    if resolved is None:
        return raw
    metadata, status = raw["metadata"], dict(raw.get("status") or {})
    generation = metadata.get("generation", 0)
    conditions = [
        {**one, "observedGeneration": generation} if one["type"] == labels.READY else one
        for one in status.get("conditions") or ()
    ]
    notes = dict(metadata.get("annotations") or {})
    if resolved.ca_bundle is not None:
        stamp = nodeclass_hash(EC2NodeClass.from_object(raw), ca_bundle=resolved.ca_bundle)
        notes |= {labels.NODECLASS_HASH: stamp, labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    return {
        **raw,
        "metadata": {**metadata, "annotations": notes},
        "status": {**status, **resolved.status, "conditions": conditions},
    }


def _claim_taken(raw: Json, by_pool: Mapping[str, str], by_class: Mapping[str, str]) -> Json:
    metadata, claim = raw["metadata"], NodeClaim.from_object(raw)
    notes = dict(metadata.get("annotations") or {})
    drifted, deleting = claim.is_true(labels.DRIFTED), claim.metadata.deleting
    stamps = (
        (by_pool.get(claim.nodepool), labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION),
        (
            by_class.get(claim.spec.node_class_ref.name) if claim.status.provider_id else None,
            labels.NODECLASS_HASH,
            labels.NODECLASS_HASH_VERSION,
        ),
    )
    for value, key, version in stamps:
        if value is not None:
            notes |= decide_stamp(notes, value, key=key, version=version, drifted=drifted, deleting=deleting)
    return {**raw, "metadata": {**metadata, "annotations": notes}}


def readable(
    objects: Mapping[str, Sequence[Json]],
) -> tuple[dict[str, Sequence[Json]], tuple[tuple[str, str, str], ...]]:
    """Without those that a worker would leave out, and what is wrong with each of these."""
    good: dict[str, Sequence[Json]] = dict(objects)
    bad: list[tuple[str, str, str]] = []
    for plural, reader in _READERS.items():
        kept = []
        for one in objects.get(plural, ()):
            try:
                reader.from_object(one)
                if reader is NodePool:
                    nodepool_hash(NodePool.from_object(one))
            except (ValueError, KeyError, ValidationError) as error:
                bad.append((reader.__name__, one["metadata"]["name"], _said(error)))
            else:
                kept.append(one)
        good[plural] = kept
    return good, tuple(bad)


def _said(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}; it is {first['input']!r:.60}"
    return str(error)[:200]


def _is_stamped(node_class: Json) -> bool:
    return _note(node_class, labels.NODECLASS_HASH_VERSION) == HASH_VERSION


def _note(raw: Json, key: str) -> str:
    return str((raw["metadata"].get("annotations") or {}).get(key, ""))


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
        kinds: Sequence[Resource] = (*WATCHED, *settings.kinds(self._settings.gates))
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
            settings=disruption_settings(spot_to_spot=settings.SPOT_TO_SPOT in self._settings.gates),
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
