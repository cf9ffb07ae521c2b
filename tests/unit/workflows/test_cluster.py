"""The Cluster workflow: when it decides, what it starts, and what it remembers."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.apis.labels import DISRUPTION_REASON
from tenure.model.disruption.commands import (
    Decided,
    DisruptionState,
    PermitRecalled,
    Proposal,
    ReplacementSaid,
    Stirred,
)
from tenure.model.errors import BadInput, TryLater
from tenure.model.signals import Pause
from tests.support.fakes.worker import SHORTLY, World
from tests.support.workflows.commands import (
    Command,
    deleted,
    granting,
    in_step,
    marked,
    nodes,
    proposal,
    replacements,
    say_ready,
    untouched,
)
from tests.support.workflows.eventually import eventually, idle, in_time, rolled
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow
from workflows.disruption.command import DisruptionWorkflow

Cluster = WorkflowHandle[ClusterWorkflow, None]


@pytest.fixture
async def host(fake: World) -> AsyncIterator[World]:
    nodes(fake, "a", "b", "c")
    async with fake.planning():
        yield fake


async def cluster(fake: World, state: DisruptionState | None = None) -> Cluster:
    return await fake.client.start_workflow(
        ClusterWorkflow.run,
        state or DisruptionState(cluster=fake.cluster),
        id=ids.cluster(fake.cluster),
        task_queue=fake.cluster,
    )


async def stir(fake: World, handle: Cluster) -> None:
    """Not while a run may just be being continued: see `idle`."""
    await idle(handle, patience=SHORTLY)
    fake.number += 1
    await handle.signal(ClusterWorkflow.stirred, Stirred(number=fake.number))


async def state_of(handle: Cluster) -> DisruptionState:
    return await handle.query(ClusterWorkflow.state)


async def passes(fake: World, count: int) -> bool:
    return len(fake.disruption.decided) == count


async def passed(fake: World, count: int) -> bool:
    """So many at least, where a step of time may bring more than one."""
    return len(fake.disruption.decided) >= count


async def running(handle: Cluster, *proposals: str) -> bool:
    return {one.under_way.proposal.id for one in (await state_of(handle)).under_way} == {*proposals}


def command_of(fake: World, wanted: Proposal) -> Command:
    return fake.client.get_workflow_handle_for(DisruptionWorkflow.run, ids.disruption(fake.cluster, wanted.id))


async def begun(fake: World, *wanted: Proposal, **decided: Any) -> Cluster:
    """The planner proposes these, once."""
    fake.disruption.decisions = [Decided(proposals=wanted, **decided)]
    handle = await cluster(fake)
    await stir(fake, handle)
    await eventually(lambda: passed(fake, 1))
    return handle


async def ending(fake: World, wanted: Proposal) -> str:
    handle = command_of(fake, wanted)
    await eventually(lambda: in_step(handle, "Over"))
    return (await handle.result()).ending


async def test_nothing_is_decided_before_something_changed(host: World, skipping: WorkflowEnvironment) -> None:
    handle = await cluster(host)
    await skipping.sleep(timedelta(hours=1))
    assert host.disruption.decided == []
    await stir(host, handle)
    await eventually(lambda: passed(host, 1))
    await skipping.sleep(timedelta(minutes=1))
    before = len((await handle.fetch_history()).events)
    await skipping.sleep(timedelta(days=1))
    assert await passes(host, 1) and len((await handle.fetch_history()).events) == before


async def test_a_cluster_that_changes_all_the_time_is_decided_on_every_ten_seconds(
    host: World, skipping: WorkflowEnvironment
) -> None:
    handle = await cluster(host)
    began = await skipping.get_current_time()
    while await skipping.get_current_time() - began < timedelta(seconds=60):
        if not await about_to_pass(skipping, handle):
            await stir(host, handle)
        await skipping.sleep(timedelta(seconds=1))
    assert 5 <= len(host.disruption.decided) <= 8


async def about_to_pass(skipping: WorkflowEnvironment, handle: Cluster) -> bool:
    """The test server may hang if a word comes at the very moment for which the workflow has set its timer."""
    last = (await state_of(handle)).last
    if last is None:
        return False
    return timedelta(seconds=9.5) <= await skipping.get_current_time() - last <= timedelta(seconds=10.5)


async def test_a_verdict_that_ends_is_looked_at_again(host: World, skipping: WorkflowEnvironment) -> None:
    now = await skipping.get_current_time()
    await begun(host, again=now + timedelta(minutes=30), first=("a",))
    await skipping.sleep(timedelta(minutes=29))
    assert await passes(host, 1)
    await in_time(skipping, lambda: passed(host, 2), seconds=20)
    assert host.disruption.decided[1].first == ("a",)


async def test_an_older_stir_is_no_news(host: World, skipping: WorkflowEnvironment) -> None:
    handle = await cluster(host)
    for number in (5, 3, 5):
        await handle.signal(ClusterWorkflow.stirred, Stirred(number=number))
        await skipping.sleep(timedelta(minutes=1))
    assert await passes(host, 1)


async def test_each_proposal_is_carried_out_by_a_workflow_of_its_own(host: World) -> None:
    await granting(host)
    first, second = proposal("a"), proposal("b", replacements=0, reason="Drifted", kind="drift")
    handle = await begun(host, first, second)
    assert await ending(host, second) == "done"
    await eventually(lambda: running(handle, first.id))
    assert deleted(host, "b") and not deleted(host, "a")
    other: Command = command_of(host, first)
    await eventually(lambda: in_step(other, "Wait"))
    (under_way,) = (await state_of(handle)).under_way
    assert under_way.under_way.claims == await replacements(other)
    await say_ready(host, other)
    await other.result()
    await eventually(lambda: running(handle))


async def test_a_pass_knows_what_is_under_way(host: World, skipping: WorkflowEnvironment) -> None:
    await granting(host)
    wanted = proposal("a")
    handle = await begun(host, wanted)
    await eventually(lambda: in_step(command_of(host, wanted), "Wait"))
    await stir(host, handle)
    await in_time(skipping, lambda: passed(host, 2))
    assert [one.proposal.id for one in host.disruption.decided[1].under_way] == ["a"]
    assert host.disruption.decided[1].under_way[0].claims


async def test_empty_nodes_are_left_to_their_own_workflows(host: World) -> None:
    handle = await begun(host, proposal("a", replacements=0, reason="Empty", kind="empty"))
    assert await running(handle)


async def test_what_is_proposed_again_while_it_is_carried_out_is_one_command(
    host: World, skipping: WorkflowEnvironment
) -> None:
    await granting(host)
    wanted = proposal("a")
    handle = await begun(host, wanted)
    await eventually(lambda: in_step(command_of(host, wanted), "Wait"))
    host.disruption.decisions = [Decided(proposals=(wanted, proposal("a", "b")))]
    await stir(host, handle)
    await in_time(skipping, lambda: passed(host, 2))
    assert await running(handle, "a") and len(host.disruption.replaced) == 1


async def test_a_move_that_came_to_nothing_is_not_repeated_for_a_while(
    host: World, skipping: WorkflowEnvironment
) -> None:
    await granting(host)
    host.pods.place("node-a", "db", protected=True)
    wanted = proposal("a")
    handle = await begun(host, wanted)
    assert await ending(host, wanted) == "held"
    await in_time(skipping, lambda: passed(host, 2))
    (told,) = host.disruption.decided[1].bounced
    assert told.claims == ("uid-a",) and "do-not-disrupt" in told.why
    host.disruption.decisions = [Decided(proposals=(wanted,))]
    await stir(host, handle)
    await in_time(skipping, lambda: passed(host, 3))
    assert await running(handle)
    await in_time(skipping, lambda: passed(host, 4), minutes=1)
    assert host.disruption.decided[3].bounced == (), "its pause is over, and a pass comes by itself"


async def test_a_pool_whose_replacements_do_not_come_up_is_tried_by_one_command_at_a_time(
    host: World, skipping: WorkflowEnvironment
) -> None:
    """And holds up no other."""
    await granting(host)
    first, second, third = (proposal(one) for one in ("a", "b", "c"))
    other = third.model_copy(update={"replacement_pools": ("other",)})
    handle = await begun(host, first)
    await eventually(lambda: in_step(command_of(host, first), "Wait"))
    (name,) = await replacements(command_of(host, first))
    said = ReplacementSaid(claim=name, ready=False, why="InsufficientInstanceCapacity")
    host.disruption.decisions = [Decided(proposals=(first, second, other)), Decided(proposals=(first, second))]
    await command_of(host, first).signal(DisruptionWorkflow.replacement, said)
    assert (await command_of(host, first).result()).ending == "not replaced"
    await in_time(skipping, lambda: passed(host, 2))
    assert [one.pool for one in host.disruption.decided[1].bounced] == ["default"]
    await eventually(lambda: running(handle, other.id))
    await in_time(skipping, lambda: passed(host, 3), seconds=10)
    await eventually(lambda: running(handle, other.id, first.id))


async def test_a_planner_that_fails_is_asked_again_and_stops_nothing(
    host: World, skipping: WorkflowEnvironment
) -> None:
    host.disruption.faults["decide"] = [BadInput("planner"), TryLater("no planner"), TryLater("no planner")]
    handle = await cluster(host)
    await stir(host, handle)
    await in_time(skipping, lambda: said(handle, "planner"), seconds=1)
    await in_time(skipping, lambda: passed(host, 1), seconds=10)
    await eventually(lambda: said(handle, ""))


async def test_a_pass_that_could_not_be_made_is_made_later_though_nothing_changes(
    host: World, skipping: WorkflowEnvironment
) -> None:
    await begun(host, blocked="caches are too old")
    await in_time(skipping, lambda: passed(host, 2), seconds=5)


async def test_while_the_cluster_is_paused_nothing_begins(host: World, skipping: WorkflowEnvironment) -> None:
    await granting(host)
    now = await skipping.get_current_time()
    pause = Pause(by="ops@example.com", reason="upgrade", until=now + timedelta(hours=1))
    host.disruption.decisions = [Decided(proposals=(proposal("a"),))] * 2
    handle = await cluster(host, DisruptionState(cluster=host.cluster, pause=pause))
    await stir(host, handle)
    await eventually(lambda: passed(host, 1))
    assert "ops@example.com" in host.disruption.decided[0].holds[0].why
    assert await running(handle)
    await in_time(skipping, lambda: running(handle, "a"), minutes=10)
    assert await skipping.get_current_time() - now >= timedelta(hours=1)


async def test_commands_outlive_continuing_as_new(
    host: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 40)
    await granting(host)
    wanted = proposal("a")
    first = await begun(host, wanted)
    await eventually(lambda: in_step(command_of(host, wanted), "Wait"))
    for _ in range(20):
        if await rolled(host.client, first):
            break
        await stir(host, first)
        await skipping.sleep(timedelta(seconds=10))
    assert await rolled(host.client, first)
    following: Cluster = host.client.get_workflow_handle_for(ClusterWorkflow.run, first.id)
    assert await running(following, "a")
    await say_ready(host, command_of(host, wanted))
    await eventually(lambda: running(following))


async def test_what_was_begun_by_a_run_that_was_lost_is_not_begun_again(host: World) -> None:
    await granting(host)
    wanted = proposal("a")
    first = await begun(host, wanted)
    await eventually(lambda: in_step(command_of(host, wanted), "Wait"))
    await first.terminate()
    again = await begun(host, wanted)
    assert host.disruption.decided[0].under_way == ()
    await eventually(lambda: running(again, "a"))
    await command_of(host, wanted).signal(DisruptionWorkflow.recalled, PermitRecalled(claim_uid="uid-a", why="paused"))
    await eventually(lambda: running(again))


async def test_what_a_terminated_command_leaves_is_put_back_after_hours(
    host: World, skipping: WorkflowEnvironment
) -> None:
    await granting(host)
    wanted = proposal("a")
    handle = await begun(host, wanted)
    await eventually(lambda: in_step(command_of(host, wanted), "Wait"))
    await command_of(host, wanted).terminate()
    await skipping.sleep(timedelta(hours=2))
    assert marked(host, "a")
    await in_time(skipping, lambda: running(handle), minutes=10)
    assert untouched(host, "a") and not host.claims.condition("a", DISRUPTION_REASON)


async def said(handle: Cluster, words: str) -> bool:
    blocked = (await state_of(handle)).blocked_by
    return words in blocked if words else not blocked
