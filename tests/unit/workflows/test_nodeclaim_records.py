"""What a node's workflow keeps of AWS's events for those who ask later, and what that costs it."""

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.model.interruption.records import MEMO, EventRecord
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, eventually, in_time, latest
from tests.support.workflows.lives import BUSY, delete, ready
from tests.support.workflows.noticed import notice, ready_under, rules
from tests.unit.workflows.continuing import continued
from workflows.nodeclaim import NodeClaimWorkflow


async def written(handle: Handle) -> list[tuple[EventRecord, ...]]:
    """What was written to the memo, each time."""
    found = []
    async for event in handle.fetch_history_events():
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if MEMO in fields:
            found.append(tuple(EventRecord.model_validate(one) for one in json.loads(fields[MEMO].data)))
    return found


async def words(handle: Handle) -> list[str]:
    return [one.done for many in await written(handle) for one in many]


async def test_a_node_that_hears_nothing_writes_nothing(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await delete(fake, handle)
    await handle.result()
    assert await written(handle) == []


async def test_what_came_its_policy_and_what_was_done_are_kept(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping)
    said = rules(scheduledChange={"action": "waitForApproval"})
    await fake.see(handle, **BUSY, **said, event_policies={"scheduledChange": "databases"})
    starts = await skipping.get_current_time() + timedelta(hours=48)
    await notice(fake, skipping, handle, starts=starts, code="instance-stop")
    await eventually(lambda: blocked(handle, "waits for approval"))
    await handle.execute_update("approve_event", {"by": "ann"})
    await handle.result()
    first, *_, last = [one for (one,) in await written(handle)]
    assert (first.kind, first.code, first.starts) == ("scheduledChange", "instance-stop", starts)
    assert (first.policy, first.action, first.waits) == ("databases", "waitForApproval", True)
    assert first.done.startswith("waits for approval until")
    assert (last.done, last.waits) == ("the node is drained; approved by ann", False)
    assert last.heard == first.heard and last.since >= first.since


async def test_it_is_written_once_for_each_change(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping)
    heard = await notice(fake, skipping, handle, "rebalanceRecommendation")
    for _ in range(3):
        await handle.signal(NodeClaimWorkflow.noticed, _again(fake, heard.model_dump(mode="json")))
    await skipping.sleep(timedelta(hours=3))
    assert await words(handle) == ["told, and nothing more"]


def _again(fake: World, notice: dict[str, Any]) -> Any:
    provider: str = fake.claims.found["a"]["status"]["providerID"]
    return {"instance_id": provider.rpartition("/")[2], "notices": [notice]}


async def test_the_run_that_follows_has_them_and_writes_nothing_anew(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await ready_under(fake, skipping)
    await notice(fake, skipping, handle, "rebalanceRecommendation")
    await eventually(partial(_says, handle, "told, and nothing more"))
    await continued(handle, monkeypatch, lambda number: fake.see(handle, **BUSY | {"node_ready": bool(number % 2)}))
    follower = latest(fake.client, handle)
    [began, *_] = (await follower.fetch_history()).events
    memo = began.workflow_execution_started_event_attributes.memo.fields[MEMO].data
    assert [one["done"] for one in json.loads(memo)] == ["told, and nothing more"]
    await delete(fake, follower)
    await follower.result()
    assert await words(follower) == []


async def _says(handle: Handle, text: str) -> bool:
    return text in await words(handle)


async def test_what_aws_withdraws_is_kept_as_withdrawn(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping, scheduledChange={"action": "notify"})
    starts = await skipping.get_current_time() + timedelta(hours=48)
    await notice(fake, skipping, handle, starts=starts)
    await skipping.sleep(timedelta(minutes=1))
    await notice(fake, skipping, handle, starts=starts, status="withdrawn")

    async def withdrawn() -> bool:
        return (await words(handle))[-1] == "AWS withdrew it"

    await in_time(skipping, withdrawn)


async def test_a_node_that_goes_at_once_writes_once(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping)
    await notice(fake, skipping, handle, "spotInterruption")
    await handle.result()
    assert await words(handle) == ["the node is drained"]
