"""Nodes on a real API server: registration, disruption taint and labels, deletion."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.node_conditions import DRAIN_CLEARED, DRAIN_COMPLETED, DRAIN_STARTED
from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import NODE_CLAIMS, NODES
from tenure.model.facts import Taint
from tenure.model.provider_results import ConditionPatch
from tests.support.kube.builders import claim_json, node_json

Unique = Callable[[str], str]
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNREGISTERED = {"key": labels.UNREGISTERED_TAINT_KEY, "effect": "NoExecute"}
DISRUPTED = Taint(key=labels.DISRUPTED_TAINT_KEY, effect=labels.NO_SCHEDULE)


@pytest.fixture
async def node(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> AsyncIterator[str]:
    name = unique("node")
    created = await admin.request("POST", NODES.path(), body=node_json(name, taints=[UNREGISTERED]))
    yield name
    await kube.nodes.release(name, created["metadata"]["uid"])
    await kube.nodes.delete(name, created["metadata"]["uid"])


def claim_for(node: str, **spec: Any) -> NodeClaim:
    raw = claim_json(f"claim-of-{node}", **spec)
    raw["metadata"] |= {"uid": "00000000-0000-0000-0000-000000000001", "annotations": {"note": "from the claim"}}
    raw["metadata"]["labels"]["team"] = "a"
    return NodeClaim.from_object(raw)


async def stored_node(kube: KubeAdapters, admin: KubeClient, name: str) -> dict[str, Any]:
    found = await admin.get(NODES.path(name))
    assert found is not None
    return found


async def test_registration_copies_labels_and_taints_of_the_nodeclaim(
    kube: KubeAdapters, admin: KubeClient, node: str
) -> None:
    claim = claim_for(
        node,
        taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
        startupTaints=[{"key": "cni", "effect": "NoExecute"}],
    )
    state = await kube.nodes.register(node, claim)
    assert state is not None and state.finalizers == (labels.TERMINATION_FINALIZER,)
    assert state.labels[labels.REGISTERED] == "true" and state.labels["team"] == "a"
    assert state.annotations["note"] == "from the claim"
    values = {one.key: one.value for one in state.taints}
    assert {("dedicated", "gpu"), ("cni", "")} <= values.items()
    assert labels.UNREGISTERED_TAINT_KEY not in values
    owner = (await stored_node(kube, admin, node))["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["blockOwnerDeletion"]) == ("NodeClaim", claim.name, True)


async def test_condition_keeps_its_transition_time_and_the_other_conditions(
    kube: KubeAdapters, admin: KubeClient, node: str
) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    await admin.merge(NODES.path(node, sub="status"), {"status": {"conditions": [ready]}})
    for minute, message in enumerate(("budget 0", "budget 1")):
        blocked = ConditionPatch(type=labels.NEEDS_ATTENTION, status="True", reason="Blocked", message=message)
        assert await kube.nodes.set_conditions(node, [blocked], now=AT + timedelta(minutes=minute))
    found = {one["type"]: one for one in (await stored_node(kube, admin, node))["status"]["conditions"]}
    attention = found[labels.NEEDS_ATTENTION]
    assert (attention["message"], attention["lastTransitionTime"]) == ("budget 1", "2026-03-01T12:00:00Z")
    assert found["Ready"]["reason"] == "KubeletReady"
    assert await kube.nodes.set_conditions(node, [ConditionPatch(type=labels.NEEDS_ATTENTION, status="")], now=AT)
    assert [one["type"] for one in (await stored_node(kube, admin, node))["status"]["conditions"]] == ["Ready"]
    assert not await kube.nodes.set_conditions(f"no-{node}", [blocked], now=AT)


async def test_lifecycle_condition_of_another_controller_stays(
    kube: KubeAdapters, admin: KubeClient, node: str
) -> None:
    foreign = {"type": labels.DRAIN_IN_PROGRESS, "status": "True", "reason": "NodeMaintenance"}
    await admin.merge(NODES.path(node, sub="status"), {"status": {"conditions": [foreign]}})
    assert await kube.nodes.set_conditions(node, DRAIN_STARTED, now=AT)
    assert await kube.nodes.set_conditions(node, DRAIN_CLEARED, now=AT)
    (stored,) = (await stored_node(kube, admin, node))["status"]["conditions"]
    assert stored["reason"] == "NodeMaintenance"
    found = await kube.nodes.get(node)
    assert found is not None
    assert found.maintained_by_others == "another controller has set the condition DrainInProgress"


async def test_own_lifecycle_conditions_are_set_and_removed(kube: KubeAdapters, admin: KubeClient, node: str) -> None:
    await kube.nodes.set_conditions(node, DRAIN_STARTED, now=AT)
    await kube.nodes.set_conditions(node, DRAIN_COMPLETED, now=AT)
    found = {one["type"]: one["status"] for one in (await stored_node(kube, admin, node))["status"]["conditions"]}
    assert found == {labels.DRAIN_IN_PROGRESS: "False", labels.DRAINED: "True"}
    current = await kube.nodes.get(node)
    assert current is not None and not current.maintained_by_others
    await kube.nodes.set_conditions(node, DRAIN_CLEARED, now=AT)
    assert not (await stored_node(kube, admin, node))["status"].get("conditions")


async def test_second_registration_does_not_restore_startup_taints(
    kube: KubeAdapters, admin: KubeClient, node: str
) -> None:
    claim = claim_for(node, startupTaints=[{"key": "cni", "effect": "NoExecute"}])
    await kube.nodes.register(node, claim)
    await admin.merge(NODES.path(node), {"spec": {"taints": None}})
    state = await kube.nodes.register(node, claim)
    assert state is not None and "cni" not in {one.key for one in state.taints}


@pytest.fixture
async def stored_claim(admin: KubeClient, node: str) -> AsyncIterator[NodeClaim]:
    """A NodeClaim of another provider. Kubernetes deletes Nodes whose owner does not exist."""
    node_class = {"group": "example.com", "kind": "Other", "name": "default"}
    raw = claim_json(f"claim-of-{node}", nodeClassRef=node_class, taints=[{"key": "dedicated", "effect": "NoSchedule"}])
    raw["metadata"]["labels"]["team"] = "a"
    yield NodeClaim.from_object(await admin.request("POST", NODE_CLAIMS.path(), body=raw))
    await admin.request("DELETE", NODE_CLAIMS.path(raw["metadata"]["name"]))


async def test_registration_restores_what_was_removed_and_keeps_changes_of_users(
    kube: KubeAdapters, admin: KubeClient, node: str, stored_claim: NodeClaim
) -> None:
    claim = stored_claim
    await kube.nodes.register(node, claim)
    removed = {"finalizers": None, "ownerReferences": None, "labels": {labels.NODEPOOL: None, "team": "b"}}
    taint = {"key": labels.UNREGISTERED_TAINT_KEY, "effect": labels.NO_EXECUTE}
    await admin.merge(NODES.path(node), {"metadata": removed, "spec": {"taints": [taint]}})
    state = await kube.nodes.register(node, claim)
    assert state is not None and state.finalizers == (labels.TERMINATION_FINALIZER,)
    assert not {"dedicated", labels.UNREGISTERED_TAINT_KEY} & {one.key for one in state.taints}
    assert state.labels[labels.NODEPOOL] == claim.metadata.labels[labels.NODEPOOL] and state.labels["team"] == "b"
    owners = (await stored_node(kube, admin, node))["metadata"]["ownerReferences"]
    assert [one["uid"] for one in owners] == [claim.metadata.uid]


@pytest.mark.parametrize("field", ["taints", "startupTaints"])
async def test_node_with_do_not_sync_label_keeps_its_taints(
    field: str, kube: KubeAdapters, admin: KubeClient, node: str
) -> None:
    """Tenure's user data sets the label: an agent may remove a startup taint before the registration."""
    await admin.merge(NODES.path(node), {"metadata": {"labels": {labels.DO_NOT_SYNC_TAINTS: "true"}}})
    state = await kube.nodes.register(node, claim_for(node, **{field: [{"key": "dedicated", "effect": "NoSchedule"}]}))
    assert state is not None and "dedicated" not in {one.key for one in state.taints}


async def test_disruption_taint_is_added_once_and_removed_with_its_label(kube: KubeAdapters, node: str) -> None:
    disrupted_node = await kube.nodes.mark_disrupted(node)
    repeated = await kube.nodes.mark_disrupted(node)
    assert disrupted_node is not None and repeated is not None and repeated.taints.count(DISRUPTED) == 1
    assert repeated.labels[labels.EXCLUDE_FROM_LOAD_BALANCERS] == "karpenter"
    assert await kube.nodes.unmark_disrupted(node)
    cleared = await kube.nodes.get(node)
    assert cleared is not None and DISRUPTED not in cleared.taints
    assert labels.EXCLUDE_FROM_LOAD_BALANCERS not in cleared.labels


@pytest.mark.parametrize("tainted", [False, True])
@pytest.mark.parametrize("known", [False, True])
async def test_early_eviction_mark_is_one_request_and_keeps_other_writes(
    kube: KubeAdapters, admin: KubeClient, node: str, tainted: bool, known: bool
) -> None:
    foreign_taints = [{"key": "theirs", "effect": "NoSchedule"}] if tainted else None
    written = {"kubelet": "wrote"}
    known_to_all = {"metadata": {"labels": written, "annotations": written}, "spec": {"taints": foreign_taints}}
    await admin.merge(NODES.path(node), known_to_all)
    uid = (await admin.request("GET", NODES.path(node)))["metadata"]["uid"]
    before = kube.client.calls
    assert await kube.nodes.mark_early_evicted(node, uid, tainted=tainted is known, at=AT)
    assert kube.client.calls - before == (1 if known else 3)
    assert await kube.nodes.mark_early_evicted(node, uid, tainted=True, at=AT)
    disrupted_node = await kube.nodes.get(node)
    assert disrupted_node is not None and disrupted_node.taints.count(DISRUPTED) == 1
    assert (
        disrupted_node.labels["kubelet"] == "wrote"
        and ("theirs" in {one.key for one in disrupted_node.taints}) == tainted
    )
    assert disrupted_node.labels[labels.EXCLUDE_FROM_LOAD_BALANCERS] == "karpenter"
    assert disrupted_node.annotations[labels.EARLY_EVICTED_AT] == "2026-03-01T12:00:00+00:00"
    assert await kube.nodes.unmark_disrupted(node)
    cleared = await kube.nodes.get(node)
    assert cleared is not None and labels.EARLY_EVICTED_AT not in cleared.annotations


@pytest.mark.parametrize("name", ["", "no-such-node"])
async def test_node_with_another_uid_is_not_marked_early_evicted(kube: KubeAdapters, node: str, name: str) -> None:
    other = "00000000-0000-0000-0000-000000000009"
    assert not await kube.nodes.mark_early_evicted(name or node, other, tainted=False, at=AT)
    found = await kube.nodes.get(node)
    assert found is not None and DISRUPTED not in found.taints


async def test_disruption_mark_keeps_concurrent_kubelet_writes(
    kube: KubeAdapters, admin: KubeClient, node: str
) -> None:
    await kube.nodes.get(node)
    await admin.merge(NODES.path(node), {"metadata": {"labels": {"kubelet": "wrote"}}})
    disrupted_node = await kube.nodes.mark_disrupted(node)
    assert disrupted_node is not None and disrupted_node.labels["kubelet"] == "wrote"


async def test_concurrent_lookups_by_provider_id_share_lists(kube: KubeAdapters, node: str) -> None:
    before = kube.client.calls
    found = await asyncio.gather(*(kube.nodes.find_by_provider_id(f"aws:///us-west-2a/i-{node}") for _ in range(50)))
    assert {state.name for states in found for state in states} == {node}
    assert kube.client.calls - before <= 2


async def test_missing_node_raises_no_error(kube: KubeAdapters) -> None:
    assert await kube.nodes.get("no-such-node") is None
    assert await kube.nodes.find_by_provider_id("aws:///us-west-2a/i-nothing") == []
    assert await kube.nodes.register("no-such-node", claim_for("no-such-node")) is None
    assert await kube.nodes.mark_disrupted("no-such-node") is None
    assert not await kube.nodes.unmark_disrupted("no-such-node")
    assert not await kube.nodes.mark_initialized("no-such-node")
    assert not await kube.nodes.delete("no-such-node", "uid")
    assert not await kube.nodes.release("no-such-node", "uid")


async def test_finalizer_keeps_a_deleted_node_until_released(kube: KubeAdapters, node: str) -> None:
    await kube.nodes.register(node, claim_for(node))
    assert await kube.nodes.mark_initialized(node)
    found = await kube.nodes.get(node)
    assert found is not None
    assert not await kube.nodes.delete(node, "uid-of-an-earlier-node")
    assert await kube.nodes.delete(node, found.uid)
    deleting = await kube.nodes.get(node)
    assert deleting is not None and deleting.deleting and deleting.labels[labels.INITIALIZED] == "true"
    assert not await kube.nodes.release(node, "uid-of-an-earlier-node")
    assert await kube.nodes.release(node, found.uid)
    assert await kube.nodes.get(node) is None


async def test_patch_labels_keeps_labels_of_other_writers(kube: KubeAdapters, admin: KubeClient, node: str) -> None:
    await kube.nodes.register(node, claim_for(node))
    uid = (await stored_node(kube, admin, node))["metadata"]["uid"]
    await admin.merge(NODES.path(node), {"metadata": {"labels": {"theirs": "1"}}})
    assert await kube.nodes.patch_labels(node, uid, {"team": "b", labels.REGISTERED: None})
    current = (await stored_node(kube, admin, node))["metadata"]["labels"]
    assert (current["team"], current["theirs"], labels.REGISTERED in current) == ("b", "1", False)
    assert not await kube.nodes.patch_labels(node, "00000000-0000-0000-0000-00000000dead", {"team": "c"})
