"""Capacity blocks, create_interruptible_fleet reservations, and the states of each reservation type over time."""

import json
from typing import Any

import pytest

from tenure.sandbox.aws.admin.client import ControlError
from tests.support.sandbox.aws.kit import FakeAwsClient, error_codes, instance_ids, raises_code, targeted_specification

INTERRUPTIBLE = "interruptible-capacity-reservation"


def create_fleet(
    kit: FakeAwsClient, reservation: str, market: str | None, target: str, count: int = 1, **request: Any
) -> Any:
    options = {"InstanceMarketOptions": {"MarketType": market}} if market else {}
    kit.create_template(
        f"for-{reservation}-{market}", CapacityReservationSpecification=targeted_specification(reservation), **options
    )
    return kit.create_fleet(
        kit.overrides("m5.large", zones="a"),
        count,
        capacity_type=target,
        template=f"for-{reservation}-{market}",
        **request,
    )


def create_interruptible_fleet(kit: FakeAwsClient, reservation: str, count: int = 1) -> Any:
    options = {"ReservationTypes": [INTERRUPTIBLE]}
    return create_fleet(kit, reservation, INTERRUPTIBLE, "reserved-capacity", count, ReservedCapacityOptions=options)


def describe_reservation(kit: FakeAwsClient, reservation: str) -> Any:
    return kit.ec2.describe_capacity_reservations(CapacityReservationIds=[reservation])["CapacityReservations"][0]


def test_capacity_block_is_used_by_capacity_block_fleets(kit: FakeAwsClient) -> None:
    block = kit.control.make_reservation(kind="capacity-block", count=2, lasts=86400)
    response = create_fleet(kit, block, "capacity-block", "capacity-block", 3)
    assert len(instance_ids(response)) == 2
    assert error_codes(response) == {"m5.large/us-west-2a": "ReservationCapacityExceeded"}
    found = kit.describe_instance(instance_ids(response)[0])
    assert (found["InstanceLifecycle"], found["CapacityReservationId"]) == ("capacity-block", block)
    view = describe_reservation(kit, block)
    assert (view["ReservationType"], view["AvailableInstanceCount"], view["EndDateType"]) == (
        "capacity-block",
        0,
        "limited",
    )


@pytest.mark.parametrize(
    ("kind", "market", "target", "expected"),
    [
        ("capacity-block", None, "on-demand", "ReservationCapacityIncompatible"),
        ("default", "capacity-block", "capacity-block", "ReservationCapacityIncompatible"),
        ("capacity-block", "capacity-block", "on-demand", "InvalidFleetConfiguration"),
        ("capacity-block", None, "capacity-block", "InvalidFleetConfiguration"),
        ("default", None, "spot", "InvalidParameterCombination"),
    ],
)
def test_reservation_type_market_and_target_must_match(
    kit: FakeAwsClient, kind: str, market: str | None, target: str, expected: str
) -> None:
    reservation = kit.control.make_reservation(kind=kind, lasts=86400)
    assert set(error_codes(create_fleet(kit, reservation, market, target)).values()) == {expected}


def test_capacity_block_instances_shut_down_30_minutes_before_its_end(kit: FakeAwsClient) -> None:
    block = kit.control.make_reservation(kind="capacity-block", lasts=7200)
    (one,) = instance_ids(create_fleet(kit, block, "capacity-block", "capacity-block"))
    kit.control.advance_clock(5300)
    assert kit.describe_instance(one)["State"]["Name"] == "running"
    kit.control.advance_clock(200)
    found = kit.describe_instance(one)
    assert (found["State"]["Name"], found["StateReason"]["Code"]) == ("shutting-down", "Server.CapacityBlockExpired")
    kit.control.advance_clock(2000)
    assert describe_reservation(kit, block)["State"] == "expired"


def test_scheduled_capacity_block_has_no_capacity_before_its_start(kit: FakeAwsClient) -> None:
    block = kit.control.make_reservation(kind="capacity-block", starts_in=3600, lasts=86400)
    assert (describe_reservation(kit, block)["State"], describe_reservation(kit, block)["AvailableInstanceCount"]) == (
        "scheduled",
        0,
    )
    kit.control.advance_clock(3601)
    assert (describe_reservation(kit, block)["State"], describe_reservation(kit, block)["AvailableInstanceCount"]) == (
        "active",
        1,
    )


def test_instance_of_an_expired_reservation_runs_on_demand(kit: FakeAwsClient) -> None:
    reservation = kit.control.make_reservation(lasts=600)
    (one,) = instance_ids(create_fleet(kit, reservation, None, "on-demand"))
    kit.control.advance_clock(601)
    assert describe_reservation(kit, reservation)["State"] == "expired"
    found = kit.describe_instance(one)
    assert found["State"]["Name"] == "running"
    assert "CapacityReservationId" not in found and "InstanceLifecycle" not in found
    with raises_code("InvalidCapacityReservationState"):
        kit.ec2.modify_capacity_reservation(CapacityReservationId=reservation, InstanceCount=3)


@pytest.mark.parametrize(("end", "state"), [("cancel_reservation", "cancelled"), ("expire_reservation", "expired")])
def test_reservation_is_cancelled_or_expired_by_control_api(kit: FakeAwsClient, end: str, state: str) -> None:
    reservation = kit.control.make_reservation()
    (one,) = instance_ids(create_fleet(kit, reservation, None, "on-demand"))
    getattr(kit.control, end)(reservation)
    assert describe_reservation(kit, reservation)["State"] == state
    assert "CapacityReservationId" not in kit.describe_instance(one)
    filters = [{"Name": "state", "Values": ["active"]}]
    assert kit.ec2.describe_capacity_reservations(Filters=filters)["CapacityReservations"] == []


def test_interruptible_instance_gets_a_warning_and_shuts_down(kit: FakeAwsClient) -> None:
    reservation = kit.control.make_reservation(count=2, interruptible=True)
    first, second = instance_ids(create_interruptible_fleet(kit, reservation, 2))
    assert kit.describe_instance(first)["InstanceLifecycle"] == INTERRUPTIBLE
    assert describe_reservation(kit, reservation)["Interruptible"] is True
    assert kit.control.interrupt_reservation(reservation, instances=[first]) == [first]
    sqs = kit.client("sqs")
    (message,) = sqs.receive_message(QueueUrl=sqs.get_queue_url(QueueName="demo")["QueueUrl"])["Messages"]
    body = json.loads(message["Body"])
    assert body["detail-type"] == "EC2 Capacity Reservation Instance Interruption Warning"
    assert body["detail"]["instance-id"] == first
    kit.control.advance_clock(121)
    assert kit.describe_instance(first)["State"]["Name"] == "shutting-down"
    assert kit.describe_instance(second)["State"]["Name"] == "running"
    kit.control.advance_clock(10)
    assert kit.control.list_reservations()[reservation]["available"] == 0


def test_ordinary_launches_do_not_use_interruptible_capacity(kit: FakeAwsClient) -> None:
    reservation = kit.control.make_reservation(interruptible=True, criteria="open")
    assert set(error_codes(create_fleet(kit, reservation, None, "on-demand")).values()) == {
        "ReservationCapacityIncompatible"
    }
    kit.create_template()
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))
    assert "CapacityReservationId" not in kit.describe_instance(one)
    with pytest.raises(ControlError, match="not interruptible"):
        kit.control.interrupt_reservation(kit.control.make_reservation())


def test_reservations_are_filtered_by_owner_and_match_criteria(kit: FakeAwsClient) -> None:
    foreign = kit.control.make_reservation(owner="210987654321", criteria="open", tags={"team": "x"})
    own = kit.control.make_reservation()

    def found(name: str, value: str) -> list[str]:
        filters = [{"Name": name, "Values": [value]}]
        response = kit.ec2.describe_capacity_reservations(Filters=filters, MaxResults=1000)
        return [one["CapacityReservationId"] for one in response["CapacityReservations"]]

    assert found("owner-id", "210987654321") == found("instance-match-criteria", "open") == [foreign]
    assert found("tag:team", "x") == found("tag-key", "team") == [foreign]
    assert found("instance-match-criteria", "targeted") == [own]
    with raises_code("InvalidParameterCombination"):
        kit.ec2.describe_capacity_reservations(CapacityReservationIds=[own], MaxResults=100)


def test_reservation_can_be_resized(kit: FakeAwsClient) -> None:
    reservation = kit.control.make_reservation(count=1)
    kit.ec2.modify_capacity_reservation(CapacityReservationId=reservation, InstanceCount=5)
    assert describe_reservation(kit, reservation)["AvailableInstanceCount"] == 5
    kit.control.resize_reservation(reservation, 0)
    assert describe_reservation(kit, reservation)["AvailableInstanceCount"] == 0
