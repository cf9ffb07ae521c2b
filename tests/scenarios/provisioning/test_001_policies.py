"""Promise 2 with LifecyclePolicies: slow is not overdue, overdue is visible everywhere, and the policy decides the
action.
"""

from datetime import UTC, datetime
from functools import partial

import pytest

from tenure.apis import labels
from tenure.cli.nodes.startups import read, sort_slowest_first
from tenure.cli.nodes.stuck import find_stuck_nodes
from tenure.kube.client.resources import LIFECYCLE_POLICIES, NODE_CLAIMS
from tenure.metrics import NODECLAIMS_NEEDING_ATTENTION, STARTUP_DURATION
from tenure.sandbox.nodes.fault_rules import AddTaint, NeverRegister, SlowReady
from tenure.sandbox.nodes.userdata.kubelet_join import Taint
from tests.support.product.cluster_scope import ClusterScope, condition_reason, condition_status
from tests.support.product.eventually import assert_throughout, wait_until
from tests.support.product.objects import TWO_CPUS, lifecycle_policy
from tests.support.product.product import InstalledProduct

CILIUM = "node.cilium.io/agent-not-ready"
TAINTS = tuple(Taint(key=CILIUM, value="true", effect=effect) for effect in ("NoExecute", "NoSchedule"))
DECLARED = [taint.to_object() for taint in TAINTS]


async def list_stuck(product: InstalledProduct) -> dict[str, list[str]]:
    """Names of NodeClaims as `tenure stuck` lists them; `kept` are the overdue ones whose action is an alarm."""
    overdue, slow, follows, _ = await find_stuck_nodes(product.temporal, product.connection.cluster)
    return {
        "overdue": [one.name for one in overdue],
        "slow": [one.name for one in slow],
        "kept": [one.name for one in overdue if follows.get(one.workflow_id) == "alarm"],
    }


@pytest.mark.row("001-h")
async def test_slow_node_is_neither_overdue_nor_alarmed(product: InstalledProduct) -> None:
    """The policy's deadline overrides the worker's 60 seconds."""
    async with product.scope("001-h") as scope:
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, initialization={"deadline": "5m"}))
        await scope.inject_node_fault(SlowReady(seconds=3600.0))
        await scope.create_deployment(1)
        name = await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        await wait_until(lambda: scope.assert_blocked_by(name, "slow: ", labels.NODE_NOT_READY))
        stuck_nodes = await wait_until(partial(_assert_listed, product, "slow", name))
        assert name not in stuck_nodes["overdue"]
        assert not [one for one in await scope.events_of(name) if one["reason"] == "InitializationOverdue"]
        nodeclaim = await scope.nodeclaim_workflow(name)
        assert nodeclaim.deadline and nodeclaim.since and not nodeclaim.overdue
        assert (nodeclaim.deadline - nodeclaim.since).total_seconds() == pytest.approx(300, abs=2)
        await scope.assert_one_node_launched()
        await scope.report_kubelet_ready(nodeclaim.node_name)
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.assert_one_node_launched()
        await wait_until(lambda: _assert_unblocked(scope, name))


async def _assert_listed(product: InstalledProduct, category: str, name: str) -> dict[str, list[str]]:
    """`tenure stuck` lists the NodeClaim in this category."""
    stuck_nodes = await list_stuck(product)
    assert name in stuck_nodes[category], stuck_nodes
    return stuck_nodes


async def _assert_applies_to(product: InstalledProduct, policy: str, pools: list[str]) -> None:
    found = await product.find(LIFECYCLE_POLICIES.path(policy))
    assert found and condition_status(found, "Ready") == "True" and found["status"].get("nodePools") == pools, found


async def _assert_unblocked(scope: ClusterScope, name: str) -> None:
    assert not (await scope.nodeclaim_workflow(name)).blocked_by


@pytest.mark.row("001-i")
async def test_overdue_node_is_visible_everywhere_until_it_recovers(product: InstalledProduct) -> None:
    async with product.scope("001-i", startup_taints=DECLARED) as scope:
        policy = await scope.apply_manifest(
            lifecycle_policy(scope.name, scope.name, initialization={"deadline": "25s"})
        )
        await scope.inject_node_fault(AddTaint(taints=TAINTS))
        await scope.create_deployment(1)
        name = await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        await wait_until(lambda: scope.assert_event(name, "InitializationOverdue", "needs attention", CILIUM))
        await wait_until(lambda: scope.assert_conditions_mention(name, labels.STARTUP_TAINTS_EXIST, "needs attention"))
        await wait_until(
            lambda: product.metric_value(
                NODECLAIMS_NEEDING_ATTENTION.name, nodepool=scope.name, code=labels.STARTUP_TAINTS_EXIST
            )
        )
        await wait_until(lambda: scope.assert_blocked_by(name, "needs attention", labels.STARTUP_TAINTS_EXIST))
        stuck_nodes = await wait_until(partial(_assert_listed, product, "kept", name))
        assert name in stuck_nodes["overdue"]
        await assert_throughout(scope.assert_one_node_launched, seconds=5)
        await scope.remove_taints((await scope.nodeclaim_workflow(name)).node_name, CILIUM)
        await wait_until(lambda: scope.assert_pods_running(1))
        await wait_until(lambda: assert_not_overdue(scope, name))
        await wait_until(lambda: assert_no_attention_metric(product, scope.name))
        await wait_until(lambda: _assert_applies_to(product, policy["metadata"]["name"], [scope.name]))


@pytest.mark.row("001-i")
async def test_overdue_node_is_replaced_when_the_policy_says_so(product: InstalledProduct) -> None:
    async with product.scope("001-i") as scope:
        rules = {"deadline": "25s", "whenOverdue": "replace"}
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, initialization=rules))
        await scope.inject_node_fault(SlowReady(seconds=3600.0), count=1)
        await scope.create_deployment(1)
        first = await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        await wait_until(lambda: scope.assert_event(first, "InitializationTimeout", labels.NODE_NOT_READY))
        await wait_until(lambda: scope.assert_nodeclaims_deleted([first]))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("001-e")
async def test_changed_policy_applies_to_overdue_nodes(product: InstalledProduct) -> None:
    async with product.scope("001-e") as scope:
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, registration={"whenOverdue": "alarm"}))
        await scope.inject_node_fault(NeverRegister(), count=1)
        await scope.create_deployment(1)
        first = await wait_until(lambda: scope.assert_newest_nodeclaim(1))
        await wait_until(lambda: scope.assert_conditions_mention(first, "Registration", "needs attention"))
        await assert_throughout(scope.assert_one_node_launched, seconds=5)
        await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, registration={"whenOverdue": "terminate"}))
        await wait_until(lambda: scope.assert_event(first, "RegistrationTimeout"))
        await wait_until(lambda: scope.assert_pods_running(1))
        await scope.wait_until_nodes_launched(2)


@pytest.mark.row("001-i")
async def test_conflicting_policies_report_each_other(product: InstalledProduct) -> None:
    async with product.scope("001-i") as scope:
        older, younger = f"{scope.name}-a", f"{scope.name}-b"
        await scope.apply_manifest(lifecycle_policy(older, scope.name, drain={"deadline": "1h"}))
        await scope.apply_manifest(lifecycle_policy(younger, scope.name, drain={"deadline": "2h"}))
        for one, other in ((older, younger), (younger, older)):
            await wait_until(partial(assert_conflict, scope, one, other))
            await wait_until(partial(scope.assert_event, one, "Conflict", other))


@pytest.mark.row("001-j")
@pytest.mark.exact_counters
async def test_startup_durations_are_measured_and_the_slowest_node_is_found(product: InstalledProduct) -> None:
    async with product.scope("001-j") as scope:
        await scope.inject_node_fault(SlowReady(seconds=40.0), count=1)
        await scope.run_pods(20)
        for phase in ("Launch", "Registration", "Initialization"):
            await wait_until(partial(_assert_measured, scope, phase, 20))
        claims = [one for one in await read(str(product.sandbox.kubeconfig)) if one.pool == scope.name]
        found = sort_slowest_first(claims, datetime.now(UTC))
        slowest, *others = (one.lengths["initialization"].total_seconds() for one in found)
        assert len(others) == 19 and slowest >= 20 > sum(others) / len(others)


async def _assert_measured(scope: ClusterScope, phase: str, count: int) -> None:
    metric_labels = {"phase": phase, "nodepool": scope.name, "instance_type": TWO_CPUS}
    measured = await scope.product.metric_value(f"{STARTUP_DURATION.name}_count", **metric_labels)
    assert measured == count, f"{measured} of {phase}"


async def assert_conflict(scope: ClusterScope, name: str, other: str) -> None:
    found = await scope.product.find(LIFECYCLE_POLICIES.path(name))
    assert found is not None and condition_status(found, "Ready") == "False"
    validation_reason = condition_reason(found, labels.VALIDATION_SUCCEEDED)
    assert (
        validation_reason.startswith("Conflict")
        and other in validation_reason
        and "drain.deadline" in validation_reason
    ), validation_reason


async def assert_not_overdue(scope: ClusterScope, claim: str) -> None:
    assert not (await scope.nodeclaim_workflow(claim)).overdue, f"{claim} is still overdue"
    found = await scope.product.kube.request("GET", NODE_CLAIMS.path(claim))
    assert not condition_status(found, labels.NEEDS_ATTENTION), f"{claim} still has the condition NeedsAttention"


async def assert_no_attention_metric(product: InstalledProduct, pool: str) -> None:
    try:
        await product.metric_value(NODECLAIMS_NEEDING_ATTENTION.name, nodepool=pool, code=labels.STARTUP_TAINTS_EXIST)
    except AssertionError as none:
        if str(none).startswith(NODECLAIMS_NEEDING_ATTENTION.name):
            return
    raise AssertionError(f"NodeClaims of {pool} still count")
