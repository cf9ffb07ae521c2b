"""The paths of permits: limits of all NodePools together, a roll-out that halts, a command that a person gives up."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.disruption.commands import GiveUp
from tenure.model.rollout import ApproveRollout
from tenure.model.signals import PermitWithdrawn
from tests.support.fakes.worker import World
from tests.support.workflows.commands import command, granting, in_step, nodes, proposal
from tests.support.workflows.eventually import eventually, in_time
from tests.unit.workflows import test_cluster_budget as budget
from tests.unit.workflows import test_nodepool_rollout as rollout
from workflows.disruption.command import DisruptionWorkflow
from workflows.nodepool import NodePoolWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]


async def nodepool_limited_together(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """One of three NodePools gives the only permit; when that comes back another does."""
    handle = await budget.cluster(fake)
    pools = await budget.limited(fake, clusterNodes="1")
    await budget.ask(skipping, pools)
    await in_time(skipping, lambda: budget.all_answered(fake))
    (first,) = await budget.granted(fake)
    await pools[first].signal(NodePoolWorkflow.withdrawn, PermitWithdrawn(claim_uid=f"uid-{first}-1"))
    await in_time(skipping, lambda: budget.count(fake, 2), seconds=5)
    (second,) = [one for one in await budget.granted(fake) if one != first]
    return {"first": pools[first], "second": pools[second], "cluster": handle}


async def nodepool_rollout_halted(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """A sick canary halts it, and somebody lets it go on."""
    stage = await rollout.staged(fake, skipping, **rollout.WAVES)
    await stage.drift()
    await stage.wish()
    await in_time(skipping, lambda: stage.granted(1))
    (gone,) = [name for name in rollout.NODES if any(one.granted for one in await stage.answers(name))]
    stage.replace(gone, "n")
    fake.nodes.change("node-n", ready=False)
    await in_time(skipping, lambda: rollout.overdue(stage), seconds=20)
    fake.nodes.change("node-n", ready=True)
    said = ApproveRollout(plan=await rollout.halted(stage), by="ann")
    await stage.pools.execute_update(NodePoolWorkflow.approve, said)
    await eventually(lambda: rollout.well(stage))
    return {"": stage.pools}


async def disruption_given_up(fake: World, skipping: WorkflowEnvironment) -> Runs:
    nodes(fake, "a")
    await granting(fake)
    async with fake.planning():
        handle = await command(fake, proposal("a"))
        await eventually(lambda: in_step(handle, "Wait"))
        said = GiveUp(by="ann", reason="the release goes first", keep=timedelta(hours=4))
        await handle.execute_update(DisruptionWorkflow.give_up, said)
        await handle.result()
    return {"": handle}
