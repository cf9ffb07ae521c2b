"""EventBridge's rules and the queue, as a checker reads them, and as events need them to arrive."""

import json
from typing import Any

import pytest

from deploy.resources import EVENTS_STACK
from tests.support.sandbox.aws.kit import FakeAwsClient, raises_code

ARN = "arn:aws:sqs:us-west-2:123456789012:demo"


def waiting(kit: FakeAwsClient, queue: str = "demo") -> list[str]:
    """The detail-types of the messages in the queue, which are taken out."""
    sqs = kit.client("sqs")
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    for message in found:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return [json.loads(message["Body"])["detail-type"] for message in found]


def test_the_queue_tells_its_arn_its_policy_and_how_long_it_keeps(kit: FakeAwsClient) -> None:
    sqs = kit.client("sqs")
    url = sqs.get_queue_url(QueueName="demo")["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (found["QueueArn"], found["MessageRetentionPeriod"]) == (ARN, "300")
    allowed = [one for one in json.loads(found["Policy"])["Statement"] if one["Effect"] == "Allow"]
    assert "events.amazonaws.com" in allowed[0]["Principal"]["Service"]


def test_the_rules_are_found_from_their_target_and_the_other_way(kit: FakeAwsClient) -> None:
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


def change(events: Any, how: str) -> None:
    name = "demo-spot-interruption"
    if how == "disabled":
        events.disable_rule(Name=name)
    elif how == "aimed elsewhere":
        events.remove_targets(Rule=name, Ids=["KarpenterInterruptionQueueTarget"])
    else:
        events.put_rule(Name=name, EventPattern=json.dumps({"source": ["aws.s3"]}))


@pytest.mark.parametrize("how", ["disabled", "aimed elsewhere", "about something else"])
def test_without_its_rule_an_event_does_not_arrive(kit: FakeAwsClient, how: str) -> None:
    (one,) = kit.launch_instances(capacity_type="spot")
    kit.control.interrupt_spot(one, warn_only=True)
    assert waiting(kit) == ["EC2 Spot Instance Interruption Warning"]
    change(kit.client("events"), how)
    kit.control.interrupt_spot(one, warn_only=True)
    kit.control.recommend_rebalance(one)
    assert waiting(kit) == ["EC2 Instance Rebalance Recommendation"]


def test_a_reset_brings_the_rules_back(kit: FakeAwsClient) -> None:
    change(kit.client("events"), "disabled")
    kit.control.reset()
    assert kit.client("events").describe_rule(Name="demo-spot-interruption")["State"] == "ENABLED"


def test_the_shipped_stack_is_made_with_its_policy_and_its_queue_hears_what_its_rules_send(kit: FakeAwsClient) -> None:
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
    assert waiting(kit, "of-a-stack") == ["AWS Health Event"]
    assert waiting(kit) == ["EC2 Instance Rebalance Recommendation", "AWS Health Event", "AWS Health Event"]
