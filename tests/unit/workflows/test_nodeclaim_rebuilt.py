"""Workflows made anew for NodeClaims that lived before them: Temporal's store was lost, or nobody was at work."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.errors import TryLater
from tenure.model.node_health import Absence, lasting, read, written
from tenure.model.nodeclaim_state import Phase
from tenure.model.provider_results import InstanceFacts
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, has_come, in_phase, in_time, state_of
from tests.support.workflows.lives import BUSY, JOINED, ready

PROVIDER = "aws:///us-west-2a/i-old"
GROUP = {labels.LAUNCH_GROUP: "plan-0"}


async def aged(fake: World, skipping: WorkflowEnvironment, age: timedelta, **spec: Any) -> NodeClaim:
    return fake.claims.add("a", born=await skipping.get_current_time() - age, **spec)


def runs(fake: World, instance_id: str = "i-old", **facts: Any) -> None:
    fake.instances.running[instance_id] = InstanceFacts(instance_id=instance_id, state="running", **facts)


async def lived_in(
    fake: World, skipping: WorkflowEnvironment, *conditions: str, age: timedelta = timedelta(hours=3), **spec: Any
) -> NodeClaim:
    """A NodeClaim with an instance that somebody launched, come as far as these conditions say."""
    claim = await aged(fake, skipping, age, **spec)
    runs(fake)
    given: dict[str, Any] = dict.fromkeys(("Launched", *conditions), "True")
    fake.claims.give("a", provider_id=PROVIDER, **given)
    if "Registered" in conditions:
        fake.claims.found["a"]["status"]["nodeName"] = "node-a"
        fake.nodes.join("node-a", PROVIDER)
        fake.nodes.change("node-a", taints=())
    return claim


async def test_an_initialized_node_is_ready_at_once_and_nothing_is_bought(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    claim = await lived_in(fake, skipping, "Registered", "Initialized", annotations=GROUP)
    handle = await fake.start(claim, **BUSY)
    await in_phase(handle, Phase.READY)
    await skipping.sleep(timedelta(minutes=30))
    state = await state_of(handle)
    assert state.phase is Phase.READY and state.node_name == "node-a" and state.boot_id == "boot-1"
    assert state.expires is not None and claim.metadata.creation_timestamp is not None
    assert state.expires - claim.metadata.creation_timestamp == timedelta(hours=720)
    assert fake.fleet.calls == [] and "i-old" in fake.instances.running


async def test_a_young_one_with_an_instance_waits_for_no_groups_word(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """Temporal's store was lost seconds after it was bought: of its launch group nobody knows any more."""
    young = timedelta(seconds=10)
    claim = await lived_in(fake, skipping, "Registered", "Initialized", age=young, annotations=GROUP)
    handle = await fake.start(claim, **BUSY, provider_id=PROVIDER)
    await in_phase(handle, Phase.READY)
    assert fake.fleet.calls == []


async def test_a_registered_node_goes_on_to_be_initialized(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await fake.start(await lived_in(fake, skipping, "Registered"), **BUSY)
    await in_phase(handle, Phase.READY)
    assert fake.fleet.calls == [] and fake.claims.condition("a", "Initialized").startswith("True")


async def test_a_launched_one_still_has_time_to_join(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await fake.start(await lived_in(fake, skipping, annotations=GROUP))
    await in_phase(handle, Phase.REGISTRATION)
    fake.nodes.join("node-a", PROVIDER)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    assert fake.fleet.calls == []


async def test_a_young_one_that_has_an_instance_is_not_launched_again(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await fake.start(await lived_in(fake, skipping, age=timedelta(seconds=5)))
    await in_phase(handle, Phase.REGISTRATION)
    assert fake.fleet.calls == []


@pytest.mark.parametrize("age", [timedelta(seconds=10), timedelta(hours=3)], ids=["young", "old"])
async def test_one_that_is_being_deleted_is_drained_before_its_instance_ends(
    fake: World, skipping: WorkflowEnvironment, age: timedelta
) -> None:
    claim = await lived_in(fake, skipping, "Registered", "Initialized", age=age, annotations=GROUP)
    fake.claims.give("a", deleting=True)
    fake.pods.place("node-a", "web")
    handle = await fake.start(claim, deleting=True)
    outcome = await handle.result()
    assert outcome.story[1].at - outcome.story[0].at < timedelta(minutes=1), "waited for a launch group of before"
    assert [step.phase for step in outcome.story][1:] == [Phase.READY, Phase.DRAIN, Phase.TERMINATION, Phase.GONE]
    assert fake.pods.evicted == ["web"] and fake.instances.terminated == ["i-old"] and fake.claims.found == {}


async def test_an_instance_whose_launch_was_never_written_down_is_found_by_its_tag(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    claim = await aged(fake, skipping, timedelta(minutes=2))
    placed = {"instance_type": "m5.large", "zone": "us-west-2a", "capacity_type": "on-demand", "image_id": "ami-1"}
    runs(fake, "i-other", tags={labels.TAG_NODECLAIM: "b"}, **placed)
    before = claim.metadata.creation_timestamp
    assert before is not None
    runs(fake, "i-older", tags={labels.TAG_NODECLAIM: "a"}, launched_at=before - timedelta(hours=1), **placed)
    runs(fake, tags={labels.TAG_NODECLAIM: "a"}, **placed)
    handle = await fake.start(claim)
    await in_phase(handle, Phase.REGISTRATION)
    assert fake.fleet.calls == []
    assert fake.claims.found["a"]["status"]["providerID"] == PROVIDER


async def test_one_whose_group_nobody_remembers_is_given_up_and_never_launched(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await fake.start(await aged(fake, skipping, timedelta(minutes=2), annotations=GROUP))
    outcome = await handle.result()
    assert outcome.reason == "LaunchTimeout"
    assert fake.fleet.calls == [] and fake.claims.found == {}


async def test_a_group_whose_word_was_lost_has_still_written_down_the_instance(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await fake.start(await aged(fake, skipping, timedelta(seconds=1), annotations=GROUP))
    runs(fake)
    fake.claims.give("a", provider_id=PROVIDER, Launched="True")
    await skipping.sleep(timedelta(minutes=5, seconds=5))
    await in_phase(handle, Phase.REGISTRATION)
    assert fake.instances.terminated == []


async def test_a_claim_older_than_its_launch_deadline_that_nobody_tried_yet_is_launched_once(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await fake.start(await aged(fake, skipping, timedelta(hours=1)))
    await in_phase(handle, Phase.REGISTRATION)
    assert len(fake.fleet.calls) == 1


async def test_what_cannot_be_recalled_yet_is_not_launched_meanwhile(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    fake.instances.faults["named"] = [TryLater("503") for _ in range(3)]
    claim = await aged(fake, skipping, timedelta(minutes=2))
    runs(fake, tags={labels.TAG_NODECLAIM: "a"}, zone="us-west-2a")
    handle = await fake.start(claim)
    await in_time(skipping, lambda: has_come(handle, Phase.REGISTRATION))
    assert fake.fleet.calls == []


async def test_a_life_that_was_ended_by_hand_begins_again_where_it_stood(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await handle.terminate()
    await skipping.sleep(timedelta(minutes=5))
    again: Handle = await fake.start(await must(fake, "a"), **BUSY)
    await in_phase(again, Phase.READY)
    assert len(fake.fleet.calls) == 1


@pytest.mark.parametrize("said", [True, False])
async def test_a_node_whose_drain_was_forgotten_is_in_service_again(
    fake: World, skipping: WorkflowEnvironment, said: bool
) -> None:
    """It was to be kept if its drain came to nothing, and Temporal's store was lost meanwhile; or just as it began."""
    handle = await ready(fake, skipping)
    await handle.terminate()
    await fake.nodes.mark_disrupted("node-a")
    if said:
        fake.claims.give("a", DisruptionReason="True")
    await skipping.sleep(timedelta(minutes=5))
    again: Handle = await fake.start(await must(fake, "a"), **BUSY)
    await in_phase(again, Phase.READY)
    assert labels.DISRUPTED_TAINT_KEY not in {key for key, _, _ in fake.nodes.found["node-a"].taints}
    assert fake.claims.condition("a", "DisruptionReason") == ""


async def must(fake: World, name: str) -> NodeClaim:
    claim = await fake.claims.get(name)
    assert claim is not None
    return claim


async def test_a_node_that_joined_while_nobody_was_at_work_is_not_given_up(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """The registration deadline passed meanwhile; the Node is there, though the watch has not said so yet."""
    handle = await fake.start(await lived_in(fake, skipping, age=timedelta(seconds=1)))
    await in_phase(handle, Phase.REGISTRATION)
    fake.nodes.join("node-a", PROVIDER)
    await skipping.sleep(timedelta(minutes=16))
    await in_phase(handle, Phase.INITIALIZATION)
    assert fake.instances.terminated == []
    await fake.see(handle, **JOINED)


async def test_when_the_node_was_away_is_known_again_and_an_absence_that_is_over_ends(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    left = (await skipping.get_current_time() - timedelta(minutes=30)).replace(microsecond=0)
    before = (Absence(since=left, until=left + timedelta(seconds=50)), Absence(since=left + timedelta(minutes=10)))
    claim = await lived_in(fake, skipping, "Registered", "Initialized", annotations={labels.AWAY: written(before)})
    handle = await fake.start(claim, **BUSY)
    await in_phase(handle, Phase.READY)
    await in_time(skipping, lambda: back(fake), seconds=1)
    state = await state_of(handle)
    assert state.flaps == 2 and state.absences[0] == before[0] and state.absences[1].until is not None


async def back(fake: World) -> bool:
    found = read(fake.claims.found["a"]["metadata"]["annotations"][labels.AWAY])
    return len(found) == 2 and lasting(found) is None
