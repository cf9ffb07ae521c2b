"""Annotations that survive the loss of a workflow: NotReady intervals, pauses, and static hashes."""

from collections.abc import Iterable

from temporalio import activity

from activities.ports.core import Annotated, Claims, Ports, find_nodeclaim
from activities.runtime import map_faults
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.apis.labels import NOT_READY_INTERVALS, PAUSE
from tenure.apis.nodeclaim import NodeClaim
from tenure.clock import utc_now
from tenure.model.node_health import format_intervals, merge_intervals, parse_intervals
from tenure.model.nodeclaim.requests import NotReadyNotification
from tenure.model.operator_requests import PauseAnnotationRequest
from tenure.policy.lifecycle.adoption import decide_stamp


class AnnotationActivities:
    def __init__(self, ports: Ports) -> None:
        self._ports, self._claims = ports, ports.claims

    @activity.defn
    @map_faults
    async def record_not_ready_intervals(self, request: NotReadyNotification) -> None:
        """Intervals in the annotation are kept, since a rebuilt workflow does not know them."""
        ref = request.claim
        claim = await find_nodeclaim(self._claims, ref.name, ref.uid)
        if claim is None:
            return
        intervals = merge_intervals(
            parse_intervals(claim.metadata.annotations.get(NOT_READY_INTERVALS, "")), request.not_ready_intervals
        )
        await self._claims.patch(
            ref.name, ref.uid, annotations={NOT_READY_INTERVALS: format_intervals(intervals)}, now=utc_now()
        )

    @activity.defn
    @map_faults
    async def sync_pause_annotation(self, request: PauseAnnotationRequest) -> None:
        """Write or remove the pause annotation, and publish an event."""
        objects, kind, name = self._target_object(request)
        annotations = {PAUSE: request.text or None} if request.write else {}
        only = {PAUSE: request.only} if request.only else None
        uid = await objects.patch_annotations(name, annotations, uid=request.uid, only=only)
        if request.write and request.node_name:
            # The NodeClaim's annotation applies. One on its Node would remain and pause the node after its removal.
            await self._ports.nodes.patch_annotations(request.node_name, {PAUSE: None}, only=only)
        if uid and request.event:
            await self._ports.events.publish(
                kind=kind, name=name, uid=uid, reason=request.event, message=request.message, warning=request.warning
            )

    def _target_object(self, request: PauseAnnotationRequest) -> tuple[Annotated, str, str]:
        match request.kind:
            case "Cluster":
                return self._ports.namespaces, "Namespace", self._ports.system_namespace
            case "NodePool":
                return self._ports.pools, "NodePool", request.name
            case "NodeClaim":
                return self._claims, "NodeClaim", request.name


async def restamp_nodepool(claims: Claims, found: Iterable[NodeClaim], value: str) -> None:
    """Update outdated hash annotations with the hash of the NodePool's template. Raises the faults of
    `Claims.patch`."""
    await _restamp_nodeclaims(claims, found, value, key=labels.NODEPOOL_HASH, version=labels.NODEPOOL_HASH_VERSION)


async def restamp_nodeclass(claims: Claims, node_class: EC2NodeClass, value: str, *, is_requested: bool) -> None:
    """Update outdated hash annotations of launched NodeClaims; others get the hash with their instance. NodeClaims are
    listed only if the EC2NodeClass has another hash version, or the watch has reported one (`is_requested`)."""
    stamped = node_class.metadata.annotations.get(labels.NODECLASS_HASH_VERSION, HASH_VERSION)
    if stamped == HASH_VERSION and not is_requested:
        return
    found = await claims.list()
    ours = [one for one in found if one.spec.node_class_ref.name == node_class.name and one.status.provider_id]
    await _restamp_nodeclaims(claims, ours, value, key=labels.NODECLASS_HASH, version=labels.NODECLASS_HASH_VERSION)


async def _restamp_nodeclaims(
    claims: Claims, found: Iterable[NodeClaim], value: str, *, key: str, version: str
) -> None:
    for claim in found:
        drifted, deleting = claim.is_true(labels.DRIFTED), claim.metadata.is_deleting
        annotations = claim.metadata.annotations
        stamp = decide_stamp(annotations, value, key=key, version=version, drifted=drifted, deleting=deleting)
        if stamp:
            await claims.patch(claim.name, claim.uid, annotations=stamp, now=utc_now())
