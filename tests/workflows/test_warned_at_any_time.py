"""A warning comes while a node's life waits for something else: it acts at once, and waits for no look."""

from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from model.lifecycle import Phase
from tests.fakes.worker import World
from tests.workflows.eventually import Handle, blocked, eventually, in_time, state_of
from tests.workflows.lives import emptied, pool, ready
from tests.workflows.noticed import notice


async def acted(fake: World) -> bool:
    return fake.pods.evicted == ["web"]


async def test_a_warning_is_acted_upon_also_while_the_node_is_looked_at_anew(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """After so long it looks every ten minutes, and no time passes from then on."""
    handle = await ready(fake, skipping)
    await pool(fake)
    fake.pods.place("node-a", "web")
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: blocked(handle, "not empty: default/web"), seconds=10)
    await skipping.sleep(timedelta(minutes=25))
    await notice(fake, skipping, handle, "spotInterruption")
    await eventually(lambda: acted(fake))


async def test_a_warning_is_acted_upon_also_while_the_node_is_lost(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await fake.see(handle)
    await eventually(lambda: blocked(handle, "NodeNotFound"))
    await notice(fake, skipping, handle, "spotInterruption")
    await eventually(lambda: left(handle))
    assert (await handle.result()).reason == "spot_interrupted"


async def left(handle: Handle) -> bool:
    return (await state_of(handle)).phase is not Phase.READY
