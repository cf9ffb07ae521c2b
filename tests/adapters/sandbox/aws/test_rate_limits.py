"""Rate limits: token buckets per action, refilled by the stand-in's clock; disabled by default."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tenure.sandbox.aws.admin.client import ControlError
from tests.support.sandbox.aws.kit import FakeAwsClient, raises_code


def rejected_codes(call: Any, times: int) -> list[str]:
    """Make this many calls. Returns the error codes of the rejected ones."""
    found = []
    for _ in range(times):
        try:
            call()
        except ClientError as error:
            found.append(str(error.response["Error"]["Code"]))
    return found


def test_nothing_is_throttled_by_default(kit: FakeAwsClient) -> None:
    assert rejected_codes(lambda: kit.ec2.describe_launch_templates(), 120) == []


def test_token_bucket_empties_and_refills(kit: FakeAwsClient) -> None:
    kit.create_template()
    kit.control.set_rate("CreateFleet", refill=2, bucket=2)
    overrides = kit.overrides("m5.large", zones="a")
    assert rejected_codes(lambda: kit.create_fleet(overrides), 5) == ["RequestLimitExceeded"] * 3
    kit.control.advance_clock(1)
    assert rejected_codes(lambda: kit.create_fleet(overrides), 3) == ["RequestLimitExceeded"]
    assert kit.control.count_calls("ec2:CreateFleet") == 8
    assert kit.control.count_throttled("ec2:CreateFleet") == 4
    assert kit.control.list_instances()["launched"] == 4
    kit.control.clear_rates()
    assert rejected_codes(lambda: kit.create_fleet(overrides), 3) == []


def test_each_action_has_its_own_bucket(kit: FakeAwsClient) -> None:
    kit.control.set_rate("DescribeInstances", refill=0, bucket=1)
    assert rejected_codes(lambda: kit.ec2.describe_instances(), 2) == ["RequestLimitExceeded"]
    assert rejected_codes(lambda: kit.ec2.describe_launch_templates(), 2) == []


def test_throttling_code_depends_on_the_service(kit: FakeAwsClient) -> None:
    kit.control.set_rate("iam:ListInstanceProfiles", refill=0, bucket=1)
    kit.control.set_rate("ssm:GetParameter", refill=0, bucket=1)
    assert rejected_codes(lambda: kit.iam.list_instance_profiles(), 2) == ["Throttling"]
    assert rejected_codes(kit.image_id, 2) == ["ThrottlingException"]


@pytest.mark.parametrize(
    ("method", "request_", "burst"),
    [
        ("describe_instances", {"MaxResults": 100}, 100),
        ("describe_instances", {}, 50),
        ("delete_launch_template", {"LaunchTemplateName": "none"}, 50),
        ("terminate_instances", {"InstanceIds": ["i-0123456789abcdef0"]}, 100),
    ],
)
def test_documented_rates_differ_by_action(
    kit: FakeAwsClient, method: str, request_: dict[str, Any], burst: int
) -> None:
    kit.control.use_documented_rates()
    found = rejected_codes(lambda: getattr(kit.ec2, method)(**request_), burst + 1)
    assert found.count("RequestLimitExceeded") == 1


def test_terminations_are_limited_by_instance_count(kit: FakeAwsClient) -> None:
    launched = kit.launch_instances(count=3)
    kit.control.use_documented_rates()
    many = [f"i-{number:017x}" for number in range(999)]
    with raises_code("InvalidInstanceID.NotFound"):
        kit.ec2.terminate_instances(InstanceIds=many)
    with raises_code("RequestLimitExceeded"):
        kit.ec2.terminate_instances(InstanceIds=launched)
    kit.control.advance_clock(1)
    kit.ec2.terminate_instances(InstanceIds=launched)


def test_reset_clears_rates_and_invalid_rates_are_rejected(kit: FakeAwsClient) -> None:
    kit.control.set_rate("DescribeInstances", refill=0, bucket=1)
    kit.control.reset()
    assert rejected_codes(lambda: kit.ec2.describe_instances(), 2) == []
    with pytest.raises(ControlError, match="bucket must be 1"):
        kit.control.set_rate("DescribeInstances", refill=1, bucket=0)
