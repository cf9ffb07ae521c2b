"""Inventory and deletion of orphaned Kubernetes objects, on a real API server with the worker's shipped rights."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.garbage_collection import NODE_LEASES, to_inventory_nodeclaim
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import LEASES, NODE_CLAIMS, NODES
from tenure.model.errors import Forbidden
from tests.support.kube.builders import claim_json, node_json

Unique = Callable[[str], str]


def lease_json(name: str, *, renewed_ago: float | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"holderIdentity": name, "leaseDurationSeconds": 40}
    if renewed_ago is not None:
        renewed = datetime.now(UTC) - timedelta(seconds=renewed_ago)
        spec["renewTime"] = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"name": name, "namespace": NODE_LEASES}, "spec": spec}


async def make_lease(admin: KubeClient, body: dict[str, Any]) -> str:
    created = await admin.request("POST", LEASES.path(namespace=NODE_LEASES), body=body)
    return str(created["metadata"]["name"])


async def test_lease_is_deleted_only_if_unchanged(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> None:
    name = await make_lease(admin, lease_json(unique("node")))
    read = await kube.inventory.node_lease(name)
    assert read is not None and name in {one.name for one in await kube.inventory.list_leases()}
    path = LEASES.path(name, namespace=NODE_LEASES)
    renewed = lease_json(name, renewed_ago=0)["spec"]
    await admin.merge(path, {"spec": renewed})
    assert not await kube.inventory.delete_lease(read)
    fresh = await kube.inventory.node_lease(name)
    assert fresh is not None and fresh != read
    assert await kube.inventory.delete_lease(fresh)
    assert await kube.inventory.node_lease(name) is None
    assert not await kube.inventory.delete_lease(fresh)


async def test_deleting_leases_of_other_namespaces_is_forbidden(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("lease")
    body = lease_json(name) | {"metadata": {"name": name, "namespace": "default"}}
    path = LEASES.path(name, namespace="default")
    await admin.request("POST", LEASES.path(namespace="default"), body=body)
    with pytest.raises(Forbidden):
        await kube.client.request("DELETE", path)
    await admin.request("DELETE", path)


async def test_node_with_finalizer_is_deleted_but_not_a_new_node_of_its_name(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("node")
    body = node_json(name, provider_id="aws:///us-west-2a/i-1")
    body["metadata"]["finalizers"] = [labels.TERMINATION_FINALIZER]
    await admin.request("POST", NODES.path(), body=body)
    first = await kube.inventory.get_node(name)
    assert first is not None and (first.instance_id, first.finalizers) == ("i-1", (labels.TERMINATION_FINALIZER,))
    assert await kube.inventory.delete_node(first)
    assert await kube.inventory.get_node(name) is None
    await admin.request("POST", NODES.path(), body=body)
    assert not await kube.inventory.delete_node(first)
    second = await kube.inventory.get_node(name)
    assert second is not None and second.uid != first.uid
    assert await kube.inventory.delete_node(second)
    del body["metadata"]["finalizers"]
    await admin.request("POST", NODES.path(), body=body)
    without_finalizer = await kube.inventory.get_node(name)
    assert without_finalizer is not None
    assert await kube.inventory.delete_node(without_finalizer)
    assert not await kube.inventory.delete_node(without_finalizer)


async def test_inventory_has_nodeclaim_fields_for_garbage_collection(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("claim")
    body = claim_json(name)
    body["metadata"] |= {"annotations": {labels.LAUNCH_GROUP: "plan-1"}}
    await admin.request("POST", NODE_CLAIMS.path(), body=body)
    (mark,) = [one for one in await kube.inventory.list_nodeclaims() if one.name == name]
    assert (mark.group_id, mark.provider_id, mark.registered) == ("plan-1", "", False)
    await admin.request("DELETE", NODE_CLAIMS.path(name))


def test_inventory_has_nodeclaim_with_invalid_fields() -> None:
    metadata = {"name": "odd", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": None}
    status = {"providerID": "aws:///a/i-1", "conditions": [{}], "capacity": {"cpu": "nonsense"}}
    mark = to_inventory_nodeclaim({"metadata": metadata, "spec": {"expireAfter": -1}, "status": status})
    assert (mark.instance_id, mark.node_class, mark.registered) == ("i-1", "", False)
