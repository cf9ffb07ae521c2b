"""Coordinators through lost hosts, faults that no retry helps, and nodes that went another way."""

from datetime import timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import BadInput
from tenure.model.observations import DemandSeen, PoolSeen
from tenure.model.provisioning import PlanOutcome
from tenure.model.workflow_states import ProvisioningState
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import blocked, in_time
from tests.support.workflows.lives import delete, emptied, pool, ready
from workflows import ids
from workflows.cluster_watch import WatchWorkflow
from workflows.nodepool import NodePoolWorkflow
from workflows.provisioning import ProvisioningWorkflow


async def demanded(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await fake.client.start_workflow(
        ProvisioningWorkflow.run,
        ProvisioningState(cluster=fake.cluster),
        id=ids.provisioning(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )
    newest = await skipping.get_current_time() - timedelta(minutes=1)
    await handle.signal(ProvisioningWorkflow.demand, DemandSeen(number=1, pods=1, newest=newest))


async def test_a_plan_whose_host_was_lost_is_asked_for_again_under_its_id(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """It may have made NodeClaims already: only under the same id are they found and launched."""
    fake.host.faults["plan"] = [BadInput("the host is gone")]
    fake.host.outcomes = [PlanOutcome(plan_id="", blocked="caches are too old: pods")]
    async with fake.planning():
        await demanded(fake, skipping)
        await in_time(skipping, lambda: planned(fake, 2))
    assert len({one.plan_id for one in fake.host.planned}) == 1


async def test_a_plan_that_is_blocked_for_long_is_asked_for_more_slowly(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.host.outcomes = [PlanOutcome(plan_id="", blocked="types are not known") for _ in range(500)]
    async with fake.planning():
        await demanded(fake, skipping)
        await skipping.sleep(timedelta(minutes=10))
    assert 30 <= len(fake.host.planned) <= 80


async def test_the_watch_outlives_a_fault_that_no_retry_helps(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.host.faults["run"] = [BadInput("no such lease")]
    await fake.client.start_workflow(
        WatchWorkflow.run, fake.cluster, id=ids.watch(fake.cluster), task_queue=ids.task_queue(fake.cluster)
    )
    await in_time(skipping, lambda: hosted(fake))


async def test_the_wish_of_a_node_that_went_another_way_is_forgotten(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    pools = await pool(fake, budgets=[{"nodes": "0"}])
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "budget 0"))
    assert await wishes(pools, 1)
    await delete(fake, handle)
    await handle.result()
    await pools.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, usage="less"))
    await in_time(skipping, lambda: wishes(pools, 0))


async def planned(fake: World, count: int) -> bool:
    return len(fake.host.planned) >= count


async def hosted(fake: World) -> bool:
    return len(fake.host.carried) == 1


async def wishes(pools: Any, count: int) -> bool:
    return len((await pools.query(NodePoolWorkflow.state)).asked) == count
