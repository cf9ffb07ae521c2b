"""How far a refusal reaches, and for how long."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.aws.instance.create_fleet import fleet_answer
from tenure.aws.instancetype.unavailable_offerings import Marks, Unavailable
from tenure.model.instance_types import UnavailableOffering
from tenure.model.launch import UNAVAILABLE_FOR, FleetError, latest, marks_of
from tests.support.aws.builders import group

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHOSEN = {"InstanceType": "m5.large", "SubnetId": "subnet-a", "AvailabilityZone": "us-west-2a", "ImageId": "ami-1"}
SPREAD = "You've reached the limit of instances in this spread placement group and Availability Zone."


def refused(
    code: str, message: str = "no", *, capacity_type: str = "on-demand", **request: Any
) -> tuple[UnavailableOffering, ...]:
    """The marks that such an answer leaves."""
    asked = group(capacity_type=capacity_type)
    asked = asked.model_copy(update={"request": asked.request.model_copy(update=request)})
    error = {"ErrorCode": code, "ErrorMessage": message, "LaunchTemplateAndOverrides": {"Overrides": CHOSEN}}
    return marks_of(fleet_answer(asked, {"Errors": [error]}).errors, "default", NOW)


def of(
    *marks: UnavailableOffering, node_class: str = "default", placement_group: str = "", now: datetime = NOW
) -> Marks:
    return Unavailable().marks(marks, node_class=node_class, placement_group=placement_group, now=now)


def test_a_refusal_is_remembered_for_its_offering_alone() -> None:
    marks = of(*refused("InsufficientInstanceCapacity"))
    assert marks.covers("m5.large", "us-west-2a", "on-demand")
    assert not marks.covers("m5.large", "us-west-2b", "on-demand")
    assert not marks.covers("m5.large", "us-west-2a", "spot")
    assert not marks.covers("c5.large", "us-west-2a", "on-demand")


def test_another_class_heeds_the_refusal_of_an_offering_but_not_that_of_a_subnet() -> None:
    assert of(*refused("InsufficientInstanceCapacity"), node_class="other").covers(
        "m5.large", "us-west-2a", "on-demand"
    )
    full = refused("InsufficientFreeAddressesInSubnet")
    assert of(*full, node_class="other").full_subnets == frozenset()
    assert of(*full).full_subnets == {"subnet-a"}
    assert not of(*full).covers("m5.large", "us-west-2a", "on-demand")


def test_without_the_spot_role_no_spot_is_asked_for() -> None:
    marks = of(*refused("AuthFailure.ServiceLinkedRoleCreationNotPermitted", capacity_type="spot"))
    assert marks.covers("c5.large", "us-west-2c", "spot")
    assert not marks.covers("c5.large", "us-west-2c", "on-demand")


def test_a_spread_group_that_is_full_in_a_zone_takes_no_type_there() -> None:
    marks = refused("InvalidParameterValue", SPREAD, placement_group="pg-1")
    inside = of(*marks, placement_group="pg-1")
    assert inside.covers("c5.large", "us-west-2a", "spot")
    assert not inside.covers("c5.large", "us-west-2b", "spot")
    assert not of(*marks).covers("c5.large", "us-west-2a", "spot")


def test_a_partition_that_has_no_room_leaves_the_others() -> None:
    marks = of(*refused("InsufficientInstanceCapacity", placement_group="pg-1", partition="2"), placement_group="pg-1")
    assert marks.covers("m5.large", "us-west-2a", "on-demand", "2")
    assert not marks.covers("m5.large", "us-west-2a", "on-demand", "1")


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidAMIID.NotFound", "RequestLimitExceeded"])
def test_what_is_no_lack_of_capacity_marks_nothing(code: str) -> None:
    assert refused(code) == ()


def test_an_answer_that_names_no_offering_marks_nothing() -> None:
    assert marks_of(fleet_answer(group(), {}).errors, "default", NOW) == ()


def test_a_mark_lasts_three_minutes_and_each_refusal_renews_it() -> None:
    (first,) = refused("InsufficientInstanceCapacity")
    assert not of(first, now=NOW + UNAVAILABLE_FOR).covers("m5.large", "us-west-2a", "on-demand")
    (again,) = marks_of([_error()], "default", NOW + timedelta(minutes=2))
    assert latest([again, first], NOW) == (again,)
    assert of(first, again, now=NOW + timedelta(minutes=4)).covers("m5.large", "us-west-2a", "on-demand")
    assert latest([first, again], NOW + timedelta(minutes=6)) == ()


def test_what_this_process_heard_counts_beside_what_the_caller_knows() -> None:
    memory = Unavailable()
    memory.learn(refused("InsufficientInstanceCapacity"), NOW)
    marks = memory.marks((), node_class="default", placement_group="", now=NOW)
    assert marks.covers("m5.large", "us-west-2a", "on-demand")


def _error() -> FleetError:
    return fleet_answer(
        group(),
        {
            "Errors": [
                {"ErrorCode": "InsufficientInstanceCapacity", "LaunchTemplateAndOverrides": {"Overrides": CHOSEN}}
            ]
        },
    ).errors[0]
