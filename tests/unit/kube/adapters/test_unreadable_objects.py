"""An unreadable NodeClaim or Node is listed with its identity and safe values for the other fields. Other unreadable
objects are left out."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from tenure.apis import labels
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.garbage_collection import KubeInventory
from tenure.kube.adapters.nodeclaims import KubeNodeClaims
from tenure.kube.adapters.nodes import KubeNodes
from tenure.kube.client.client import KubeClient
from tenure.kube.client.events import KubeEvents
from tenure.model.provider_results import InstanceFacts
from tenure.policy.garbage_collection import (
    decide_orphaned_instances,
    decide_orphaned_nodes,
    decide_ownerless_nodeclaims,
)
from tests.support.controller.builders import claim, node

Json = dict[str, Any]


class FakeClient:
    def __init__(self, *items: Json) -> None:
        self.items = items

    async def request(self, method: str, path: str, **_: Any) -> Json:
        return {"items": self.items, "metadata": {}}


async def test_unreadable_nodeclaim_is_listed_and_protected() -> None:
    bad = claim("bad", phase="Initialized", annotations={"a": "b"})
    bad["spec"]["taints"] = "none"
    client = cast(KubeClient, FakeClient(bad, claim("good", phase="Initialized")))
    found = {one.name: one for one in await KubeNodeClaims(client, cast(KubeEvents, None)).list()}
    assert found["bad"].is_true(labels.INITIALIZED_CONDITION) and found["bad"].status.provider_id
    assert found["bad"].nodepool == found["good"].nodepool
    assert found["bad"].metadata.annotations == {"a": "b", labels.DO_NOT_DISRUPT: "true"}
    assert labels.DO_NOT_DISRUPT not in found["good"].metadata.annotations


async def test_unreadable_node_is_not_ready_and_protected() -> None:
    bad = node("bad", of="c")
    bad["status"]["allocatable"] = {"cpu": "lots"}
    found = {one.name: one for one in await KubeNodes(cast(KubeClient, FakeClient(bad, node("good")))).list()}
    assert (found["bad"].ready, found["good"].ready) == (False, True)
    assert found["bad"].provider_id and found["bad"].annotations == {labels.DO_NOT_DISRUPT: "true"}


async def test_unreadable_object_does_not_fail_garbage_collection() -> None:
    """A NodeClaim protects the instances of its launch group and its name, and a Node its Lease."""
    bad_claim, bad_node = claim("bad", annotations={labels.LAUNCH_GROUP: "g", "a": 1}), node("bad", of="c")
    bad_node["metadata"]["finalizers"] = 1
    inventory = KubeInventory(cast(KubeClient, FakeClient(bad_claim, claim("good", phase="Initialized"))))
    claims = {one.name: one for one in await inventory.list_nodeclaims()}
    assert claims["good"].provider_id and (claims["bad"].provider_id, claims["bad"].group_id) == ("", "g")
    assert not decide_ownerless_nodeclaims([claims["bad"]])
    later = datetime.now(UTC) + timedelta(days=1)
    for tags in ({labels.LAUNCH_GROUP: "g"}, {labels.TAG_NODECLAIM: "bad"}):
        own = {labels.TAG_NODEPOOL: "a", labels.TAG_NODECLASS: "b", labels.TAG_EKS_CLUSTER_NAME: "demo"}
        launched = InstanceFacts(
            instance_id="i-1", state="running", launched_at=datetime.now(UTC), tags={**own, **tags}
        )
        assert decide_orphaned_instances([launched], [], cluster="demo", now=later)
        assert not decide_orphaned_instances([launched], [claims["bad"]], cluster="demo", now=later)
    inventory = KubeInventory(cast(KubeClient, FakeClient(bad_node, node("good"))))
    nodes = await inventory.list_nodes()
    assert sorted(one.name for one in nodes) == ["bad", "good"]
    assert "bad" not in {one.name for one in decide_orphaned_nodes(nodes, [], now=later)}
    good_lease = {"metadata": {**node("good")["metadata"], "resourceVersion": "1"}, "spec": {}}
    bad_lease = {**good_lease, "spec": {"leaseDurationSeconds": "soon"}}
    inventory = KubeInventory(cast(KubeClient, FakeClient(bad_lease, good_lease)))
    assert [one.name for one in await inventory.list_leases()] == ["good"]


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ({"template": {"spec": {"nodeClassRef": {"name": "a"}}}}, lambda kube: kube.pools.list()),
        ({"amiSelectorTerms": []}, lambda kube: kube.node_classes.list()),
        ({"price": "1"}, lambda kube: kube.overlays.list_accepted()),
        ({}, lambda kube: kube.lifecycle_policies.list_facts()),
    ],
    ids=["NodePool", "EC2NodeClass", "NodeOverlay", "LifecyclePolicy"],
)
async def test_other_unreadable_object_does_not_fail_the_list(
    spec: Json, read: Callable[[KubeAdapters], Awaitable[Sequence[Any]]]
) -> None:
    good = {"metadata": {"name": "good", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}
    bad = {**good, "metadata": {**good["metadata"], "name": {"not": "text"}}}
    found = await read(KubeAdapters(cast(KubeClient, FakeClient(bad, good))))
    assert [one.name for one in found] == ["good"]
