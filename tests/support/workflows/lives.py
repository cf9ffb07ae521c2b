"""Nodes brought to where a test begins, and what the watch would say of them."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.apis.nodeclaim import NodeClaim
from tenure.model.nodeclaim_state import Phase
from tenure.model.observations import NodeClassSeen, PoolSeen
from tenure.model.signals import Pause
from tenure.model.workflow_states import NodeClassState, PoolState
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, in_phase
from workflows import ids
from workflows.nodeclass import NodeClassWorkflow
from workflows.nodepool import NodePoolWorkflow

NodeClass = WorkflowHandle[NodeClassWorkflow, None]
JOINED: dict[str, Any] = {"node_name": "node-a", "node_count": 1}
BUSY: dict[str, Any] = {**JOINED, "node_ready": True, "boot_id": "boot-1"}
"""A node that is Ready and runs a pod."""
WHOLE_LIFE = [
    Phase.LAUNCH,
    Phase.REGISTRATION,
    Phase.INITIALIZATION,
    Phase.READY,
    Phase.DRAIN,
    Phase.TERMINATION,
    Phase.GONE,
]


async def born(fake: World, skipping: WorkflowEnvironment, **spec: Any) -> NodeClaim:
    return fake.claims.add("a", born=await skipping.get_current_time(), **spec)


async def launched(fake: World, skipping: WorkflowEnvironment, **spec: Any) -> Handle:
    """A hand-made NodeClaim whose instance runs."""
    handle = await fake.start(await born(fake, skipping, **spec))
    await in_phase(handle, Phase.REGISTRATION)
    return handle


async def joined(fake: World, skipping: WorkflowEnvironment, **spec: Any) -> Handle:
    """One whose Node registered and is not Ready yet."""
    handle = await launched(fake, skipping, **spec)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.see(handle, **JOINED)
    await in_phase(handle, Phase.INITIALIZATION)
    return handle


async def ready(fake: World, skipping: WorkflowEnvironment, **spec: Any) -> Handle:
    """One whose node is initialized and runs a pod."""
    handle = await joined(fake, skipping, **spec)
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    return handle


async def emptied(fake: World, skipping: WorkflowEnvironment, handle: Handle, policy: str = "WhenEmpty/30s") -> None:
    """The last pod left just now."""
    now = await skipping.get_current_time()
    await fake.see(handle, **BUSY, empty=True, empty_since=now, policy=policy)


async def delete(fake: World, handle: Handle) -> None:
    """As with kubectl."""
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, **BUSY, deleting=True)


async def pool(fake: World, **disruption: Any) -> Any:
    """The NodePool `default` and its workflow, which has seen it."""
    fake.pools.add("default", disruption=disruption)
    handle = await fake.client.start_workflow(
        NodePoolWorkflow.run,
        PoolState(cluster=fake.cluster, name="default"),
        id=ids.nodepool(fake.cluster, "default"),
        task_queue=ids.task_queue(fake.cluster),
    )
    await handle.signal(NodePoolWorkflow.seen, PoolSeen(number=1, generation=1))
    return handle


async def node_class(fake: World, **seen: object) -> NodeClass:
    """The workflow of EC2NodeClass `default`, started as the watch does it: by the signal that says what it saw."""
    return await fake.client.start_workflow(
        NodeClassWorkflow.run,
        NodeClassState(cluster=fake.cluster, name="default"),
        id=ids.nodeclass(fake.cluster, "default"),
        task_queue=ids.task_queue(fake.cluster),
        start_signal="seen",
        start_signal_args=[observed(fake, **seen)],
    )


def observed(fake: World, **seen: object) -> NodeClassSeen:
    fake.number += 1
    return NodeClassSeen.model_validate({"number": fake.number, "generation": 1, **seen})


async def pause_for(skipping: WorkflowEnvironment, **lasting: float) -> Pause:
    until = await skipping.get_current_time() + timedelta(**lasting)
    return Pause(by="ops@example.com", reason="database upgrade", until=until)
