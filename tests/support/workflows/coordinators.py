"""Starts the workflows that a cluster or a NodePool has once."""

from typing import Any

from temporalio.client import WorkflowHandle

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
    return await fake.client.start_workflow(
        ProvisioningWorkflow.run,
        ProvisioningState(cluster=fake.cluster, **state_fields),
        id=ids.provisioning(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def start_nodepool_workflow(fake: WorkerHarness, name: str = "default") -> NodePool:
    """The workflow waits for its first observation."""
    return await fake.client.start_workflow(
        NodePoolWorkflow.run,
        NodePoolState(cluster=fake.cluster, name=name),
        id=ids.nodepool(fake.cluster, name),
        task_queue=ids.task_queue(fake.cluster),
    )


async def start_interruption(fake: WorkerHarness, queue: str = "demo") -> Interruption:
    return await fake.client.start_workflow(
        InterruptionWorkflow.run,
        InterruptionState(cluster=fake.cluster, queue=queue),
        id=ids.interruption(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def start_garbage_collector(fake: WorkerHarness) -> Collector:
    return await fake.client.start_workflow(
        GarbageCollectorWorkflow.run,
        GarbageCollectorState(cluster=fake.cluster),
        id=ids.garbage_collection(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )


async def start_cluster_watch(fake: WorkerHarness) -> ClusterWatch:
    return await fake.client.start_workflow(
        ClusterWatchWorkflow.run,
        ClusterWatchState(cluster=fake.cluster),
        id=ids.watch(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )
