"""clusterNodes: two NodePools that decide at the same time do not both grant the last permit."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis import labels
from tenure.apis.lifecyclepolicy_disruption import DisruptionRules
from tenure.model.disruption.commands import DisruptionState
from tenure.model.observations import ObservedNodePool
from tenure.model.signals import PermitRelease, PermitRequest
from tests.support.fakes.permit_requester import PermitRequesterWorkflow
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_nodepool_workflow
from tests.support.workflows.eventually import wait_until, wait_until_skipping_time
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow
from workflows.nodepool import NodePoolWorkflow

Pool = WorkflowHandle[NodePoolWorkflow, None]
POOLS = ("red", "green", "blue")


async def start_cluster(fake: WorkerHarness) -> WorkflowHandle[ClusterWorkflow, None]:
    return await fake.client.start_workflow(
        ClusterWorkflow.run,
        DisruptionState(cluster=fake.cluster),
        id=ids.cluster(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def start_limited_nodepools(fake: WorkerHarness, **rules: Any) -> dict[str, Pool]:
    """NodePools of one node each, whose workflows have observed their rules."""
    found = {}
    for name in POOLS:
        fake.pools.add(name, disruption={"budgets": [{"nodes": "100%"}]})
        fake.claims.add(f"{name}-1", labels={labels.NODEPOOL: name})
        fake.claims.set_status(f"{name}-1", provider_id=f"aws:///us-west-2a/i-{name}", Initialized="True")
        fake.nodes.join(f"node-{name}", f"aws:///us-west-2a/i-{name}", labels={labels.NODEPOOL: name})
        await fake.client.start_workflow(
            PermitRequesterWorkflow.run, id=f"{name}-1", task_queue=ids.task_queue(fake.cluster)
        )
        found[name] = await start_nodepool_workflow(fake, name)
        observed = ObservedNodePool(
            number=1, generation=1, rules=DisruptionRules.model_validate(rules) if rules else None
        )
        await found[name].signal(NodePoolWorkflow.observe, observed)
    return found


async def request_permits(fake: WorkerHarness, pools: dict[str, Pool]) -> None:
    now = await fake.now()
    for name, handle in pools.items():
        claim = f"{name}-1"
        request = PermitRequest(
            claim_name=claim, claim_uid=f"uid-{claim}", workflow_id=claim, reason="Empty", since=now
        )
        await handle.signal(NodePoolWorkflow.request_permit, request)


async def permit_decisions(fake: WorkerHarness, pool: str) -> list[Any]:
    asker: Any = fake.client.get_workflow_handle_for(PermitRequesterWorkflow.run, f"{pool}-1")
    return [*await asker.query(PermitRequesterWorkflow.decisions)]


async def nodepools_with_permit(fake: WorkerHarness) -> list[str]:
    return [name for name in POOLS if any(one.granted for one in await permit_decisions(fake, name))]


async def all_have_decisions(fake: WorkerHarness) -> bool:
    return all([await permit_decisions(fake, name) for name in POOLS])


async def test_concurrent_requests_get_permits_up_to_cluster_limit(fake: WorkerHarness) -> None:
    handle = await start_cluster(fake)
    pools = await start_limited_nodepools(fake, clusterNodes="1")
    await request_permits(fake, pools)
    await wait_until_skipping_time(fake, lambda: all_have_decisions(fake))
    (first,) = await nodepools_with_permit(fake)
    rejected = [one for name in POOLS if name != first for one in await permit_decisions(fake, name)]
    assert all("all NodePools: clusterNodes 1 of 3 nodes allows 1, " in one.blocked_by for one in rejected), rejected
    await fake.sleep(seconds=5)
    await wait_until(lambda: has_reservations(handle, first))

    await pools[first].signal(NodePoolWorkflow.release_permit, PermitRelease(claim_uid=f"uid-{first}-1"))
    await wait_until_skipping_time(fake, lambda: has_permit_count(fake, 2), seconds=5)
    await fake.sleep(minutes=1)
    assert await has_permit_count(fake, 2)


async def has_reservations(handle: WorkflowHandle[ClusterWorkflow, None], *pools: str) -> bool:
    return [one.pool for one in (await handle.query(ClusterWorkflow.state)).reservations] == [*pools]


async def test_expired_reservation_is_granted_to_next_nodepool(fake: WorkerHarness) -> None:
    await start_cluster(fake)
    await request_permits(fake, await start_limited_nodepools(fake, clusterNodes="1"))
    await wait_until_skipping_time(fake, lambda: all_have_decisions(fake))
    (first,) = await nodepools_with_permit(fake)
    (permit,) = await permit_decisions(fake, first)
    await fake.sleep(permit.until - await fake.now() + timedelta(seconds=3))
    await wait_until(lambda: has_permit_count(fake, 2))


async def has_permit_count(fake: WorkerHarness, number: int) -> bool:
    return len(await nodepools_with_permit(fake)) == number


async def test_no_permit_without_cluster_workflow(fake: WorkerHarness) -> None:
    pools = await start_limited_nodepools(fake, clusterNodes="1")
    await request_permits(fake, pools)
    await wait_until_skipping_time(fake, lambda: all_have_decisions(fake))
    assert await nodepools_with_permit(fake) == []
    assert (
        "the Cluster workflow, which keeps the permits that clusterNodes limits"
        in (await permit_decisions(fake, "red"))[0].blocked_by
    )
    await start_cluster(fake)
    await wait_until_skipping_time(fake, lambda: has_permit_count(fake, 1), seconds=10)


async def test_nodepools_without_cluster_limit_send_no_reservation(fake: WorkerHarness) -> None:
    handle = await start_cluster(fake)
    await request_permits(fake, await start_limited_nodepools(fake))
    await wait_until(lambda: has_permit_count(fake, 3))
    events = [*(await handle.fetch_history()).events]
    names = [one.workflow_execution_signaled_event_attributes.signal_name for one in events]
    assert "reserve_cluster_permit" not in names
