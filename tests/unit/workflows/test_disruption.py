"""One command of voluntary disruption: replacement first, all nodes or none, and undone when anything fails."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.model.disruption.commands import PermitRecalled, Replaced, ReplacementSaid
from tenure.model.errors import BadInput, TryLater
from tests.support.fakes.granter import GranterWorkflow, Grants
from tests.support.fakes.worker import World
from tests.support.workflows.commands import (
    Command,
    comes_up,
    command,
    deleted,
    granting,
    in_step,
    lasted,
    marked,
    nodes,
    proposal,
    replacements,
    say_ready,
    untouched,
)
from tests.support.workflows.eventually import eventually, in_time, rolled, scheduled
from workflows.disruption.command import DisruptionWorkflow


@pytest.fixture
async def host(fake: World) -> AsyncIterator[World]:
    """With two nodes that could go, and a process that hosts the planner."""
    nodes(fake, "a", "b")
    async with fake.planning():
        yield fake


async def waiting(fake: World, **fields: Any) -> Command:
    """A command on both nodes, whose replacements start."""
    await granting(fake)
    handle = await command(fake, proposal("a", "b", **fields))
    await eventually(lambda: in_step(handle, "Wait"))
    return handle


async def test_replacements_are_there_before_the_nodes_go(host: World) -> None:
    handle = await waiting(host)
    assert marked(host, "a") and marked(host, "b")
    assert not deleted(host, "a") and not deleted(host, "b")
    await say_ready(host, handle)
    assert (await handle.result()).ending == "done"
    assert deleted(host, "a") and deleted(host, "b")
    assert not any(deleted(host, one) for one in await replacements(handle))


async def test_without_a_replacement_nodes_go_at_once(host: World) -> None:
    pools = await granting(host)
    handle = await command(host, proposal("a", "b", replacements=0))
    assert (await handle.result()).ending == "done"
    assert deleted(host, "a") and deleted(host, "b")
    assert len(host.disruption.replaced) == 1
    assert sorted(await pools.query(GranterWorkflow.given_back)) == ["uid-a", "uid-b"]


async def test_permits_are_asked_for_in_each_nodes_pool_and_for_its_reason(host: World) -> None:
    host.claims.found["b"]["metadata"]["labels"]["karpenter.sh/nodepool"] = "other"
    pools, others = await granting(host), await granting(host, "other")
    both = proposal("a", "b", replacements=0)
    first, second = both.candidates
    spread = both.model_copy(update={"candidates": (first, second.model_copy(update={"pool": "other"}))})
    handle = await command(host, spread)
    await handle.result()
    for pool, uid in ((pools, "uid-a"), (others, "uid-b")):
        wishes = await pool.query(GranterWorkflow.wishes)
        assert [(one.claim_uid, one.reason) for one in wishes] == [(uid, "Underutilized")]


async def test_one_refusal_keeps_all_nodes_in_service_until_the_command_gives_up(
    host: World, skipping: WorkflowEnvironment
) -> None:
    pools = await granting(host, refused=("uid-b",))
    handle = await command(host, proposal("a", "b"))
    await skipping.sleep(timedelta(minutes=9))
    assert untouched(host, "a", "b")
    over = await handle.result()
    assert (over.ending, over.nodes) == ("not permitted", ("uid-b",))
    assert "budget 1 of 2" in over.why
    assert untouched(host, "a", "b") and host.disruption.replaced == []
    assert sorted(await pools.query(GranterWorkflow.given_back)) == ["uid-a", "uid-b"]


async def test_a_wish_that_is_granted_later_lets_the_command_go_on(host: World, skipping: WorkflowEnvironment) -> None:
    """Though the other permit would have lapsed: it was asked for again."""
    pools = await granting(host, refused=("uid-b",))
    handle = await command(host, proposal("a", "b", replacements=0))
    await skipping.sleep(timedelta(minutes=5))
    await pools.signal(GranterWorkflow.change, Grants())
    assert (await handle.result()).ending == "done"


async def test_a_pool_that_does_not_answer_holds_nothing(host: World) -> None:
    await granting(host, silent=True)
    over = await (await command(host, proposal("a"))).result()
    assert (over.ending, over.why) == ("not permitted", "NodePool default does not answer")


async def test_a_pool_without_a_workflow_permits_nothing(host: World) -> None:
    over = await (await command(host, proposal("a"))).result()
    assert over.ending == "not permitted" and "has no workflow" in over.why


async def test_a_node_that_has_to_stay_stops_it_before_anything_is_bought(host: World) -> None:
    host.nodes.change("node-b", annotations={DO_NOT_DISRUPT: "true"})
    await granting(host)
    over = await (await command(host, proposal("a", "b"))).result()
    assert (over.ending, over.nodes) == ("held", ("uid-b",))
    assert untouched(host, "a", "b") and host.disruption.replaced == []


async def test_what_would_not_be_decided_any_more_is_put_back(host: World) -> None:
    host.disruption.refusals = [Replaced(outcome="stale", why="a pod came")]
    await granting(host)
    over = await (await command(host, proposal("a", "b"))).result()
    assert (over.ending, over.why) == ("stale", "a pod came")
    assert untouched(host, "a", "b")


async def test_a_host_that_cannot_say_yet_is_asked_again_with_the_same_plan(
    host: World, skipping: WorkflowEnvironment
) -> None:
    host.disruption.refusals = [Replaced(outcome="not now", why="caches are too old")]
    host.disruption.faults["replace"] = [BadInput("planner"), None]
    await granting(host)
    handle = await command(host, proposal("a", "b"))
    await in_time(skipping, lambda: in_step(handle, "Wait"), seconds=5)
    assert len({one.plan_id for one in host.disruption.replaced}) == 1
    await say_ready(host, handle)
    assert (await handle.result()).ending == "done"


async def test_a_host_that_cannot_say_for_long_leaves_nodes_in_service(host: World) -> None:
    host.disruption.refusals = [Replaced(outcome="not now", why="caches are too old")] * 1000
    await granting(host)
    handle = await command(host, proposal("a"))
    over = await handle.result()
    assert (over.ending, over.why) == ("failed", "caches are too old") and untouched(host, "a")
    assert await lasted(handle) < timedelta(minutes=7)


async def test_a_replacement_that_ends_early_undoes_it_at_once(host: World, skipping: WorkflowEnvironment) -> None:
    handle = await waiting(host, replacements=2)
    first, second = await replacements(handle)
    comes_up(host, second)
    await handle.signal(DisruptionWorkflow.replacement, ReplacementSaid(claim=second, ready=True))
    await handle.signal(
        DisruptionWorkflow.replacement, ReplacementSaid(claim=first, ready=False, why="InsufficientInstanceCapacity")
    )
    over = await handle.result()
    assert over.ending == "not replaced" and "InsufficientInstanceCapacity" in over.why
    assert untouched(host, "a", "b") and deleted(host, first) and deleted(host, second)


async def test_a_replacement_that_pods_run_on_is_not_taken_away(host: World) -> None:
    handle = await waiting(host, replacements=2)
    first, second = await replacements(handle)
    comes_up(host, second)
    host.pods.place(f"node-{second}", "web-c")
    await handle.signal(DisruptionWorkflow.replacement, ReplacementSaid(claim=first, ready=False, why="gone"))
    await handle.result()
    assert deleted(host, first) and not deleted(host, second) and not marked(host, second)


async def test_replacements_are_not_waited_for_without_end(host: World, skipping: WorkflowEnvironment) -> None:
    handle = await waiting(host)
    await skipping.sleep(timedelta(minutes=55))
    assert not deleted(host, "a") and marked(host, "a")
    over = await handle.result()
    assert over.ending == "not replaced" and "not initialized" in over.why
    assert untouched(host, "a", "b")


async def test_a_word_that_was_lost_is_made_good_by_a_look(host: World, skipping: WorkflowEnvironment) -> None:
    handle = await waiting(host)
    comes_up(host, *await replacements(handle))
    await skipping.sleep(timedelta(minutes=6))
    assert (await handle.result()).ending == "done"


async def test_a_replacement_that_somebody_deleted_is_not_waited_for(
    host: World, skipping: WorkflowEnvironment
) -> None:
    handle = await waiting(host)
    host.claims.found.pop((await replacements(handle))[0])
    assert (await handle.result()).ending == "not replaced"
    assert await lasted(handle) < timedelta(minutes=6)
    assert untouched(host, "a", "b")


async def test_a_replacement_that_is_not_ready_any_more_is_waited_for(
    host: World, skipping: WorkflowEnvironment
) -> None:
    handle = await waiting(host)
    (name,) = await replacements(handle)
    comes_up(host, name, ready=False)
    await handle.signal(DisruptionWorkflow.replacement, ReplacementSaid(claim=name, ready=True))
    await skipping.sleep(timedelta(minutes=2))
    assert not deleted(host, "a") and await scheduled(handle, "finish_command") > 1
    host.nodes.change(f"node-{name}", ready=True)
    assert (await handle.result()).ending == "done"


async def test_a_wish_to_stay_is_heard_to_the_last(host: World) -> None:
    handle = await waiting(host)
    host.pods.place("node-b", "db", protected=True)
    await say_ready(host, handle)
    over = await handle.result()
    assert (over.ending, over.nodes) == ("held", ("uid-b",))
    assert untouched(host, "a", "b")


async def test_what_is_recalled_stops_and_is_put_back(host: World, skipping: WorkflowEnvironment) -> None:
    pools = await granting(host)
    handle = await command(host, proposal("a", "b"))
    await eventually(lambda: in_step(handle, "Wait"))
    await pools.signal(GranterWorkflow.recall, "paused by ops@example.com: database upgrade")
    over = await handle.result()
    assert over.ending == "recalled" and "ops@example.com" in over.why
    (made,) = await replacements(handle)
    assert untouched(host, "a", "b") and deleted(host, made)
    assert await pools.query(GranterWorkflow.given_back)


async def test_what_is_recalled_before_it_began_touches_nothing(host: World) -> None:
    await granting(host, refused=("uid-b",))
    handle = await command(host, proposal("a", "b"))
    await handle.signal(DisruptionWorkflow.recalled, PermitRecalled(claim_uid="uid-a", why="paused"))
    assert (await handle.result()).ending == "recalled"
    assert untouched(host, "a", "b") and await scheduled(handle, "begin_command") == 0


async def test_a_person_may_cancel_it(host: World) -> None:
    handle = await waiting(host)
    await handle.cancel()
    assert (await handle.result()).ending == "recalled"
    assert untouched(host, "a", "b")


async def test_permits_are_kept_while_replacements_start_and_a_refusal_then_says_nothing(
    host: World, skipping: WorkflowEnvironment
) -> None:
    """A tainted node uses its budget up itself; but who holds no permit could not be told of a pause."""
    pools = await granting(host)
    handle = await command(host, proposal("a", "b"))
    await eventually(lambda: in_step(handle, "Wait"))
    await pools.signal(GranterWorkflow.change, Grants(refused=("uid-a", "uid-b")))
    await skipping.sleep(timedelta(minutes=8))
    wishes = [one.claim_uid for one in await pools.query(GranterWorkflow.wishes)]
    assert wishes.count("uid-a") >= 5
    await say_ready(host, handle)
    assert (await handle.result()).ending == "done"


async def test_nodes_are_put_back_however_long_the_api_server_fails(host: World, skipping: WorkflowEnvironment) -> None:
    handle = await waiting(host)
    host.nodes.faults["unmark_disrupted"] = [TryLater("503")] * 5 + [BadInput("422")] * 2
    await handle.signal(DisruptionWorkflow.recalled, PermitRecalled(claim_uid="uid-a", why="paused"))
    assert (await handle.result()).ending == "recalled"
    assert untouched(host, "a", "b")


async def test_a_fault_that_no_retry_helps_undoes_it(host: World) -> None:
    await granting(host)
    host.nodes.faults["mark_disrupted"] = [None, BadInput("422")]
    over = await (await command(host, proposal("a", "b"))).result()
    assert over.ending == "failed" and "422" in over.why and untouched(host, "a", "b")


async def test_a_command_that_lasts_continues_as_new_where_it_stands(
    host: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 60)
    handle = await waiting(host)
    await in_time(skipping, lambda: rolled(host.client, handle), minutes=1)
    latest: Command = host.client.get_workflow_handle_for(DisruptionWorkflow.run, handle.id)
    assert await in_step(latest, "Wait")
    await say_ready(host, latest)
    assert (await handle.result()).ending == "done"
    assert len(host.disruption.replaced) == 1


@pytest.mark.parametrize("ends", ["done", "undone"])
async def test_a_worker_that_forgets_everything_between_steps_takes_the_same_ones(
    skipping: WorkflowEnvironment, ends: str
) -> None:
    async with World(skipping.client, cached=0).working() as fake, fake.planning():
        nodes(fake, "a", "b")
        handle = await waiting(fake)
        if ends == "done":
            await say_ready(fake, handle)
        else:
            await handle.signal(DisruptionWorkflow.recalled, PermitRecalled(claim_uid="uid-a", why="paused"))
        await handle.result()
        assert untouched(fake, "a", "b") is (ends == "undone")
