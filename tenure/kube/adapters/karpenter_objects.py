"""NodePools. Satisfies `activities.ports.Pools`; the NodePool workflow keeps their status here.

EC2NodeClasses. Satisfies `activities.ports.NodeClasses`; the NodeClass workflow keeps their status here.

NodeOverlays: those that are heeded, and the verdict on each of them written down.

CapacityBuffers: the workloads that they refer to, and what was found out about them written down.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import (
    NODECLASS_CONDITIONS,
    NODECLASS_TERMINATION_FINALIZER,
    NODEOVERLAY_CONDITIONS,
    NODEPOOL_CONDITIONS,
    VALIDATION_SUCCEEDED,
)
from tenure.apis.nodeoverlay import NodeOverlay
from tenure.apis.nodepool import NodePool
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.objects import Objects, merge_patch
from tenure.kube.client.patches import AnnotationPatcher, ConditionEventPublisher, patch_metadata, patch_status
from tenure.kube.client.resources import CAPACITY_BUFFERS, EC2_NODE_CLASSES, NODE_OVERLAYS, NODE_POOLS, WORKLOADS
from tenure.kube.facts.objects import overlay_fact
from tenure.model.nodeoverlays import OverlayFact, find_overlay_problem
from tenure.model.provider_results import ConditionPatch


class KubeNodePools(AnnotationPatcher):
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._pools = Objects(client, NODE_POOLS)
        super().__init__(self._pools)
        self._event_publisher = ConditionEventPublisher(events, NODE_POOLS.kind)

    async def get(self, name: str) -> NodePool | None:
        item = await self._pools.get(name)
        return NodePool.from_object(item) if item else None

    async def list(self) -> Sequence[NodePool]:
        return [NodePool.from_object(item) for item in await self._pools.list()]

    async def patch_status(
        self,
        name: str,
        *,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        annotations: Mapping[str, str] | None = None,
        now: datetime,
    ) -> bool:
        """False when the NodePool is gone."""
        if annotations and await patch_metadata(self._pools, name, annotations=annotations) is None:
            return False
        item = await patch_status(
            self._pools,
            name,
            status=status,
            conditions=conditions,
            dependents=NODEPOOL_CONDITIONS,
            now=now,
            event_publisher=self._event_publisher,
        )
        return item is not None


class KubeNodeClasses:
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._classes = Objects(client, EC2_NODE_CLASSES)
        self._event_publisher = ConditionEventPublisher(events, EC2_NODE_CLASSES.kind)

    async def get(self, name: str) -> EC2NodeClass | None:
        item = await self._classes.get(name)
        return EC2NodeClass.from_object(item) if item else None

    async def list(self) -> Sequence[EC2NodeClass]:
        return [EC2NodeClass.from_object(item) for item in await self._classes.list()]

    async def ensure_finalizer(self, name: str) -> bool:
        return await self._classes.add_finalizer(name, NODECLASS_TERMINATION_FINALIZER)

    async def patch_status(
        self,
        name: str,
        *,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        annotations: Mapping[str, str] | None = None,
        now: datetime,
    ) -> bool:
        """False when the EC2NodeClass is gone."""
        if annotations and await patch_metadata(self._classes, name, annotations=annotations) is None:
            return False
        item = await patch_status(
            self._classes,
            name,
            status=status,
            conditions=conditions,
            dependents=NODECLASS_CONDITIONS,
            now=now,
            event_publisher=self._event_publisher,
        )
        return item is not None

    async def release(self, name: str) -> bool:
        return await self._classes.drop_finalizer(name, NODECLASS_TERMINATION_FINALIZER)


class KubeNodeOverlays:
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._overlays = Objects(client, NODE_OVERLAYS)
        self._event_publisher = ConditionEventPublisher(events, NODE_OVERLAYS.kind)

    async def list_accepted(self) -> Sequence[OverlayFact]:
        """All but those that make no sense, and those whose status says of the present spec that they are refused."""
        items = await self._overlays.list()
        facts = [overlay_fact(item) for item in items if not _is_rejected(NodeOverlay.from_object(item))]
        return [one for one in facts if not find_overlay_problem(one)]

    async def write_verdict(self, name: str, uid: str, *, reason: str = "", message: str = "", now: datetime) -> bool:
        """An empty reason: it is heeded. False when it is gone."""
        status = "False" if reason else "True"
        verdict = ConditionPatch(type=VALIDATION_SUCCEEDED, status=status, reason=reason, message=message)
        item = await patch_status(
            self._overlays,
            name,
            uid=uid,
            status=None,
            conditions=[verdict],
            dependents=NODEOVERLAY_CONDITIONS,
            now=now,
            event_publisher=self._event_publisher,
        )
        return item is not None


def _is_rejected(overlay: NodeOverlay) -> bool:
    verdict = overlay.condition(VALIDATION_SUCCEEDED)
    now = overlay.metadata.generation
    return verdict is not None and verdict.is_false and verdict.observed_generation in (0, now)


class KubeCapacityBuffers:
    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._by_namespace: dict[str, Objects] = {}

    async def get_workload(self, namespace: str, kind: str, name: str) -> Json | None:
        """A Deployment, StatefulSet or ReplicaSet as it is now; None when it is not there."""
        return await self._client.get(WORKLOADS[kind].path(name, namespace=namespace))

    async def patch_status(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        status: Mapping[str, object],
        conditions: Sequence[ConditionPatch],
        now: datetime,
    ) -> bool:
        """Set these fields of the status (None removes one) and conditions; no write where nothing changes.

        False when the buffer is gone."""
        objects = self._by_namespace.setdefault(namespace, Objects(self._client, CAPACITY_BUFFERS, namespace))

        def build_patch(item: Json) -> Json | None:
            current_status = item.get("status") or {}
            generation = item["metadata"].get("generation", 0)
            merged_conditions = _merge_conditions(current_status.get("conditions") or (), conditions, generation, now)
            changes = merge_patch(current_status, {**status, "conditions": merged_conditions})
            return {"status": changes} if changes else None

        return await objects.patch_with_retry(name, build_patch, uid=uid, sub="status") is not None


def _merge_conditions(
    current: Sequence[Json], desired: Sequence[ConditionPatch], generation: int, now: datetime
) -> list[Json]:
    """In the order in which they stand; none of them feeds another. The time moves with the status alone."""
    found = {one["type"]: one for one in current}
    for one in desired:
        before = found.get(one.type, {})
        transition_time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        found[one.type] = {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"]
            if before.get("status") == one.status
            else transition_time,
        }
    return list(found.values())
