"""What workflows tell the command line in words, so that it need not know their state."""

from temporalio.testing import WorkflowEnvironment

from tenure.cli.nodes.why import told_by
from tenure.cli.nodes.workflows import NodeLife
from tenure.model.nodeclaim_history import Phase, Told
from tenure.model.observations import PoolSeen
from tenure.model.signals import Pause
from tenure.policy.lifecycle.pauses import tidied, write_pause
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import eventually
from tests.support.workflows.lives import BUSY, pause_for, pool, ready
from tests.unit.workflows.test_nodeclaim_drift import OLD_IMAGE
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow


async def test_a_node_tells_how_it_came_to_be_and_what_it_waits_for(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    pause = await pause_for(skipping, hours=1)
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    await fake.see(handle, **BUSY, **OLD_IMAGE)

    async def drifted() -> bool:
        told: Told = await handle.query("told", result_type=Told)
        return told.drift.startswith("AMIDrift: m6i.large runs ami-1; ")

    await eventually(drifted)
    told: Told = await handle.query("told", result_type=Told)
    assert [one.phase for one in told.steps] == [
        Phase.LAUNCH,
        Phase.REGISTRATION,
        Phase.INITIALIZATION,
        Phase.READY,
    ]
    assert told.paused.startswith("is paused by ops@example.com until ")
    assert (told.drain, told.away, told.events) == ((), "", ())


async def test_a_pool_tells_of_its_own_pause_and_of_the_clusters(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await pool(fake)
    assert await handle.query("pauses", result_type=list[str]) == []
    pause: Pause = tidied(await pause_for(skipping, hours=1))
    await handle.execute_update(NodePoolWorkflow.pause, pause)
    [own] = await handle.query("pauses", result_type=list[str])
    assert own.startswith("NodePool default is paused by ops@example.com until ")
    await handle.signal(NodePoolWorkflow.seen, PoolSeen(number=2, generation=1, cluster_pause=write_pause(pause)))
    _, whole = await handle.query("pauses", result_type=list[str])
    assert whole.startswith("the cluster is paused by ops@example.com until ")


async def test_of_a_workflow_that_does_not_tell_its_story_the_reason_is_told(fake: World) -> None:
    """As of a worker of an older version."""
    handle = await pool(fake)
    said = await told_by(fake.client, NodeLife(handle.id, "a", "Ready"))
    assert isinstance(said, str) and "older version" in said and "told" in said
