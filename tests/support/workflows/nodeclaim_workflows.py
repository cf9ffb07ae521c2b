"""NodeClaim workflows in the phase in which a test begins, and observations of the watch."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.nodeclaim.state import Phase
from tenure.model.observations import ObservedNodeClass, ObservedNodePool
from tenure.model.signals import Pause
from tenure.model.workflow_states import NodeClassState
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import start_nodepool_workflow
from tests.support.workflows.eventually import Handle, wait_until_phase
from workflows import ids
from workflows.nodeclass import NodeClassWorkflow
from workflows.nodepool import NodePoolWorkflow

NodeClass = WorkflowHandle[NodeClassWorkflow, None]
JOINED: dict[str, Any] = {"node_name": "node-a", "node_count": 1}
BUSY: dict[str, Any] = {**JOINED, "node_ready": True, "boot_id": "boot-1"}
"""Observation of a Ready node with a pod."""
ALL_PHASES = [
    Phase.LAUNCH,
    Phase.REGISTRATION,
    Phase.INITIALIZATION,
    Phase.READY,
    Phase.DRAIN,
    Phase.TERMINATION,
    Phase.DELETED,
]


async def has_attention_condition(fake: WorkerHarness, condition: str) -> bool:
    """`condition`: status and reason; empty without the condition."""
    return fake.claims.condition_text("a", labels.NEEDS_ATTENTION) == condition


def is_in_service(fake: WorkerHarness) -> bool:
    """Whether the Node has no disruption taint."""
    return not fake.nodes.found["node-a"].being_disrupted


async def create_nodeclaim(fake: WorkerHarness, **spec: Any) -> NodeClaim:
    return fake.claims.add("a", born=await fake.now(), **spec)


async def launched_nodeclaim(fake: WorkerHarness, **spec: Any) -> Handle:
    """A standalone NodeClaim with a running instance."""
    handle = await fake.start(await create_nodeclaim(fake, **spec))
    await wait_until_phase(handle, Phase.REGISTRATION)
    return handle


async def registered_nodeclaim(fake: WorkerHarness, **spec: Any) -> Handle:
    """A NodeClaim whose Node is registered but not Ready."""
    handle = await launched_nodeclaim(fake, **spec)
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.signal_observed(handle, **JOINED)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    return handle


async def ready_nodeclaim(fake: WorkerHarness, **spec: Any) -> Handle:
    """A NodeClaim whose node is initialized and runs a pod."""
    handle = await registered_nodeclaim(fake, **spec)
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    return handle


async def observe_empty(
    fake: WorkerHarness, handle: Handle, consolidation: str = "WhenEmpty/30s", **fields: Any
) -> None:
    """Observe that the last pod was just deleted."""
    now = await fake.now()
    await fake.signal_observed(handle, **BUSY, empty=True, empty_since=now, consolidation=consolidation, **fields)


async def delete_nodeclaim(fake: WorkerHarness, handle: Handle, **fields: Any) -> None:
    """As kubectl does."""
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, **BUSY, deleting=True, **fields)


async def start_nodepool(fake: WorkerHarness, **disruption: Any) -> Any:
    """The NodePool `default` and its workflow, which has observed it."""
    fake.pools.add("default", disruption=disruption)
    handle = await start_nodepool_workflow(fake)
    await handle.signal(NodePoolWorkflow.observe, ObservedNodePool(number=1, generation=1))
    return handle


async def start_nodeclass(fake: WorkerHarness, **observed_fields: object) -> NodeClass:
    """The workflow of EC2NodeClass `default`, started with its first observation as by the watch."""
    return await fake.client.start_workflow(
        NodeClassWorkflow.run,
        NodeClassState(cluster=fake.cluster, name="default"),
        id=ids.nodeclass(fake.cluster, "default"),
        task_queue=ids.task_queue(fake.cluster),
        start_signal="observe",
        start_signal_args=[observed_nodeclass(fake, **observed_fields)],
    )


def observed_nodeclass(fake: WorkerHarness, **observed_fields: object) -> ObservedNodeClass:
    fake.number += 1
    return ObservedNodeClass.model_validate({"number": fake.number, "generation": 1, **observed_fields})


async def pause_for(fake: WorkerHarness, **duration: float) -> Pause:
    until = await fake.now() + timedelta(**duration)
    return Pause(by="ops@example.com", reason="database upgrade", until=until)
