"""NotReady intervals of a node are counted and recorded; a node that stays Ready adds no events."""

from datetime import datetime, timedelta
from typing import Any

from tenure.apis.labels import NOT_READY_INTERVALS
from tenure.model.node_health import MAX_INTERVALS, parse_intervals
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    has_continued_as_new,
    has_state,
    latest_run,
    query_state,
    wait_until,
    wait_until_phase,
)
from tests.support.workflows.nodeclaim_workflows import BUSY, delete_nodeclaim, ready_nodeclaim
from workflows import current_details


def recorded_intervals(fake: WorkerHarness) -> list[tuple[float, bool]]:
    """The recorded intervals: seconds (0 if ongoing), and whether the interval is ongoing."""
    found = parse_intervals(fake.claims.found["a"]["metadata"]["annotations"].get(NOT_READY_INTERVALS, ""))
    return [((one.until - one.since).total_seconds() if one.until else 0, one.until is None) for one in found]


async def has_intervals(fake: WorkerHarness, *intervals: tuple[float, bool]) -> bool:
    return recorded_intervals(fake) == list(intervals)


async def observe_not_ready(fake: WorkerHarness, handle: Handle, since: datetime, **more: Any) -> None:
    await fake.signal_observed(
        handle, **{**BUSY, "node_ready": False, "not_ready_since": since, "not_ready_reason": "NotReady", **more}
    )


async def current_time(fake: WorkerHarness) -> datetime:
    return (await fake.now()).replace(microsecond=0)


async def test_not_ready_interval_is_counted_and_recorded(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await current_time(fake)
    await observe_not_ready(fake, handle, since)
    await wait_until(lambda: has_intervals(fake, (0, True)))
    state = await query_state(handle)
    assert state.flaps == 1 and state.phase is Phase.READY
    assert f"since {since:%Y-%m-%d %H:%M:%S} UTC: NotReady" in current_details.render_nodeclaim(state)
    await fake.signal_observed(handle, **BUSY, ready_since=since + timedelta(seconds=50))
    await wait_until(lambda: has_intervals(fake, (50, False)))
    assert "1 times since it was initialized, the latest 1 for 50 s in all" in current_details.render_nodeclaim(
        await query_state(handle)
    )


async def test_flapping_node_counts_each_interval(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    began_at = await current_time(fake)
    for number in range(3):
        since = began_at + timedelta(minutes=number)
        await observe_not_ready(fake, handle, since)
        await observe_not_ready(fake, handle, since + timedelta(seconds=9), not_ready_reason="NotReady, cni:NoExecute")
        await fake.signal_observed(handle, **BUSY, ready_since=since + timedelta(seconds=20))
    await wait_until(lambda: has_intervals(fake, (20, False), (20, False), (20, False)))
    assert (await query_state(handle)).flaps == 3


async def test_missing_node_does_not_end_interval(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await observe_not_ready(fake, handle, await current_time(fake))
    await wait_until(lambda: has_intervals(fake, (0, True)))
    await fake.signal_observed(handle, node_count=0)
    assert [one.until for one in (await query_state(handle)).not_ready_intervals] == [None]


async def test_taint_interval_ends_when_removal_is_observed(fake: WorkerHarness) -> None:
    """The Ready condition did not change, so its transition time gives no end."""
    handle = await ready_nodeclaim(fake)
    since = await current_time(fake)
    await observe_not_ready(fake, handle, since, node_ready=True, not_ready_reason="cni:NoExecute")
    await fake.sleep(seconds=30)
    await fake.signal_observed(handle, **BUSY, ready_since=since - timedelta(hours=1))
    await wait_until(lambda: [is_ongoing for _, is_ongoing in recorded_intervals(fake)] == [False])
    assert 30 <= recorded_intervals(fake)[0][0] < 60


async def test_taint_after_not_ready_extends_interval(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await current_time(fake)
    await observe_not_ready(fake, handle, since, not_ready_reason="NotReady, cni:NoExecute")
    await observe_not_ready(fake, handle, since, node_ready=True, not_ready_reason="cni:NoExecute")
    await fake.sleep(seconds=60)
    await fake.signal_observed(handle, **BUSY, ready_since=since + timedelta(seconds=5))
    await wait_until(lambda: [is_ongoing for _, is_ongoing in recorded_intervals(fake)] == [False])
    assert 60 <= recorded_intervals(fake)[0][0] < 90


async def test_recorded_intervals_of_lost_workflow_are_kept(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.claims.found["a"]["metadata"]["annotations"][NOT_READY_INTERVALS] = "2026-01-01T12:00:00Z/2026-01-01T12:00:10Z"
    await observe_not_ready(fake, handle, await current_time(fake))
    await wait_until(lambda: has_intervals(fake, (10, False), (0, True)))


async def test_not_ready_intervals_survive_continue_as_new(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    began_at = await current_time(fake)
    for number in range(220):
        since = began_at + timedelta(minutes=number)
        await observe_not_ready(fake, handle, since)
        await fake.signal_observed(handle, **BUSY, ready_since=since + timedelta(seconds=20))
    await wait_until(lambda: has_continued_as_new(fake.client, handle))
    handle = latest_run(fake.client, handle)
    await wait_until(lambda: has_state(handle, flaps=220))
    assert (await query_state(handle)).phase is Phase.READY
    await wait_until(lambda: has_intervals(fake, *[(20, False)] * MAX_INTERVALS))


async def test_draining_node_records_no_interval(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await delete_nodeclaim(fake, handle)
    await observe_not_ready(fake, handle, await current_time(fake), deleting=True)
    fake.pods.blocked.clear()
    await handle.result()
    assert await count_scheduled(handle, "record_not_ready_intervals") == 0


async def test_reboot_counts_as_flap_only_if_node_was_not_ready(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    since = await current_time(fake)
    await observe_not_ready(fake, handle, since)
    await wait_until(lambda: has_intervals(fake, (0, True)))
    fake.nodes.update_node("node-a", boot_id="boot-2")
    await fake.signal_observed(handle, **{**BUSY, "boot_id": "boot-2"}, ready_since=since + timedelta(seconds=40))
    await wait_until(lambda: has_intervals(fake, (40, False)))
    await wait_until_phase(handle, Phase.READY)
    state = await query_state(handle)
    assert (state.flaps, state.reboots) == (1, 1)
    assert "the latest 1 for 40 s in all; rebooted 1 times" in current_details.render_nodeclaim(state)


async def test_flap_adds_few_events_and_ready_node_adds_none(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await fake.sleep(seconds=30)
    before = len((await handle.fetch_history()).events)
    await fake.sleep(hours=1)
    assert len((await handle.fetch_history()).events) == before
    since = await current_time(fake)
    await observe_not_ready(fake, handle, since)
    await wait_until(lambda: has_intervals(fake, (0, True)))
    await fake.signal_observed(handle, **BUSY, ready_since=since + timedelta(seconds=50))
    await wait_until(lambda: [is_ongoing for _, is_ongoing in recorded_intervals(fake)] == [False])
    cost = len((await handle.fetch_history()).events) - before
    print(f"one flap costs {cost} events")
    assert cost <= 30
