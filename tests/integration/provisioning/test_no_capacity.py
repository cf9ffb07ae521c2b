"""Insufficient capacity in EC2: the same NodeClaim tries its next offering; then the pods are planned for another
pool.
"""

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from tenure.apis import labels
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import wait_until
from tests.support.product.objects import TWO_CPUS, node_pool
from tests.support.product.product import DedicatedProduct, InstalledProduct
from workflows import ids

OTHER_TYPE = "m5.large"
"""Another type of the same size, since the worker remembers unavailable offerings of the other test."""


async def test_nodeclaim_without_spot_capacity_launches_on_demand(own_product: DedicatedProduct) -> None:
    own_product.aws.set_pool(0, instance_type=TWO_CPUS, capacity_type=labels.SPOT)
    try:
        async with own_product.scope("room", capacity_type=(labels.SPOT, labels.ON_DEMAND)) as scope:
            await own_product.ensure_worker()
            (claim,) = await scope.run_pods(1)
            assert claim["metadata"]["labels"][labels.CAPACITY_TYPE] == labels.ON_DEMAND
            await scope.assert_one_node_launched()
            assert len(set(scope.client_tokens())) == len(scope.client_tokens()) == 2
            await wait_until(
                lambda: scope.assert_event(claim["metadata"]["name"], "InsufficientCapacityError", TWO_CPUS)
            )
    finally:
        own_product.aws.clear_pools()


async def test_pods_of_a_rejected_nodeclaim_are_replanned_at_once(own_product: DedicatedProduct) -> None:
    """No batch window passes between EC2's rejection and the next plan."""
    own_product.aws.set_pool(0, instance_type=OTHER_TYPE, capacity_type=labels.SPOT)
    try:
        async with own_product.scope("room", types=(OTHER_TYPE,), capacity_type=labels.SPOT) as scope:
            other = f"{scope.name}-other"
            await own_product.ensure_worker(BATCH_IDLE_DURATION="5s")
            await own_product.patch(scope.pool_path, {"spec": {"weight": 100}})
            await scope.apply_manifest(node_pool(other, capacity_type=labels.ON_DEMAND))
            await scope.create_deployment(1, nodeSelector={}, affinity=either_nodepool(scope.name, other))
            await wait_until(lambda: scope.assert_pods_running(1))
            (pod,) = await scope.pods()
            await wait_until(
                lambda: scope.assert_event(
                    pod["metadata"]["name"], "InsufficientCapacityError", "NodeClaim", OTHER_TYPE
                )
            )
            after_rejection = events_since_rejection(await history(own_product), scope)
            elapsed = after_rejection[-1].event_time.ToDatetime() - after_rejection[0].event_time.ToDatetime()
            print(f"from the rejection to the next plan: {elapsed.total_seconds():.2f} s")
            assert not [one for one in after_rejection if one.HasField("timer_started_event_attributes")], (
                "a batch window passed"
            )
            await scope.create_deployment(0, nodeSelector={}, affinity=either_nodepool(scope.name, other))
    finally:
        own_product.aws.clear_pools()


def either_nodepool(*pools: str) -> dict[str, object]:
    requirement = {"key": labels.NODEPOOL, "operator": "In", "values": list(pools)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


async def history(product: InstalledProduct) -> WorkflowHistory:
    return await product.temporal.get_workflow_handle(
        ids.provisioning(product.sandbox.plan.cluster_name)
    ).fetch_history()


def events_since_rejection(found: WorkflowHistory, scope: ClusterScope) -> list[HistoryEvent]:
    """Events from the response to this NodePool's last launch or prepare call to the next `plan_capacity` call."""
    named = f'"pool":"{scope.name}"'.encode()
    launch_event_ids = set[int]()
    events = list[HistoryEvent]()
    for event in found.events:
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.input.payloads and named in scheduled.input.payloads[0].data:
            launch_event_ids.add(event.event_id)
        if event.activity_task_completed_event_attributes.scheduled_event_id in launch_event_ids:
            events = [event]
        elif events:
            events.append(event)
            if scheduled.activity_type.name == "plan_capacity":
                break
    assert events, f"no launch of {scope.name} completed"
    return events
