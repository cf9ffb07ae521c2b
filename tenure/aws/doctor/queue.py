"""Checks of the SQS queue for EC2's events: retention, policy and KMS key.

IAM's simulator does not support resource policies for service principals, so this module evaluates them. An unknown
condition counts as met in an Allow statement, and as not met in a Deny statement.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

from tenure.aws.client.client import AwsClients
from tenure.model.base import format_number
from tenure.model.errors import Fault, Finding, NotFound, Subject

SERVICE: Final = "events.amazonaws.com"
Statement = Mapping[str, Any]


def statements_of(policy: str) -> list[Statement]:
    """The statements of a policy; empty for a missing or invalid policy."""
    try:
        statements = json.loads(policy).get("Statement", []) if policy else []
    except (ValueError, AttributeError):
        return []
    return [one for one in (statements if isinstance(statements, list) else [statements]) if isinstance(one, dict)]


def denial_reason(statements: list[Statement], action: str, resource: str, context: Mapping[str, str]) -> str:
    """Why EventBridge is not allowed; empty if it is. `context`: the request's condition keys in lower case."""
    spoken = [one for one in statements if _is_about(one, action, resource)]
    for one in spoken:
        if one.get("Effect") == "Deny" and _is_met(one, context, unknown=False):
            return f"the statement {one.get('Sid') or 'without a Sid'} denies it"
    allow_statements = [one for one in spoken if one.get("Effect") == "Allow"]
    if any(_is_met(one, context, unknown=True) for one in allow_statements):
        return ""
    if allow_statements:
        return f"the condition of {', '.join(one.get('Sid') or 'a statement' for one in allow_statements)} is not met"
    return f"no statement allows {SERVICE} {action}"


def open_to_all(statements: list[Statement], action: str) -> bool:
    return any(
        one.get("Effect") == "Allow"
        and _is_for_everyone(one)
        and not one.get("Condition")
        and _covers(one, "Action", action)
        for one in statements
    )


def _is_about(statement: Statement, action: str, resource: str) -> bool:
    services = _principals(statement, "Service")
    concerned = _is_for_everyone(statement) or SERVICE in services
    return concerned and _covers(statement, "Action", action) and _covers(statement, "Resource", resource)


def _is_for_everyone(statement: Statement) -> bool:
    return statement.get("Principal") == "*" or "*" in _principals(statement, "AWS")


def _principals(statement: Statement, kind: str) -> list[str]:
    principal = statement.get("Principal")
    return as_list(principal.get(kind, [])) if isinstance(principal, dict) else []


def _covers(statement: Statement, field: str, value: str) -> bool:
    """A policy without a resource applies to the queue itself."""
    patterns = as_list(statement.get(field, "*" if field == "Resource" else []))
    return any(fnmatchcase(value.lower(), one.lower()) for one in patterns)


def _is_met(statement: Statement, context: Mapping[str, str], *, unknown: bool) -> bool:
    return all(
        _condition_holds(operator, context.get(key.lower()), values, unknown=unknown)
        for operator, key, values in _iter_conditions(statement)
    )


def _iter_conditions(statement: Statement) -> Iterator[tuple[str, str, list[str]]]:
    for operator, keys in (statement.get("Condition") or {}).items():
        for key, values in keys.items():
            yield operator.removesuffix("IfExists"), key, as_list(values)


def _condition_holds(operator: str, value: str | None, expected: list[str], *, unknown: bool) -> bool:
    if value is None:
        return unknown
    match operator:
        case "StringEquals":
            return value in expected
        case "StringLike" | "ArnLike" | "ArnEquals":
            return any(fnmatchcase(value, one) for one in expected)
        case "Bool":
            return value in [one.lower() for one in expected]
        case _:
            return unknown


def as_list(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


AREA: Final = "events"
TEMPLATE: Final = "deploy/cloudformation/events.yaml"
SEND: Final = "sqs:SendMessage"
LONG: Final = timedelta(days=1)
"""Minimum retention, so that messages survive an outage of Temporal overnight."""
RECEIPTS_A_MINUTE: Final = 2
"""Receives per message and minute while Temporal is unavailable."""
MOST_RECEIVES: Final = 1000
"""The largest maxReceiveCount that SQS allows."""
_AWS_OWN: Final = "alias/aws/sqs"
_OWN_ENCRYPTION: Final = '{"KmsMasterKeyId":"","SqsManagedSseEnabled":"true"}'
"""SSE-SQS instead of a KMS key: a queue has one of both."""


def _set_attributes(arn: str) -> str:
    """The beginning of a command, up to the attributes. `arn`: of the queue."""
    region, _, queue = arn.split(":")[3:6]
    url = f"$(aws sqs get-queue-url --queue-name {queue} --region {region} --query QueueUrl --output text)"
    return f"aws sqs set-queue-attributes --region {region} --queue-url {url} --attributes"


def check_retention(queue: str, attributes: Mapping[str, str]) -> Finding:
    at = Subject(AREA, f"queue {queue} retention")
    retention = timedelta(seconds=int(attributes.get("MessageRetentionPeriod", 345600)))
    redrive = _max_receive_count(attributes.get("RedrivePolicy", ""))
    moved = timedelta(minutes=redrive / RECEIPTS_A_MINUTE) if redrive else retention
    set_attributes = _set_attributes(attributes["QueueArn"])
    message = f"messages survive an outage of Temporal of {_format_span(min(retention, moved))}"
    if moved < retention:
        message += ", then they move to the dead-letter queue"
        if redrive < MOST_RECEIVES:
            most = f"maxReceiveCount {MOST_RECEIVES}, the most that SQS allows"
            todo = f"{set_attributes} file://redrive.json, where RedrivePolicy has {most}"
            return at.advice(message, todo)
    if retention < LONG:
        todo = f"{set_attributes} MessageRetentionPeriod=345600"
        return at.advice(f"{message}, then they are lost", todo)
    return at.ok(message)


def check_policy(queue: str, attributes: Mapping[str, str], rules: Mapping[str, str]) -> list[Finding]:
    """`rules`: ARNs by name of the rules that target the queue; if empty, any rule of the account is checked."""
    arn, at = attributes["QueueArn"], Subject(AREA, f"queue {queue}")
    statements = statements_of(attributes.get("Policy", ""))
    partition, region, account = arn.split(":")[1], *arn.split(":")[3:5]
    rule_arns = rules or {"any rule": f"arn:{partition}:events:{region}:{account}:rule/any"}
    context = {"aws:sourceaccount": account, "aws:securetransport": "true"}
    denials = {
        name: why
        for name, one in rule_arns.items()
        if (why := denial_reason(statements, SEND, arn, {**context, "aws:sourcearn": one}))
    }
    if denials:
        who = "EventBridge" if len(denials) == len(rule_arns) else f"the rules {', '.join(denials)}"
        allow = f"Policy allows events.amazonaws.com {SEND}, as in {TEMPLATE}"
        todo = f"{_set_attributes(arn)} file://policy.json, where {allow}"
        return [at.problem(f"its policy does not allow {who} to send: {next(iter(denials.values()))}", todo)]
    found = [at.ok("exists, and EventBridge may send to it")]
    if open_to_all(statements, SEND):
        allow = "Policy lets only events.amazonaws.com and sqs.amazonaws.com send: Tenure trusts its messages"
        todo = f"{_set_attributes(arn)} file://policy.json, where {allow}"
        found.append(at.advice("its policy allows everyone to send to it", todo))
    return found


async def check_key(clients: AwsClients, queue: str, attributes: Mapping[str, str]) -> list[Finding]:
    """No findings with SSE-SQS or without encryption, which EventBridge supports."""
    key, at = attributes.get("KmsMasterKeyId", ""), Subject(AREA, f"queue {queue} key")
    if not key:
        return []
    sse = f"{_set_attributes(attributes['QueueArn'])} '{_OWN_ENCRYPTION}'"
    own = f"use a key whose policy allows events.amazonaws.com kms:GenerateDataKey and kms:Decrypt, or SSE-SQS: {sse}"
    if key.endswith(_AWS_OWN):
        return [at.problem(f"EventBridge cannot use {_AWS_OWN}: no messages arrive", own)]
    try:
        metadata = (await clients.call(clients.kms.describe_key, KeyId=key))["KeyMetadata"]
        response = await clients.call(clients.kms.get_key_policy, KeyId=metadata["KeyId"], PolicyName="default")
    except NotFound as fault:
        return [at.problem(f"{key}: {fault.message}", own)]
    except Fault as fault:
        todo = "run the doctor once with credentials that may kms:DescribeKey and kms:GetKeyPolicy on it"
        return [at.unknown(f"{key} cannot be read: {fault.message}", todo)]
    return [_check_key_policy(at, key, metadata, response["Policy"], attributes["QueueArn"], own)]


def _check_key_policy(at: Subject, key: str, metadata: Mapping[str, Any], policy: str, queue: str, own: str) -> Finding:
    if (state := metadata.get("KeyState", "Enabled")) != "Enabled":
        todo = f"aws kms enable-key --key-id {key} --region {queue.split(':')[3]}, or {own}"
        return at.problem(f"{key} is {state}: no messages can be sent or received", todo)
    context = {"aws:sourceaccount": queue.split(":")[4], "kms:encryptioncontext:aws:sqs:arn": queue}
    denials = {
        action: why
        for action in ("kms:GenerateDataKey", "kms:Decrypt")
        if (why := denial_reason(statements_of(policy), action, str(metadata.get("Arn", key)), context))
    }
    if denials:
        why = next(iter(denials.values()))
        return at.problem(f"EventBridge cannot use {key} ({', '.join(denials)}): {why}", own)
    return at.ok(f"EventBridge may use {key}; the worker's role needs kms:Decrypt on it too")


def _max_receive_count(redrive: str) -> int:
    try:
        return int(json.loads(redrive)["maxReceiveCount"]) if redrive else 0
    except (ValueError, KeyError, TypeError):
        return 0


def _format_span(span: timedelta) -> str:
    minutes = span / timedelta(minutes=1)
    text = f"{format_number(minutes, 6)} minutes"
    return text if span < 2 * LONG else f"{text} ({format_number(span / LONG, 6)} days)"
