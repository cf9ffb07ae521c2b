"""Paths of permits: limits across NodePools, a halted rollout, and a command that a user cancels."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.disruption.commands import CommandCancellation
from tenure.model.rollout import ApproveRollout
from tenure.model.signals import PermitRelease
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.commands import add_nodes, is_in_step, make_proposal, start_command, start_permit_granter
from tests.support.workflows.eventually import wait_until, wait_until_skipping_time
from tests.unit.workflows.disruption import test_cluster_budget as budget
from tests.unit.workflows.disruption import test_rollout_permits as rollout
from workflows.disruption.command import DisruptionWorkflow
from workflows.nodepool import NodePoolWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodepool_cluster_limit(fake: WorkerHarness) -> Runs:
    """One of three NodePools grants the only permit; after its release another NodePool does."""
    handle = await budget.start_cluster(fake)
    pools = await budget.start_limited_nodepools(fake, clusterNodes="1")
    await budget.request_permits(fake, pools)
    await wait_until_skipping_time(fake, lambda: budget.all_have_decisions(fake))
    (first,) = await budget.nodepools_with_permit(fake)
    await pools[first].signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid=f"uid-{first}-1"))
    await wait_until_skipping_time(fake, lambda: budget.has_permit_count(fake, 2), seconds=5)
    (second,) = [one for one in await budget.nodepools_with_permit(fake) if one != first]
    return {"first": pools[first], "second": pools[second], "cluster": handle}


async def nodepool_rollout_halted(fake: WorkerHarness) -> Runs:
    """An unhealthy canary halts the rollout, and a user approves its continuation."""
    nodepool = await rollout.start_rollout_nodepool(fake, **rollout.WAVES)
    await nodepool.drift()
    await nodepool.request_permits()
    await wait_until_skipping_time(fake, lambda: nodepool.has_permits(1))
    (permit_holder,) = [
        name for name in rollout.NODES if any(one.granted for one in await nodepool.permit_decisions(name))
    ]
    nodepool.replace_node(permit_holder, "n")
    fake.nodes.update_node("node-n", ready=False)
    await wait_until_skipping_time(fake, lambda: rollout.is_overdue(nodepool), seconds=20)
    fake.nodes.update_node("node-n", ready=True)
    approval = ApproveRollout(plan=await rollout.halted_plan_id(nodepool), by="ann")
    await nodepool.pools.execute_update(NodePoolWorkflow.approve, approval)
    await wait_until(lambda: rollout.is_healthy(nodepool))
    return {"": nodepool.pools}


async def disruption_cancelled(fake: WorkerHarness) -> Runs:
    add_nodes(fake, "a")
    await start_permit_granter(fake)
    async with fake.running_planner():
        handle = await start_command(fake, make_proposal("a"))
        await wait_until(lambda: is_in_step(handle, "Wait"))
        cancellation = CommandCancellation(by="ann", reason="the release goes first", retain_for=timedelta(hours=4))
        await handle.execute_update(DisruptionWorkflow.cancel, cancellation)
        await handle.result()
    return {"": handle}
