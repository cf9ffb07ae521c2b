"""A person gives a command up: by an update that answers, by `tenure give-up`, or by a signal."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError

from tenure.cli.disruption.approve import give_up_tell, kept
from tenure.cli.exit_codes import Refused
from tenure.model.disruption.commands import GiveUp
from tenure.model.errors import TryLater
from tenure.policy.disruption.commands import active, remembered
from tests.support.fakes.granter import GranterWorkflow
from tests.support.fakes.worker import World
from tests.support.workflows.commands import (
    Command,
    command,
    deleted,
    granting,
    in_step,
    nodes,
    proposal,
    replacements,
    say_ready,
    untouched,
)
from tests.support.workflows.eventually import eventually
from tests.unit.workflows.test_disruption import host, waiting
from workflows.disruption.command import DisruptionWorkflow

__all__ = ["host"]
ANN = GiveUp(by="ann", reason="the release goes first")


async def test_it_is_undone_at_once_and_says_who_and_why(host: World) -> None:
    handle = await waiting(host)
    answer = await handle.execute_update(DisruptionWorkflow.give_up, ANN)
    assert answer.accepted and answer.message.startswith(
        "given up by ann: its nodes are put back into service, and its"
    )
    over = await handle.result()
    assert (over.ending, over.why, over.keep_until) == ("recalled", "ann gave it up: the release goes first", None)
    (made,) = await replacements(handle)
    assert untouched(host, "a", "b") and deleted(host, made)
    assert "Underutilized: ann gave it up: the release goes first" in [said for _, _, said in host.events.said]


async def test_its_nodes_are_left_alone_for_as_long_as_was_asked(host: World) -> None:
    handle = await waiting(host)
    await handle.signal(DisruptionWorkflow.given_up, ANN.model_copy(update={"keep": timedelta(hours=4)}))
    over = await handle.result()
    assert over.keep_until is not None and "keeps its nodes until" in over.why
    memory = remembered((), proposal("a", "b"), over, over.keep_until - timedelta(hours=4))
    assert [one.until for one in active(memory, over.keep_until - timedelta(seconds=1))] == [over.keep_until]


async def test_before_its_permits_nothing_was_touched_and_its_wishes_are_taken_back(host: World) -> None:
    pools = await granting(host, refused=("uid-b",))
    handle = await command(host, proposal("a", "b"))
    await eventually(lambda: in_step(handle, "Permit"))
    await handle.execute_update(DisruptionWorkflow.give_up, ANN)
    assert (await handle.result()).ending == "recalled" and untouched(host, "a", "b")
    assert sorted(await pools.query(GranterWorkflow.given_back)) == ["uid-a", "uid-b"]


async def deleting(host: World) -> Command:
    """A command whose deletions are being tried, and fail."""
    handle = await waiting(host)
    host.claims.faults["delete"] = [TryLater("told to fail")] * 40
    await say_ready(host, handle)

    async def was_tried() -> bool:
        return len(host.claims.faults["delete"]) < 38

    await eventually(was_tried)
    assert await in_step(handle, "Finish")
    return handle


async def test_what_is_not_deleted_yet_is_put_back_though_its_step_has_begun(host: World) -> None:
    handle = await deleting(host)
    answer = await handle.execute_update(DisruptionWorkflow.give_up, ANN)
    assert answer.message.startswith("NodeClaims are being deleted: those that are not yet")
    host.claims.faults["delete"] = []
    over = await handle.result()
    assert (over.ending, over.why) == ("recalled", "ann gave it up: the release goes first")
    assert untouched(host, "a", "b")


async def test_a_person_who_cancels_it_ends_the_try_to_delete_before_nodes_are_put_back(host: World) -> None:
    handle = await deleting(host)
    await handle.cancel()
    host.claims.faults["delete"] = []
    over = await handle.result()
    assert (over.ending, over.why) == ("recalled", "a person cancelled it")
    assert untouched(host, "a", "b")
    history = await handle.fetch_history()
    kinds = [event.event_type for event in history.events]
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED in kinds


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"by": " "}, "by: nobody is named"),
        ({"reason": ""}, "reason: '': write why, in 1 to 200 characters"),
        ({"keep": timedelta(days=31)}, "keep: 31 days, 0:00:00 is not between nothing and 30 days; write such as 4h"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_the_command_goes_on(
    host: World, said: dict[str, Any], why: str
) -> None:
    handle = await waiting(host)
    wrong = ANN.model_copy(update=said)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(DisruptionWorkflow.give_up, wrong)
    assert why in str(refused.value.__cause__)
    await handle.signal(DisruptionWorkflow.given_up, wrong)
    assert await in_step(handle, "Wait")


async def test_the_command_line_names_a_command_by_its_id_or_the_last_part_of_that(host: World) -> None:
    handle = await waiting(host)
    nodes(host, "c", "d")
    other = await command(host, proposal("c", "d"))
    await eventually(lambda: in_step(other, "Wait"))
    assert (await give_up_tell(host.client, host.cluster, "a-b", ANN)).startswith("given up by ann")
    assert (await give_up_tell(host.client, host.cluster, other.id, ANN)).startswith("given up by ann")
    assert {(await handle.result()).ending, (await other.result()).ending} == {"recalled"}
    with pytest.raises(Refused, match=r"give-up a-b: .*`tenure"):
        await give_up_tell(host.client, host.cluster, "a-b", ANN)
    with pytest.raises(Refused, match=f"give-up x: no command x is being carried out in cluster {host.cluster}"):
        await give_up_tell(host.client, host.cluster, "x", ANN)


def test_how_long_nodes_are_kept_is_a_length_of_time() -> None:
    assert (kept("x", ""), kept("x", "4h")) == (timedelta(0), timedelta(hours=4))
    for text in ("soon", "Never"):
        with pytest.raises(Refused, match="give-up x: --keep: "):
            kept("x", text)
