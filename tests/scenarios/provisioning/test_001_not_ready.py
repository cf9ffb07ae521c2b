"""Promise 2, for initialized nodes: late or returning taints, flapping, and reboots."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import pytest

from tenure.apis import labels
from tenure.kube.client.resources import NODES
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.sandbox.nodes.fault_rules import NotReady
from tests.support.product.cluster_scope import ClusterScope, condition_reason, conditions_by_type, object_names
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import Object, pod_spec
from tests.support.product.product import InstalledProduct
from tests.support.product.settings import GRACE

AGENT = {"key": "cni.example.com/agent-not-ready", "value": "true", "effect": "NoSchedule"}
PROXY = {"key": "proxy.example.com/not-ready", "effect": "NoSchedule"}
UNDECLARED = {"key": "stranger.example.com/keep-out", "effect": "NoSchedule"}
GPU = "nvidia.com/gpu"
NOT_READY_SECONDS = 15
"""Seconds of a NotReady interval: less than half of the grace period, and long enough to be observed."""


@pytest.mark.row("001-a")
async def test_startup_taints_can_be_removed_in_any_order_and_return(product: InstalledProduct) -> None:
    async with product.scope("001-a", startup_taints=[AGENT, PROXY]) as scope:
        await scope.create_deployment(1)
        (claim,) = await wait_until(lambda: scope.assert_initialization_waits(labels.STARTUP_TAINTS_EXIST))
        node = claim["status"]["nodeName"]
        await _change_taints(scope, node, removed=PROXY)
        await _change_taints(scope, node, added=PROXY)
        await _change_taints(scope, node, removed=AGENT)
        (waiting,) = await wait_until(partial(_assert_waits_for_taint, scope, PROXY, AGENT))
        assert labels.STARTUP_TAINTS_EXIST in condition_reason(waiting, labels.INITIALIZED_CONDITION)
        await assert_throughout(scope.assert_one_node_launched, seconds=3)
        await _change_taints(scope, node, removed=PROXY)
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()


@pytest.mark.row("001-b")
async def test_returning_startup_taint_keeps_the_pod_pending_on_its_node(product: InstalledProduct) -> None:
    async with product.scope("001-b", after="60s", startup_taints=[AGENT]) as scope:
        claim, node = await _run_pod_on_initialized_node(scope)
        await _change_taints(scope, node, added=AGENT)
        await scope.replace_pod()
        await wait_until(lambda: _assert_pod_pending(scope))
        await wait_until(lambda: _read_intervals(scope, claim, lambda found: found.endswith("Z/")))
        await assert_throughout(scope.assert_one_node_launched, seconds=8)
        await _change_taints(scope, node, removed=AGENT)
        await wait_until(lambda: scope.assert_pods_running(1))
        assert [pod["spec"]["nodeName"] for pod in await scope.pods()] == [node]
        await wait_until(lambda: _read_intervals(scope, claim, lambda found: not found.endswith("/")))
        await scope.assert_one_node_launched()


@pytest.mark.row("001-c")
async def test_returning_startup_taint_counts_after_the_grace_period(product: InstalledProduct) -> None:
    async with product.scope("001-c", after="120s", startup_taints=[AGENT]) as scope:
        claim, node = await _run_pod_on_initialized_node(scope)
        await _change_taints(scope, node, added=AGENT)
        started_at = _parse_time(
            (await wait_until(lambda: _read_intervals(scope, claim, bool))).rpartition(" ")[2].rstrip("/")
        )
        await scope.replace_pod()
        second = await wait_until(lambda: scope.assert_newest_nodeclaim(2))
        assert await _created_at(scope, second) - started_at >= timedelta(seconds=GRACE)
        await wait_until(lambda: scope.assert_event(claim, "NotReadyGraceOver", node, AGENT["key"]))
        await _change_taints(
            scope, await wait_until(partial(_assert_node_waits_for_agent, scope, second)), removed=AGENT
        )
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("001-c")
async def test_flapping_node_uses_up_its_grace_period(product: InstalledProduct) -> None:
    """Each interval is shorter than the grace period, but together they exceed it during the third."""
    async with product.scope("001-c", after="120s") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        for interval_count in (1, 2):
            await scope.inject_node_fault(NotReady(for_seconds=NOT_READY_SECONDS), node=node)
            await wait_until(lambda: scope.assert_node_not_ready(node))
            await wait_until(lambda: scope.assert_node_ready_status(node, ready="True"))
            await wait_until(partial(_read_intervals, scope, name, partial(_have_ended, interval_count)))
        await scope.assert_one_node_launched()
        await scope.inject_node_fault(NotReady(), node=node)
        await wait_until(lambda: scope.assert_node_not_ready(node))
        await scope.replace_pod()
        await wait_until(lambda: scope.assert_newest_nodeclaim(2))
        await wait_until(lambda: scope.assert_event(name, "NotReadyGraceOver", node, "in 3 intervals"))
        assert (await scope.nodeclaim_state(name)).flaps == 3
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("001-b")
async def test_rebooted_node_keeps_its_pods_and_is_initialized_again(product: InstalledProduct) -> None:
    async with product.scope("001-b", after="60s") as scope:
        (claim,) = await scope.run_pods(1)
        name, node = claim["metadata"]["name"], claim["status"]["nodeName"]
        before = object_names(await scope.pods())
        boot_id = (await scope.assert_node_ready_status(node, ready="True"))["status"]["nodeInfo"]["bootID"]
        await scope.inject_node_fault(NotReady(for_seconds=NOT_READY_SECONDS, new_boot_id=True), node=node)
        await wait_until(lambda: scope.assert_node_not_ready(node))
        state = await wait_until(partial(_assert_reinitialized, scope, name))
        assert state.boot_id != boot_id and state.reboots == 1
        (after,) = await scope.nodeclaims()
        initialized = [conditions_by_type(one)[labels.INITIALIZED_CONDITION] for one in (claim, after)]
        assert initialized[0] == initialized[1], "the condition never reverts"
        assert object_names(await scope.pods()) == before
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()


@pytest.mark.row("001-b")
async def test_pod_waits_for_a_gpu_that_is_missing_after_a_kubelet_restart(product: InstalledProduct) -> None:
    async with product.scope("001-b", after="60s", types=["g4dn.xlarge"]) as scope:
        (claim,) = await scope.run_pods(1, containers=pod_spec(scope.name, **{GPU: "1"})["containers"])
        node = claim["status"]["nodeName"]
        await scope.inject_node_fault(NotReady(for_seconds=NOT_READY_SECONDS), node=node)
        await wait_until(lambda: scope.assert_node_not_ready(node))
        await product.patch_status(NODES.path(node), {"allocatable": {GPU: "0"}})
        await scope.replace_pod()
        await wait_until(lambda: scope.assert_node_ready_status(node, ready="True"))
        await wait_until(lambda: _assert_pod_pending(scope))
        await assert_throughout(scope.assert_one_node_launched, seconds=4)
        await product.patch_status(NODES.path(node), {"allocatable": {GPU: "1"}})
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()


@pytest.mark.row("001-d")
async def test_undeclared_taint_on_an_initialized_node_is_explained(product: InstalledProduct) -> None:
    async with product.scope("001-d", after="30s") as scope:
        (claim,) = await scope.run_pods(1)
        await _change_taints(scope, claim["status"]["nodeName"], added=UNDECLARED)
        await scope.replace_pod()
        await wait_until(lambda: scope.assert_newest_nodeclaim(2))
        first = claim["metadata"]["name"]
        await wait_until(lambda: scope.assert_event(first, "UndeclaredTaint", UNDECLARED["key"], "startupTaints"))
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([first]))
        await scope.wait_until_nodes_launched(2)


async def _run_pod_on_initialized_node(scope: ClusterScope) -> tuple[str, str]:
    """A pod runs on a node whose agent removed its taint. Returns the names of NodeClaim and Node."""
    await scope.create_deployment(1)
    (claim,) = await wait_until(lambda: scope.assert_initialization_waits(labels.STARTUP_TAINTS_EXIST))
    await _change_taints(scope, claim["status"]["nodeName"], removed=AGENT)
    await wait_until(lambda: scope.assert_pods_running(1))
    await wait_until(lambda: scope.assert_nodes_initialized(1))
    return claim["metadata"]["name"], claim["status"]["nodeName"]


async def _change_taints(
    scope: ClusterScope, node: str, *, added: Object | None = None, removed: Object | None = None
) -> None:
    """As an agent on the node does."""
    found = await scope.product.kube.request("GET", NODES.path(node))
    keys = {one["key"] for one in (added, removed) if one}
    remaining = [one for one in found["spec"].get("taints") or () if one["key"] not in keys]
    await scope.product.patch(NODES.path(node), {"spec": {"taints": [*remaining, *([added] if added else [])]}})


async def _assert_pod_pending(scope: ClusterScope) -> None:
    phases = [(pod["status"].get("phase"), pod["spec"].get("nodeName")) for pod in await scope.pods()]
    assert phases == [("Pending", None)], phases


async def _assert_waits_for_taint(scope: ClusterScope, taint: Object, removed: Object) -> list[Object]:
    claims = await scope.assert_initialization_waits(taint["key"])
    reasons = [condition_reason(one, labels.INITIALIZED_CONDITION) for one in claims]
    assert not any(removed["key"] in one for one in reasons), reasons
    return claims


async def _read_intervals(scope: ClusterScope, claim: str, accepts: Callable[[str], bool]) -> str:
    """The NodeClaim's annotation with the NotReady intervals of its node."""
    (found,) = [one for one in await scope.nodeclaims() if one["metadata"]["name"] == claim]
    record = str(found["metadata"].get("annotations", {}).get(labels.NOT_READY_INTERVALS, ""))
    assert accepts(record), f"{claim} has NotReady intervals {record!r}"
    return record


def _have_ended(interval_count: int, record: str) -> bool:
    return len(record.split()) == interval_count and not record.endswith("/")


async def _assert_node_waits_for_agent(scope: ClusterScope, claim: str) -> str:
    """The Node of a registered NodeClaim that waits for its agent."""
    (found,) = [one for one in await scope.nodeclaims() if one["metadata"]["name"] == claim]
    initialized_reason = condition_reason(found, labels.INITIALIZED_CONDITION)
    assert AGENT["key"] in initialized_reason, initialized_reason
    return str(found["status"]["nodeName"])


async def _created_at(scope: ClusterScope, claim: str) -> datetime:
    (found,) = [one for one in await scope.nodeclaims() if one["metadata"]["name"] == claim]
    return _parse_time(found["metadata"]["creationTimestamp"])


async def _assert_reinitialized(scope: ClusterScope, claim: str) -> NodeClaimState:
    state = await scope.nodeclaim_state(claim)
    phases = [step.phase for step in state.history]
    assert phases[-3:] == [Phase.READY, Phase.INITIALIZATION, Phase.READY], phases
    return state


def _parse_time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)
