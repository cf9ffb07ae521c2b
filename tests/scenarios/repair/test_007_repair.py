"""Promise 8: an unhealthy node is replaced before it is deleted."""

from functools import partial
from typing import Any

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import LIFECYCLE_POLICIES, NODES
from tenure.sandbox.nodes.fault_rules import SetCondition
from tests.support.product.cluster_scope import ClusterScope, condition_status, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import lifecycle_policy
from tests.support.product.product import InstalledProduct

KERNEL = {"type": "KernelReady", "status": "False", "toleration": "5s", "terminationGracePeriod": "30s"}
ANY_NUMBER = "100%"
"""Each NodePool of these scenarios has one node, which is unhealthy."""


async def _apply_repair_rules(scope: ClusterScope, **rules: Any) -> None:
    repair = {"conditions": [KERNEL], "maxUnhealthy": ANY_NUMBER, **rules}
    await scope.apply_manifest(lifecycle_policy(f"repair-{scope.name}", scope.name, repair=repair))
    path = LIFECYCLE_POLICIES.path(f"repair-{scope.name}")
    await wait_until(partial(scope.product.assert_condition, path, "Ready", "True"))


class Replaced:
    """Whether the NodeClaim is gone, and how many others were initialized when that was first seen to begin."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.initialized_others: int | None = None
        self.most_nodeclaims = 0

    async def assert_gone(self, scope: ClusterScope) -> None:
        claims = await scope.nodeclaims()
        self.most_nodeclaims = max(self.most_nodeclaims, len(claims))
        old = [one for one in claims if one["metadata"]["name"] == self._name]
        others = [one for one in claims if one["metadata"]["name"] != self._name]
        if self.initialized_others is None and (not old or "deletionTimestamp" in old[0]["metadata"]):
            self.initialized_others = sum(
                condition_status(one, labels.INITIALIZED_CONDITION) == "True" for one in others
            )
        assert not old, f"{self._name}: {[one['metadata'] for one in old]}"


async def _break_node(scope: ClusterScope, claim: dict[str, Any], *, survives_reboot: bool = False) -> None:
    fault = SetCondition(type="KernelReady", status="False", survives_reboot=survives_reboot)
    await scope.inject_node_fault(fault, node=claim["status"]["nodeName"])


async def _assert_reboot_ended(scope: ClusterScope, name: str, reason: str) -> None:
    (claim,) = [one for one in await scope.nodeclaims() if one["metadata"]["name"] == name]
    found = [one for one in claim["status"]["conditions"] if one["type"] == labels.REBOOTING]
    assert [(one["status"], one["reason"]) for one in found] == [("False", reason)], found


@pytest.mark.row("007-a")
async def test_replacement_is_initialized_before_the_unhealthy_node_is_deleted(product: InstalledProduct) -> None:
    async with product.scope("007-a") as scope:
        await _apply_repair_rules(scope)
        (claim,) = await scope.run_pods(1)
        replaced = Replaced(claim["metadata"]["name"])
        await _break_node(scope, claim)
        await wait_until(partial(replaced.assert_gone, scope))
        assert replaced.initialized_others == 1
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("007-b")
async def test_unhealthy_static_node_at_the_limit_is_deleted_first(product: InstalledProduct) -> None:
    """The gate TerminateFirstRepair is on."""
    async with product.scope("007-b", replicas=1, limits={"nodes": "1"}) as scope:
        await _apply_repair_rules(scope)
        (claim,) = await wait_until(lambda: scope.assert_nodes_initialized(1))
        replaced = Replaced(claim["metadata"]["name"])
        await _break_node(scope, claim)
        await wait_until(partial(replaced.assert_gone, scope))
        await wait_until(lambda: scope.assert_nodes_initialized(1))
        assert replaced.most_nodeclaims == 1, "a terminating node counts against the limit"
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("007-c")
async def test_do_not_repair_keeps_the_node_until_it_is_removed(product: InstalledProduct) -> None:
    async with product.scope("007-c") as scope:
        await _apply_repair_rules(scope)
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], NODES.path(claim["status"]["nodeName"])
        await scope.product.patch(node, {"metadata": {"annotations": {labels.DO_NOT_REPAIR: "true"}}})
        await _break_node(scope, claim)
        await assert_throughout(partial(scope.assert_nodeclaims_exist, [name]), seconds=15)
        await scope.assert_one_node_launched()
        await scope.product.patch(node, {"metadata": {"annotations": {labels.DO_NOT_REPAIR: None}}})
        await wait_until(partial(scope.assert_nodeclaims_deleted, [name]))
        assert name not in object_names(await scope.nodeclaims())
        await wait_until(lambda: scope.assert_pods_running(1))


@pytest.mark.row("007-d")
async def test_reboot_that_helps_keeps_the_node(product: InstalledProduct) -> None:
    async with product.scope("007-d") as scope:
        await _apply_repair_rules(scope, steps=["reboot", "replace"], rebootFor="2m")
        (claim,) = await scope.run_pods(1)
        name = claim["metadata"]["name"]
        evicted = {one["metadata"]["uid"] for one in await scope.pods()}
        await _break_node(scope, claim)
        await wait_until(partial(scope.assert_event, name, "RebootObserved", "KernelReady=False"))
        await wait_until(partial(_assert_reboot_ended, scope, name, labels.REBOOT_SUCCEEDED))
        await wait_until(lambda: scope.assert_nodes_initialized(1))
        await wait_until(lambda: scope.assert_pods_running(1))
        assert not evicted & {one["metadata"]["uid"] for one in await scope.pods()}
        await scope.assert_nodeclaims_exist([name])
        await scope.assert_one_node_launched()


@pytest.mark.row("007-e")
async def test_node_that_stays_unhealthy_after_a_reboot_is_replaced(product: InstalledProduct) -> None:
    async with product.scope("007-e") as scope:
        await _apply_repair_rules(scope, steps=["reboot", "replace"], rebootFor="30s")
        (claim,) = await scope.run_pods(1)
        name = claim["metadata"]["name"]
        replaced = Replaced(name)
        await _break_node(scope, claim, survives_reboot=True)
        await wait_until(partial(scope.assert_event, name, "RebootFailed", "KernelReady=False"))
        await wait_until(partial(replaced.assert_gone, scope))
        assert replaced.initialized_others == 1
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)
