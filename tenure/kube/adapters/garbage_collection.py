"""Objects and Node Leases for garbage collection.

Only the used fields are parsed, so that objects with other invalid fields are listed too. An object that still cannot
be parsed is logged with its name. A NodeClaim or Node is then listed with its identity, so that its instance and its
Lease are kept; a Lease is left out.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tenure.apis import labels
from tenure.clock import utc_now
from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import EC2_NODE_CLASSES, LEASES, NODE_CLAIMS, NODE_POOLS, NODES
from tenure.kube.facts.objects import condition_of, is_condition_true
from tenure.model.base import parse_timestamp
from tenure.model.errors import Conflict, NotFound
from tenure.model.garbage_collection import InventoryLease, InventoryNode, InventoryNodeClaim, InventoryNodeClass
from tenure.model.nodeclaim.names import nodepool_owner_reference

NODE_LEASES: Final = "kube-node-lease"
_LEASE_SECONDS: Final = 40
"""The kubelet's default."""
_AT_LEAST: Final = timedelta(minutes=1)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class KubeInventory:
    """Raises model.faults."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._claims, self._nodes = Objects(client, NODE_CLAIMS), Objects(client, NODES)
        self._pools = Objects(client, NODE_POOLS)
        self._classes, self._leases = Objects(client, EC2_NODE_CLASSES), Objects(client, LEASES, NODE_LEASES)

    async def list_nodeclaims(self) -> Sequence[InventoryNodeClaim]:
        return await self._claims.read_each(to_inventory_nodeclaim, identify_nodeclaim)

    async def list_nodepool_uids(self) -> Mapping[str, str]:
        pools = [one["metadata"] async for one in self._pools.iterate()]
        return {one["name"]: one["uid"] for one in pools if "deletionTimestamp" not in one}

    async def set_nodepool_owner(self, claim: InventoryNodeClaim, pool_uid: str) -> bool:
        owner = nodepool_owner_reference(claim.pool, pool_uid)

        def build_patch(item: Json) -> Json | None:
            found = to_inventory_nodeclaim(item)
            if found.has_owner or found.deleting or found.pool != claim.pool:
                return None
            return {"metadata": {"ownerReferences": [*(item["metadata"].get("ownerReferences") or ()), owner]}}

        updated = await self._claims.patch_with_retry(claim.name, build_patch, uid=claim.uid)
        return updated is not None and owner in (updated["metadata"].get("ownerReferences") or ())

    async def list_nodes(self) -> Sequence[InventoryNode]:
        return await self._nodes.read_each(to_inventory_node, identify_node)

    async def get_node(self, name: str) -> InventoryNode | None:
        found = await self._client.get(NODES.path(name))
        return to_inventory_node(found) if found else None

    async def node_classes(self) -> Sequence[InventoryNodeClass]:
        return [to_inventory_node_class(one) async for one in self._classes.iterate()]

    async def delete_node(self, node: InventoryNode) -> bool:
        if not await self._nodes.delete(node.name, uid=node.uid):
            return False
        await self._nodes.drop_finalizer(node.name, labels.TERMINATION_FINALIZER, uid=node.uid)
        return True

    async def list_leases(self) -> Sequence[InventoryLease]:
        return await self._leases.read_each(to_inventory_lease)

    async def node_lease(self, name: str) -> InventoryLease | None:
        found = await self._client.get(LEASES.path(name, namespace=NODE_LEASES))
        return to_inventory_lease(found) if found else None

    async def delete_lease(self, lease: InventoryLease) -> bool:
        body = {"preconditions": {"uid": lease.uid, "resourceVersion": lease.version}}
        try:
            await self._client.request("DELETE", LEASES.path(lease.name, namespace=NODE_LEASES), body=body)
        except (NotFound, Conflict):
            return False
        return True


def to_inventory_nodeclaim(claim: Json) -> InventoryNodeClaim:
    metadata, status = claim["metadata"], _mapping_at(claim, "status")
    labels_by_key, annotations = _mapping_at(metadata, "labels"), _mapping_at(metadata, "annotations")
    return InventoryNodeClaim(
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata["creationTimestamp"],
        pool=labels_by_key.get(labels.NODEPOOL, ""),
        node_class=_mapping_at(_mapping_at(claim, "spec"), "nodeClassRef").get("name", ""),
        group_id=annotations.get(labels.LAUNCH_GROUP, ""),
        provider_id=status.get("providerID", ""),
        node_name=status.get("nodeName", ""),
        registered=is_condition_true(status, labels.REGISTERED_CONDITION),
        deleting="deletionTimestamp" in metadata,
        annotations=annotations,
        has_owner=any(one.get("kind") == "NodePool" for one in metadata.get("ownerReferences") or ()),
    )


def identify_nodeclaim(claim: Json) -> InventoryNodeClaim:
    """A NodeClaim that cannot be parsed. It protects the instances of its launch group and of its name."""
    metadata = claim["metadata"]
    group_id = str(_mapping_at(metadata, "annotations").get(labels.LAUNCH_GROUP, ""))
    return InventoryNodeClaim(
        name=metadata["name"], uid=metadata["uid"], created=utc_now(), group_id=group_id, has_owner=True
    )


def identify_node(node: Json) -> InventoryNode:
    """A Node that cannot be parsed. It is not collected."""
    metadata = node["metadata"]
    return InventoryNode(name=metadata["name"], uid=metadata["uid"], created=utc_now())


def to_inventory_node(node: Json) -> InventoryNode:
    metadata, ready = node["metadata"], condition_of(_mapping_at(node, "status"), labels.READY)
    return InventoryNode(
        name=metadata["name"],
        uid=metadata["uid"],
        provider_id=_mapping_at(node, "spec").get("providerID", ""),
        pool=_mapping_at(metadata, "labels").get(labels.NODEPOOL, ""),
        ready=ready.get("status") == "True",
        ready_changed=parse_timestamp(ready.get("lastTransitionTime") or ""),
        finalizers=tuple(metadata.get("finalizers") or ()),
        created=metadata["creationTimestamp"],
    )


def to_inventory_node_class(node_class: Json) -> InventoryNodeClass:
    named = (_mapping_at(node_class, part).get("instanceProfile", "") for part in ("spec", "status"))
    metadata = node_class["metadata"]
    profiles = tuple(str(one) for one in named if one)
    return InventoryNodeClass(name=metadata["name"], uid=metadata["uid"], profiles=profiles)


def to_inventory_lease(lease: Json) -> InventoryLease:
    metadata, spec = lease["metadata"], _mapping_at(lease, "spec")
    return InventoryLease(
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        owners=tuple(one.get("uid", "") for one in metadata.get("ownerReferences") or ()),
        deleting="deletionTimestamp" in metadata,
        alive_until=_lease_expiry(metadata["creationTimestamp"], spec),
    )


def _lease_expiry(created: str, spec: Json) -> datetime:
    """A Lease expires after its duration, at least a minute, because its Node may not be created yet.

    A Lease whose times are outside the range of `datetime` does not expire."""
    duration = timedelta(seconds=spec.get("leaseDurationSeconds") or _LEASE_SECONDS)
    created_at, renewed_at = parse_timestamp(created), parse_timestamp(spec.get("renewTime") or created)
    try:
        return max(renewed_at, created_at) + max(duration, _AT_LEAST) if renewed_at and created_at else _NEVER
    except OverflowError:
        return _NEVER


def _mapping_at(thing: Json, name: str) -> Json:
    found: Any = thing.get(name)
    return found if isinstance(found, dict) else {}
