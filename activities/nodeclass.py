"""EC2NodeClasses: resolution into the status, image pins, and cleanup at deletion."""

from typing import Final

from temporalio import activity

from activities.nodeclaim.annotations import restamp_nodeclass
from activities.ports.core import ConditionPatch, Ports, ResolvedNodeClass, publish_event_on
from activities.runtime import background_heartbeat, map_faults
from tenure import metrics
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash
from tenure.clock import utc_now
from tenure.model.errors import Fault
from tenure.model.nodeclaim.requests import NodeClassRequest, NodeClassResult
from tenure.model.rollout import PinRequest, active_image_pin, add_pinned_images, ami_selector_digest

_MESSAGE_MAX_CHARS: Final = 300
"""Characters of a message."""
_MAX_NAMED: Final = 5
"""NodeClaims by name in an event."""


class NodeClassActivities:
    def __init__(self, ports: Ports) -> None:
        self._node_classes, self._claims, self._pools = ports.node_classes, ports.claims, ports.pools
        self._resolver, self._events = ports.resolver, ports.events

    @activity.defn
    @map_faults
    async def resolve_node_class(self, request: NodeClassRequest) -> NodeClassResult:
        """Resolve the EC2NodeClass and write its status. The finalizer is set first, since an instance profile may be
        created."""
        async with background_heartbeat():
            return await self._resolve_nodeclass(request)

    async def _resolve_nodeclass(self, request: NodeClassRequest) -> NodeClassResult:
        node_class = await self._node_classes.get(request.name)
        if node_class is None:
            return NodeClassResult(exists=False)
        if node_class.metadata.is_deleting:
            return NodeClassResult(generation=node_class.metadata.generation)
        await self._node_classes.ensure_finalizer(request.name)
        pools = [one for one in await self._pools.list() if one.spec.template.spec.node_class_ref.name == request.name]
        resolved = await self._resolver.resolve(node_class, pools)
        await self._node_classes.patch_status(
            request.name,
            status=resolved.status,
            conditions=resolved.conditions,
            annotations=await self._hash_annotations(node_class, resolved.ca_bundle, request),
            now=utc_now(),
        )
        await self._publish_status_events(node_class, resolved)
        if resolved.user_data_bytes:
            metrics.EC2NODECLASSES_USERDATA_BYTES.record(
                activity.metric_meter(), resolved.user_data_bytes, nodeclass=request.name
            )
        return _build_result(node_class, resolved)

    @activity.defn
    @map_faults
    async def finalize_node_class(self, request: NodeClassRequest) -> bool:
        """Delete AWS resources and remove the finalizer, unless a NodeClaim still uses the EC2NodeClass. True if
        done."""
        async with background_heartbeat():
            return await self._finalize_nodeclass(request)

    async def _finalize_nodeclass(self, request: NodeClassRequest) -> bool:
        node_class = await self._node_classes.get(request.name)
        if node_class is None:
            return True
        if not node_class.metadata.is_deleting or await self._is_in_use(node_class):
            return False
        try:
            await self._resolver.clean_up(node_class)
        except Fault as fault:
            await self._publish_event(
                node_class, labels.CLEAN_UP_FAILED, f"kept until its cleanup succeeds: {fault.message}"
            )
            raise
        await self._node_classes.release(request.name)
        return True

    @activity.defn
    @map_faults
    async def pin_amis(self, request: PinRequest) -> bool:
        """Pin images, and resolve the EC2NodeClass immediately. False if it is gone or terminating."""
        async with background_heartbeat():
            node_class = await self._node_classes.get(request.node_class)
            if node_class is None or node_class.metadata.is_deleting:
                return False
            await self._pin_amis(node_class, request)
            await self._resolve_nodeclass(NodeClassRequest(name=request.node_class))
            return True

    async def _pin_amis(self, node_class: EC2NodeClass, request: PinRequest) -> None:
        """A repeated request writes nothing."""
        now = utc_now()
        current = active_image_pin(node_class, now)
        if current is not None and current.images.items() >= request.images.items():
            return
        provenance = {"terms": ami_selector_digest(node_class), "by": request.by, "reason": request.why}
        pin = add_pinned_images(current, request.images, **provenance, since=now, until=now + request.lasts)
        written = {labels.IMAGE_PIN: pin.model_dump_json()}
        await self._node_classes.patch_status(request.node_class, annotations=written, now=now)
        images = ", ".join(f"{good} instead of {bad}" for bad, good in sorted(request.images.items()))
        await self._publish_event(node_class, labels.ROLLED_BACK, f"{images}, by {request.by}: {request.why}")

    async def _hash_annotations(
        self, node_class: EC2NodeClass, ca_bundle: str | None, request: NodeClassRequest
    ) -> dict[str, str] | None:
        """The EC2NodeClass's new hash annotations. The NodeClaims' annotations are updated first. None: no update."""
        if ca_bundle is None:
            return None
        stamp = nodeclass_hash(node_class, ca_bundle=ca_bundle)
        await restamp_nodeclass(self._claims, node_class, stamp, is_requested=request.restamp)
        return {labels.NODECLASS_HASH: stamp, labels.NODECLASS_HASH_VERSION: HASH_VERSION}

    async def _is_in_use(self, node_class: EC2NodeClass) -> bool:
        """Whether NodeClaims reference the class in their spec, which unlike a label is immutable."""
        name = node_class.metadata.name
        holders = [claim.name for claim in await self._claims.list() if claim.spec.node_class_ref.name == name]
        if holders:
            more = len(holders) - _MAX_NAMED
            named = ", ".join(sorted(holders)[:_MAX_NAMED]) + (f" and {more} other(s)" if more > 0 else "")
            message = f"Waiting on NodeClaim termination for {named}"
            await self._publish_event(node_class, labels.WAITING_ON_NODECLAIM_TERMINATION, message, warning=False)
        return bool(holders)

    async def _publish_status_events(self, node_class: EC2NodeClass, resolved: ResolvedNodeClass) -> None:
        """Events without a change of a condition's status: another reason for False, failed lookups, warnings."""
        for one in resolved.conditions:
            if _has_new_reason(node_class, one):
                await self._publish_event(node_class, one.reason, f"{one.type}: {one.message}")
        if resolved.failed_lookups:
            await self._publish_event(node_class, labels.AWS_UNREACHABLE, "; ".join(resolved.failed_lookups))
        for reason, message in resolved.warnings:
            await self._publish_event(node_class, reason, message)

    async def _publish_event(
        self, node_class: EC2NodeClass, reason: str, message: str, *, warning: bool = True
    ) -> None:
        await publish_event_on(self._events, node_class.kind, node_class, reason, message, warning=warning)


def _has_new_reason(node_class: EC2NodeClass, new: ConditionPatch) -> bool:
    """The condition stays False, with another reason."""
    old = node_class.condition(new.type)
    return old is not None and old.status == new.status == "False" and old.reason != new.reason


def _build_result(node_class: EC2NodeClass, resolved: ResolvedNodeClass) -> NodeClassResult:
    counted = [one for one in resolved.conditions if one.type in labels.NODECLASS_CONDITIONS]
    failing = [one for one in counted if one.status != "True"]
    missing = len(counted) < len(labels.NODECLASS_CONDITIONS) and resolved.failed_lookups
    message = "; ".join(f"{one.type}: {one.reason} {one.message}".strip() for one in failing)
    return NodeClassResult(
        generation=node_class.metadata.generation,
        ready="False" if failing else "Unknown" if missing else "True",
        message=(message or "; ".join(resolved.failed_lookups))[:_MESSAGE_MAX_CHARS],
        failed_lookups="; ".join(resolved.failed_lookups)[:_MESSAGE_MAX_CHARS],
        retry_after=resolved.retry_after,
    )
