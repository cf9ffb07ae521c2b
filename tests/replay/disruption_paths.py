"""The paths of voluntary disruption: commands, done or undone, and the Cluster workflow that starts them."""

from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from tenure.model.disruption.commands import Decided, DisruptionState, Proposal, Replaced, ReplacementSaid, Stirred
from tenure.model.errors import BadInput
from tests.support.fakes.granter import GranterWorkflow, Grants
from tests.support.fakes.worker import World
from tests.support.workflows.commands import (
    Command,
    command,
    granting,
    in_step,
    nodes,
    proposal,
    replacements,
    say_ready,
)
from tests.support.workflows.eventually import eventually, in_time
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow
from workflows.disruption.command import DisruptionWorkflow

Runs = dict[str, WorkflowHandle[Any, Any]]


async def disruption_done(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """Permits come late, the host is not there at first, and the replacement's node is not Ready at once."""
    nodes(fake, "a", "b")
    pools = await granting(fake, refused=("uid-b",))
    fake.disruption.refusals = [Replaced(outcome="not now", why="caches are too old")]
    async with fake.planning():
        handle = await command(fake, proposal("a", "b"))
        await skipping.sleep(200)
        await pools.signal(GranterWorkflow.change, Grants())
        await in_time(skipping, lambda: in_step(handle, "Wait"), seconds=5)
        await skipping.sleep(400)
        await say_ready(fake, handle)
        await handle.result()
    return {"": handle}


async def disruption_undone(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """A replacement ends early, and the API server refuses for a while to put a node back."""
    nodes(fake, "a")
    await granting(fake)
    async with fake.planning():
        handle = await command(fake, proposal("a", replacements=2))
        await eventually(lambda: in_step(handle, "Wait"))
        fake.nodes.faults["unmark_disrupted"] = [BadInput("422")]
        name = (await replacements(handle))[0]
        await handle.signal(DisruptionWorkflow.replacement, ReplacementSaid(claim=name, ready=False, why="no capacity"))
        await handle.result()
    return {"": handle}


async def disruption_not_permitted(fake: World, skipping: WorkflowEnvironment) -> Runs:
    nodes(fake, "a")
    await granting(fake, silent=True)
    handle = await command(fake, proposal("a"))
    await handle.result()
    return {"": handle}


async def cluster_decides(fake: World, skipping: WorkflowEnvironment) -> Runs:
    """One command is done, one comes to nothing, one is lost, and a pass fails in between."""
    nodes(fake, "a", "b", "c")
    await granting(fake)
    fake.pods.place("node-b", "db", protected=True)
    wanted = [proposal("a", replacements=0), proposal("b"), proposal("c")]
    fake.disruption.decisions = [Decided(proposals=tuple(wanted))]
    fake.disruption.faults["decide"] = [None, BadInput("planner")]
    async with fake.planning():
        handle = await fake.client.start_workflow(
            ClusterWorkflow.run,
            DisruptionState(cluster=fake.cluster),
            id=ids.cluster(fake.cluster),
            task_queue=fake.cluster,
        )
        await handle.signal(ClusterWorkflow.stirred, Stirred(number=1))
        lost = _command(fake, wanted[2])
        await eventually(lambda: in_step(lost, "Wait"))
        await lost.terminate()
        for number in range(2, 6):
            await handle.signal(ClusterWorkflow.stirred, Stirred(number=number))
            await skipping.sleep(60)
        await in_time(skipping, lambda: _idle(handle), minutes=20)
    return {"": handle}


def _command(fake: World, wanted: Proposal) -> Command:
    return fake.client.get_workflow_handle_for(DisruptionWorkflow.run, ids.disruption(fake.cluster, wanted.id))


async def _idle(handle: WorkflowHandle[ClusterWorkflow, None]) -> bool:
    return not (await handle.query(ClusterWorkflow.state)).under_way
