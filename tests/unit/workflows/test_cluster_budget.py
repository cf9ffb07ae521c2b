"""clusterNodes: NodePools that look at the same moment do not both give the last permit of all together."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.model.disruption.commands import DisruptionState
from tenure.model.observations import PoolSeen
from tenure.model.signals import PermitAsked, PermitWithdrawn
from tenure.model.workflow_states import PoolState
from tests.support.fakes.asker import AskerWorkflow
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually, in_time
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow
from workflows.nodepool import NodePoolWorkflow

Pool = WorkflowHandle[NodePoolWorkflow, None]
POOLS = ("red", "green", "blue")


async def cluster(fake: World) -> WorkflowHandle[ClusterWorkflow, None]:
    return await fake.client.start_workflow(
        ClusterWorkflow.run,
        DisruptionState(cluster=fake.cluster),
        id=ids.cluster(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def limited(fake: World, **rules: Any) -> dict[str, Pool]:
    """NodePools of one node each, whose workflows have seen their rules."""
    found = {}
    for name in POOLS:
        fake.pools.add(name, disruption={"budgets": [{"nodes": "100%"}]})
        fake.claims.add(f"{name}-1", labels={labels.NODEPOOL: name})
        fake.claims.give(f"{name}-1", provider_id=f"aws:///us-west-2a/i-{name}", Initialized="True")
        fake.nodes.join(f"node-{name}", f"aws:///us-west-2a/i-{name}")
        await fake.client.start_workflow(AskerWorkflow.run, id=f"{name}-1", task_queue=ids.task_queue(fake.cluster))
        found[name] = await fake.client.start_workflow(
            NodePoolWorkflow.run,
            PoolState(cluster=fake.cluster, name=name),
            id=ids.nodepool(fake.cluster, name),
            task_queue=ids.task_queue(fake.cluster),
        )
        seen = PoolSeen(number=1, generation=1, rules=DisruptionRules.model_validate(rules) if rules else None)
        await found[name].signal(NodePoolWorkflow.seen, seen)
    return found


async def ask(skipping: WorkflowEnvironment, pools: dict[str, Pool]) -> None:
    now = await skipping.get_current_time()
    for name, handle in pools.items():
        claim = f"{name}-1"
        wish = PermitAsked(claim_name=claim, claim_uid=f"uid-{claim}", workflow_id=claim, reason="Empty", since=now)
        await handle.signal(NodePoolWorkflow.asked, wish)


async def answers(fake: World, pool: str) -> list[Any]:
    asker: Any = fake.client.get_workflow_handle_for(AskerWorkflow.run, f"{pool}-1")
    return [*await asker.query(AskerWorkflow.answers)]


async def granted(fake: World) -> list[str]:
    return [name for name in POOLS if any(one.granted for one in await answers(fake, name))]


async def all_answered(fake: World) -> bool:
    return all([await answers(fake, name) for name in POOLS])


async def test_of_pools_that_ask_at_once_as_many_get_permits_as_all_together_may(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await cluster(fake)
    pools = await limited(fake, clusterNodes="1")
    await ask(skipping, pools)
    await in_time(skipping, lambda: all_answered(fake))
    (first,) = await granted(fake)
    refused = [one for name in POOLS if name != first for one in await answers(fake, name)]
    assert all("all NodePools: clusterNodes 1 of 3 nodes allows 1, " in one.blocked_by for one in refused), refused
    await skipping.sleep(timedelta(seconds=5))
    await eventually(lambda: places(handle, first))

    await pools[first].signal(NodePoolWorkflow.withdrawn, PermitWithdrawn(claim_uid=f"uid-{first}-1"))
    await in_time(skipping, lambda: count(fake, 2), seconds=5)
    await skipping.sleep(timedelta(minutes=1))
    assert await count(fake, 2)


async def places(handle: WorkflowHandle[ClusterWorkflow, None], *pools: str) -> bool:
    return [one.pool for one in (await handle.query(ClusterWorkflow.state)).booked] == [*pools]


async def test_a_place_that_lapses_unused_is_given_on_at_its_time(fake: World, skipping: WorkflowEnvironment) -> None:
    await cluster(fake)
    await ask(skipping, await limited(fake, clusterNodes="1"))
    await in_time(skipping, lambda: all_answered(fake))
    (first,) = await granted(fake)
    (answer,) = await answers(fake, first)
    await skipping.sleep(answer.until - await skipping.get_current_time() + timedelta(seconds=3))
    await eventually(lambda: count(fake, 2))


async def count(fake: World, number: int) -> bool:
    return len(await granted(fake)) == number


async def test_while_nobody_gives_places_no_node_goes_and_it_is_said(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await limited(fake, clusterNodes="1")
    await ask(skipping, pools)
    await in_time(skipping, lambda: all_answered(fake))
    assert await granted(fake) == []
    assert (
        "the Cluster workflow, which gives the permits that clusterNodes limits"
        in (await answers(fake, "red"))[0].blocked_by
    )
    await cluster(fake)
    await in_time(skipping, lambda: count(fake, 1), seconds=10)


async def test_pools_without_such_a_limit_ask_nobody(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await cluster(fake)
    await ask(skipping, await limited(fake))
    await eventually(lambda: count(fake, 3))
    events = [*(await handle.fetch_history()).events]
    names = [one.workflow_execution_signaled_event_attributes.signal_name for one in events]
    assert "book" not in names
