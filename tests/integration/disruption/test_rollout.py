"""Rollouts on real components: drift in waves, approval, and a halt when replacements fail to start."""

from functools import partial
from typing import Any

from tenure.cli.disruption.approve import send_rollout_decision
from tenure.model.disruption.commands import CommandState
from tenure.model.rollout import ApproveRollout
from tenure.sandbox.nodes.fault_rules import NeverRegister
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import assert_throughout, query_state, wait_until
from tests.support.product.objects import lifecycle_policy
from tests.support.product.product import InstalledProduct
from workflows import search_attributes

ROLLOUT_TIMEOUT_SECONDS = 240.0
"""Seconds for the sequential replacement of nodes."""
SOAK = 40.0


async def test_rollout_soaks_the_first_wave_before_the_second(product: InstalledProduct) -> None:
    async with product.scope("waves") as scope:
        waves = [{"nodes": "1", "soak": f"{SOAK:g}s"}, {}]
        old = await _run_nodes_under_policy(scope, 3, waves=waves, health={"nodesReady": "100%", "every": "10s"})
        await _drift_all_nodes(scope)
        await wait_until(lambda: _assert_command_blocked(scope, "wave 1 of 2"))
        await wait_until(partial(_assert_remaining, scope, old, 2), seconds=ROLLOUT_TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_event(scope.name, "RolloutWaveSoaks"))
        await assert_throughout(partial(_assert_remaining, scope, old, 2), seconds=SOAK / 4)
        await wait_until(partial(scope.assert_nodeclaims_deleted, old), seconds=ROLLOUT_TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_event(scope.name, "RolloutFinished"))
        await wait_until(lambda: scope.assert_pods_running(3))
        await scope.wait_until_nodes_launched(6)


async def test_rollout_waits_for_required_approval(product: InstalledProduct) -> None:
    async with product.scope("asked") as scope:
        old = await _run_nodes_under_policy(scope, 1, approval={"required": True})
        await _drift_all_nodes(scope)
        plan = await _read_plan_name(scope, "RolloutWaits")
        await assert_throughout(partial(_assert_remaining, scope, old, 1), seconds=10)
        await _approve(scope, plan)
        await wait_until(partial(scope.assert_nodeclaims_deleted, old), seconds=ROLLOUT_TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_event(scope.name, "RolloutApproved", "ann"))
        await scope.wait_until_nodes_launched(2)


async def test_failed_replacement_halts_rollout_until_approved(product: InstalledProduct) -> None:
    async with product.scope("halted") as scope:
        old = await _run_nodes_under_policy(scope, 2, health={"failedStarts": 1, "failingFor": "10s", "every": "10s"})
        await scope.inject_node_fault(NeverRegister(), count=2)
        await _drift_all_nodes(scope)
        plan = await _read_plan_name(scope, "RolloutHalted")
        await wait_until(lambda: scope.assert_instances_alive(2))
        launched = len(scope.launched_instances())
        await assert_throughout(partial(_assert_unchanged, scope, old, launched), seconds=30)
        await wait_until(lambda: scope.assert_pods_running(2))
        await _approve(scope, plan)
        await wait_until(partial(scope.assert_nodeclaims_deleted, old), seconds=ROLLOUT_TIMEOUT_SECONDS)
        await wait_until(lambda: scope.assert_event(scope.name, "RolloutFinished"))
        await scope.wait_until_nodes_launched(launched + 2)


async def _run_nodes_under_policy(scope: ClusterScope, nodes: int, **rollout: Any) -> list[str]:
    """The names of the NodeClaims."""
    await scope.apply_manifest(lifecycle_policy(scope.name, scope.name, rollout=rollout))
    return object_names(await scope.run_pods(nodes))


async def _drift_all_nodes(scope: ClusterScope) -> None:
    await scope.product.patch(scope.pool_path, {"spec": {"template": {"metadata": {"labels": {"team": "web"}}}}})


async def _assert_remaining(scope: ClusterScope, old: list[str], count: int) -> None:
    remaining = set(old) & set(object_names(await scope.nodeclaims()))
    assert len(remaining) == count, f"{scope.name}: {sorted(remaining)} of {old} are left"


async def _assert_command_blocked(scope: ClusterScope, text: str) -> None:
    """A command with a candidate of this NodePool is blocked for this reason."""
    query = f"WorkflowType = 'Disruption' AND {search_attributes.NODE_POOL.name} = '{scope.name}'"
    found = [one async for one in scope.product.temporal.list_workflows(query)]
    handles = [scope.product.temporal.get_workflow_handle(one.id) for one in found]
    blocked_by = [(await query_state(one, CommandState)).blocked_by for one in handles]
    assert any(text in one for one in blocked_by), f"{scope.name}: commands are blocked by {blocked_by}"


async def _assert_unchanged(scope: ClusterScope, old: list[str], launched: int) -> None:
    """No NodeClaim is deleted, and no instance is launched."""
    await scope.assert_nodeclaims_exist(old)
    assert len(scope.launched_instances()) == launched


async def _read_plan_name(scope: ClusterScope, reason: str) -> str:
    """The plan's name, from the event with the `tenure approve` command."""
    event = await wait_until(
        lambda: scope.assert_event(scope.name, reason, "tenure approve"), seconds=ROLLOUT_TIMEOUT_SECONDS
    )
    return str(event["message"].partition("tenure approve ")[2].split()[0].strip(","))


async def _approve(scope: ClusterScope, plan: str) -> None:
    sandbox = scope.product.sandbox.plan
    approval = ApproveRollout(plan=plan, by="ann", reason="seen")
    assert "approved" in await send_rollout_decision(scope.product.temporal, sandbox.cluster_name, approval)
