"""Records of AWS events in the memo of a NodeClaim workflow, and the events that they add."""

import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tenure.model.base import instance_id_of
from tenure.model.interruption.records import MEMO, EventRecord
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import Handle, is_blocked_by, latest_run, wait_until, wait_until_skipping_time
from tests.support.workflows.interruption_messages import interruption_rules, ready_with_rules, send_message
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, ready_nodeclaim
from tests.unit.workflows.continue_as_new import wait_until_continued_as_new
from workflows.nodeclaim import NodeClaimWorkflow


async def recorded_events(handle: Handle) -> list[tuple[EventRecord, ...]]:
    """The records of each memo update."""
    found = []
    async for event in handle.fetch_history_events():
        fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if MEMO in fields:
            found.append(tuple(EventRecord.model_validate(one) for one in json.loads(fields[MEMO].data)))
    return found


async def recorded_actions(handle: Handle) -> list[str]:
    return [one.done for many in await recorded_events(handle) for one in many]


async def test_node_without_events_writes_no_record(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await delete_nodeclaim(fake, handle)
    await handle.result()
    assert await recorded_events(handle) == []


async def test_record_has_event_policy_and_action(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    event_rules = interruption_rules(scheduledChange={"action": "waitForApproval"})
    await fake.signal_observed(handle, **BUSY, **event_rules, event_policies={"scheduledChange": "databases"})
    starts = await fake.now() + timedelta(hours=48)
    await send_message(fake, handle, starts=starts, code="instance-stop")
    await wait_until(lambda: is_blocked_by(handle, "waits for approval"))
    await handle.execute_update("approve_event", {"by": "ann"})
    await handle.result()
    first, *_, last = [one for (one,) in await recorded_events(handle)]
    assert (first.kind, first.code, first.starts) == ("scheduledChange", "instance-stop", starts)
    assert (first.policy, first.action, first.waits) == ("databases", "waitForApproval", True)
    assert first.done.startswith("waits for approval until")
    assert (last.done, last.waits) == ("the node is drained; approved by ann", False)
    assert last.received_at == first.received_at and last.since >= first.since


async def test_record_is_written_once_per_change(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    message = await send_message(fake, handle, "rebalanceRecommendation")
    for _ in range(3):
        await handle.signal(
            NodeClaimWorkflow.interruption_events, _repeat_message(fake, message.model_dump(mode="json"))
        )
    await fake.sleep(hours=3)
    assert await recorded_actions(handle) == ["no action"]


def _repeat_message(fake: WorkerHarness, message: dict[str, Any]) -> Any:
    provider: str = fake.claims.found["a"]["status"]["providerID"]
    return {"instance_id": instance_id_of(provider), "messages": [message]}


async def test_records_survive_continue_as_new_without_rewrite(
    fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await ready_with_rules(fake)
    await send_message(fake, handle, "rebalanceRecommendation")
    await wait_until(partial(_has_recorded, handle, "no action"))
    await wait_until_continued_as_new(
        handle, monkeypatch, lambda number: fake.signal_observed(handle, **BUSY | {"node_ready": bool(number % 2)})
    )
    latest = latest_run(fake.client, handle)
    [began, *_] = (await latest.fetch_history()).events
    memo = began.workflow_execution_started_event_attributes.memo.fields[MEMO].data
    assert [one["done"] for one in json.loads(memo)] == ["no action"]
    await delete_nodeclaim(fake, latest)
    await latest.result()
    assert await recorded_actions(latest) == []


async def _has_recorded(handle: Handle, text: str) -> bool:
    return text in await recorded_actions(handle)


async def test_withdrawn_event_is_recorded_as_withdrawn(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake, scheduledChange={"action": "notify"})
    starts = await fake.now() + timedelta(hours=48)
    await send_message(fake, handle, starts=starts)
    await fake.sleep(minutes=1)
    await send_message(fake, handle, starts=starts, status="withdrawn")

    async def withdrawn() -> bool:
        return (await recorded_actions(handle))[-1] == "AWS cancelled it"

    await wait_until_skipping_time(fake, withdrawn)


async def test_node_drained_at_once_writes_one_record(fake: WorkerHarness) -> None:
    handle = await ready_with_rules(fake)
    await send_message(fake, handle, "spotInterruption")
    await handle.result()
    assert await recorded_actions(handle) == ["the node is drained"]
