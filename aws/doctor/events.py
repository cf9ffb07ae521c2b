"""The queue of EC2's events and the EventBridge rules that fill it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws.client import AwsClients
from model.faults import Fault, Forbidden, NotFound
from model.findings import Finding, advice, ok, problem, unknown

AREA: Final = "events"
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "AWS Health Event": ("aws.health", "scheduled maintenance"),
    "EC2 Spot Instance Interruption Warning": ("aws.ec2", "spot interruptions"),
    "EC2 Instance Rebalance Recommendation": ("aws.ec2", "rebalance recommendations"),
    "EC2 Instance State-change Notification": ("aws.ec2", "instances that stop or end"),
    "EC2 Capacity Reservation Instance Interruption Warning": ("aws.ec2", "interruptions of reserved capacity"),
}
"""detail-type to source, and what is missed without it (reference 5.1)."""
_VITAL: Final = frozenset({"EC2 Spot Instance Interruption Warning", "EC2 Instance State-change Notification"})
"""Without these pods die unannounced."""
_TEMPLATE: Final = "as Karpenter's CloudFormation template does"


async def check_events(clients: AwsClients, queue: str) -> list[Finding]:
    """An empty name: nothing is read, which is a choice and has a price."""
    if not queue:
        todo = "make the queue and its rules, and set INTERRUPTION_QUEUE to its name"
        return [advice(AREA, "INTERRUPTION_QUEUE", "not set: spot interruptions come unannounced", todo)]
    try:
        url = (await clients.call(clients.sqs.get_queue_url, QueueName=queue))["QueueUrl"]
    except NotFound as fault:
        todo = f"make it {_TEMPLATE}, or correct INTERRUPTION_QUEUE"
        return [problem(AREA, f"queue {queue}", fault.message, todo)]
    except Forbidden as fault:
        return [problem(AREA, f"queue {queue}", fault.message, "allow sqs:GetQueueUrl on it")]
    except Fault as fault:
        return [unknown(AREA, f"queue {queue}", fault.message, "try again")]
    try:
        answer = await clients.call(
            clients.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["QueueArn", "Policy"]
        )
        attributes: dict[str, str] = {str(key): value for key, value in answer.get("Attributes", {}).items()}
    except Fault as fault:
        todo = "run the doctor once with credentials that may sqs:GetQueueAttributes"
        return [unknown(AREA, f"queue {queue}", f"it is there; its policy cannot be read: {fault.message}", todo)]
    return [_policy(queue, attributes.get("Policy", "")), *await _rules(clients, queue, attributes["QueueArn"])]


def _policy(queue: str, text: str) -> Finding:
    """EventBridge must be let in, or the rules match and nothing arrives."""
    statements = json.loads(text).get("Statement", []) if text else []
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal")
        services = principal.get("Service", []) if isinstance(principal, dict) else []
        services = [services] if isinstance(services, str) else services
        if statement.get("Effect") == "Allow" and (principal == "*" or "events.amazonaws.com" in services):
            return ok(AREA, f"queue {queue}", "there, and EventBridge may send to it")
    todo = "allow events.amazonaws.com sqs:SendMessage in the queue's policy"
    return problem(AREA, f"queue {queue}", "its policy lets EventBridge send nothing", todo)


async def _rules(clients: AwsClients, queue: str, arn: str) -> list[Finding]:
    try:
        names = (await clients.call(clients.events.list_rule_names_by_target, TargetArn=arn)).get("RuleNames", [])
        rules = [await clients.call(clients.events.describe_rule, Name=name) for name in names]
    except Fault as fault:
        todo = "run the doctor once with credentials that may events:ListRuleNamesByTarget and events:DescribeRule"
        return [unknown(AREA, "rules", f"they cannot be read: {fault.message}", todo)]
    return [_kind(kind, source, means, queue, rules) for kind, (source, means) in _KINDS.items()]


def _kind(kind: str, source: str, means: str, queue: str, rules: Sequence[Mapping[str, Any]]) -> Finding:
    matching = [rule for rule in rules if _matches(rule.get("EventPattern", ""), source, kind)]
    if any(rule.get("State", "ENABLED") == "ENABLED" for rule in matching):
        return ok(AREA, kind, f"rule {matching[0]['Name']} sends them")
    if matching:
        return problem(AREA, kind, f"rule {matching[0]['Name']} is disabled", "enable it")
    todo = f"add a rule for source {source} and this detail-type whose target is queue {queue}"
    return (problem if kind in _VITAL else advice)(AREA, kind, f"no rule sends {means}", todo)


def _matches(pattern: str, source: str, kind: str) -> bool:
    try:
        said = json.loads(pattern) if pattern else {}
    except ValueError:
        return False
    return source in said.get("source", [source]) and kind in said.get("detail-type", [kind])
