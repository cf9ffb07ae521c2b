"""Starts the workflows that a cluster or a NodePool has once."""

from typing import Any

from temporalio.client import WorkflowHandle

from tenure.model.base import Message
from tenure.model.garbage_collection import GarbageCollectorState
from tenure.model.interruption.records import InterruptionState
from tenure.model.workflow_states import ClusterWatchState, NodePoolState, ProvisioningState
from tests.support.fakes.worker import WorkerHarness
from workflows import ids
from workflows.cluster_watch import ClusterWatchWorkflow
from workflows.garbage_collection import GarbageCollectorWorkflow
from workflows.interruption import InterruptionWorkflow
from workflows.nodepool import NodePoolWorkflow
from workflows.provisioner import ProvisioningWorkflow

Provisioning = WorkflowHandle[ProvisioningWorkflow, None]
NodePool = WorkflowHandle[NodePoolWorkflow, None]
Interruption = WorkflowHandle[InterruptionWorkflow, None]
Collector = WorkflowHandle[GarbageCollectorWorkflow, None]
ClusterWatch = WorkflowHandle[ClusterWatchWorkflow, None]


async def start_provisioning(fake: WorkerHarness, **state_fields: Any) -> Provisioning:
    state = ProvisioningState(cluster=fake.cluster, **state_fields)
    return await _start(fake, ProvisioningWorkflow.run, state, ids.provisioning(fake.cluster))


async def start_nodepool_workflow(fake: WorkerHarness, name: str = "default") -> NodePool:
    """The workflow waits for its first observation."""
    state = NodePoolState(cluster=fake.cluster, name=name)
    return await _start(fake, NodePoolWorkflow.run, state, ids.nodepool(fake.cluster, name))


async def start_interruption(fake: WorkerHarness, queue: str = "demo") -> Interruption:
    state = InterruptionState(cluster=fake.cluster, queue=queue)
    return await _start(fake, InterruptionWorkflow.run, state, ids.interruption(fake.cluster))


async def start_garbage_collector(fake: WorkerHarness, **state_fields: Any) -> Collector:
    state = GarbageCollectorState(cluster=fake.cluster, **state_fields)
    return await _start(fake, GarbageCollectorWorkflow.run, state, ids.garbage_collection(fake.cluster))


async def start_cluster_watch(fake: WorkerHarness) -> ClusterWatch:
    return await _start(
        fake, ClusterWatchWorkflow.run, ClusterWatchState(cluster=fake.cluster), ids.watch(fake.cluster)
    )


async def _start(fake: WorkerHarness, run: Any, state: Message, workflow_id: str) -> WorkflowHandle[Any, None]:
    handle: WorkflowHandle[Any, None] = await fake.client.start_workflow(
        run, state, id=workflow_id, task_queue=ids.task_queue(fake.cluster)
    )
    return handle
