"""NodePools, EC2NodeClasses, NodeOverlays, CapacityBuffers and LifecyclePolicies."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import NODECLASS_TERMINATION_FINALIZER, VALIDATION_SUCCEEDED
from tenure.apis.meta import is_object_name
from tenure.apis.nodeoverlay import NodeOverlay
from tenure.apis.nodepool import NodePool
from tenure.kube.client import resources
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.objects import Objects, merge_patch
from tenure.kube.client.patches import AnnotationPatcher, StatusObjects, stamp_condition
from tenure.kube.facts.lifecycle_policies import policy_fact
from tenure.kube.facts.objects import overlay_fact
from tenure.model.nodeoverlays import OverlayFact, find_overlay_problem
from tenure.model.operator_requests import PolicyFact, PolicyValidation
from tenure.model.provider_results import ConditionPatch


class _StatusWriter(AnnotationPatcher):
    def __init__(self, objects: StatusObjects) -> None:
        super().__init__(objects)
        self._objects = objects

    async def patch_status(
        self,
        name: str,
        *,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        annotations: Mapping[str, str] | None = None,
        now: datetime,
    ) -> bool:
        """False if the object is gone."""
        if annotations and await self._objects.patch_metadata(name, annotations=annotations) is None:
            return False
        return await self._objects.patch_status(name, status=status, conditions=conditions, now=now) is not None


class KubeNodePools(_StatusWriter):
    """Implements the port `Pools`; the NodePool workflow writes the status."""

    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        super().__init__(StatusObjects(client, resources.NODE_POOLS, events))

    async def get(self, name: str) -> NodePool | None:
        item = await self._objects.get(name)
        return NodePool.from_object(item) if item else None

    async def list(self) -> Sequence[NodePool]:
        """Without invalid NodePools, which the watch reports."""
        return await self._objects.read_each(NodePool.from_object)


class KubeNodeClasses(_StatusWriter):
    """Implements the port `NodeClasses`; the NodeClass workflow writes the status."""

    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        super().__init__(StatusObjects(client, resources.EC2_NODE_CLASSES, events))

    async def get(self, name: str) -> EC2NodeClass | None:
        """None also for a name that no object can have: users write it in a nodeClassRef."""
        item = await self._objects.get(name) if is_object_name(name) else None
        return EC2NodeClass.from_object(item) if item else None

    async def list(self) -> Sequence[EC2NodeClass]:
        """Without invalid EC2NodeClasses, which the watch reports."""
        return await self._objects.read_each(EC2NodeClass.from_object)

    async def ensure_finalizer(self, name: str) -> bool:
        return await self._objects.add_finalizer(name, NODECLASS_TERMINATION_FINALIZER)

    async def release(self, name: str) -> bool:
        return await self._objects.drop_finalizer(name, NODECLASS_TERMINATION_FINALIZER)


class KubeNodeOverlays:
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._overlays = StatusObjects(client, resources.NODE_OVERLAYS, events)

    async def list_accepted(self) -> Sequence[OverlayFact]:
        """All overlays except invalid ones, and ones whose status rejects the current generation."""
        facts = await self._overlays.read_each(_accepted_overlay)
        return [one for one in facts if one is not None and not find_overlay_problem(one)]

    async def write_validation(
        self, name: str, uid: str, *, reason: str = "", message: str = "", now: datetime
    ) -> bool:
        """An empty reason means valid. False if the object is gone."""
        status = "False" if reason else "True"
        validation = ConditionPatch(type=VALIDATION_SUCCEEDED, status=status, reason=reason, message=message)
        return await self._overlays.patch_status(name, uid=uid, conditions=[validation], now=now) is not None


def _accepted_overlay(item: Json) -> OverlayFact | None:
    return None if _is_rejected(NodeOverlay.from_object(item)) else overlay_fact(item)


def _is_rejected(overlay: NodeOverlay) -> bool:
    validation = overlay.condition(VALIDATION_SUCCEEDED)
    now = overlay.metadata.generation
    return validation is not None and validation.is_false and validation.observed_generation in (0, now)


class KubeCapacityBuffers:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def get_workload(self, namespace: str, kind: str, name: str) -> Json | None:
        """The live Deployment, StatefulSet or ReplicaSet; None also for a name that no object can have: users write it
        in a scalableRef."""
        if not is_object_name(name):
            return None
        return await self._client.get(resources.WORKLOADS[kind].path(name, namespace=namespace))

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
        """Set fields of the status (None removes a field) and conditions; writes only changes.

        False if the buffer is gone."""
        objects = Objects(self._client, resources.CAPACITY_BUFFERS, namespace)

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
    """Merge conditions, without a `Ready`. Only a new status changes the transition time."""
    found = {one["type"]: one for one in current}
    for one in desired:
        found[one.type] = {**stamp_condition(found.get(one.type, {}), one, now), "observedGeneration": generation}
    return list(found.values())


class KubeLifecyclePolicies:
    def __init__(self, client: KubeClient, events: KubeEvents) -> None:
        self._policies, self._events = StatusObjects(client, resources.LIFECYCLE_POLICIES, events), events

    async def list_facts(self) -> list[PolicyFact]:
        """All readable LifecyclePolicies, parsed as in the watch."""
        return await self._policies.read_each(policy_fact)

    async def write_validation(self, name: str, uid: str, validation: PolicyValidation, *, now: datetime) -> bool:
        """Write the condition and the selected NodePools, and publish an event if there is a reason.

        Only changes are written. False if the policy is gone.
        """
        status = "False" if validation.rejected else "True"
        condition = ConditionPatch(
            type=VALIDATION_SUCCEEDED, status=status, reason=validation.reason, message=validation.message
        )
        status_fields = {"nodePools": list(validation.node_pools)}
        item = await self._policies.patch_status(name, uid=uid, status=status_fields, conditions=[condition], now=now)
        if item is not None and validation.reason:
            await self._events.publish(
                kind=resources.LIFECYCLE_POLICIES.kind,
                name=name,
                uid=uid,
                reason=validation.reason,
                message=validation.message,
                warning=validation.rejected,
            )
        return item is not None
