"""A person cancels a command: by update, by `tenure cancel`, or by signal."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError

from activities import runtime
from tenure.apis.labels import DISRUPTION_REASON
from tenure.apis.nodeclaim import NodeClaim
from tenure.cli.disruption.approve import send_cancel
from tenure.cli.exit_codes import UsageError
from tenure.model.disruption.commands import CommandCancellation, ReplacementRequest, ReplacementResult
from tenure.model.errors import TryLater
from tenure.policy.disruption.commands import active_backoffs, record_command_result
from tests.support.fakes.permit_granter import PermitGranterWorkflow
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.commands import (
    CommandHandle,
    add_nodes,
    is_deleted,
    is_in_step,
    is_undisturbed,
    make_proposal,
    replacement_names,
    report_replacements_ready,
    start_command,
    start_permit_granter,
)
from tests.support.workflows.eventually import wait_until
from tests.unit.workflows.disruption.test_command import host, start_waiting_command
from workflows.disruption.command import DisruptionWorkflow

__all__ = ["host"]
ANN = CommandCancellation(by="ann", reason="the release goes first")


async def test_cancelled_command_rolls_back_and_records_requester(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    result = await handle.execute_update(DisruptionWorkflow.cancel, ANN)
    assert result.accepted and result.message.startswith("cancelled by ann: its nodes return to service, and its")
    over = await handle.result()
    assert (over.ending, over.why, over.retain_until) == ("cancelled", "ann cancelled it: the release goes first", None)
    (made,) = await replacement_names(handle)
    assert is_undisturbed(host, "a", "b") and is_deleted(host, made)
    assert "Underutilized: ann cancelled it: the release goes first" in [
        message for _, _, message in host.events.published
    ]


async def test_cancellation_protects_nodes_for_requested_time(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    await handle.signal(DisruptionWorkflow.cancel_by_signal, ANN.model_copy(update={"retain_for": timedelta(hours=4)}))
    over = await handle.result()
    assert over.retain_until is not None and "keeping its nodes until" in over.why
    memory = record_command_result((), make_proposal("a", "b"), over, over.retain_until - timedelta(hours=4))
    assert [one.until for one in active_backoffs(memory, over.retain_until - timedelta(seconds=1))] == [
        over.retain_until
    ]


async def test_cancellation_before_permits_withdraws_requests(host: WorkerHarness) -> None:
    pools = await start_permit_granter(host, rejected_uids=("uid-b",))
    handle = await start_command(host, make_proposal("a", "b"))
    await wait_until(lambda: is_in_step(handle, "Permit"))
    await handle.execute_update(DisruptionWorkflow.cancel, ANN)
    assert (await handle.result()).ending == "cancelled" and is_undisturbed(host, "a", "b")
    assert sorted(await pools.query(PermitGranterWorkflow.released_uids)) == ["uid-a", "uid-b"]


async def start_deleting_command(host: WorkerHarness) -> CommandHandle:
    """A command whose deletions fail and are retried."""
    handle = await start_waiting_command(host)
    host.claims.faults["delete"] = [TryLater("told to fail")] * 40
    await report_replacements_ready(host, handle)

    async def was_tried() -> bool:
        return len(host.claims.faults["delete"]) < 38

    await wait_until(was_tried)
    assert await is_in_step(handle, "Finish")
    return handle


async def test_cancellation_during_finish_restores_undeleted_nodes(host: WorkerHarness) -> None:
    handle = await start_deleting_command(host)
    result = await handle.execute_update(DisruptionWorkflow.cancel, ANN)
    assert result.message.startswith("NodeClaims are being deleted: nodes whose NodeClaim still exists")
    host.claims.faults["delete"] = []
    over = await handle.result()
    assert (over.ending, over.why) == ("cancelled", "ann cancelled it: the release goes first")
    assert is_undisturbed(host, "a", "b")


async def test_workflow_cancellation_stops_deletion_before_rollback(host: WorkerHarness) -> None:
    handle = await start_deleting_command(host)
    await handle.cancel()
    host.claims.faults["delete"] = []
    over = await handle.result()
    assert (over.ending, over.why) == ("cancelled", "an operator cancelled it")
    assert is_undisturbed(host, "a", "b")
    history = await handle.fetch_history()
    kinds = [event.event_type for event in history.events]
    assert EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED in kinds


async def test_workflow_cancellation_waits_until_nodes_are_tainted(
    host: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt learns of a cancellation at its next heartbeat, and the API server answers before."""
    monkeypatch.setattr(runtime, "HEARTBEAT_EVERY_SECONDS", 1.5)
    writing, patch = asyncio.Event(), host.claims.patch

    async def patch_slowly(name: str, uid: str, **changes: Any) -> NodeClaim | None:
        if any(one.type == DISRUPTION_REASON and one.status == "True" for one in changes.get("conditions", ())):
            writing.set()
            await asyncio.sleep(0.15)
        return await patch(name, uid, **changes)

    monkeypatch.setattr(host.claims, "patch", patch_slowly)
    await start_permit_granter(host)
    handle = await start_command(host, make_proposal("a", "b", replacements=0))
    await asyncio.wait_for(writing.wait(), 20)
    await assert_cancelled_without_trace(host, handle)


async def test_workflow_cancellation_waits_until_replacements_exist(
    host: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner's host creates them, even if the activity that waits for them is cancelled."""
    monkeypatch.setattr(runtime, "HEARTBEAT_EVERY_SECONDS", 0.1)
    creating, create = asyncio.Event(), host.disruption.create_replacements

    async def create_slowly(request: ReplacementRequest) -> ReplacementResult:
        creating.set()
        await asyncio.sleep(0.25)
        return await create(request)

    async def join(request: ReplacementRequest) -> ReplacementResult:
        return await asyncio.shield(asyncio.create_task(create_slowly(request)))

    monkeypatch.setattr(host.disruption, "create_replacements", join)
    await start_permit_granter(host)
    handle = await start_command(host, make_proposal("a", "b", replacements=1))
    await asyncio.wait_for(creating.wait(), 20)
    await assert_cancelled_without_trace(host, handle)
    replacements = [name for name in host.claims.found if name.startswith("new-")]
    assert not replacements


async def assert_cancelled_without_trace(host: WorkerHarness, handle: CommandHandle) -> None:
    await handle.cancel()
    over = await handle.result()
    assert (over.ending, over.why) == ("cancelled", "an operator cancelled it")
    await asyncio.sleep(0.3)
    assert is_undisturbed(host, "a", "b")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"by": " "}, "by: empty"),
        ({"reason": ""}, "reason: '': expected 1 to 200 characters"),
        (
            {"retain_for": timedelta(days=31)},
            "keep: 31 days, 0:00:00, expected 0 to 30 days, e.g. 4h",
        ),
    ],
)
async def test_invalid_cancellation_is_rejected_and_command_continues(
    host: WorkerHarness, changes: dict[str, Any], why: str
) -> None:
    handle = await start_waiting_command(host)
    invalid_cancellation = ANN.model_copy(update=changes)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await handle.execute_update(DisruptionWorkflow.cancel, invalid_cancellation)
    assert why in str(error.value.__cause__)
    await handle.signal(DisruptionWorkflow.cancel_by_signal, invalid_cancellation)
    assert await is_in_step(handle, "Wait")


async def test_cli_accepts_command_id_or_its_last_part(host: WorkerHarness) -> None:
    handle = await start_waiting_command(host)
    add_nodes(host, "c", "d")
    other = await start_command(host, make_proposal("c", "d"))
    await wait_until(lambda: is_in_step(other, "Wait"))
    assert (await send_cancel(host.client, host.cluster, "a-b", ANN)).startswith("cancelled by ann")
    assert (await send_cancel(host.client, host.cluster, other.id, ANN)).startswith("cancelled by ann")
    assert {(await handle.result()).ending, (await other.result()).ending} == {"cancelled"}
    with pytest.raises(UsageError, match=r"cancel a-b: .*`tenure"):
        await send_cancel(host.client, host.cluster, "a-b", ANN)
    with pytest.raises(UsageError, match=f"cancel x: no command x is running in cluster {host.cluster}"):
        await send_cancel(host.client, host.cluster, "x", ANN)
