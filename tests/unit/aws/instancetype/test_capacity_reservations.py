"""Remaining instances of a reservation between two EC2 counts."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from tenure.apis.ec2nodeclass import ResolvedCapacityReservation
from tenure.aws.client.client import AwsClients
from tenure.aws.instancetype.capacity_reservations import FoundReservation, ReservationCounts, Reservations
from tenure.aws.settings import AwsSettings
from tenure.model.launch import FleetError, FleetInstance, FleetResult
from tests.unit.aws.fakes import FakeClients

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


def test_launches_and_terminations_since_count_are_added(counts: ReservationCounts, clock: Clock) -> None:
    clock.now += timedelta(seconds=1)
    counts.record_launch_result(FleetResult(instances=(instance("cr-1"), instance("cr-1"), instance(""))))
    assert counts.remaining("cr-1") == 1
    counts.record_running("i-1", "cr-1")
    for _ in range(2):
        counts.record_termination("i-1")
    counts.record_termination("i-2")
    assert counts.remaining("cr-1") == 2


def test_new_count_includes_earlier_launches_only(counts: ReservationCounts, clock: Clock) -> None:
    clock.now += timedelta(seconds=1)
    counts.record_launch("cr-1")
    clock.now += timedelta(seconds=1)
    requested_at = clock()
    clock.now += timedelta(seconds=1)
    counts.record_launch("cr-1")
    counts.record_counts({"cr-1": 2}, requested_at)
    assert counts.remaining("cr-1") == 1


def test_remaining_count_is_never_negative(counts: ReservationCounts) -> None:
    for _ in range(5):
        counts.record_launch("cr-1")
    assert counts.remaining("cr-1") == 0


def test_capacity_error_sets_zero_until_next_count(counts: ReservationCounts, clock: Clock) -> None:
    clock.now += timedelta(seconds=1)
    full = FleetError(code="ReservationCapacityExceeded", message="", reservation_id="cr-1", insufficient=True)
    counts.record_launch_result(FleetResult(errors=(full,)))
    assert counts.remaining("cr-1") == 0
    headroom = counts.last_reported("cr-1")
    assert headroom is not None and headroom.available == 0
    clock.now += timedelta(seconds=1)
    counts.record_counts({"cr-1": 2}, clock())
    assert counts.remaining("cr-1") == 2


def test_throttled_call_keeps_count(counts: ReservationCounts) -> None:
    throttled = FleetError(code="RequestLimitExceeded", message="", reservation_id="cr-1")
    counts.record_launch_result(FleetResult(errors=(throttled,)))
    assert counts.remaining("cr-1") == 3


def test_unknown_reservation_has_no_capacity(counts: ReservationCounts) -> None:
    assert counts.remaining("cr-2") == 0
    assert counts.last_reported("cr-2") is None


def test_count_expires_after_a_day(counts: ReservationCounts, clock: Clock) -> None:
    clock.now += timedelta(hours=25)
    assert counts.remaining("cr-1") == 0


async def test_reservation_is_forgotten_with_its_count(clock: Clock) -> None:
    responses: dict[str, list[Any]] = {}
    clients = cast(AwsClients, FakeClients(responses))
    settings = AwsSettings(cluster_name="demo", region="us-west-2", feature_gates={"ReservedCapacity": True})
    reservations = Reservations(clients, settings, clock=clock)
    for name in ("cr-1", "cr-2", "cr-3"):
        responses["describe_capacity_reservations"] = [{"CapacityReservationId": name, "State": "active"}]
        await reservations.find_ending({name})
        clock.now += timedelta(hours=13)
    assert set(reservations._known) == {"cr-2", "cr-3"}


def reservation(
    kind: str = "capacity-block", *, active: bool = True, ends_in: timedelta | None = None
) -> FoundReservation:
    end = {} if ends_in is None else {"endTime": START + ends_in}
    resolved = ResolvedCapacityReservation.from_object({"id": "cr-1", "reservationType": kind, **end})
    return FoundReservation(resolved=resolved, active=active, available=1)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (reservation("default"), "active"),
        (reservation("default", ends_in=timedelta(minutes=1)), "active"),
        (reservation("default", ends_in=timedelta(0)), None),
        (reservation(ends_in=timedelta(minutes=40, seconds=1)), "active"),
        (reservation(ends_in=timedelta(minutes=40)), "expiring"),
        (reservation(ends_in=timedelta(0)), None),
        (reservation(active=False), None),
    ],
)
def test_capacity_block_expires_forty_minutes_early(found: FoundReservation, state: str | None) -> None:
    listed = found.resolve_at(START)
    assert (listed.state if listed else None) == state
