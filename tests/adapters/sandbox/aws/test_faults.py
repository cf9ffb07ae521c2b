"""Fault rules: what fails, how often, in which protocol's words, and what was done all the same."""

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from tenure.sandbox.aws.admin.client import ControlError
from tests.support.sandbox.aws.kit import FakeAwsClient, error_codes, raises_code


def fails(kit: FakeAwsClient) -> str | None:
    """The code with which listing instances fails, if it does."""
    try:
        kit.ec2.describe_instances()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return None


def test_a_throttle_strikes_as_often_as_it_says(kit: FakeAwsClient) -> None:
    kit.control.add_fault("throttle", service="ec2", action="Describe*", times=2)
    assert [fails(kit) for _ in range(3)] == ["RequestLimitExceeded", "RequestLimitExceeded", None]


def test_a_rule_may_let_some_calls_pass_first(kit: FakeAwsClient) -> None:
    kit.control.add_fault("5xx", service="ec2", skip=1, times=1)
    assert [fails(kit) for _ in range(3)] == [None, "InternalError", None]
    assert [(rule["match_count"], rule["hits"]) for rule in kit.control.list_faults()] == [(3, 1)]


def test_probability_is_repeatable_from_a_seed(kit: FakeAwsClient) -> None:
    kit.control.add_fault("5xx", service="ec2", probability=0.5)
    kit.control.seed_faults(7)
    first = [fails(kit) for _ in range(20)]
    kit.control.seed_faults(7)
    assert [fails(kit) for _ in range(20)] == first
    assert {None, "InternalError"} == set(first)


def test_a_rule_may_look_for_a_parameter(kit: FakeAwsClient) -> None:
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
def test_each_protocol_says_it_in_its_own_words(
    kit: FakeAwsClient, service: str, method: str, request_: dict[str, str], expected: str
) -> None:
    kit.control.add_fault("throttle", service=service)
    with raises_code(expected):
        getattr(kit.client(service), method)(**request_)


def test_no_capacity_on_a_fleet_is_an_answer_with_errors(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.add_fault("no-capacity", action="CreateFleet", times=1)
    response = kit.create_fleet(kit.overrides("m5.large", zones="a"))
    assert error_codes(response) == {"m5.large/us-west-2a": "InsufficientInstanceCapacity"}
    assert response["Instances"] == []


def test_a_lost_answer_of_terminate_is_done_all_the_same(kit: FakeAwsClient) -> None:
    (one,) = kit.launch_instances()
    kit.control.add_fault("answer-lost", action="TerminateInstances", times=1)
    with pytest.raises(ConnectionClosedError):
        kit.ec2.terminate_instances(InstanceIds=[one])
    assert kit.describe_instance(one)["State"]["Name"] == "shutting-down"


def test_an_error_before_the_work_leaves_nothing_done(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.add_fault("5xx", action="CreateFleet", times=1)
    with pytest.raises(ClientError):
        kit.create_fleet(kit.overrides("m5.large"))
    assert kit.control.list_instances()["launched"] == 0


def test_latency_alone_delays_and_lets_pass(kit: FakeAwsClient) -> None:
    kit.control.add_fault("latency", action="DescribeInstances", latency=0.01)
    assert fails(kit) is None
    assert kit.control.list_faults()[0]["hits"] == 1


def test_rules_are_removed_one_by_one_or_all(kit: FakeAwsClient) -> None:
    first = kit.control.add_fault("5xx", service="ec2")
    kit.control.add_fault("5xx", service="iam")
    kit.control.remove_fault(first)
    assert [rule["service"] for rule in kit.control.list_faults()] == ["iam"]
    kit.control.clear_faults()
    assert kit.control.list_faults() == []


def test_a_rule_of_an_unknown_kind_is_refused(kit: FakeAwsClient) -> None:
    with pytest.raises(ControlError, match="kind must be one of"):
        kit.control.add_fault("earthquake")
