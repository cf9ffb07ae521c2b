"""Objects as upkeep sees them, and the Leases of nodes. Satisfies `activities.upkeep_ports.Inventory`.

Nothing is parsed that no task decides on: an object that the models would refuse is listed like any other.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from tenure.apis import labels
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import EC2_NODE_CLASSES, LEASES, NODE_CLAIMS, NODES
from tenure.kube.facts.objects import condition_of
from tenure.model.errors import Conflict, NotFound
from tenure.model.garbage_collection import ClaimMark, LeaseMark, NodeClassMark, NodeMark

NODE_LEASES: Final = "kube-node-lease"
_LEASE_SECONDS: Final = 40
"""What kubelets ask for by default."""
_AT_LEAST: Final = timedelta(minutes=1)


class KubeInventory:
    """Raises model.faults."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._claims, self._nodes = Objects(client, NODE_CLAIMS), Objects(client, NODES)
        self._classes, self._leases = Objects(client, EC2_NODE_CLASSES), Objects(client, LEASES, NODE_LEASES)

    async def claims(self) -> Sequence[ClaimMark]:
        return [claim_mark(one) async for one in self._claims.each()]

    async def nodes(self) -> Sequence[NodeMark]:
        return [node_mark(one) async for one in self._nodes.each()]

    async def node(self, name: str) -> NodeMark | None:
        found = await self._client.get(NODES.path(name))
        return node_mark(found) if found else None

    async def node_classes(self) -> Sequence[NodeClassMark]:
        return [node_class_mark(one) async for one in self._classes.each()]

    async def delete_node(self, node: NodeMark) -> bool:
        if not await self._nodes.delete(node.name, uid=node.uid):
            return False
        await self._nodes.drop_finalizer(node.name, labels.TERMINATION_FINALIZER, uid=node.uid)
        return True

    async def leases(self) -> Sequence[LeaseMark]:
        return [lease_mark(one) async for one in self._leases.each()]

    async def node_lease(self, name: str) -> LeaseMark | None:
        found = await self._client.get(LEASES.path(name, namespace=NODE_LEASES))
        return lease_mark(found) if found else None

    async def delete_lease(self, lease: LeaseMark) -> bool:
        body = {"preconditions": {"uid": lease.uid, "resourceVersion": lease.version}}
        try:
            await self._client.request("DELETE", LEASES.path(lease.name, namespace=NODE_LEASES), body=body)
        except (NotFound, Conflict):
            return False
        return True


def claim_mark(claim: Json) -> ClaimMark:
    metadata, status = claim["metadata"], _part(claim, "status")
    marks, notes = _part(metadata, "labels"), _part(metadata, "annotations")
    return ClaimMark(
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata["creationTimestamp"],
        pool=marks.get(labels.NODEPOOL, ""),
        node_class=_part(_part(claim, "spec"), "nodeClassRef").get("name", ""),
        group_id=notes.get(labels.LAUNCH_GROUP, ""),
        provider_id=status.get("providerID", ""),
        node_name=status.get("nodeName", ""),
        registered=condition_of(status, labels.REGISTERED_CONDITION).get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        annotations=notes,
    )


def node_mark(node: Json) -> NodeMark:
    metadata, ready = node["metadata"], condition_of(_part(node, "status"), labels.READY)
    return NodeMark(
        name=metadata["name"],
        uid=metadata["uid"],
        provider_id=_part(node, "spec").get("providerID", ""),
        pool=_part(metadata, "labels").get(labels.NODEPOOL, ""),
        ready=ready.get("status") == "True",
        ready_changed=ready.get("lastTransitionTime"),
        finalizers=tuple(metadata.get("finalizers") or ()),
        created=metadata["creationTimestamp"],
    )


def node_class_mark(node_class: Json) -> NodeClassMark:
    named = (_part(node_class, part).get("instanceProfile", "") for part in ("spec", "status"))
    metadata = node_class["metadata"]
    return NodeClassMark(name=metadata["name"], uid=metadata["uid"], profiles=tuple(one for one in named if one))


def lease_mark(lease: Json) -> LeaseMark:
    """Alive for as long as its holder asked, and for a minute at least: its Node may be about to be made."""
    metadata, spec = lease["metadata"], _part(lease, "spec")
    lasts = timedelta(seconds=spec.get("leaseDurationSeconds") or _LEASE_SECONDS)
    born = datetime.fromisoformat(metadata["creationTimestamp"])
    renewed = datetime.fromisoformat(spec["renewTime"]) if spec.get("renewTime") else born
    return LeaseMark(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        owners=tuple(one.get("uid", "") for one in metadata.get("ownerReferences") or ()),
        deleting="deletionTimestamp" in metadata,
        alive_until=max(renewed, born) + max(lasts, _AT_LEAST),
    )


def _part(thing: Json, name: str) -> Json:
    found: Any = thing.get(name)
    return found if isinstance(found, dict) else {}
