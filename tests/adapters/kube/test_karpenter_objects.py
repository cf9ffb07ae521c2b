"""NodePools, EC2NodeClasses, Leases and Events on a real API server; a client without a cluster."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tenure.apis import labels
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import EC2_NODE_CLASSES, EVENTS, LEASES, NODE_POOLS
from tenure.model.provider_results import ConditionPatch
from tests.support.apis.crd_rows import NODECLASS
from tests.support.kube.builders import pool_json

Unique = Callable[[str], str]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


async def test_nodepool_status_is_written_and_ready_follows_its_conditions(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("pool")
    await admin.request("POST", NODE_POOLS.path(), body=pool_json(name))
    good = tuple(ConditionPatch(type=one, status="True") for one in labels.NODEPOOL_CONDITIONS)
    usage = {"resources": {"cpu": "4", "nodes": "1"}, "nodes": 1}
    assert await kube.pools.patch_status(name, status=usage, conditions=good, annotations={"hash": "1"}, now=NOW)
    pool = await kube.pools.get(name)
    assert pool is not None and pool.is_true("Ready") and pool.status.nodes == 1
    assert pool.metadata.annotations["hash"] == "1"
    assert name in {one.name for one in await kube.pools.list()}
    assert await kube.pools.patch_status(name, status=usage, conditions=good, now=NOW + timedelta(hours=1))
    reread = await kube.pools.get(name)
    assert reread is not None and reread.metadata.resource_version == pool.metadata.resource_version
    await admin.request("DELETE", NODE_POOLS.path(name))
    assert not await kube.pools.patch_status(name, status=usage, now=NOW)


async def test_finalizer_keeps_a_deleted_nodeclass(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> None:
    name = unique("class")
    await admin.request("POST", EC2_NODE_CLASSES.path(), body=NODECLASS | {"metadata": {"name": name}})
    assert await kube.node_classes.ensure_finalizer(name)
    await admin.request("DELETE", EC2_NODE_CLASSES.path(name))
    deleting = await kube.node_classes.get(name)
    assert deleting is not None and deleting.metadata.is_deleting
    not_found = ConditionPatch(type="SubnetsReady", status="False", reason="SubnetsNotFound", message="none")
    assert await kube.node_classes.patch_status(name, conditions=(not_found,), now=NOW)
    assert await kube.node_classes.release(name)
    assert await kube.node_classes.get(name) is None
    assert not await kube.node_classes.ensure_finalizer(name)


async def test_lease_has_a_holder_only_while_it_is_renewed(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("lease")
    spec = {"holderIdentity": "karpenter-abc", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T12:00:00.000000Z"}
    await admin.request("POST", LEASES.path(namespace="kube-system"), body={"metadata": {"name": name}, "spec": spec})
    for namespace in ("", "kube-system"):
        assert await kube.leases.find_holder(namespace, name, now=NOW + timedelta(seconds=10)) == "karpenter-abc"
        assert await kube.leases.find_holder(namespace, name, now=NOW + timedelta(seconds=20)) == ""
    assert await kube.leases.find_holder("default", name, now=NOW) == ""
    await admin.request("DELETE", LEASES.path(name, namespace="kube-system"))


async def test_repeated_event_is_published_once(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> None:
    name = unique("claim")
    for _ in range(3):
        await kube.events.publish(kind="NodeClaim", name=name, uid=name, reason="LaunchFailed", message="because")
    await kube.events.flush()
    params = {"fieldSelector": f"involvedObject.name={name}"}
    found = await admin.request("GET", EVENTS.path(namespace="default"), params=params)
    (event,) = found["items"]
    assert (event["reason"], event["type"], event["source"]["component"]) == ("LaunchFailed", "Warning", "karpenter")


async def test_rejected_event_raises_no_error(kube: KubeAdapters) -> None:
    await kube.events.publish(kind="Pod", name="x", uid="x", namespace="no-such-space", reason="Any", message="m")
    await kube.events.flush()
