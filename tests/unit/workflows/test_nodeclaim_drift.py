"""A node's drift is written to its NodeClaim once, taken back once, and costs nothing where there is none."""

from datetime import timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.model.errors import BadInput
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import (
    Handle,
    blocked,
    eventually,
    in_phase,
    in_time,
    latest,
    own_events,
    rolled,
    scheduled,
    state_of,
)
from tests.support.workflows.lives import BUSY, JOINED, delete, emptied, joined, launched, pool, ready

OLD_IMAGE: dict[str, Any] = {"drift": "AMIDrift", "drift_message": "m6i.large runs ami-1"}
OTHER_SUBNET: dict[str, Any] = {"drift": "SubnetDrift", "drift_message": "the instance is in subnet-a"}


async def shows(fake: World, told: str) -> bool:
    return fake.claims.condition("a", "Drifted") == told


async def wrote(handle: Handle, reason: str) -> bool:
    return (await state_of(handle)).drift == reason


async def reports(handle: Handle) -> int:
    return await scheduled(handle, "report")


async def test_a_drifted_node_says_so_once_and_stays(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    before = await reports(handle)
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await eventually(lambda: shows(fake, "True AMIDrift"))
    for flicker in range(4):
        await fake.see(handle, **{**BUSY, "node_ready": bool(flicker % 2)}, **OLD_IMAGE)
    await skipping.sleep(timedelta(minutes=1))
    assert await reports(handle) == before + 1
    assert fake.events.reasons("a").count("AMIDrift") == 1
    assert (await state_of(handle)).phase is Phase.READY and fake.instances.terminated == []


async def test_what_a_drifted_node_waits_for_can_be_asked(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await eventually(lambda: blocked(handle, "drifted: AMIDrift, waits for its replacement to be planned"))
    await fake.see(handle, **BUSY)
    await eventually(lambda: unblocked(handle))


async def unblocked(handle: Handle) -> bool:
    return (await state_of(handle)).blocked_by == ""


async def test_a_drift_that_is_mended_is_taken_back(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    before = await reports(handle)
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await eventually(lambda: shows(fake, "True AMIDrift"))
    await fake.see(handle, **BUSY)
    await eventually(lambda: shows(fake, ""))
    await eventually(lambda: wrote(handle, ""))
    assert await reports(handle) == before + 2
    assert fake.events.reasons("a").count("AMIDrift") == 1


async def test_another_reason_takes_the_place_of_the_first(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await eventually(lambda: wrote(handle, "AMIDrift"))
    await fake.see(handle, **BUSY, **OTHER_SUBNET)
    await eventually(lambda: shows(fake, "True SubnetDrift"))
    assert {"AMIDrift", "SubnetDrift"} <= set(fake.events.reasons("a"))


async def test_new_words_of_the_same_reason_are_written_without_another_event(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await eventually(lambda: wrote(handle, "AMIDrift"))
    before = await reports(handle)
    await fake.see(handle, **BUSY, drift="AMIDrift", drift_message="m6i.large runs ami-1, another one is due")
    await eventually(lambda: reported(handle, before + 1))
    assert fake.events.reasons("a").count("AMIDrift") == 1


async def reported(handle: Handle, times: int) -> bool:
    return await reports(handle) >= times


async def test_a_node_that_is_still_starting_says_so_too(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await launched(fake, skipping)
    await fake.see(handle, **OLD_IMAGE)
    await eventually(lambda: shows(fake, "True AMIDrift"))
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.see(handle, **JOINED, **OLD_IMAGE)
    await in_phase(handle, Phase.INITIALIZATION)
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **BUSY, **OTHER_SUBNET)
    await in_phase(handle, Phase.READY)
    await eventually(lambda: shows(fake, "True SubnetDrift"))


async def test_a_node_that_goes_is_judged_no_more(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.pods.place("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web"
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await eventually(lambda: wrote(handle, "AMIDrift"))
    before = await reports(handle)
    await delete(fake, handle)
    await in_phase(handle, Phase.DRAIN)
    await fake.see(handle, **BUSY, **OTHER_SUBNET)
    await eventually(lambda: saw(handle, fake.number))
    assert await reports(handle) == before and await shows(fake, "True AMIDrift")


async def saw(handle: Handle, number: int) -> bool:
    return (await state_of(handle)).seen.number == number


async def test_a_drifted_node_that_empties_goes_as_any_other(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await eventually(lambda: wrote(handle, "AMIDrift"))
    await emptied(fake, skipping, handle)
    assert (await handle.result()).reason == "Empty"


async def test_a_life_without_drift_has_no_event_of_it(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await joined(fake, skipping)
    before = await reports(handle)
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    await skipping.sleep(timedelta(hours=1))
    assert await reports(handle) == before and await shows(fake, "")


async def test_what_could_not_be_written_is_written_later(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.claims.faults["patch"] = [BadInput("no")]
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await in_time(skipping, lambda: shows(fake, "True AMIDrift"), minutes=1)
    assert (await state_of(handle)).phase is Phase.READY


async def test_drift_is_known_to_the_next_run(fake: World, skipping: WorkflowEnvironment) -> None:
    first = await ready(fake, skipping)
    await fake.see(first, **BUSY, **OLD_IMAGE)
    await eventually(lambda: wrote(first, "AMIDrift"))
    for number in range(480):
        await fake.see(first, **{**BUSY, "node_ready": bool(number % 2)}, **OLD_IMAGE)
    await eventually(lambda: rolled(fake.client, first))
    second = latest(fake.client, first)
    assert await reports(second) == 0
    await fake.see(second, **BUSY)
    await eventually(lambda: shows(fake, ""))


async def test_a_life_that_is_begun_anew_takes_back_what_it_was_not_told_of(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """Its workflow was lost, and what the node had drifted from was mended meanwhile."""
    first = await ready(fake, skipping)
    await fake.see(first, **BUSY, **OLD_IMAGE)
    await eventually(lambda: shows(fake, "True AMIDrift"))
    await first.terminate()
    await skipping.sleep(timedelta(minutes=1))
    second = await fake.start((await fake.claims.list())[0], **BUSY)
    await in_phase(second, Phase.READY)
    await eventually(lambda: shows(fake, ""))


async def test_drift_costs_few_events(fake: World, skipping: WorkflowEnvironment) -> None:
    """A signal and what it brings beside tasks: an activity, what the node shows, and its expiry set anew."""
    handle = await ready(fake, skipping)
    await skipping.sleep(timedelta(seconds=30))
    before = len(await own_events(handle))
    await fake.see(handle, **BUSY, **OLD_IMAGE)
    await eventually(lambda: wrote(handle, "AMIDrift"))
    await skipping.sleep(timedelta(minutes=1))
    after = (await own_events(handle))[before:]
    assert len(after) <= 7, after
