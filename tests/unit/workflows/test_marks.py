"""A node that was taken out of service for nothing is put back: its taint would use up the budget that it waits for."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.model.errors import BadInput, Fault, TryLater
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, in_time, scheduled, state_of
from tests.support.workflows.lives import emptied, pause_for, pool, ready
from workflows.nodeclaim import NodeClaimWorkflow


def tainted(fake: World) -> bool:
    return labels.DISRUPTED_TAINT_KEY in {key for key, _, _ in fake.nodes.found["node-a"].taints}


def in_service(fake: World) -> bool:
    return not tainted(fake) and not fake.claims.condition("a", labels.DISRUPTION_REASON)


async def out_of_service(fake: World) -> bool:
    return tainted(fake)


def half_done(fake: World, faults: Callable[[], Fault]) -> None:
    """NodeClaims cannot be deleted, nor nodes put back, for as long as a permit lasts."""
    fake.claims.faults["delete"] = [faults() for _ in range(100)]
    fake.nodes.faults["unmark_disrupted"] = [faults() for _ in range(100)]


async def stuck(fake: World, skipping: WorkflowEnvironment, faults: Callable[[], Fault]) -> Handle:
    """Its node is tainted, and the permit lapsed."""
    handle = await ready(fake, skipping)
    await pool(fake, budgets=[{"nodes": "100%"}])
    half_done(fake, faults)
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: out_of_service(fake))
    await skipping.sleep(timedelta(minutes=5))
    return handle


@pytest.mark.parametrize("faults", [lambda: TryLater("503"), lambda: BadInput("422")])
async def test_a_node_whose_deletion_came_to_nothing_does_not_wait_for_itself(
    fake: World, skipping: WorkflowEnvironment, faults: Callable[[], Fault]
) -> None:
    handle = await stuck(fake, skipping, faults)
    fake.claims.faults.clear()
    fake.nodes.faults.clear()
    began = await skipping.get_current_time()
    outcome = await handle.result()
    assert outcome.reason == "Empty" and outcome.story[-1].at - began < timedelta(minutes=2)


async def test_while_nodes_cannot_be_put_back_it_goes_all_the_same(fake: World, skipping: WorkflowEnvironment) -> None:
    """Say that somebody's admission webhook refuses it."""
    handle = await stuck(fake, skipping, lambda: TryLater("503"))
    fake.nodes.faults["unmark_disrupted"] = [BadInput("422") for _ in range(1000)]
    fake.claims.faults.clear()
    await in_time(skipping, lambda: gone(fake), seconds=240)
    assert (await handle.result()).reason == "Empty"


async def gone(fake: World) -> bool:
    return not fake.claims.found


async def test_it_is_in_service_again_as_soon_as_that_can_be(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await stuck(fake, skipping, lambda: TryLater("503"))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(skipping, hours=3))
    fake.nodes.faults.clear()
    await skipping.sleep(timedelta(seconds=30))
    assert in_service(fake) and (await state_of(handle)).phase is Phase.READY


async def test_putting_a_node_back_is_retried_every_minute(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await stuck(fake, skipping, lambda: TryLater("503"))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(skipping, hours=3))
    fake.nodes.faults["unmark_disrupted"] = [BadInput("422") for _ in range(1000)]
    await skipping.sleep(timedelta(minutes=1))
    before = await scheduled(handle, "put_back")
    await skipping.sleep(timedelta(minutes=10))
    assert 5 <= await scheduled(handle, "put_back") - before <= 11


async def test_a_deletion_that_a_pause_cut_short_leaves_no_mark(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake, budgets=[{"nodes": "100%"}])
    half_done(fake, lambda: TryLater("503"))
    await emptied(fake, skipping, handle)
    await in_time(skipping, lambda: out_of_service(fake))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(skipping, hours=3))
    await skipping.sleep(timedelta(seconds=20))
    fake.nodes.faults.clear()
    await skipping.sleep(timedelta(seconds=30))
    assert in_service(fake) and (await state_of(handle)).phase is Phase.READY


async def test_a_mark_of_a_command_is_left_alone(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await stuck(fake, skipping, lambda: TryLater("503"))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(skipping, hours=3))
    marks = [one for one in fake.claims.found["a"]["status"]["conditions"] if one["type"] == labels.DISRUPTION_REASON]
    marks[0]["message"] = "test/disruption/1"
    fake.nodes.faults.clear()
    await in_time(skipping, lambda: eventually_put(handle))
    assert tainted(fake)


async def eventually_put(handle: Handle) -> bool:
    return not (await state_of(handle)).marked and await scheduled(handle, "put_back") >= 1


async def test_a_life_that_goes_as_it_should_puts_nothing_back(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    fake.pods.place("node-a", "web")
    await emptied(fake, skipping, handle)
    await skipping.sleep(timedelta(minutes=2))
    fake.pods.by_node.clear()
    await handle.result()
    assert await scheduled(handle, "put_back") == 0
