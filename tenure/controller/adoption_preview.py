"""`tenure adopt --dry-run`: a preview of a worker's actions in a cluster that another controller manages.

It writes and launches nothing, and needs no Temporal. It reads the objects once, puts them into a cache as Tenure's
first pass would leave them, and evaluates them there."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from pydantic import ValidationError

from activities.ports.core import Instances, Offerings
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.apis.hash import HASH_VERSION, nodeclass_hash, nodepool_hash
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.controller import settings
from tenure.controller.cache.availability import ActivePauses
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.disruption.cached_budgets import NodePoolBudgets
from tenure.controller.disruption.controller import DisruptionController
from tenure.controller.disruption.controller import make_disruption_settings as disruption_settings
from tenure.controller.disruption.facade import DisruptionPreviewer
from tenure.controller.drift import DriftDetector
from tenure.controller.lifecycle_policies import LifecyclePolicies
from tenure.controller.planning.planner_process import PlannerClient
from tenure.controller.settings import ControllerSettings
from tenure.controller.watched_cluster import OPTIONAL_KINDS, WATCHED, WatchedCluster
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client import resources
from tenure.kube.client.errors import Json
from tenure.kube.client.list_watch import Delta
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import Resource
from tenure.kube.facts.objects import nodeclaim_fact, nodepool_fact
from tenure.model.base import first_validation_error, instance_id_of
from tenure.model.errors import Fault, Forbidden, NotFound
from tenure.model.facts import NodeClaimFact, NodeFact, PodFact
from tenure.model.instance_types import InstanceType
from tenure.model.nodeclaim.state import Phase
from tenure.model.operator_requests import DisruptionPreviewRequest, DisruptionStatus
from tenure.model.plan import Plan
from tenure.model.provider_results import InstanceFacts, ResolvedNodeClass
from tenure.policy.disruption.drift import Drift
from tenure.policy.garbage_collection import decide_orphaned_instances
from tenure.policy.lifecycle.adoption import decide_first_phase, decide_stamp

_READERS: Final[Mapping[str, Sequence[Callable[[Json], object]]]] = {
    resources.NODE_POOLS.plural: (lambda one: nodepool_hash(NodePool.from_object(one)), nodepool_fact),
    resources.NODE_CLAIMS.plural: (NodeClaim.from_object, nodeclaim_fact),
    resources.EC2_NODE_CLASSES.plural: (EC2NodeClass.from_object,),
}


def adopt_objects(
    objects: Mapping[str, Sequence[Json]], resolved: Mapping[str, ResolvedNodeClass]
) -> dict[str, Sequence[Json]]:
    """The objects after Tenure's first pass: NodeClasses are resolved, and hashes have Tenure's hash version."""
    classes = [
        _adopt_nodeclass(one, resolved.get(one["metadata"]["name"]))
        for one in objects[resources.EC2_NODE_CLASSES.plural]
    ]
    by_class = {one["metadata"]["name"]: _annotation(one, labels.NODECLASS_HASH) for one in classes if _is_stamped(one)}
    by_pool = {
        one["metadata"]["name"]: nodepool_hash(NodePool.from_object(one))
        for one in objects[resources.NODE_POOLS.plural]
    }
    claims = [_adopt_nodeclaim(one, by_pool, by_class) for one in objects[resources.NODE_CLAIMS.plural]]
    kinds = {**objects, resources.EC2_NODE_CLASSES.plural: classes, resources.NODE_CLAIMS.plural: claims}
    # Virtual pods of CapacityBuffers have a separate reader.
    for kind in settings.gated_kinds((FeatureGate.CAPACITY_BUFFER,)):
        kinds.pop(kind.plural, None)
    return kinds


def _adopt_nodeclass(raw: Json, resolved: ResolvedNodeClass | None) -> Json:
    if resolved is None:
        return raw
    metadata, status = raw["metadata"], dict(raw.get("status") or {})
    generation = metadata.get("generation", 0)
    conditions = [
        {**one, "observedGeneration": generation} if one["type"] == labels.READY else one
        for one in status.get("conditions") or ()
    ]
    annotations = dict(metadata.get("annotations") or {})
    if resolved.ca_bundle is not None:
        stamp = nodeclass_hash(EC2NodeClass.from_object(raw), ca_bundle=resolved.ca_bundle)
        annotations |= {labels.NODECLASS_HASH: stamp, labels.NODECLASS_HASH_VERSION: HASH_VERSION}
    return {
        **raw,
        "metadata": {**metadata, "annotations": annotations},
        "status": {**status, **resolved.status, "conditions": conditions},
    }


def _adopt_nodeclaim(raw: Json, by_pool: Mapping[str, str], by_class: Mapping[str, str]) -> Json:
    metadata, claim = raw["metadata"], NodeClaim.from_object(raw)
    annotations = dict(metadata.get("annotations") or {})
    drifted, deleting = claim.is_true(labels.DRIFTED), claim.metadata.is_deleting
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
            annotations |= decide_stamp(
                annotations, value, key=key, version=version, drifted=drifted, deleting=deleting
            )
    return {**raw, "metadata": {**metadata, "annotations": annotations}}


def partition_readable(
    objects: Mapping[str, Sequence[Json]],
) -> tuple[dict[str, Sequence[Json]], tuple[tuple[str, str, str], ...]]:
    """The readable objects by plural, and the kind, name and problem of each object that a worker would skip."""
    good: dict[str, Sequence[Json]] = dict(objects)
    bad: list[tuple[str, str, str]] = []
    for plural, readers in _READERS.items():
        valid = []
        for one in objects.get(plural, ()):
            try:
                for read in readers:
                    read(one)
            except (ValueError, KeyError) as error:
                bad.append((resources.KINDS[plural], one["metadata"]["name"], _format_error(error)))
            else:
                valid.append(one)
        good[plural] = valid
    return good, tuple(bad)


def _format_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        field, problem, value = first_validation_error(error)
        return f"{field}: {problem}; it is {value!r:.60}"
    return str(error)[:200]


def _is_stamped(node_class: Json) -> bool:
    return _annotation(node_class, labels.NODECLASS_HASH_VERSION) == HASH_VERSION


def _annotation(raw: Json, key: str) -> str:
    return str((raw["metadata"].get("annotations") or {}).get(key, ""))


class NodeClassPreviewer(Protocol):
    """`aws.node_class` implements it."""

    async def preview(self, node_class: EC2NodeClass) -> ResolvedNodeClass: ...


@dataclass(frozen=True, slots=True)
class AdoptedNodeClaim:
    claim: NodeClaimFact
    phase: Phase
    """The first phase of its workflow."""
    node: NodeFact | None
    instance: InstanceFacts | None
    """None if EC2 has no such instance, or if `fault` is set."""
    tagged: bool
    """Whether EC2 lists its instance by the tags that Tenure selects."""
    drift: Drift | None
    """Drift as Tenure evaluates it; `claim.drifted` is its present condition."""
    is_evaluated: bool
    """Whether instance types and NodeClass are known. If not, `drift` None means unknown."""
    fault: str = ""
    """Why EC2 could not be asked for the instance."""


@dataclass(frozen=True, slots=True)
class AdoptionPreview:
    at: datetime
    objects: Mapping[str, Sequence[Json]]
    """Unchanged, by plural."""
    unreadable: tuple[tuple[str, str, str], ...]
    """Kind, name and problem of each object that a worker would skip."""
    claims: tuple[AdoptedNodeClaim, ...] = ()
    classes: Mapping[str, ResolvedNodeClass] = field(default_factory=dict)
    """By NodeClass name, with the current results of its selectors."""
    unowned: tuple[InstanceFacts, ...] = ()
    """Instances that garbage collection would terminate."""
    pods: Mapping[str, PodFact] = field(default_factory=dict)
    plan: Plan | None = None
    """For pending pods; None if no plan was possible, with the reason in `disruption_status`."""
    types: Mapping[str, Mapping[str, InstanceType]] = field(default_factory=dict)
    """By NodePool and name."""
    disruption_status: DisruptionStatus = field(default_factory=DisruptionStatus)


class AdoptionPreviewer:
    def __init__(
        self,
        *,
        settings: ControllerSettings,
        kube: KubeAdapters,
        offerings: Offerings,
        instances: Instances,
        resolver: NodeClassPreviewer,
        now: Callable[[], datetime],
    ) -> None:
        self._settings, self._kube, self._now = settings, kube, now
        self._offerings, self._instances, self._resolver = offerings, instances, resolver

    async def preview(self) -> AdoptionPreview:
        """Raises Fault when the API server or EC2 does not respond."""
        objects, unreadable = partition_readable(await self._read())
        ours = [
            EC2NodeClass.from_object(one) for one in objects[resources.EC2_NODE_CLASSES.plural] if not _is_deleting(one)
        ]
        results = await asyncio.gather(*(self._resolver.preview(one) for one in ours))
        resolved = {one.name: result for one, result in zip(ours, results, strict=True)}
        cluster = WatchedCluster(self._settings, self._kube, self._now)
        for kind, raw in adopt_objects(objects, resolved).items():
            cluster.on_deltas(kind, [Delta(one) for one in raw])
        cluster.policies.update(cluster.cache.drain_changes())
        return await self._evaluate(objects, unreadable, resolved, cluster)

    async def _read(self) -> dict[str, list[Json]]:
        """A kind that is not installed has no objects."""
        kinds: Sequence[Resource] = (*WATCHED, *OPTIONAL_KINDS, *settings.additional_kinds(self._settings))
        found = await asyncio.gather(*(self._list(kind) for kind in kinds))
        return {kind.plural: objects for kind, objects in zip(kinds, found, strict=True)}

    async def _list(self, kind: Resource) -> list[Json]:
        try:
            return await Objects(self._kube.client, kind).list()
        except NotFound:
            return []
        except Forbidden:
            if kind not in OPTIONAL_KINDS:
                raise
            return []

    async def _evaluate(
        self,
        objects: Mapping[str, Sequence[Json]],
        unreadable: tuple[tuple[str, str, str], ...],
        resolved: Mapping[str, ResolvedNodeClass],
        cluster: WatchedCluster,
    ) -> AdoptionPreview:
        cache = cluster.cache
        planner_client = PlannerClient(
            cache=cache,
            offerings=self._offerings,
            events=_NullEvents(),
            settings=self._settings.planning,
            now=self._now,
        )
        try:
            plan = await self._plan(planner_client, cluster.policies)
            disruption_status = await self._preview_disruption(cluster, planner_client)
        finally:
            await planner_client.close()
        drifting = DriftDetector(
            cache=cache,
            types=planner_client.catalogue.types_of,
            instances=self._instances,
            events=_NullEvents(),
            now=self._now,
        )
        drifting.schedule_full_pass()
        await drifting.run_pass()
        listed = {one.instance_id: one for one in await self._instances.list_managed()}
        # Read after the instances, and also those that cannot be read, as by garbage collection.
        claim_refs = await self._kube.inventory.list_nodeclaims()
        catalogue = planner_client.catalogue.catalogue.by_node_class
        return AdoptionPreview(
            at=self._now(),
            objects=objects,
            unreadable=unreadable,
            claims=tuple(await self._adopt_nodeclaims(cache, drifting, planner_client, listed)),
            classes=resolved,
            unowned=tuple(
                decide_orphaned_instances(listed.values(), claim_refs, cluster=self._settings.cluster, now=self._now())
            ),
            pods=dict(cache.pods),
            plan=plan,
            types={
                name: {one.name: one for one in catalogue.get(view.fact.node_class, ())}
                for name, view in cache.nodepools.items()
            },
            disruption_status=disruption_status,
        )

    async def _plan(self, planner_client: PlannerClient, policies: LifecyclePolicies) -> Plan | None:
        async with planner_client.lock:
            process = await planner_client.sync()
            if planner_client.blocked_reason():
                return None
            now = self._now()
            planning_inputs = await planner_client.read_planning_inputs(now)
            return await process.provision(
                now=now,
                unavailable=planning_inputs.unavailable,
                not_ready_grace=self._settings.deadlines.not_ready_grace,
                pool_graces=dict(policies.not_ready_grace_periods()),
                reservations=planning_inputs.reservations,
            )

    async def _preview_disruption(self, cluster: WatchedCluster, planner_client: PlannerClient) -> DisruptionStatus:
        cache, policies = cluster.cache, cluster.policies
        disrupting = DisruptionController(
            cache=cache,
            planner_client=planner_client,
            nominations=cluster.nominations,
            not_ready=cluster.not_ready,
            budgets=NodePoolBudgets(cache, policies.rules_of, policies.unread_of),
            claims=self._kube.claims,
            events=_NullEvents(),
            settings=disruption_settings(self._settings.gates),
            not_ready_grace=self._settings.deadlines.not_ready_grace,
            not_ready_grace_periods=policies.not_ready_grace_periods,
            now=self._now,
            paused=ActivePauses(cache, cluster.pause),
        )
        return await DisruptionPreviewer(cache, cluster.pod_verdicts, disrupting, self._now).preview_disruption(
            DisruptionPreviewRequest(cluster=self._settings.cluster)
        )

    async def _adopt_nodeclaims(
        self,
        cache: ClusterCache,
        drifting: DriftDetector,
        planner_client: PlannerClient,
        listed: Mapping[str, InstanceFacts],
    ) -> list[AdoptedNodeClaim]:
        async def adopt(claim: NodeClaimFact) -> AdoptedNodeClaim:
            instance_id, fault = instance_id_of(claim.provider_id), ""
            node_class, instance = cache.nodeclasses.get(claim.node_class), listed.get(instance_id)
            if instance_id and instance is None:
                try:
                    instance = await self._instances.get(instance_id)
                except Fault as error:
                    fault = error.message
            return AdoptedNodeClaim(
                claim=claim,
                phase=decide_first_phase(claim),
                node=next(iter(cache.nodes_of(claim)), None),
                instance=instance,
                tagged=instance_id in listed,
                drift=drifting.drift_of(claim),
                is_evaluated=node_class is not None and planner_client.catalogue.types_of(node_class) is not None,
                fault=fault,
            )

        return list(await asyncio.gather(*(adopt(cache.nodeclaims[name]) for name in sorted(cache.nodeclaims))))


class _NullEvents:
    async def publish(self, **event: Any) -> None:
        return


def _is_deleting(raw: Json) -> bool:
    return "deletionTimestamp" in raw["metadata"]
