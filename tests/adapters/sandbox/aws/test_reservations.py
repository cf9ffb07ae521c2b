"""Capacity reservations: who gets in, who is put in silently, what shows on the instance."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from tests.support.sandbox.aws.kit import StandInKit, code, ids


def reserve(kit: StandInKit, count: int = 2, criteria: str = "targeted") -> str:
    answer = kit.ec2.create_capacity_reservation(
        InstanceType="m5.large",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-west-2a",
        InstanceCount=count,
        InstanceMatchCriteria=criteria,
        TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": [{"Key": "team", "Value": "x"}]}],
    )
    return str(answer["CapacityReservation"]["CapacityReservationId"])


def free(kit: StandInKit, reservation: str) -> int:
    answer = kit.ec2.describe_capacity_reservations(CapacityReservationIds=[reservation])
    return int(answer["CapacityReservations"][0]["AvailableInstanceCount"])


def only(reservation: str) -> dict[str, object]:
    return {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": reservation},
    }


def test_a_targeted_launch_fills_the_reservation_and_then_fails(kit: StandInKit) -> None:
    reservation = reserve(kit, 2)
    kit.template(CapacityReservationSpecification=only(reservation))
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), 3)
    launched = ids(answer)
    assert len(launched) == 2
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["ReservationCapacityExceeded"]
    found = kit.describe(launched[0])
    assert found["CapacityReservationId"] == reservation
    assert found["CapacityReservationSpecification"] == only(reservation)
    assert free(kit, reservation) == 0
    kit.ec2.terminate_instances(InstanceIds=launched)
    kit.control.advance(3)
    assert free(kit, reservation) == 2


def test_a_reservation_has_capacity_where_the_pool_has_none(kit: StandInKit) -> None:
    kit.control.set_pool(0)
    kit.template(CapacityReservationSpecification=only(reserve(kit)))
    assert len(ids(kit.fleet(kit.overrides("m5.large", zones="a")))) == 1


def test_another_type_does_not_fit(kit: StandInKit) -> None:
    kit.template(CapacityReservationSpecification=only(reserve(kit)))
    answer = kit.fleet(kit.overrides("c5.large", zones="a"))
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["ReservationCapacityIncompatible"]


def test_an_open_reservation_takes_in_whoever_fits(kit: StandInKit) -> None:
    reservation = reserve(kit, 1, "open")
    kit.template()
    first, second = ids(kit.fleet(kit.overrides("m5.large", zones="a"), 2))
    assert kit.describe(first)["CapacityReservationId"] == reservation
    assert kit.describe(first)["CapacityReservationSpecification"] == {"CapacityReservationPreference": "open"}
    assert "CapacityReservationId" not in kit.describe(second)


@pytest.mark.parametrize(("preference", "capacity_type"), [("none", "on-demand"), (None, "spot")])
def test_who_prefers_none_or_is_spot_stays_out(kit: StandInKit, preference: str | None, capacity_type: str) -> None:
    reserve(kit, 1, "open")
    chosen = {"CapacityReservationPreference": preference} if preference else None
    kit.template(CapacityReservationSpecification=chosen)
    (one,) = ids(kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type=capacity_type))
    assert "CapacityReservationId" not in kit.describe(one)


def test_a_cancelled_reservation_lets_its_instances_go(kit: StandInKit) -> None:
    reservation = reserve(kit, 1)
    kit.template(CapacityReservationSpecification=only(reservation))
    (one,) = ids(kit.fleet(kit.overrides("m5.large", zones="a")))
    kit.ec2.cancel_capacity_reservation(CapacityReservationId=reservation)
    assert "CapacityReservationId" not in kit.describe(one)
    kit.ec2.terminate_instances(InstanceIds=[one])
    kit.control.advance(3)
    assert free(kit, reservation) == 0


def test_reservations_by_filter_and_wrong_id(kit: StandInKit) -> None:
    reservation = reserve(kit)
    wanted = [{"Name": "state", "Values": ["active"]}, {"Name": "tag:team", "Values": ["x"]}]
    found = kit.ec2.describe_capacity_reservations(Filters=wanted, MaxResults=100)["CapacityReservations"]
    assert [one["CapacityReservationId"] for one in found] == [reservation]
    with pytest.raises(ClientError) as missing:
        kit.ec2.describe_capacity_reservations(CapacityReservationIds=["cr-0123456789abcdef0"])
    assert code(missing) == "InvalidCapacityReservationId.NotFound"


def test_a_capacity_block_must_be_asked_for_by_template_and_target(kit: StandInKit) -> None:
    kit.template()
    answer = kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type="capacity-block")
    assert answer["Instances"] == []
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["InvalidFleetConfiguration"]


def test_reserved_capacity_needs_its_options(kit: StandInKit) -> None:
    kit.template()
    with pytest.raises(ClientError) as refused:
        kit.fleet(kit.overrides("m5.large", zones="a"), capacity_type="reserved-capacity")
    assert code(refused) == "MissingParameter"
