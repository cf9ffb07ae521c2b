"""A worker with a clock error of ten minutes decides as with a correct clock, and reports the error."""

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web
from temporalio.common import MetricMeter

from tenure.clock import CLOCK, MAX_OFFSET, Clock, utc_now, wait_until_set
from tenure.controller.interruption.notifier import InterruptedCapacity
from tenure.controller.invalid_object_reporter import InvalidObjectReporter
from tenure.controller.settings import ControllerSettings
from tenure.kube.adapters.cluster import ObservedLease
from tenure.model.interruption.messages import InterruptionMessage
from tenure.scheduling.disruption.eligibility import consolidate_after_exclusions
from tests.support.controller.builders import CacheHarness, claim
from tests.support.fakes.kubernetes import FakeEvents
from tests.support.paths import ROOT
from tests.unit.activities.builders import FakeCluster, run_collection
from tests.unit.controller.fake_temporal import RecordingSignalQueue
from tests.unit.kube.fake_api import FakeApi, serve_api
from tests.unit.scheduling.builders import nodeclaim, pool

SHIFT = timedelta(minutes=10)
BOTH_WAYS = pytest.mark.parametrize("shift", (SHIFT, -SHIFT), ids=("ahead", "behind"))


class ShiftedClock(Clock):
    def __init__(self, shift: timedelta = timedelta()) -> None:
        super().__init__(lambda: datetime.now(UTC) + self.shift)
        self.shift = shift

    def observe(self, server: datetime | None = None, times: int = 2) -> None:
        """Observe responses with the correct time, unless `server` is given."""
        for _ in range(times):
            self.observe_date(format_datetime(server or datetime.now(UTC), usegmt=True))


@pytest.fixture
def process_clock(shift: timedelta, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Shift the process clock, and observe two responses of the API server."""
    shifted = ShiftedClock(shift)
    shifted.observe()
    monkeypatch.setattr(CLOCK, "_system_now", shifted._system_now)
    monkeypatch.setattr(CLOCK, "offset", shifted.offset)
    yield


def seconds_off(clock: Clock) -> float:
    return abs((clock.now() - datetime.now(UTC)).total_seconds())


@BOTH_WAYS
def test_clock_error_is_corrected_after_two_responses_and_described(shift: timedelta) -> None:
    clock, offsets = ShiftedClock(shift), list[timedelta]()
    clock.subscribe(offsets.append)
    clock.observe(times=1)
    assert seconds_off(clock) > 599
    clock.observe(times=3)
    assert seconds_off(clock) < 2
    assert len(offsets) == 1
    assert f"{'ahead of' if shift > timedelta() else 'behind'} the clock of the Kubernetes" in clock.describe_offset()
    clock.shift = timedelta()
    clock.observe(times=1)
    assert seconds_off(clock) < 0.1 and clock.describe_offset() == "" and len(offsets) == 2


def test_small_error_outlier_and_invalid_header_are_ignored() -> None:
    clock = ShiftedClock(MAX_OFFSET - timedelta(seconds=5))
    clock.observe()
    assert clock.offset == timedelta()
    clock = ShiftedClock()
    clock.observe(datetime.now(UTC) - SHIFT, times=1)
    clock.observe()
    for header in (None, "", "soon", "9" * 5000):
        clock.observe_date(header)
    assert clock.offset == timedelta()


def test_numbers_increase_despite_clock_changes() -> None:
    clock = ShiftedClock()
    before = clock.next_number()
    clock.offset = SHIFT
    after = [clock.next_number() for _ in range(3)]
    assert before < after[0] < after[1] < after[2]


@pytest.mark.parametrize(("ahead", "skipped"), [(20, 20), (-20, 0), (1e9, 60)])
def test_numbers_follow_those_of_another_process(ahead: float, skipped: float) -> None:
    clock = ShiftedClock()
    before = clock.next_number()
    clock.skip_numbers(datetime.now(UTC) + timedelta(seconds=ahead))
    assert clock.next_number() - before == pytest.approx(skipped * 1e9, abs=1e9)


async def test_clock_is_compared_with_each_api_server_response(monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(_: web.Request) -> web.Response:
        date = format_datetime(datetime.now(UTC), usegmt=True)
        return web.json_response({}, headers={"Date": date})

    api, clock = FakeApi(), ShiftedClock(SHIFT)
    api.lists = [respond, respond]
    monkeypatch.setattr("tenure.kube.client.client.CLOCK", clock)
    async with serve_api(api) as client:
        for _ in range(2):
            await client.request("GET", "/api/v1/nodes")
    assert seconds_off(clock) < 2


async def test_clock_error_is_reported_on_worker_pod() -> None:
    harness, events, clock = CacheHarness(), FakeEvents(), ShiftedClock(SHIFT)
    clock.observe()
    reporter = InvalidObjectReporter(
        ControllerSettings(cluster="c"),
        harness.cache,
        events,
        RecordingSignalQueue(),
        MetricMeter.noop,
        lambda: harness.now,
        clock=clock,
    )
    reporter.on_changes(None)  # type: ignore[arg-type]
    await reporter.publish_events()
    assert harness.cache.invalid_objects.count() == {("Pod", "InvalidClock"): 1}
    [message] = events.messages("InvalidObject")
    assert re.fullmatch(r"the clock of this worker is (599|60[01]) s ahead of .* e\.g\. with chrony", message)


@BOTH_WAYS
@pytest.mark.usefixtures("process_clock")
async def test_garbage_collection_uses_corrected_age(shift: timedelta) -> None:
    cluster = FakeCluster()
    cluster.add_instance("i-young", age=5)
    cluster.add_instance("i-old", age=120)
    await run_collection(cluster.aws.terminate_orphaned_instances)
    assert cluster.instances.terminated == ["i-old"]


@BOTH_WAYS
@pytest.mark.usefixtures("process_clock")
def test_lease_expiry_uses_corrected_clock(shift: timedelta) -> None:
    real = datetime.now(UTC)
    ages = {5: True, 60: False}
    for age, is_active in ages.items():
        lease = ObservedLease(
            namespace="kube-system",
            name="karpenter-leader-election",
            holder="karpenter",
            renewed=real - timedelta(seconds=age),
            acquired=real - timedelta(hours=1),
            duration=timedelta(seconds=15),
        )
        assert lease.is_active(utc_now()) is is_active


@BOTH_WAYS
@pytest.mark.usefixtures("process_clock")
def test_consolidate_after_counts_from_the_last_pod_event(shift: timedelta) -> None:
    real = datetime.now(UTC)
    nodepool = pool(consolidate_after="1m", consolidation_policy="WhenEmptyOrUnderutilized")
    for age, is_blocked in {30: True, 90: False}.items():
        since = real - timedelta(seconds=age)
        rested = nodeclaim("c", initialized_at=since, last_pod_event=since)
        found = list(consolidate_after_exclusions(rested, nodepool, utc_now()))
        assert bool(found) is is_blocked


@BOTH_WAYS
@pytest.mark.usefixtures("process_clock")
def test_interruption_counts_while_it_is_recent(shift: timedelta) -> None:
    harness = CacheHarness()
    harness.apply_objects("nodeclaims", claim("new", phase="Initialized"), claim("old", phase="Initialized"))
    capacity = InterruptedCapacity(harness.cache, lambda pool: None, lambda observed: None, utc_now)
    for name, age in {"new": 60, "old": 360}.items():
        at = datetime.now(UTC) - timedelta(seconds=age)
        notice = InterruptionMessage(kind="spotInterruption", id=name, at=at)
        capacity.observe(harness.cache.nodeclaims[name], [notice])
    assert harness.cache.interrupted == {"new"}


@pytest.mark.parametrize("folder", ("activities", "tenure/aws", "tenure/controller", "tenure/kube"))
def test_system_clock_is_read_in_one_place(folder: str) -> None:
    found = [
        str(path)
        for path in Path(ROOT, folder).rglob("*.py")
        if re.search(r"\.now\(UTC\)|\btime\.time", path.read_text())
    ]
    assert found == []


async def test_wait_ends_with_its_event_or_timeout() -> None:
    event = asyncio.Event()
    assert not await wait_until_set(event, 0.0)
    asyncio.get_running_loop().call_soon(event.set)
    assert await wait_until_set(event, None)
    assert await wait_until_set(event, -1.0), "an event that is already set counts"
