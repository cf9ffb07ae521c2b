"""Promise 2, for Nodes that disappear, return, or share a provider ID."""

from datetime import datetime, timedelta
from functools import partial

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import NODES
from tenure.model.nodeclaim.state import Phase
from tenure.sandbox.nodes.fault_rules import Deregister
from tests.support.product.cluster_scope import (
    ClusterScope,
    condition_reason,
    condition_status,
    conditions_by_type,
    object_names,
)
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.interruption_events import instance_id
from tests.support.product.objects import Object, lifecycle_policy
from tests.support.product.product import InstalledProduct
from tests.support.product.settings import GRACE

DEADLINE = "90s"
STATIC_DEADLINE = "20s"
RETURN_SECONDS = 8
"""Seconds until the kubelet registers again: less than the grace period."""


@pytest.mark.row("001-k")
async def test_nodeclaim_without_node_is_not_ready_and_is_replaced(product: InstalledProduct) -> None:
    async with product.scope("001-k", after="60s") as scope:
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, nodeMissing={"deadline": DEADLINE}))
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        await scope.inject_node_fault(Deregister(), node=node, count=1)
        missing = await wait_until(partial(_assert_condition, scope, name, labels.NODE_MISSING, "True"))
        assert condition_status(missing, labels.READY) == "False"
        assert "EC2: its instance is running" in conditions_by_type(missing)[labels.NODE_MISSING]["message"]
        since = datetime.fromisoformat(conditions_by_type(missing)[labels.NODE_MISSING]["lastTransitionTime"])
        await wait_until(lambda: scope.assert_blocked_by(name, "NodeNotFound"))
        second = await wait_until(lambda: scope.assert_newest_nodeclaim(2))
        created = [one["metadata"]["creationTimestamp"] for one in await scope.nodeclaims() if _is(one, second)]
        assert datetime.fromisoformat(created[0]) - since >= timedelta(seconds=GRACE - 5)
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("001-k")
async def test_static_pool_replaces_a_node_that_is_missing(product: InstalledProduct) -> None:
    async with product.scope("001-k-static", replicas=2, limits={"nodes": "3"}) as scope:
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, nodeMissing={"deadline": STATIC_DEADLINE}))
        first, second = await wait_until(lambda: scope.assert_nodes_initialized(2))
        name = first["metadata"]["name"]
        await scope.inject_node_fault(Deregister(), node=first["status"]["nodeName"], count=1)
        await wait_until(partial(_assert_condition, scope, name, labels.READY, "False"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        remaining = object_names(await wait_until(lambda: scope.assert_nodes_initialized(2)))
        assert second["metadata"]["name"] in remaining
        await scope.wait_until_nodes_launched(3)


@pytest.mark.row("001-k")
async def test_stopped_instance_is_reported_and_replaced_when_its_node_is_gone(product: InstalledProduct) -> None:
    async with product.scope("001-k-stopped", after="60s") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        product.aws.stop_instance(instance_id(claim))
        found = await wait_until(partial(_assert_condition, scope, name, labels.NEEDS_ATTENTION, "True"))
        condition = conditions_by_type(found)[labels.NEEDS_ATTENTION]
        assert condition["reason"] == "InstanceStopped" and "EC2: its instance is stopped" in condition["message"]
        await product.patch(NODES.path(node), {"metadata": {"finalizers": None}})
        await product.delete(NODES.path(node))
        await wait_until(lambda: scope.assert_event(name, labels.NODE_NOT_FOUND, "its instance is stopped"))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([name]))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("001-l")
@pytest.mark.parametrize("reboots", [False, True], ids=["same boot ID", "new boot ID"])
async def test_node_that_registers_again_is_initialized_again(product: InstalledProduct, *, reboots: bool) -> None:
    async with product.scope("001-l", after="60s") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        before = await scope.assert_node_ready_status(node, ready="True")
        fault = Deregister(for_seconds=RETURN_SECONDS, new_boot_id=reboots)
        await scope.inject_node_fault(fault, node=node, count=1)
        after = await wait_until(partial(_assert_registered, scope, node, before["metadata"]["uid"]))
        assert (_boot_id(after) != _boot_id(before)) is reboots
        assert after["metadata"]["ownerReferences"][0]["uid"] == claim["metadata"]["uid"]
        await wait_until(partial(_assert_phases, scope, name))
        await wait_until(partial(_assert_condition, scope, name, labels.READY, "True"))
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: scope.assert_event(name, "RegistrationRestored", node, labels.REGISTERED))
        await scope.assert_one_node_launched()


@pytest.mark.row("001-l")
async def test_removed_finalizer_owner_and_label_are_restored(product: InstalledProduct) -> None:
    async with product.scope("001-l-restore", after="60s") as scope:
        (claim,) = await scope.run_pods(1)
        node = claim["status"]["nodeName"]
        before = (await scope.assert_node_ready_status(node, ready="True"))["metadata"]
        removed = {"finalizers": None, "ownerReferences": None, "labels": {labels.NODEPOOL: None}}
        await product.patch(NODES.path(node), {"metadata": removed})
        after = await wait_until(partial(_assert_registered, scope, node, ""))
        assert after["metadata"]["uid"] == before["uid"]
        assert after["metadata"]["ownerReferences"][0]["uid"] == claim["metadata"]["uid"]
        assert (await scope.nodeclaim_state(claim["metadata"]["name"])).phase is Phase.READY


@pytest.mark.row("001-m")
async def test_second_node_with_the_same_provider_id_is_ignored(product: InstalledProduct) -> None:
    async with product.scope("001-m", after="4s") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        second = f"{scope.name}-second"
        metadata = {"name": second, "labels": {labels.NODEPOOL: scope.name}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        path = NODES.path(second)
        await product.kube.request(
            "POST", NODES.path(), body={**body, "spec": {"providerID": claim["status"]["providerID"]}}
        )
        try:
            await wait_until(lambda: scope.assert_event(second, "InvalidObject", name, node))
            await assert_throughout(partial(_assert_undisturbed, scope, name), seconds=15)
            await scope.scale_deployment(0)
            await wait_until(lambda: scope.assert_nodeclaims_deleted(object_names([claim])))
        finally:
            await product.delete(path)
        await scope.wait_until_nodes_launched(1)


async def _assert_undisturbed(scope: ClusterScope, claim: str) -> None:
    state = await scope.nodeclaim_state(claim)
    assert state.phase is Phase.READY and not state.observed.empty, state.observed
    assert not state.observed.not_ready_since, state.observed.not_ready_reason
    await scope.assert_one_node_launched()


async def _assert_condition(scope: ClusterScope, claim: str, condition: str, status: str) -> Object:
    (found,) = [one for one in await scope.nodeclaims() if _is(one, claim)]
    assert condition_status(found, condition) == status, (condition_reason(found, condition), found["status"])
    return found


async def _assert_registered(scope: ClusterScope, node: str, old_uid: str) -> Object:
    """A Node with another UID, and with all that registration adds."""
    found = await scope.product.find(NODES.path(node))
    assert found is not None, f"Node {node} does not exist"
    metadata = found["metadata"]
    assert metadata["uid"] != old_uid, "the old Node still exists"
    assert labels.TERMINATION_FINALIZER in metadata.get("finalizers", ()), metadata
    assert metadata["labels"].get(labels.REGISTERED) == "true" and metadata["labels"].get(labels.NODEPOOL), metadata
    taints = [one["key"] for one in found["spec"].get("taints") or ()]
    assert labels.UNREGISTERED_TAINT_KEY not in taints, taints
    return dict(found)


async def _assert_phases(scope: ClusterScope, claim: str) -> None:
    phases = [step.phase for step in (await scope.nodeclaim_state(claim)).history]
    assert phases[-3:] == [Phase.READY, Phase.INITIALIZATION, Phase.READY], phases


def _boot_id(node: Object) -> str:
    return str(node["status"]["nodeInfo"]["bootID"])


def _is(found: Object, name: str) -> bool:
    return bool(found["metadata"]["name"] == name)
