"""What an instance is read as; above all, that a gate that is off hides reservations altogether."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aws.instances import instance_facts

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
def test_capacity_type_is_read_back(more: dict[str, Any], gate: bool, capacity_type: str) -> None:
    assert instance_facts(RAW | more, reserved=gate).capacity_type == capacity_type


@given(
    st.fixed_dictionaries(
        {
            "CapacityReservationId": st.text(max_size=8),
            "CapacityReservationSpecification": st.sampled_from([ONLY, OPEN, {}]),
            "CapacityBlockId": st.text(max_size=8),
        }
    )
)
def test_with_the_gate_off_nothing_of_a_reservation_is_seen(more: dict[str, Any]) -> None:
    assert instance_facts(RAW | more, reserved=False) == instance_facts(RAW, reserved=False)
