"""EventBridge rules and the queue, as `tenure doctor` reads them and as event delivery depends on them."""

import json
from typing import Any

import pytest

from deploy.resources import EVENTS_STACK
from tests.support.sandbox.aws.kit import FakeAwsClient, raises_code

ARN = "arn:aws:sqs:us-west-2:123456789012:demo"


def receive_detail_types(kit: FakeAwsClient, queue: str = "demo") -> list[str]:
    """Receive and delete the messages of the queue. Returns their detail-types."""
    sqs = kit.client("sqs")
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    for message in found:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return [json.loads(message["Body"])["detail-type"] for message in found]


def test_queue_attributes_have_arn_policy_and_retention(kit: FakeAwsClient) -> None:
    sqs = kit.client("sqs")
    url = sqs.get_queue_url(QueueName="demo")["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (found["QueueArn"], found["MessageRetentionPeriod"]) == (ARN, "300")
    allowed = [one for one in json.loads(found["Policy"])["Statement"] if one["Effect"] == "Allow"]
    assert "events.amazonaws.com" in allowed[0]["Principal"]["Service"]


def test_rules_and_targets_are_found_from_each_other(kit: FakeAwsClient) -> None:
    events = kit.client("events")
    names = events.list_rule_names_by_target(TargetArn=ARN)["RuleNames"]
    assert len(names) == 5
    listed = {rule["Name"]: rule for rule in events.list_rules(NamePrefix="demo-")["Rules"]}
    assert set(listed) == set(names)
    for name in names:
        rule = events.describe_rule(Name=name)
        assert rule["State"] == "ENABLED"
        assert set(json.loads(rule["EventPattern"])) == {"source", "detail-type"}
        assert [one["Arn"] for one in events.list_targets_by_rule(Rule=name)["Targets"]] == [ARN]
    with raises_code("ResourceNotFoundException"):
        events.describe_rule(Name="other")


def break_rule(events: Any, how: str) -> None:
    name = "demo-spot-interruption"
    if how == "disabled":
        events.disable_rule(Name=name)
    elif how == "aimed elsewhere":
        events.remove_targets(Rule=name, Ids=["KarpenterInterruptionQueueTarget"])
    else:
        events.put_rule(Name=name, EventPattern=json.dumps({"source": ["aws.s3"]}))


@pytest.mark.parametrize("how", ["disabled", "aimed elsewhere", "about something else"])
def test_event_without_a_matching_rule_does_not_arrive(kit: FakeAwsClient, how: str) -> None:
    (one,) = kit.launch_instances(capacity_type="spot")
    kit.control.interrupt_spot(one, warn_only=True)
    assert receive_detail_types(kit) == ["EC2 Spot Instance Interruption Warning"]
    break_rule(kit.client("events"), how)
    kit.control.interrupt_spot(one, warn_only=True)
    kit.control.recommend_rebalance(one)
    assert receive_detail_types(kit) == ["EC2 Instance Rebalance Recommendation"]


def test_reset_restores_the_rules(kit: FakeAwsClient) -> None:
    break_rule(kit.client("events"), "disabled")
    kit.control.reset()
    assert kit.client("events").describe_rule(Name="demo-spot-interruption")["State"] == "ENABLED"


def test_queue_of_the_shipped_stack_receives_events_of_its_rules(kit: FakeAwsClient) -> None:
    parameters = {"ClusterName": "demo", "InterruptionQueueName": "of-a-stack", "RebalanceRecommendation": "false"}
    kit.client("cloudformation").create_stack(
        StackName="of-a-stack",
        TemplateBody=EVENTS_STACK.read_text(),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
    )
    sqs = kit.client("sqs")
    url = sqs.get_queue_url(QueueName="of-a-stack")["QueueUrl"]
    policy = json.loads(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"])
    assert [one["Effect"] for one in policy["Statement"]] == ["Allow", "Allow", "Deny"]
    (one,) = kit.launch_instances(capacity_type="spot")
    kit.control.recommend_rebalance(one)
    kit.control.health_event([one])
    kit.control.health_event([one], service="RDS")
    assert receive_detail_types(kit, "of-a-stack") == ["AWS Health Event"]
    assert receive_detail_types(kit) == [
        "EC2 Instance Rebalance Recommendation",
        "AWS Health Event",
        "AWS Health Event",
    ]
