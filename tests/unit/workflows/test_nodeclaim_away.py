"""A node that is away and comes back is counted and written down; one that stays costs nothing for it."""

from datetime import datetime, timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from tenure.apis.labels import AWAY
from tenure.model.node_health import MOST, read
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, eventually, in_phase, latest, rolled, scheduled, state_of
from tests.support.workflows.lives import BUSY, delete, ready
from workflows import current_details


def record(fake: World) -> list[tuple[float, bool]]:
    """Of what the NodeClaim says: how long each stretch was, in seconds, and whether it lasts."""
    found = read(fake.claims.found["a"]["metadata"]["annotations"].get(AWAY, ""))
    return [((one.until - one.since).total_seconds() if one.until else 0, one.until is None) for one in found]


async def holds(fake: World, *stretches: tuple[float, bool]) -> bool:
    return record(fake) == list(stretches)


async def leaves(fake: World, handle: Handle, since: datetime, **more: Any) -> None:
    await fake.see(handle, **{**BUSY, "node_ready": False, "away_since": since, "away_for": "NotReady", **more})


async def now(skipping: WorkflowEnvironment) -> datetime:
    return (await skipping.get_current_time()).replace(microsecond=0)


async def test_a_node_that_was_away_for_a_while_is_counted_and_its_claim_says_so(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    left = await now(skipping)
    await leaves(fake, handle, left)
    await eventually(lambda: holds(fake, (0, True)))
    state = await state_of(handle)
    assert state.flaps == 1 and state.phase is Phase.READY
    assert f"since {left:%Y-%m-%d %H:%M:%S} UTC: NotReady" in current_details.of_claim(state)
    await fake.see(handle, **BUSY, ready_since=left + timedelta(seconds=50))
    await eventually(lambda: holds(fake, (50, False)))
    assert "1 times since it was initialized, the latest 1 for 50 s in all" in current_details.of_claim(
        await state_of(handle)
    )


async def test_a_node_that_flaps_is_counted_each_time(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    began = await now(skipping)
    for number in range(3):
        left = began + timedelta(minutes=number)
        await leaves(fake, handle, left)
        await leaves(fake, handle, left + timedelta(seconds=9), away_for="NotReady, cni:NoExecute")
        await fake.see(handle, **BUSY, ready_since=left + timedelta(seconds=20))
    await eventually(lambda: holds(fake, (20, False), (20, False), (20, False)))
    assert (await state_of(handle)).flaps == 3


async def test_a_node_that_vanishes_while_it_is_away_is_not_back(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await leaves(fake, handle, await now(skipping))
    await eventually(lambda: holds(fake, (0, True)))
    await fake.see(handle, node_count=0)
    assert [one.until for one in (await state_of(handle)).absences] == [None]


async def test_the_end_of_a_taint_is_when_it_was_seen(fake: World, skipping: WorkflowEnvironment) -> None:
    """Ready never changed, so that it says nothing of it."""
    handle = await ready(fake, skipping)
    left = await now(skipping)
    await leaves(fake, handle, left, node_ready=True, away_for="cni:NoExecute")
    await skipping.sleep(timedelta(seconds=30))
    await fake.see(handle, **BUSY, ready_since=left - timedelta(hours=1))
    await eventually(lambda: back(fake))
    assert 30 <= record(fake)[0][0] < 60


async def test_a_taint_that_outlasts_not_ready_is_part_of_it(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    left = await now(skipping)
    await leaves(fake, handle, left, away_for="NotReady, cni:NoExecute")
    await leaves(fake, handle, left, node_ready=True, away_for="cni:NoExecute")
    await skipping.sleep(timedelta(seconds=60))
    await fake.see(handle, **BUSY, ready_since=left + timedelta(seconds=5))
    await eventually(lambda: back(fake))
    assert 60 <= record(fake)[0][0] < 90


async def test_what_is_on_record_from_a_life_before_is_kept(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.claims.found["a"]["metadata"]["annotations"][AWAY] = "2026-01-01T12:00:00Z/2026-01-01T12:00:10Z"
    await leaves(fake, handle, await now(skipping))
    await eventually(lambda: holds(fake, (10, False), (0, True)))


async def test_absences_are_known_to_the_next_run(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    began = await now(skipping)
    for number in range(220):
        left = began + timedelta(minutes=number)
        await leaves(fake, handle, left)
        await fake.see(handle, **BUSY, ready_since=left + timedelta(seconds=20))
    await eventually(lambda: rolled(fake.client, handle))
    handle = latest(fake.client, handle)
    await eventually(lambda: counted(handle, 220))
    assert (await state_of(handle)).phase is Phase.READY
    await eventually(lambda: holds(fake, *[(20, False)] * MOST))


async def test_a_node_that_goes_is_not_away(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.pods.place("node-a", "web")
    fake.pods.blocked["web"] = "budget 0"
    await delete(fake, handle)
    await leaves(fake, handle, await now(skipping), deleting=True)
    fake.pods.blocked.clear()
    await handle.result()
    assert await scheduled(handle, "record_absences") == 0


async def test_a_reboot_is_a_flap_only_if_the_node_was_seen_away(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    left = await now(skipping)
    await leaves(fake, handle, left)
    await eventually(lambda: holds(fake, (0, True)))
    fake.nodes.change("node-a", boot_id="boot-2")
    await fake.see(handle, **{**BUSY, "boot_id": "boot-2"}, ready_since=left + timedelta(seconds=40))
    await eventually(lambda: holds(fake, (40, False)))
    await in_phase(handle, Phase.READY)
    state = await state_of(handle)
    assert (state.flaps, state.reboots) == (1, 1)
    assert "the latest 1 for 40 s in all; rebooted 1 times" in current_details.of_claim(state)


async def test_a_flap_costs_few_events_and_a_node_that_stays_none(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await skipping.sleep(timedelta(seconds=30))
    before = len((await handle.fetch_history()).events)
    await skipping.sleep(timedelta(hours=1))
    assert len((await handle.fetch_history()).events) == before
    left = await now(skipping)
    await leaves(fake, handle, left)
    await eventually(lambda: holds(fake, (0, True)))
    await fake.see(handle, **BUSY, ready_since=left + timedelta(seconds=50))
    await eventually(lambda: back(fake))
    cost = len((await handle.fetch_history()).events) - before
    print(f"one flap costs {cost} events")
    assert cost <= 30


async def back(fake: World) -> bool:
    return [lasts for _, lasts in record(fake)] == [False]


async def counted(handle: Handle, flaps: int) -> bool:
    return (await state_of(handle)).flaps == flaps
