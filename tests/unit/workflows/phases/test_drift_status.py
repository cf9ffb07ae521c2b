"""Drift is written to the NodeClaim once and removed once; a node without drift adds no events."""

from typing import Any

from tenure.model.errors import BadInput
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    has_continued_as_new,
    has_state,
    is_blocked_by,
    latest_run,
    non_task_event_types,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    JOINED,
    delete_nodeclaim,
    launched_nodeclaim,
    observe_empty,
    ready_nodeclaim,
    registered_nodeclaim,
    start_nodepool,
)

OLD_IMAGE: dict[str, Any] = {"drift": "AMIDrift", "drift_message": "m6i.large runs ami-1"}
OTHER_SUBNET: dict[str, Any] = {"drift": "SubnetDrift", "drift_message": "the instance is in subnet-a"}


async def has_drifted_condition(fake: WorkerHarness, expected: str) -> bool:
    return fake.claims.condition_text("a", "Drifted") == expected


async def count_reports(handle: Handle) -> int:
    return await count_scheduled(handle, "publish_event")


async def test_drifted_node_is_reported_once_and_kept(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    before = await count_reports(handle)
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_drifted_condition(fake, "True AMIDrift"))
    for flicker in range(4):
        await fake.signal_observed(handle, **{**BUSY, "node_ready": bool(flicker % 2)}, **OLD_IMAGE)
    await fake.sleep(minutes=1)
    assert await count_reports(handle) == before + 1
    assert fake.events.reasons_for("a").count("AMIDrift") == 1
    assert (await query_state(handle)).phase is Phase.READY and fake.instances.terminated == []


async def test_resolved_drift_is_removed(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    before = await count_reports(handle)
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_drifted_condition(fake, "True AMIDrift"))
    await wait_until(lambda: is_blocked_by(handle, "drifted: AMIDrift, waits for its replacement to be planned"))
    await fake.signal_observed(handle, **BUSY)
    await wait_until(lambda: has_drifted_condition(fake, ""))
    await wait_until(lambda: has_state(handle, drift="", blocked_by=""))
    assert await count_reports(handle) == before + 2
    assert fake.events.reasons_for("a").count("AMIDrift") == 1


async def test_new_drift_reason_replaces_old_one(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_state(handle, drift="AMIDrift"))
    await fake.signal_observed(handle, **BUSY, **OTHER_SUBNET)
    await wait_until(lambda: has_drifted_condition(fake, "True SubnetDrift"))
    assert {"AMIDrift", "SubnetDrift"} <= set(fake.events.reasons_for("a"))


async def test_changed_drift_message_updates_condition_without_event(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_state(handle, drift="AMIDrift"))
    before = await count_reports(handle)
    await fake.signal_observed(
        handle, **BUSY, drift="AMIDrift", drift_message="m6i.large runs ami-1, another one is due"
    )
    await wait_until(lambda: has_reported(handle, before + 1))
    assert fake.events.reasons_for("a").count("AMIDrift") == 1


async def has_reported(handle: Handle, times: int) -> bool:
    return await count_reports(handle) >= times


async def test_drift_is_reported_before_node_is_ready(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    await fake.signal_observed(handle, **OLD_IMAGE)
    await wait_until(lambda: has_drifted_condition(fake, "True AMIDrift"))
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.signal_observed(handle, **JOINED, **OLD_IMAGE)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY, **OTHER_SUBNET)
    await wait_until_phase(handle, Phase.READY)
    await wait_until(lambda: has_drifted_condition(fake, "True SubnetDrift"))


async def test_deleting_node_keeps_its_drift_status(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "PodDisruptionBudget web"
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_state(handle, drift="AMIDrift"))
    before = await count_reports(handle)
    await delete_nodeclaim(fake, handle)
    await wait_until_phase(handle, Phase.DRAIN)
    await fake.signal_observed(handle, **BUSY, **OTHER_SUBNET)
    await wait_until(lambda: has_observed(handle, fake.number))
    assert await count_reports(handle) == before and await has_drifted_condition(fake, "True AMIDrift")


async def has_observed(handle: Handle, number: int) -> bool:
    return (await query_state(handle)).observed.number == number


async def test_drifted_empty_node_is_deleted(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_state(handle, drift="AMIDrift"))
    await observe_empty(fake, handle)
    assert (await handle.result()).reason == "Empty"


async def test_node_without_drift_writes_no_status(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake)
    before = await count_reports(handle)
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **BUSY)
    await wait_until_phase(handle, Phase.READY)
    await fake.sleep(hours=1)
    assert await count_reports(handle) == before and await has_drifted_condition(fake, "")


async def test_failed_drift_write_is_retried(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.claims.faults["patch"] = [BadInput("no")]
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)
    await wait_until_skipping_time(fake, lambda: has_drifted_condition(fake, "True AMIDrift"), minutes=1)
    assert (await query_state(handle)).phase is Phase.READY


async def test_drift_survives_continue_as_new(fake: WorkerHarness) -> None:
    first = await ready_nodeclaim(fake)
    await fake.signal_observed(first, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_state(first, drift="AMIDrift"))
    for number in range(480):
        await fake.signal_observed(first, **{**BUSY, "node_ready": bool(number % 2)}, **OLD_IMAGE)
    await wait_until(lambda: has_continued_as_new(fake.client, first))
    second = latest_run(fake.client, first)
    assert await count_reports(second) == 0
    await fake.signal_observed(second, **BUSY)
    await wait_until(lambda: has_drifted_condition(fake, ""))


async def test_new_workflow_clears_stale_drift(fake: WorkerHarness) -> None:
    """The workflow was lost, and the drift was resolved in the meantime."""
    first = await ready_nodeclaim(fake)
    await fake.signal_observed(first, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_drifted_condition(fake, "True AMIDrift"))
    await first.terminate()
    await fake.sleep(minutes=1)
    second = await fake.start((await fake.claims.list())[0], **BUSY)
    await wait_until_phase(second, Phase.READY)
    await wait_until(lambda: has_drifted_condition(fake, ""))


async def test_drift_adds_few_events(fake: WorkerHarness) -> None:
    """One signal, one activity, search attributes and details, and a reset expiration timer."""
    handle = await ready_nodeclaim(fake)
    await fake.sleep(seconds=30)
    before = len(await non_task_event_types(handle))
    await fake.signal_observed(handle, **BUSY, **OLD_IMAGE)
    await wait_until(lambda: has_state(handle, drift="AMIDrift"))
    await fake.sleep(minutes=1)
    after = (await non_task_event_types(handle))[before:]
    assert len(after) <= 7, after
