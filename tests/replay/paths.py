"""The recorded paths: one scenario for each way through a workflow, with fake ports.

Each path has its own ports and returns the runs to record. A key names the run if a path has several.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis.labels import LAUNCH_GROUP, NODEPOOL
from tenure.model.errors import BadInput, TryLater
from tenure.model.launch import LaunchGroupMember
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import LaunchGroupJoinRequest, ObservedDemand, ObservedNodeClass
from tenure.model.plan import LaunchDraft, PlanOutcome
from tenure.model.workflow_states import BatchWindow, ClusterWatchState, WatchHost
from tests.replay.disruption_paths import (
    cluster_computes_disruption,
    disruption_done,
    disruption_not_permitted,
    disruption_rolled_back,
)
from tests.replay.disruption_status_path import disruption_preview
from tests.replay.garbage_collection_path import garbage_collector_sweeps
from tests.replay.hook_path import nodeclaim_hook_cancels_drain, nodeclaim_hooks
from tests.replay.interruption_path import interruption_sources_reported
from tests.replay.node_interruption_paths import (
    nodeclaim_approved,
    nodeclaim_event_superseded,
    nodeclaim_interrupted_early,
    nodeclaim_stop_start,
)
from tests.replay.not_ready_path import nodeclaim_flaps
from tests.replay.pause_path import nodeclaim_drain_paused
from tests.replay.permit_paths import disruption_cancelled, nodepool_cluster_limit, nodepool_rollout_halted
from tests.replay.permit_polling_path import nodeclaim_not_ready, nodepool_waits_with_backoff
from tests.replay.return_to_service_path import nodeclaim_restored_schedulable
from tests.replay.static_capacity_path import nodepool_static
from tests.replay.termination_paths import (
    nodeclaim_drain_blocked,
    nodeclaim_rebooted_after_drain,
    nodeclaim_repaired,
    nodepool_failed_start,
)
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_provisioning
from tests.support.workflows.eventually import (
    has_continued_as_new,
    is_blocked_by,
    is_in_phase,
    latest_run,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    JOINED,
    create_nodeclaim,
    delete_nodeclaim,
    launched_nodeclaim,
    observe_empty,
    ready_nodeclaim,
    registered_nodeclaim,
    start_nodeclass,
    start_nodepool,
)
from workflows import ids
from workflows.cluster_watch import ClusterWatchWorkflow
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodeclass import NodeClassWorkflow
from workflows.provisioner import ProvisioningWorkflow
from workflows.runner import CanaryWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]
Path = Callable[[WorkerHarness], Awaitable[Runs]]


async def nodeclaim_used_before_drain(fake: WorkerHarness) -> Runs:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    fake.pods.add("node-a", "web")
    await observe_empty(fake, handle)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "not empty"), seconds=10)
    fake.pods.by_node.clear()
    await handle.result()
    return {"": handle}


async def nodeclaim_overdue_and_rebooted(fake: WorkerHarness) -> Runs:
    handle = await registered_nodeclaim(fake)
    await fake.sleep(minutes=31)
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    fake.nodes.update_node("node-a", boot_id="boot-2")
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2"})
    await fake.sleep(seconds=1)
    await wait_until_phase(handle, Phase.READY)
    return {"": handle}


async def nodeclaim_expired(fake: WorkerHarness) -> Runs:
    handle = await ready_nodeclaim(fake, expireAfter="2h")
    await handle.result()
    return {"": handle}


async def nodeclaim_vanished(fake: WorkerHarness) -> Runs:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle)
    await wait_until(lambda: is_blocked_by(handle, "NodeNotFound"))
    fake.instances.running.clear()
    await handle.result()
    return {"": handle}


async def nodeclaim_no_capacity(fake: WorkerHarness) -> Runs:
    fake.fleet.capacity = 0
    handle = await fake.start(await create_nodeclaim(fake))
    await handle.result()
    return {"": handle}


async def nodeclaim_overdue_retained(fake: WorkerHarness) -> Runs:
    """A policy keeps the overdue node; the deadlines of its registration and then of its drain change meanwhile."""
    alarm_rules = {"registration": {"whenOverdue": "alarm"}}
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, rules=alarm_rules)
    await fake.sleep(minutes=16)
    await fake.signal_observed(handle, rules={"registration": {"whenOverdue": "alarm", "deadline": "2h"}})
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.signal_observed(handle, **BUSY, rules=alarm_rules)
    await wait_until_phase(handle, Phase.READY)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "budget 0"))
    await fake.signal_observed(handle, **BUSY, deleting=True, rules={"drain": {"deadline": "1s"}})
    await wait_until(lambda: is_overdue(handle))
    fake.pods.blocked.clear()
    await handle.result()
    return {"": handle}


async def nodeclaim_faults(fake: WorkerHarness) -> Runs:
    """An overdue launch, then registration and termination with non-retryable faults."""
    fake.fleet.faults["create"] = [TryLater("503") for _ in range(26)]
    fake.nodes.faults["register"] = [BadInput("no")]
    fake.instances.faults["terminate"] = [BadInput("no")]
    handle = await fake.start(await create_nodeclaim(fake))
    await wait_until_skipping_time(fake, lambda: has_instance(fake), seconds=15)
    await wait_until_phase(handle, Phase.REGISTRATION)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await fake.signal_observed(handle, **JOINED)
    await fake.sleep(minutes=1)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    return {"": handle}


async def nodeclaim_group_retries(fake: WorkerHarness) -> Runs:
    fake.fleet.fail_once()
    async with fake.running_planner():
        handle = await start_planned_group(fake, "a")
        await wait_until_skipping_time(fake, lambda: has_instance(fake), seconds=5)
        nodeclaim_handle = fake.workflow_handle((await fake.claims.list())[0])
        await wait_until_phase(nodeclaim_handle, Phase.REGISTRATION)
    return {"": nodeclaim_handle, "provisioning": handle}


async def nodeclaim_joined(fake: WorkerHarness) -> Runs:
    """Two equal NodeClaims of a NodePool without a plan; the first instance type has capacity for one of them."""
    fake.fleet.types, fake.fleet.capacity_by_type = ("m5.large", "c5.large"), {"m5.large": 1}
    handle = await start_provisioning(fake)
    now = await fake.now()
    claims = [fake.claims.add(name, born=now, labels={NODEPOOL: "default"}) for name in "ab"]
    nodeclaim_handles = [await fake.start(claim, alike="x") for claim in claims]
    for nodeclaim_handle in nodeclaim_handles:
        await wait_until_skipping_time(fake, partial(is_in_phase, nodeclaim_handle, Phase.REGISTRATION), seconds=1)
    return {"": nodeclaim_handles[1], "provisioning": handle}


async def nodeclaim_created_late(fake: WorkerHarness) -> Runs:
    """The plan got no response to the creation of the NodeClaim, so that its launch group does not exist."""
    handle = await start_provisioning(fake)
    planned = {LAUNCH_GROUP: "plan-0"}
    made = fake.claims.add("a", born=await fake.now(), labels={NODEPOOL: "default"}, annotations=planned)
    nodeclaim_handle = await fake.start(made, alike="x")
    await wait_until_skipping_time(fake, partial(is_in_phase, nodeclaim_handle, Phase.REGISTRATION), seconds=5)
    return {"": nodeclaim_handle, "provisioning": handle}


async def nodeclaim_recovered(fake: WorkerHarness) -> Runs:
    """The workflow was lost with Temporal's store; an observation then wrongly reports the NodeClaim as deleted."""
    first = await ready_nodeclaim(fake)
    await first.terminate()
    await fake.sleep(minutes=1)
    second = await fake.start((await fake.claims.list())[0], **BUSY)
    await wait_until_phase(second, Phase.READY)
    await fake.signal_observed(second, exists=False)
    await fake.sleep(seconds=10)
    return {"": second}


async def nodeclaim_drifted(fake: WorkerHarness) -> Runs:
    """AMI drift, then subnet drift, then none, then AMI drift again."""
    handle = await ready_nodeclaim(fake)
    image = {"drift": "AMIDrift", "drift_message": "an old image"}
    for drift in (image, {"drift": "SubnetDrift", "drift_message": "another subnet"}, {}):
        await fake.signal_observed(handle, **BUSY, **drift)
        await fake.sleep(seconds=30)
    await fake.signal_observed(handle, **BUSY, **image)
    await fake.sleep(seconds=30)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    return {"": handle}


async def nodeclaim_continued(fake: WorkerHarness) -> Runs:
    first = await ready_nodeclaim(fake)
    for number in range(480):
        await fake.signal_observed(first, **{**BUSY, "node_ready": bool(number % 2)})
    await wait_until(lambda: has_continued_as_new(fake.client, first))
    second = latest_run(fake.client, first)
    await delete_nodeclaim(fake, second)
    await second.result()
    return {"first": fake.client.get_workflow_handle(first.id, run_id=first.result_run_id), "second": second}


async def canary_completed(fake: WorkerHarness) -> Runs:
    handle = await fake.client.start_workflow(
        CanaryWorkflow.run, id=ids.canary(fake.cluster, "v1"), task_queue=ids.task_queue(fake.cluster)
    )
    await handle.result()
    return {"": handle}


async def provisioning_rejected(fake: WorkerHarness) -> Runs:
    fake.node_classes.add("default", ready="False")
    async with fake.running_planner():
        handle = await start_planned_group(fake, "a")
        await wait_until(lambda: has_no_nodeclaims(fake))
    return {"": handle}


async def provisioning_member_deleted(fake: WorkerHarness) -> Runs:
    """One member is deleted before its launch; a NodeClaim without a plan waits for the batch window."""
    async with fake.running_planner():
        handle = await start_planned_group(fake, "a")
        fake.claims.set_status("a", deleting=True)
        nodeclaim_handle = await fake.start((await fake.claims.list())[0])
        assert fake.environment
        with fake.environment.auto_time_skipping_disabled():
            await nodeclaim_handle.result()
        await handle.signal(ProvisioningWorkflow.set_batch_window, BatchWindow(idle=timedelta(seconds=3)))
        fake.claims.add("b", born=await fake.now(), labels={NODEPOOL: "default"})
        join_request = LaunchGroupJoinRequest(
            name="b", uid="uid-b", pool="default", node_class="default", launch_hash="x"
        )
        await handle.signal(ProvisioningWorkflow.join_launch_group, join_request)
        await wait_until_skipping_time(fake, lambda: has_instance(fake, "b"), seconds=2)
    return {"": handle, "life": nodeclaim_handle}


async def provisioning_without_host(fake: WorkerHarness) -> Runs:
    handle = await start_planned_group(fake, "a")
    await fake.sleep(seconds=20)
    async with fake.running_planner():
        await wait_until_skipping_time(fake, lambda: has_instance(fake), seconds=2)
    return {"": handle}


async def nodeclass_lifecycle(fake: WorkerHarness) -> Runs:
    fake.resolver.faults["resolve"] = [BadInput("no")]
    handle = await start_nodeclass(fake)
    await fake.sleep(minutes=8)
    fake.node_classes.add("default", deleting=True)
    await handle.signal(NodeClassWorkflow.observe, ObservedNodeClass(number=2, generation=1, deleting=True))
    await handle.result()
    return {"": handle}


async def watch_host_changed(fake: WorkerHarness) -> Runs:
    handle = await fake.client.start_workflow(
        ClusterWatchWorkflow.run,
        ClusterWatchState(cluster=fake.cluster),
        id=ids.watch(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )
    for host in ("1@tenure-a", "1@tenure-b"):
        await handle.signal(ClusterWatchWorkflow.report_host, WatchHost(identity=host, at=await fake.now()))
        await handle.query(ClusterWatchWorkflow.invalid_objects)
    return {"": handle}


PATHS: dict[str, Path] = {
    path.__name__: path
    for path in (
        nodeclaim_used_before_drain,
        nodeclaim_overdue_and_rebooted,
        nodeclaim_flaps,
        nodeclaim_expired,
        nodeclaim_vanished,
        nodeclaim_no_capacity,
        nodeclaim_overdue_retained,
        nodeclaim_faults,
        nodeclaim_group_retries,
        nodeclaim_joined,
        nodeclaim_created_late,
        nodeclaim_recovered,
        nodeclaim_drifted,
        nodeclaim_drain_blocked,
        nodeclaim_drain_paused,
        nodeclaim_interrupted_early,
        nodeclaim_event_superseded,
        nodeclaim_approved,
        nodeclaim_stop_start,
        nodeclaim_hooks,
        nodeclaim_hook_cancels_drain,
        nodeclaim_continued,
        nodeclaim_rebooted_after_drain,
        nodeclaim_repaired,
        nodeclaim_restored_schedulable,
        nodepool_failed_start,
        nodepool_static,
        nodepool_waits_with_backoff,
        nodeclaim_not_ready,
        provisioning_rejected,
        provisioning_member_deleted,
        provisioning_without_host,
        nodeclass_lifecycle,
        watch_host_changed,
        interruption_sources_reported,
        disruption_preview,
        garbage_collector_sweeps,
        disruption_done,
        disruption_rolled_back,
        disruption_cancelled,
        nodepool_cluster_limit,
        nodepool_rollout_halted,
        disruption_not_permitted,
        cluster_computes_disruption,
        canary_completed,
    )
}


async def start_planned_group(fake: WorkerHarness, *names: str) -> WorkflowHandle[Any, None]:
    """Start the Provisioning workflow with pending pods, whose plan creates a group of these NodeClaims."""
    now = await fake.now()
    for name in names:
        fake.claims.add(name, born=now, labels={NODEPOOL: "default"}, annotations={LAUNCH_GROUP: "group-1"})
    members = tuple(LaunchGroupMember(name=name, uid=f"uid-{name}") for name in names)
    draft = LaunchDraft(group_id="group-1", pool="default", node_class="default", members=members)
    fake.host.outcomes = [PlanOutcome(plan_id="", drafts=(draft,), created=len(names))]
    handle = await start_provisioning(fake)
    await handle.signal(
        ProvisioningWorkflow.pending_pods, ObservedDemand(number=1, pods=1, newest_pod_at=now - timedelta(minutes=1))
    )
    return handle


async def is_overdue(handle: WorkflowHandle[NodeClaimWorkflow, Any]) -> bool:
    return (await handle.query(NodeClaimWorkflow.state)).overdue


async def has_instance(fake: WorkerHarness, name: str = "a") -> bool:
    return bool(fake.claims.found.get(name, {}).get("status", {}).get("providerID"))


async def has_no_nodeclaims(fake: WorkerHarness) -> bool:
    return not fake.claims.found
