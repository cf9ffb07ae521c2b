"""Scope and duration of unavailable offerings after launch errors."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.aws.instance.create_fleet import parse_fleet_result
from tenure.aws.instancetype.unavailable_offerings import UnavailableForNodeClass, UnavailableOfferings
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import UNAVAILABLE_FOR, FleetError, latest_unavailable_offerings, list_unavailable_offerings
from tests.support.aws.builders import launch_group

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHOSEN = {"InstanceType": "m5.large", "SubnetId": "subnet-a", "AvailabilityZone": "us-west-2a", "ImageId": "ami-1"}
SPREAD = "You've reached the limit of instances in this spread placement group and Availability Zone."


def offerings_unavailable_after(
    code: str, message: str = "no", *, capacity_type: str = "on-demand", **request: Any
) -> tuple[UnavailableOffering, ...]:
    """Offerings that are unavailable after this error."""
    attempted_group = launch_group(capacity_type=capacity_type)
    attempted_group = attempted_group.model_copy(update={"request": attempted_group.request.model_copy(update=request)})
    error = {"ErrorCode": code, "ErrorMessage": message, "LaunchTemplateAndOverrides": {"Overrides": CHOSEN}}
    return list_unavailable_offerings(parse_fleet_result(attempted_group, {"Errors": [error]}).errors, "default", NOW)


def resolve_unavailable(
    *offerings: UnavailableOffering, node_class: str = "default", placement_group: str = "", now: datetime = NOW
) -> UnavailableForNodeClass:
    return UnavailableOfferings().for_nodeclass(
        offerings, node_class=node_class, placement_group=placement_group, now=now
    )


def test_capacity_error_marks_its_offering_only() -> None:
    unavailable_offerings = resolve_unavailable(*offerings_unavailable_after("InsufficientInstanceCapacity"))
    assert unavailable_offerings.covers("m5.large", "us-west-2a", "on-demand")
    assert not unavailable_offerings.covers("m5.large", "us-west-2b", "on-demand")
    assert not unavailable_offerings.covers("m5.large", "us-west-2a", "spot")
    assert not unavailable_offerings.covers("c5.large", "us-west-2a", "on-demand")


def test_capacity_error_applies_to_other_nodeclass_but_full_subnet_does_not() -> None:
    assert resolve_unavailable(*offerings_unavailable_after("InsufficientInstanceCapacity"), node_class="other").covers(
        "m5.large", "us-west-2a", "on-demand"
    )
    full = offerings_unavailable_after("InsufficientFreeAddressesInSubnet")
    assert resolve_unavailable(*full, node_class="other").full_subnets == frozenset()
    assert resolve_unavailable(*full).full_subnets == {"subnet-a"}
    assert not resolve_unavailable(*full).covers("m5.large", "us-west-2a", "on-demand")


def test_missing_spot_role_marks_all_spot_offerings() -> None:
    unavailable_offerings = resolve_unavailable(
        *offerings_unavailable_after("AuthFailure.ServiceLinkedRoleCreationNotPermitted", capacity_type="spot")
    )
    assert unavailable_offerings.covers("c5.large", "us-west-2c", "spot")
    assert not unavailable_offerings.covers("c5.large", "us-west-2c", "on-demand")


def test_full_spread_group_marks_all_types_in_zone() -> None:
    unavailable_offerings = offerings_unavailable_after("InvalidParameterValue", SPREAD, placement_group="pg-1")
    inside = resolve_unavailable(*unavailable_offerings, placement_group="pg-1")
    assert inside.covers("c5.large", "us-west-2a", "spot")
    assert not inside.covers("c5.large", "us-west-2b", "spot")
    assert not resolve_unavailable(*unavailable_offerings).covers("c5.large", "us-west-2a", "spot")


def test_capacity_error_in_partition_marks_that_partition() -> None:
    unavailable_offerings = resolve_unavailable(
        *offerings_unavailable_after("InsufficientInstanceCapacity", placement_group="pg-1", partition="2"),
        placement_group="pg-1",
    )
    assert unavailable_offerings.covers("m5.large", "us-west-2a", "on-demand", "2")
    assert not unavailable_offerings.covers("m5.large", "us-west-2a", "on-demand", "1")


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidAMIID.NotFound", "RequestLimitExceeded"])
def test_other_errors_mark_nothing(code: str) -> None:
    assert offerings_unavailable_after(code) == ()


def test_error_without_offering_marks_nothing() -> None:
    assert list_unavailable_offerings(parse_fleet_result(launch_group(), {}).errors, "default", NOW) == ()


def test_mark_lasts_three_minutes_and_is_renewed() -> None:
    (first,) = offerings_unavailable_after("InsufficientInstanceCapacity")
    assert not resolve_unavailable(first, now=NOW + UNAVAILABLE_FOR).covers("m5.large", "us-west-2a", "on-demand")
    (renewed,) = list_unavailable_offerings([_error()], "default", NOW + timedelta(minutes=2))
    assert latest_unavailable_offerings([renewed, first], NOW) == (renewed,)
    assert resolve_unavailable(first, renewed, now=NOW + timedelta(minutes=4)).covers(
        "m5.large", "us-west-2a", "on-demand"
    )
    assert latest_unavailable_offerings([first, renewed], NOW + timedelta(minutes=6)) == ()


def test_offerings_of_this_process_and_caller_are_combined() -> None:
    memory = UnavailableOfferings()
    memory.add(offerings_unavailable_after("InsufficientInstanceCapacity"), NOW)
    unavailable_offerings = memory.for_nodeclass((), node_class="default", placement_group="", now=NOW)
    assert unavailable_offerings.covers("m5.large", "us-west-2a", "on-demand")


def _error() -> FleetError:
    return parse_fleet_result(
        launch_group(),
        {
            "Errors": [
                {"ErrorCode": "InsufficientInstanceCapacity", "LaunchTemplateAndOverrides": {"Overrides": CHOSEN}}
            ]
        },
    ).errors[0]
