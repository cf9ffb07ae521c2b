"""How many instances a reservation is thought to have room for, between two answers of EC2."""

from datetime import UTC, datetime, timedelta

import pytest

from tenure.apis.ec2nodeclass import ResolvedCapacityReservation
from tenure.aws.instancetype.capacity_reservations import FoundReservation, ReservationCounts
from tenure.model.launch import FleetError, FleetInstance, FleetResult

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counts(clock: Clock) -> ReservationCounts:
    found = ReservationCounts(clock)
    found.record_counts({"cr-1": 3}, clock())
    return found


def instance(reservation: str) -> FleetInstance:
    return FleetInstance(
        instance_id="i-1", instance_type="m5.large", zone="a", subnet_id="", image_id="", capacity_type="reserved",
        reservation_id=reservation,
    )  # fmt: skip


def test_launches_and_terminations_since_the_count_are_added(counts: ReservationCounts, clock: Clock) -> None:
    clock.now += timedelta(seconds=1)
    counts.record_launch_result(FleetResult(instances=(instance("cr-1"), instance("cr-1"), instance(""))))
    assert counts.remaining("cr-1") == 1
    counts.record_running("i-1", "cr-1")
    for _ in range(2):
        counts.record_termination("i-1")
    counts.record_termination("i-2")
    assert counts.remaining("cr-1") == 2


def test_a_new_count_has_what_came_before_it_and_not_what_came_after(counts: ReservationCounts, clock: Clock) -> None:
    clock.now += timedelta(seconds=1)
    counts.record_launch("cr-1")
    clock.now += timedelta(seconds=1)
    requested_at = clock()
    clock.now += timedelta(seconds=1)
    counts.record_launch("cr-1")
    counts.record_counts({"cr-1": 2}, requested_at)
    assert counts.remaining("cr-1") == 1


def test_it_is_never_less_than_none(counts: ReservationCounts) -> None:
    for _ in range(5):
        counts.record_launch("cr-1")
    assert counts.remaining("cr-1") == 0


def test_a_want_of_room_makes_it_full_until_ec2_counts_anew(counts: ReservationCounts, clock: Clock) -> None:
    clock.now += timedelta(seconds=1)
    full = FleetError(code="ReservationCapacityExceeded", message="", reservation_id="cr-1", insufficient=True)
    counts.record_launch_result(FleetResult(errors=(full,)))
    assert counts.remaining("cr-1") == 0
    headroom = counts.last_reported("cr-1")
    assert headroom is not None and headroom.available == 0
    clock.now += timedelta(seconds=1)
    counts.record_counts({"cr-1": 2}, clock())
    assert counts.remaining("cr-1") == 2


def test_a_throttled_call_says_nothing_of_a_reservation(counts: ReservationCounts) -> None:
    throttled = FleetError(code="RequestLimitExceeded", message="", reservation_id="cr-1")
    counts.record_launch_result(FleetResult(errors=(throttled,)))
    assert counts.remaining("cr-1") == 3


def test_what_ec2_was_never_asked_about_has_no_room(counts: ReservationCounts) -> None:
    assert counts.remaining("cr-2") == 0
    assert counts.last_reported("cr-2") is None


def test_a_count_of_yesterday_says_nothing(counts: ReservationCounts, clock: Clock) -> None:
    clock.now += timedelta(hours=25)
    assert counts.remaining("cr-1") == 0


def reservation(
    kind: str = "capacity-block", *, active: bool = True, lasts: timedelta | None = None
) -> FoundReservation:
    end = {} if lasts is None else {"endTime": START + lasts}
    resolved = ResolvedCapacityReservation.from_object({"id": "cr-1", "reservationType": kind, **end})
    return FoundReservation(resolved=resolved, active=active, available=1)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (reservation("default"), "active"),
        (reservation("default", lasts=timedelta(minutes=1)), "active"),
        (reservation("default", lasts=timedelta(0)), None),
        (reservation(lasts=timedelta(minutes=40, seconds=1)), "active"),
        (reservation(lasts=timedelta(minutes=40)), "expiring"),
        (reservation(lasts=timedelta(0)), None),
        (reservation(active=False), None),
    ],
)
def test_a_block_expires_forty_minutes_early_and_nothing_is_listed_past_its_end(
    found: FoundReservation, state: str | None
) -> None:
    listed = found.resolve_at(START)
    assert (listed.state if listed else None) == state
