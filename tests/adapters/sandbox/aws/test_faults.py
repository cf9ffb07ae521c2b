"""Fault rules: which calls fail, how often, with which error code, and whether the call took effect."""

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tenure.sandbox.aws.admin.client import ControlError
from tests.support.sandbox.aws.kit import FakeAwsClient, error_codes, raises_code


def error_code(kit: FakeAwsClient) -> str | None:
    """The error code of DescribeInstances; None if it succeeds."""
    try:
        kit.ec2.describe_instances()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return None


def test_throttle_rule_applies_the_given_number_of_times(kit: FakeAwsClient) -> None:
    kit.control.add_fault("throttle", service="ec2", action="Describe*", times=2)
    assert [error_code(kit) for _ in range(3)] == ["RequestLimitExceeded", "RequestLimitExceeded", None]


def test_rule_can_skip_the_first_calls(kit: FakeAwsClient) -> None:
    kit.control.add_fault("5xx", service="ec2", skip=1, times=1)
    assert [error_code(kit) for _ in range(3)] == [None, "InternalError", None]
    assert [(rule["match_count"], rule["hits"]) for rule in kit.control.list_faults()] == [(3, 1)]


def test_probability_is_reproducible_from_a_seed(kit: FakeAwsClient) -> None:
    kit.control.add_fault("5xx", service="ec2", probability=0.5)
    kit.control.seed_faults(7)
    first = [error_code(kit) for _ in range(20)]
    kit.control.seed_faults(7)
    assert [error_code(kit) for _ in range(20)] == first
    assert {None, "InternalError"} == set(first)


def test_rule_can_match_a_parameter(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.add_fault("error", action="CreateFleet", match={"InstanceType": "m5.*"}, code="Blocked")
    with raises_code("Blocked"):
        kit.create_fleet(kit.overrides("m5.large"))
    assert kit.create_fleet(kit.overrides("c5.large"))["Instances"]


@pytest.mark.parametrize(
    ("service", "method", "request_", "expected"),
    [
        ("iam", "list_instance_profiles", {}, "Throttling"),
        ("ssm", "get_parameter", {"Name": "/x"}, "ThrottlingException"),
        ("pricing", "get_products", {"ServiceCode": "AmazonEC2"}, "ThrottlingException"),
        ("eks", "describe_cluster", {"name": "demo"}, "ThrottlingException"),
    ],
)
def test_throttling_code_depends_on_the_protocol(
    kit: FakeAwsClient, service: str, method: str, request_: dict[str, str], expected: str
) -> None:
    kit.control.add_fault("throttle", service=service)
    with raises_code(expected):
        getattr(kit.client(service), method)(**request_)


def test_no_capacity_fault_is_a_response_with_errors(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.add_fault("no-capacity", action="CreateFleet", times=1)
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
    assert error_codes(response) == {"m5.large/us-west-2a": "InsufficientInstanceCapacity"}
    assert response["Instances"] == []


def test_terminate_with_a_lost_response_takes_effect(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.control.add_fault("answer-lost", action="TerminateInstances", times=1)
    with pytest.raises(ConnectionClosedError):
        kit.ec2.terminate_instances(InstanceIds=[one])
    assert kit.describe_instance(one)["State"]["Name"] == "shutting-down"


def test_call_with_5xx_fault_has_no_effect(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.add_fault("5xx", action="CreateFleet", times=1)
    with pytest.raises(ClientError):
        kit.create_fleet(kit.overrides("m5.large"))
    assert kit.control.list_instances()["launched"] == 0


def test_latency_fault_only_delays(kit: FakeAwsClient) -> None:
    kit.control.add_fault("latency", action="DescribeInstances", latency=0.01)
    assert error_code(kit) is None
    assert kit.control.list_faults()[0]["hits"] == 1


def test_rules_are_removed_individually_or_all(kit: FakeAwsClient) -> None:
    first = kit.control.add_fault("5xx", service="ec2")
    kit.control.add_fault("5xx", service="iam")
    kit.control.remove_fault(first)
    assert [rule["service"] for rule in kit.control.list_faults()] == ["iam"]
    kit.control.clear_faults()
    assert kit.control.list_faults() == []


def test_rule_of_an_unknown_kind_is_rejected(kit: FakeAwsClient) -> None:
    with pytest.raises(ControlError, match="kind must be one of"):
        kit.control.add_fault("earthquake")
