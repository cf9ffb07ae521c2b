"""The CloudFormation stack of the interruption queue: its rules, retention, encryption and permissions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import tenure.sandbox.aws.services.sqs  # noqa: F401  (the type that moto does not know)
from deploy.resources import EVENTS_STACK, IAM_FILES, render
from tenure.aws.doctor.eventbridge import KINDS, events_of, matches_pattern
from tenure.model.interruption.messages import KARPENTERS_KINDS, EventKind
from tests.unit.deploy.stacks import ACCOUNT, CLUSTER, REGION, client, create_stack, mocked_aws, read_template

ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{CLUSTER}"
UNWANTED = (
    {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {"state": "pending"}},
    {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {"state": "running"}},
    {
        "source": "aws.health",
        "detail-type": "AWS Health Event",
        "detail": {"service": "RDS", "eventTypeCategory": "scheduledChange"},
    },
    {
        "source": "aws.health",
        "detail-type": "AWS Health Event",
        "detail": {"service": "EC2", "eventTypeCategory": "accountNotification"},
    },
    {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Request Fulfillment", "detail": {}},
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with mocked_aws(monkeypatch):
        yield


def stack(**parameters: str) -> dict[str, str]:
    return create_stack(EVENTS_STACK, **parameters)


def attributes(url: str) -> dict[str, str]:
    found: dict[str, str] = client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return found


def patterns() -> list[str]:
    events = client("events")
    names = events.list_rule_names_by_target(TargetArn=ARN)["RuleNames"]
    return [events.describe_rule(Name=name)["EventPattern"] for name in names]


def count_sent(event: Mapping[str, Any]) -> int:
    """Number of rules that match the event; each one sends a message."""
    return sum(matches_pattern(one, event) for one in patterns())


def test_each_event_kind_matches_one_rule() -> None:
    stack()
    assert set(KINDS) == {kind for kind, source in KARPENTERS_KINDS if source == "queue"}
    for kind in KINDS:
        assert [count_sent(event) for event in events_of(kind)] == [1] * len(events_of(kind)), kind


@pytest.mark.parametrize("event", UNWANTED, ids=lambda event: f"{event['detail-type']} {event['detail']}")
def test_irrelevant_events_match_no_rule(event: Mapping[str, Any]) -> None:
    stack()
    assert count_sent(event) == 0


@pytest.mark.parametrize("excluded", KINDS)
def test_excluded_event_kind_matches_no_rule(excluded: EventKind) -> None:
    stack(**{f"{excluded[0].upper()}{excluded[1:]}": "false"})
    assert {kind: count_sent(events_of(kind)[0]) for kind in KINDS} == {kind: int(kind != excluded) for kind in KINDS}


def test_queue_retains_messages_for_four_days_and_uses_sqs_encryption() -> None:
    found = attributes(stack()["QueueUrl"])
    assert (found["MessageRetentionPeriod"], found["SqsManagedSseEnabled"]) == (str(4 * 24 * 3600), "true")
    assert "KmsMasterKeyId" not in found


def test_failing_messages_go_to_dead_letter_queue_with_alarm() -> None:
    redrive = json.loads(attributes(stack()["QueueUrl"])["RedrivePolicy"])
    assert redrive["maxReceiveCount"] == 1000
    dead_letter_queue = redrive["deadLetterTargetArn"].rpartition(":")[2]
    assert "DeadLetterQueue" in dead_letter_queue
    alarm = read_template(EVENTS_STACK)["Resources"]["DeadLetterAlarm"]["Properties"]
    assert alarm["Dimensions"] == [{"Name": "QueueName", "Value": {"Fn::GetAtt": ["DeadLetterQueue", "QueueName"]}}]
    assert (alarm["MetricName"], alarm["Threshold"]) == ("ApproximateNumberOfMessagesVisible", 0)


def test_only_rules_of_account_may_send_and_only_over_tls() -> None:
    statements = json.loads(attributes(stack()["QueueUrl"])["Policy"])["Statement"]
    allowed = {one["Principal"]["Service"]: one for one in statements if one["Effect"] == "Allow"}
    assert set(allowed) == {"events.amazonaws.com", "sqs.amazonaws.com"}
    assert {one["Action"] for one in allowed.values()} == {"sqs:SendMessage"}
    assert {one["Resource"] for one in statements} == {ARN}
    source = allowed["events.amazonaws.com"]["Condition"]["ArnLike"]["aws:SourceArn"]
    assert source == f"arn:aws:events:{REGION}:{ACCOUNT}:rule/*"
    [denied] = [one for one in statements if one["Effect"] == "Deny"]
    assert (denied["Principal"], denied["Action"]) == ("*", "sqs:*")
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_worker_policy_equals_shipped_policy() -> None:
    client("iam").create_role(RoleName="worker", AssumeRolePolicyDocument="{}")
    arn = stack(ControllerRoleName="worker")["PolicyArn"]
    iam = client("iam")
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    found = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    [file] = [one for one in IAM_FILES if one.name == "interruption.json"]
    names = {
        "AWS::Partition": "aws",
        "AWS::Region": REGION,
        "AWS::AccountId": ACCOUNT,
        "InterruptionQueueName": CLUSTER,
    }
    assert found == render(file.read_text(), names)
    assert [one["PolicyArn"] for one in iam.list_attached_role_policies(RoleName="worker")["AttachedPolicies"]] == [arn]


def test_queue_is_named_after_cluster_or_by_parameter() -> None:
    assert stack(InterruptionQueueName="events-of-shop")["QueueName"] == "events-of-shop"
    client("cloudformation").delete_stack(StackName="events")
    found = stack()
    assert (found["QueueName"], found["QueueArn"]) == (CLUSTER, ARN)
    assert found["QueueUrl"].endswith(f"/{CLUSTER}")
