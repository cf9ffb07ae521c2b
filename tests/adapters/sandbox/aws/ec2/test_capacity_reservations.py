"""Capacity reservations: which launches use them, and what DescribeInstances shows."""

import pytest

from tests.support.sandbox.aws.kit import FakeAwsClient, instance_ids, raises_code, targeted_specification


def create_reservation(kit: FakeAwsClient, count: int = 2, criteria: str = "targeted") -> str:
    response = kit.ec2.create_capacity_reservation(
        InstanceType="m5.large",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-west-2a",
        InstanceCount=count,
        InstanceMatchCriteria=criteria,
        TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": [{"Key": "team", "Value": "x"}]}],
    )
    return str(response["CapacityReservation"]["CapacityReservationId"])


def available_count(kit: FakeAwsClient, reservation: str) -> int:
    response = kit.ec2.describe_capacity_reservations(CapacityReservationIds=[reservation])
    return int(response["CapacityReservations"][0]["AvailableInstanceCount"])


def test_targeted_launch_fails_beyond_the_reservation(kit: FakeAwsClient) -> None:
    reservation = create_reservation(kit, 2)
    kit.create_template(CapacityReservationSpecification=targeted_specification(reservation))
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), 3)
    launched = instance_ids(response)
    assert len(launched) == 2
    assert [error["ErrorCode"] for error in response["Errors"]] == ["ReservationCapacityExceeded"]
    found = kit.describe_instance(launched[0])
    assert found["CapacityReservationId"] == reservation
    assert found["CapacityReservationSpecification"] == targeted_specification(reservation)
    assert available_count(kit, reservation) == 0
    kit.ec2.terminate_instances(InstanceIds=launched)
    kit.control.advance_clock(3)
    assert available_count(kit, reservation) == 2


def test_reservation_has_capacity_when_the_pool_is_empty(kit: FakeAwsClient) -> None:
    kit.control.set_pool(0)
    kit.create_template(CapacityReservationSpecification=targeted_specification(create_reservation(kit)))
    assert len(instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))) == 1


def test_reservation_rejects_another_instance_type(kit: FakeAwsClient) -> None:
    kit.create_template(CapacityReservationSpecification=targeted_specification(create_reservation(kit)))
    response = kit.create_fleet(kit.overrides("c5.large", zones="a"))
    assert [error["ErrorCode"] for error in response["Errors"]] == ["ReservationCapacityIncompatible"]


def test_open_reservation_is_used_by_matching_launches(kit: FakeAwsClient) -> None:
    reservation = create_reservation(kit, 1, "open")
    first, second = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a"), 2))
    assert kit.describe_instance(first)["CapacityReservationId"] == reservation
    assert kit.describe_instance(first)["CapacityReservationSpecification"] == {"CapacityReservationPreference": "open"}
    assert "CapacityReservationId" not in kit.describe_instance(second)


@pytest.mark.parametrize(("preference", "capacity_type"), [("none", "on-demand"), (None, "spot")])
def test_spot_and_preference_none_do_not_use_open_reservations(
    kit: FakeAwsClient, preference: str | None, capacity_type: str
) -> None:
    create_reservation(kit, 1, "open")
    chosen = {"CapacityReservationPreference": preference} if preference else None
    kit.create_template(CapacityReservationSpecification=chosen)
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a"), capacity_type=capacity_type))
    assert "CapacityReservationId" not in kit.describe_instance(one)


def test_cancelled_reservation_releases_its_instances(kit: FakeAwsClient) -> None:
    reservation = create_reservation(kit, 1)
    kit.create_template(CapacityReservationSpecification=targeted_specification(reservation))
    (one,) = instance_ids(kit.create_fleet(kit.overrides("m5.large", zones="a")))
    kit.ec2.cancel_capacity_reservation(CapacityReservationId=reservation)
    assert "CapacityReservationId" not in kit.describe_instance(one)
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.control.advance_clock(3)
    assert available_count(kit, reservation) == 0


def test_reservations_are_filtered_by_state_and_tag(kit: FakeAwsClient) -> None:
    reservation = create_reservation(kit)
    filters = [{"Name": "state", "Values": ["active"]}, {"Name": "tag:team", "Values": ["x"]}]
    found = kit.ec2.describe_capacity_reservations(Filters=filters, MaxResults=100)["CapacityReservations"]
    assert [one["CapacityReservationId"] for one in found] == [reservation]


def test_capacity_block_needs_template_and_target(kit: FakeAwsClient) -> None:
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"), capacity_type="capacity-block")
    assert response["Instances"] == []
    assert [error["ErrorCode"] for error in response["Errors"]] == ["InvalidFleetConfiguration"]


def test_reserved_capacity_target_needs_its_options(kit: FakeAwsClient) -> None:
    kit.create_template()
    with raises_code("MissingParameter"):
        kit.create_fleet(kit.overrides("m5.large", zones="a"), capacity_type="reserved-capacity")
