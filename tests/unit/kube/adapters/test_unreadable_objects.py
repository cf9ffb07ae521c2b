"""An unreadable NodeClaim or Node is listed with its identity and safe values for the other fields. Other unreadable
objects are left out."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from tenure.apis import labels
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.nodeclaims import KubeNodeClaims
from tenure.kube.adapters.nodes import KubeNodes
from tenure.kube.client.client import KubeClient
from tenure.kube.client.events import KubeEvents
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
