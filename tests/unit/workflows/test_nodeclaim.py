"""A node's whole life, phase by phase, on the time-skipping server with the world faked at the ports."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import (
    Handle,
    blocked,
    eventually,
    in_phase,
    in_time,
    own_events,
    scheduled,
    state_of,
    tasks_done,
)
from tests.support.workflows.lives import BUSY, JOINED, WHOLE_LIFE, born, delete, joined, launched, ready
from workflows.nodeclaim import NodeClaimWorkflow


async def test_a_claim_made_by_hand_lives_and_dies(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    assert fake.claims.condition("a", "Initialized").startswith("True")
    assert "karpenter.sh/registered" in fake.nodes.found["node-a"].labels

    await delete(fake, handle)
    outcome = await handle.result()

    assert [step.phase for step in outcome.story] == WHOLE_LIFE
    assert fake.instances.running == {} and len(fake.instances.terminated) == 1
    assert fake.claims.found == {} and fake.nodes.found == {}


async def test_an_undisturbed_life_costs_at_most_80_events(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await delete(fake, handle)
    await handle.result()
    own = await own_events(handle)
    assert len(own) <= 35, own
    assert await tasks_done(handle) <= 18
    assert await scheduled(handle, "run_hook") == await scheduled(handle, "tell_notices") == 0


async def test_a_node_that_never_joins_is_given_up_at_the_registration_deadline(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    claim = await born(fake, skipping)
    handle = await fake.start(claim)
    outcome = await handle.result()
    assert outcome.reason == "RegistrationTimeout"
    assert lived(outcome.story[-1].at, claim.metadata.creation_timestamp) >= timedelta(minutes=15)
    assert "RegistrationTimeout" in fake.events.reasons("a")
    assert fake.instances.running == {} and fake.claims.found == {}


async def test_two_nodes_with_one_provider_id_are_not_guessed_between(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await launched(fake, skipping)
    provider = fake.claims.found["a"]["status"]["providerID"]
    fake.nodes.join("node-b", provider)
    fake.nodes.join("node-c", provider)
    await fake.see(handle, node_name="node-b", node_count=2)
    await eventually(lambda: blocked(handle, "MultipleNodesFound"))
    await eventually(lambda: registered(fake, "False MultipleNodesFound"))
    del fake.nodes.found["node-c"]
    await fake.see(handle, node_name="node-b", node_count=1)
    await in_phase(handle, Phase.INITIALIZATION)
    assert (await state_of(handle)).node_name == "node-b"
    assert await registered(fake, "True")


async def test_a_node_that_the_live_read_never_finds_does_not_fill_a_history(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await launched(fake, skipping)
    await fake.see(handle, **JOINED)
    await skipping.sleep(timedelta(minutes=13))
    assert await blocked(handle, "NodeNotFound")
    assert 5 < await scheduled(handle, "register_node") < 25


async def test_a_node_that_the_live_read_misses_is_looked_for_again(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await launched(fake, skipping)
    await fake.see(handle, **JOINED)
    await eventually(lambda: blocked(handle, "NodeNotFound"))
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"])
    await skipping.sleep(timedelta(seconds=6))
    await in_phase(handle, Phase.INITIALIZATION)


async def test_deleting_a_claim_before_its_node_joined_ends_the_instance(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await launched(fake, skipping)
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, deleting=True)
    outcome = await handle.result()
    assert outcome.reason == "Deleted"
    assert fake.instances.running == {} and fake.claims.found == {}


async def test_startup_taints_hold_initialization_until_they_leave(fake: World, skipping: WorkflowEnvironment) -> None:
    taint = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    handle = await joined(fake, skipping, startupTaints=[taint])
    fake.nodes.change("node-a", ready=True, taints=(("node.cilium.io/agent-not-ready", "", "NoExecute"),))
    waiting = "StartupTaintsExist: node.cilium.io/agent-not-ready:NoExecute"
    await fake.see(handle, **BUSY, waiting_for=[waiting])
    await in_time(skipping, lambda: blocked(handle, "StartupTaintsExist"), seconds=5)
    await eventually(lambda: says(fake, "Unknown StartupTaintsExist"))
    fake.nodes.change("node-a", taints=())
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)


async def test_a_live_look_that_still_finds_a_taint_waits_for_the_next_news(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await joined(fake, skipping)
    fake.nodes.change("node-a", ready=True, taints=(("node.kubernetes.io/not-ready", "", "NoExecute"),))
    await fake.see(handle, **BUSY)
    await eventually(lambda: blocked(handle, "KnownEphemeralTaintsExist"))
    fake.nodes.change("node-a", taints=())
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)


async def test_a_node_that_never_initializes_is_overdue_and_kept(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await joined(fake, skipping)
    await skipping.sleep(timedelta(minutes=31))
    state = await state_of(handle)
    assert state.overdue and state.phase is Phase.INITIALIZATION
    assert "InitializationOverdue" in fake.events.reasons("a")
    assert fake.instances.terminated == []
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **BUSY)
    await in_phase(handle, Phase.READY)
    assert not (await state_of(handle)).overdue


async def test_a_reboot_takes_the_node_back_through_initialization(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.nodes.change("node-a", boot_id="boot-2")
    await fake.see(handle, **{**BUSY, "boot_id": "boot-2"})
    await eventually(lambda: rebooted(handle))
    await in_phase(handle, Phase.READY)
    assert (await state_of(handle)).boot_id == "boot-2"


async def test_a_node_that_turns_not_ready_stays_a_node(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await fake.see(handle, **{**BUSY, "node_ready": False})
    await skipping.sleep(timedelta(hours=1))
    assert (await state_of(handle)).phase is Phase.READY
    assert len(fake.fleet.calls) == 1


async def test_a_node_that_vanished_with_its_instance_is_given_up(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.instances.running.clear()
    await fake.nodes.release("node-a")
    await fake.see(handle)
    outcome = await handle.result()
    assert outcome.reason == "GarbageCollected"
    assert fake.claims.found == {}


async def test_a_node_object_that_is_missing_is_waited_for_while_its_instance_runs(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await fake.see(handle)
    await eventually(lambda: blocked(handle, "NodeNotFound"))
    await fake.see(handle, **BUSY)
    await eventually(lambda: unblocked(handle))
    assert (await state_of(handle)).phase is Phase.READY


async def test_a_node_that_comes_back_while_its_instance_is_looked_at_is_seen_at_once(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, publish = await ready(fake, skipping), fake.events.publish

    async def published(**said: Any) -> None:
        if said["reason"] == "NodeNotFound":
            await fake.see(handle, **BUSY)
        await publish(**said)

    monkeypatch.setattr(fake.events, "publish", published)
    await fake.see(handle)
    await eventually(lambda: told_lost(fake))
    await eventually(lambda: unblocked(handle))


async def test_older_and_repeated_observations_change_nothing(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    newest = fake.observe(**BUSY)
    stale = newest.model_copy(update={"number": 1, "deleting": True, "exists": False})
    for seen in (newest, stale, newest, stale):
        await handle.signal(NodeClaimWorkflow.seen, seen)
    await skipping.sleep(timedelta(minutes=1))
    state = await state_of(handle)
    assert state.phase is Phase.READY and not state.seen.deleting


def lived(end: datetime, birth: datetime | None) -> timedelta:
    assert birth is not None
    return end - birth


async def rebooted(handle: Handle) -> bool:
    return (await state_of(handle)).reboots == 1


async def told_lost(fake: World) -> bool:
    return "NodeNotFound" in fake.events.reasons("a")


async def unblocked(handle: Handle) -> bool:
    return not (await state_of(handle)).blocked_by


async def says(fake: World, told: str) -> bool:
    return fake.claims.condition("a", "Initialized") == told


async def registered(fake: World, told: str) -> bool:
    return fake.claims.condition("a", "Registered") == told
