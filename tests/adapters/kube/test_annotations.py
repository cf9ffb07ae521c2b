"""Annotations on a real API server: set, removed, and kept where another writer changed them."""

from collections.abc import AsyncIterator, Callable

import pytest

from tenure.apis.labels import PAUSE
from tenure.apis.nodeclaim import NodeClaim
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import NAMESPACES, NODES
from tenure.model.errors import Forbidden
from tests.support.kube.builders import claim_json, node_json


@pytest.fixture
async def node(kube: KubeAdapters, admin: KubeClient, unique: Callable[[str], str]) -> AsyncIterator[str]:
    name = unique("paused")
    created = await admin.request("POST", NODES.path(), body=node_json(name))
    yield name
    await kube.nodes.release(name, created["metadata"]["uid"])
    await kube.nodes.delete(name, created["metadata"]["uid"])


async def read_annotation(kube: KubeAdapters, node: str) -> str | None:
    state = await kube.nodes.get(node)
    assert state is not None
    return state.annotations.get(PAUSE)


async def test_annotation_is_removed_only_with_its_known_value(kube: KubeAdapters, node: str) -> None:
    uid = await kube.nodes.patch_annotations(node, {PAUSE: "first"})
    assert uid and await read_annotation(kube, node) == "first"
    assert await kube.nodes.patch_annotations(node, {PAUSE: None}, only={PAUSE: "another"}) == uid
    assert await read_annotation(kube, node) == "first"
    await kube.nodes.patch_annotations(node, {PAUSE: None}, only={PAUSE: "first"})
    assert await read_annotation(kube, node) is None


async def test_concurrent_change_of_an_annotation_is_kept(kube: KubeAdapters, admin: KubeClient, node: str) -> None:
    await kube.nodes.patch_annotations(node, {PAUSE: "first"})
    await admin.merge(NODES.path(node), {"metadata": {"annotations": {PAUSE: "a person's"}}})
    await kube.nodes.patch_annotations(node, {PAUSE: None}, only={PAUSE: "first"})
    assert await read_annotation(kube, node) == "a person's"


async def test_other_uid_and_missing_objects_are_not_annotated(kube: KubeAdapters, node: str) -> None:
    assert await kube.nodes.patch_annotations(node, {PAUSE: "mine"}, uid="00000000-0000-0000-0000-000000000009") == ""
    assert await read_annotation(kube, node) is None
    assert await kube.pools.patch_annotations("nowhere", {PAUSE: "mine"}) == ""
    assert await kube.claims.patch_annotations("nowhere", {PAUSE: "mine"}) == ""


async def test_only_the_workers_namespace_can_be_annotated(kube: KubeAdapters, admin: KubeClient) -> None:
    assert await kube.namespaces.patch_annotations("tenure", {PAUSE: "all"})
    found = await admin.get(NAMESPACES.path("tenure"))
    assert found is not None and found["metadata"]["annotations"][PAUSE] == "all"
    await kube.namespaces.patch_annotations("tenure", {PAUSE: None})
    with pytest.raises(Forbidden, match='cannot patch resource "namespaces"'):
        await kube.namespaces.patch_annotations("default", {PAUSE: "all"})


async def test_pause_annotation_is_not_copied_to_the_node(kube: KubeAdapters, node: str) -> None:
    raw = claim_json(f"claim-of-{node}")
    raw["metadata"] |= {"uid": "00000000-0000-0000-0000-000000000001", "annotations": {PAUSE: "held", "note": "kept"}}
    state = await kube.nodes.register(node, NodeClaim.from_object(raw))
    assert state is not None and state.annotations.get("note") == "kept" and PAUSE not in state.annotations
