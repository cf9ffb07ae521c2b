"""Instance facts from DescribeInstances, and no reservation fields while the feature gate is disabled."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.aws.instance.instances import instance_facts

RAW: dict[str, Any] = {
    "InstanceId": "i-1",
    "State": {"Name": "running"},
    "InstanceType": "m5.large",
    "Placement": {"AvailabilityZone": "us-west-2a"},
    "ImageId": "ami-1",
    "Tags": [{"Key": "a", "Value": "b"}],
}
ONLY = {"CapacityReservationPreference": "capacity-reservations-only"}
OPEN = {"CapacityReservationPreference": "open"}


@pytest.mark.parametrize(
    ("more", "gate", "capacity_type"),
    [
        ({}, True, "on-demand"),
        ({"SpotInstanceRequestId": "sir-1"}, False, "spot"),
        ({"InstanceLifecycle": "spot"}, False, "spot"),
        ({"CapacityReservationId": "cr-1"}, False, "on-demand"),
        ({"CapacityReservationId": "cr-1", "CapacityReservationSpecification": ONLY}, False, "on-demand"),
        ({"CapacityReservationId": "cr-1"}, True, "on-demand"),
        ({"CapacityReservationId": "cr-1", "CapacityReservationSpecification": OPEN}, True, "on-demand"),
        ({"CapacityReservationId": "cr-1", "CapacityReservationSpecification": ONLY}, True, "reserved"),
        ({"CapacityReservationSpecification": ONLY}, True, "on-demand"),
    ],
)
def test_capacity_type_is_read_from_instance(more: dict[str, Any], gate: bool, capacity_type: str) -> None:
    assert instance_facts(RAW | more, reserved=gate).capacity_type == capacity_type


@pytest.mark.parametrize(
    ("more", "kind", "interruptible"),
    [
        ({}, "default", False),
        ({"InstanceLifecycle": "capacity-block"}, "capacity-block", False),
        ({"InstanceLifecycle": "interruptible-capacity-reservation"}, "default", True),
    ],
)
def test_reserved_instance_has_reservation_fields(more: dict[str, Any], kind: str, interruptible: bool) -> None:
    targeted = {"CapacityReservationId": "cr-1", "CapacityReservationSpecification": ONLY}
    found = instance_facts(RAW | targeted | more, reserved=True)
    assert (found.reservation_id, found.reservation_type, found.interruptible) == ("cr-1", kind, interruptible)


def test_open_reservation_is_ignored() -> None:
    found = instance_facts(RAW | {"CapacityReservationId": "cr-1"}, reserved=True)
    assert (found.reservation_id, found.reservation_type) == ("", "")


def test_placement_group_partition_is_read() -> None:
    placement = {"AvailabilityZone": "us-west-2a", "GroupId": "pg-1", "PartitionNumber": 3}
    found = instance_facts(RAW | {"Placement": placement}, reserved=False)
    assert (found.placement_group, found.partition) == ("pg-1", "3")


@given(
    st.fixed_dictionaries(
        {
            "CapacityReservationId": st.text(max_size=8),
            "CapacityReservationSpecification": st.sampled_from([ONLY, OPEN, {}]),
            "CapacityBlockId": st.text(max_size=8),
        }
    )
)
def test_disabled_gate_hides_reservations(more: dict[str, Any]) -> None:
    assert instance_facts(RAW | more, reserved=False) == instance_facts(RAW, reserved=False)


def test_security_groups_are_sorted() -> None:
    groups = [{"GroupId": "sg-2", "GroupName": "b"}, {"GroupId": "sg-1", "GroupName": "a"}]
    found = instance_facts(RAW | {"SubnetId": "subnet-1", "SecurityGroups": groups}, reserved=False)
    assert (found.subnet_id, found.security_group_ids) == ("subnet-1", ("sg-1", "sg-2"))


def test_instance_without_network_has_no_subnet() -> None:
    found = instance_facts(RAW, reserved=False)
    assert (found.subnet_id, found.security_group_ids) == ("", ())
