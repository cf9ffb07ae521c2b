"""Doctor checks of the interruption queue and its rules: each finding names the object, the problem and the fix."""

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.aws.client.client import AwsClients
from tenure.aws.doctor.checks import check_events
from tenure.aws.doctor.eventbridge import pattern_of
from tenure.model.errors import Fault, Finding, Forbidden, NotFound
from tenure.model.interruption.messages import EventKind
from tests.support.cli.remedies import find_faulty_remedies

REGION, ACCOUNT = "eu-west-1", "123456789012"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:demo"
RULE = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k-1"
STATE_CHANGE = "EC2 Instance State-change Notification"
RULES: dict[str, dict[str, Any]] = {
    "spot": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
    "reservation": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Capacity Reservation Instance Interruption Warning"],
    },
    "rebalance": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance Rebalance Recommendation"]},
    "health": {"source": ["aws.health"], "detail-type": ["AWS Health Event"]},
    "state": {"source": ["aws.ec2"], "detail-type": [STATE_CHANGE]},
}
"""Rules of Karpenter's CloudFormation template."""


def allow(**condition: Any) -> dict[str, Any]:
    statement = {
        "Sid": "AllowRules",
        "Effect": "Allow",
        "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
        "Action": "sqs:SendMessage",
        "Resource": QUEUE,
    }
    return statement | ({"Condition": condition} if condition else {})


DENY_HTTP = {
    "Sid": "DenyHTTP",
    "Effect": "Deny",
    "Principal": "*",
    "Action": "sqs:*",
    "Resource": QUEUE,
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}


class Account:
    """Fake SQS, EventBridge and KMS with a correct setup that tests change."""

    def __init__(self) -> None:
        self.region = REGION
        self.attributes: dict[str, str] = {"QueueArn": QUEUE, "MessageRetentionPeriod": "345600"}
        self.policy(allow(), DENY_HTTP)
        self.rules: dict[str, dict[str, Any]] = {}
        for name, pattern in RULES.items():
            self.rule(name, pattern)
        self.faults: dict[str, Fault] = {}
        self.key: dict[str, Any] = {"KeyId": "k-1", "Arn": KEY, "KeyState": "Enabled"}
        self.key_policy: dict[str, Any] = {}
        self.sqs = SimpleNamespace(get_queue_url=self.get_queue_url, get_queue_attributes=self.get_queue_attributes)
        self.events = SimpleNamespace(
            list_rule_names_by_target=self.list_rule_names_by_target,
            describe_rule=self.describe_rule,
            list_rules=self.list_rules,
            list_targets_by_rule=self.list_targets_by_rule,
            list_event_buses=self.list_event_buses,
        )
        self.kms = SimpleNamespace(describe_key=self.describe_key, get_key_policy=self.get_key_policy)

    def policy(self, *statements: Mapping[str, Any]) -> None:
        self.attributes["Policy"] = json.dumps({"Version": "2012-10-17", "Statement": statements})

    def rule(self, name: str, pattern: Mapping[str, Any], **fields: Any) -> None:
        rule_fields = {"bus": "default", "State": "ENABLED", "targets": [QUEUE], **fields}
        self.rules[name] = {"Name": name, "Arn": RULE + name, "EventPattern": json.dumps(pattern), **rule_fields}

    async def call(self, method: Callable[..., Any], **request: Any) -> Any:
        if fault := self.faults.get(method.__name__):
            raise fault
        return method(**request)

    def get_queue_url(self, *, QueueName: str) -> Any:
        if QueueName != "demo":
            raise NotFound("the specified queue does not exist")
        return {"QueueUrl": "https://demo"}

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: list[str]) -> Any:
        return {"Attributes": self.attributes}

    def list_rule_names_by_target(self, *, TargetArn: str, EventBusName: str, NextToken: str = "") -> Any:
        """Return one name per page, because AWS may return several pages."""
        names = [n for n, one in self.rules.items() if one["bus"] == EventBusName and TargetArn in one["targets"]]
        first = int(NextToken or 0)
        more = {"NextToken": str(first + 1)} if first + 1 < len(names) else {}
        return {"RuleNames": names[first : first + 1], **more}

    def describe_rule(self, *, Name: str, EventBusName: str) -> Any:
        return self.rules[Name]

    def list_rules(self) -> Any:
        return {"Rules": [one for one in self.rules.values() if one["bus"] == "default"]}

    def list_targets_by_rule(self, *, Rule: str) -> Any:
        return {"Targets": [{"Arn": arn} for arn in self.rules[Rule]["targets"]]}

    def list_event_buses(self) -> Any:
        return {"EventBuses": [{"Name": one} for one in {"default", *(rule["bus"] for rule in self.rules.values())}]}

    def describe_key(self, *, KeyId: str) -> Any:
        return {"KeyMetadata": self.key}

    def get_key_policy(self, *, KeyId: str, PolicyName: str) -> Any:
        return {"Policy": json.dumps({"Statement": [self.key_policy]})}


@pytest.fixture
def account() -> Account:
    return Account()


async def findings(account: Account, *ignored: EventKind, queue: str = "demo") -> dict[str, Finding]:
    found = await check_events(cast(AwsClients, account), "demo", queue, ignored=frozenset(ignored))
    assert all(one.todo for one in found if one.level != "ok") and find_faulty_remedies(found) == []
    return {one.subject: one for one in found}


async def find_problem(account: Account, *ignored: EventKind) -> Finding:
    """The only finding that is not ok."""
    [one] = [one for one in (await findings(account, *ignored)).values() if one.level != "ok"]
    return one


async def test_correct_setup_has_no_problems(account: Account) -> None:
    found = await findings(account)
    assert {one.level for one in found.values()} == {"ok"}
    assert "spot" in found["rule for spotInterruption"].message
    assert {found[f"rule for {kind}"].message for kind in ("instanceStopping", "instanceTerminating")} == {
        "rule state sends them"
    }


async def test_missing_queue_is_named_with_region(account: Account) -> None:
    [one] = (await findings(account, queue="other")).values()
    assert (one.level, one.subject) == ("problem", "queue other")
    assert REGION in one.message and "events.yaml" in one.todo and "INTERRUPTION_QUEUE" in one.todo


@pytest.mark.parametrize(
    ("method", "level", "permission"),
    [
        ("get_queue_url", "problem", "sqs:GetQueueUrl"),
        ("get_queue_attributes", "unknown", "sqs:GetQueueAttributes"),
        ("list_rule_names_by_target", "unknown", "events:ListRuleNamesByTarget"),
        ("describe_rule", "unknown", "events:DescribeRule"),
    ],
)
async def test_missing_permission_is_named(account: Account, method: str, level: str, permission: str) -> None:
    account.faults[method] = Forbidden("access denied")
    one = await find_problem(account)
    assert one.level == level and permission in one.todo


@pytest.mark.parametrize(
    ("name", "kind", "level"),
    [
        ("spot", "spotInterruption", "problem"),
        ("reservation", "capacityReservationInterruption", "advice"),
        ("rebalance", "rebalanceRecommendation", "advice"),
        ("health", "scheduledChange", "advice"),
    ],
)
async def test_missing_rule_is_named_by_event_kind(account: Account, name: str, kind: EventKind, level: str) -> None:
    del account.rules[name]
    one = await find_problem(account)
    assert (one.level, one.subject) == (level, f"rule for {kind}")
    assert "no rule sends them" in one.message
    assert f"{kind[0].upper()}{kind[1:]}=true" in one.todo and QUEUE in one.todo and REGION in one.todo
    assert RULES[name]["detail-type"][0] in one.todo
    assert (await findings(account, kind))[f"rule for {kind}"].level == "ok", "every NodePool ignores it"


async def test_state_change_rule_must_cover_both_kinds(account: Account) -> None:
    account.rule("state", {**RULES["state"], "detail": {"state": ["stopping", "stopped"]}})
    assert (await find_problem(account)).subject == "rule for instanceTerminating"
    account.rule("state", {**RULES["state"], "detail": {"state": ["running"]}})
    found = await findings(account)
    assert [found[f"rule for {kind}"].level for kind in ("instanceStopping", "instanceTerminating")] == [
        "problem",
        "problem",
    ]


async def test_disabled_rule_is_named_with_enable_command(account: Account) -> None:
    account.rules["spot"]["State"] = "DISABLED"
    one = await find_problem(account)
    assert "rule spot is disabled" in one.message
    assert one.todo == f"aws events enable-rule --name spot --region {REGION}"
    account.rules["spot"]["State"] = "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS"
    assert (await findings(account))["rule for spotInterruption"].level == "ok"


async def test_rule_with_another_target_is_named_with_its_target(account: Account) -> None:
    elsewhere = f"arn:aws:sqs:us-east-1:{ACCOUNT}:demo"
    account.rules["spot"]["targets"] = [elsewhere]
    one = await find_problem(account)
    assert "rule spot sends them to" in one.message and elsewhere in one.message
    assert "put-targets --rule spot" in one.todo and QUEUE in one.todo
    account.rules["spot"]["targets"] = []
    assert "to no target" in (await find_problem(account)).message
    account.faults["list_targets_by_rule"] = Forbidden("no")
    assert "no rule sends them here: " in (await find_problem(account)).message


async def test_rule_of_another_cluster_is_named_but_not_to_be_changed(account: Account) -> None:
    other = f"arn:aws:sqs:{REGION}:{ACCOUNT}:other-cluster"
    account.rules["spot"]["targets"] = [other]
    one = await find_problem(account)
    assert f"no rule sends them here (spot sends them to {other})" in one.message
    assert "put-targets --rule spot " not in one.todo and "SpotInterruption=true" in one.todo


async def test_missing_rule_is_created_without_the_stack_of_another_queue(account: Account) -> None:
    del account.rules["health"]
    one = await find_problem(account)
    name, commands = "tenure-demo-scheduledChange", one.todo.partition(": ")[2].partition("; ")[0]
    pattern = json.dumps(pattern_of("scheduledChange"), separators=(",", ":"))
    assert commands == (
        f"aws events put-rule --name {name} --region {REGION} --event-pattern '{pattern}' && "
        f"aws events put-targets --rule {name} --region {REGION} --targets Id=tenure,Arn={QUEUE}"
    )
    assert "only if the stack tenure-events-demo created the queue" in one.todo


async def test_long_name_of_a_cluster_is_not_shortened_in_the_name_of_a_rule(account: Account) -> None:
    del account.rules["reservation"]
    found = await check_events(cast(AwsClients, account), "c" * 40, "demo")
    (one,) = (one for one in found if one.level != "ok")
    assert "put-rule --name RULE-NAME " in one.todo and "put-targets --rule RULE-NAME " in one.todo


async def test_rule_on_another_bus_is_named(account: Account) -> None:
    account.rules["spot"]["bus"] = "orders"
    one = await find_problem(account)
    assert "rule spot is on the bus orders" in one.message and "default bus" in one.todo


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ((DENY_HTTP,), "no statement allows events.amazonaws.com"),
        ((allow() | {"Action": "sqs:ReceiveMessage"},), "no statement allows"),
        ((allow() | {"Resource": QUEUE + "-2"},), "no statement allows"),
        ((allow() | {"Principal": {"Service": "sqs.amazonaws.com"}},), "no statement allows"),
        ((allow(), DENY_HTTP | {"Condition": {}, "Sid": "DenyAll"}), "DenyAll denies it"),
        ((allow(StringEquals={"aws:SourceAccount": "999999999999"}),), "the condition of AllowRules is not met"),
    ],
)
async def test_queue_policy_that_blocks_eventbridge_is_explained(
    account: Account, statements: tuple[dict[str, Any], ...], message: str
) -> None:
    account.policy(*statements)
    one = await find_problem(account)
    assert (one.level, one.subject) == ("problem", "queue demo")
    assert (
        "does not allow EventBridge to send" in one.message and message in one.message and "sqs:SendMessage" in one.todo
    )


async def test_queue_policy_for_some_rules_names_missing_rules(account: Account) -> None:
    account.policy(allow(ArnEquals={"aws:SourceArn": [RULE + name for name in RULES if name != "health"]}))
    one = await find_problem(account)
    assert "does not allow the rules health to send" in one.message
    account.policy(allow(ArnLike={"aws:SourceArn": RULE + "*"}))
    assert (await findings(account))["queue demo"].level == "ok"


async def test_queue_policy_needs_action_but_no_resource(account: Account) -> None:
    account.policy({key: value for key, value in allow().items() if key != "Resource"})
    assert (await findings(account))["queue demo"].level == "ok"
    account.policy({key: value for key, value in allow().items() if key != "Action"})
    assert "no statement allows" in (await find_problem(account)).message


async def test_public_queue_policy_is_reported(account: Account) -> None:
    account.policy(allow() | {"Principal": "*"})
    found = await check_events(cast(AwsClients, account), "demo", "demo")
    assert [one.message for one in found if one.level == "advice"] == ["its policy allows everyone to send to it"]


@pytest.mark.parametrize(
    ("more", "level", "minutes"),
    [
        ({"MessageRetentionPeriod": "300"}, "advice", "of 5 minutes, then they are lost"),
        ({"MessageRetentionPeriod": "345600"}, "ok", "of 5760 minutes (4 days)"),
        (
            {"RedrivePolicy": '{"maxReceiveCount": 10}'},
            "advice",
            "of 5 minutes, then they move to the dead-letter queue",
        ),
        (
            {"RedrivePolicy": '{"maxReceiveCount": 1000}'},
            "ok",
            "of 500 minutes, then they move to the dead-letter queue",
        ),
        *(({"RedrivePolicy": unreadable}, "ok", "of 5760 minutes") for unreadable in ("{", "[]", "{}")),
        (
            {"MessageRetentionPeriod": "300", "RedrivePolicy": '{"maxReceiveCount": 100}'},
            "advice",
            "of 5 minutes, then",
        ),
    ],
)
async def test_message_retention_is_reported_in_minutes(
    account: Account, more: dict[str, str], level: str, minutes: str
) -> None:
    account.attributes |= more
    one = (await findings(account))["queue demo retention"]
    assert one.level == level and minutes in one.message


def key_statement(*actions: str, **fields: Any) -> dict[str, Any]:
    service = {"Principal": {"Service": "events.amazonaws.com"}, "Action": list(actions), "Resource": "*"}
    return {"Effect": "Allow", **service, **fields}


async def test_default_sqs_kms_key_is_rejected(account: Account) -> None:
    account.attributes["KmsMasterKeyId"] = "alias/aws/sqs"
    one = await find_problem(account)
    assert (one.level, one.subject) == ("problem", "queue demo key") and "SSE-SQS" in one.todo


@pytest.mark.parametrize(
    ("statement", "level", "message"),
    [
        (key_statement("kms:GenerateDataKey*", "kms:Decrypt"), "ok", "EventBridge may use"),
        (key_statement("kms:Decrypt"), "problem", "(kms:GenerateDataKey)"),
        (key_statement("kms:*", Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:root"}), "problem", "kms:Decrypt"),
    ],
)
async def test_custom_kms_key_must_allow_eventbridge(
    account: Account, statement: dict[str, Any], level: str, message: str
) -> None:
    account.attributes["KmsMasterKeyId"] = "alias/own"
    account.key_policy = statement
    one = (await findings(account))["queue demo key"]
    assert one.level == level and message in one.message


async def test_unusable_and_unreadable_keys_are_distinguished(account: Account) -> None:
    account.attributes["KmsMasterKeyId"] = "alias/own"
    account.key["KeyState"] = "PendingDeletion"
    assert "is PendingDeletion" in (await find_problem(account)).message
    account.faults["describe_key"] = NotFound("no such key")
    assert (await find_problem(account)).level == "problem"
    account.faults["describe_key"] = Forbidden("no")
    one = await find_problem(account)
    assert one.level == "unknown" and "kms:GetKeyPolicy" in one.todo
