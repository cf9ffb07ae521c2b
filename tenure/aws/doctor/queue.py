"""The queue of EC2's events by itself: how long it keeps, whether EventBridge may send to it, and with which key.

Whether a resource's policy lets EventBridge do something with it: a queue's, or a key's. Pure.

No simulator judges resource policies for services, so that the few conditions that such policies have are judged here.
A condition that is not known here is taken as met by what allows and as not met by what denies.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

from tenure.aws.client.client import AwsClients
from tenure.model.errors import Fault, Finding, NotFound, advice, ok, problem, unknown

SERVICE: Final = "events.amazonaws.com"
Statement = Mapping[str, Any]


def statements_of(policy: str) -> list[Statement]:
    """None where there is no policy, or none that can be read."""
    try:
        said = json.loads(policy).get("Statement", []) if policy else []
    except (ValueError, AttributeError):
        return []
    return [one for one in (said if isinstance(said, list) else [said]) if isinstance(one, dict)]


def refusal(statements: list[Statement], action: str, resource: str, context: Mapping[str, str]) -> str:
    """Why EventBridge may not; empty when it may. `context`: the request's keys, in lower case."""
    spoken = [one for one in statements if _is_about(one, action, resource)]
    for one in spoken:
        if one.get("Effect") == "Deny" and _is_met(one, context, unknown=False):
            return f"the statement {one.get('Sid') or 'without a Sid'} denies it"
    allowing = [one for one in spoken if one.get("Effect") == "Allow"]
    if any(_is_met(one, context, unknown=True) for one in allowing):
        return ""
    if allowing:
        return f"the condition of {', '.join(one.get('Sid') or 'a statement' for one in allowing)} is not met"
    return f"no statement allows {SERVICE} {action}"


def open_to_all(statements: list[Statement], action: str) -> bool:
    """Whether anybody may do it."""
    return any(
        one.get("Effect") == "Allow" and _everybody(one) and not one.get("Condition") and _covers(one, "Action", action)
        for one in statements
    )


def _is_about(statement: Statement, action: str, resource: str) -> bool:
    services = _principals(statement, "Service")
    concerned = _everybody(statement) or SERVICE in services
    return concerned and _covers(statement, "Action", action) and _covers(statement, "Resource", resource)


def _everybody(statement: Statement) -> bool:
    return statement.get("Principal") == "*" or "*" in _principals(statement, "AWS")


def _principals(statement: Statement, kind: str) -> list[str]:
    principal = statement.get("Principal")
    return _listed(principal.get(kind, [])) if isinstance(principal, dict) else []


def _covers(statement: Statement, field: str, wanted: str) -> bool:
    """A queue's policy may leave the resource out: it is the queue."""
    said = _listed(statement.get(field, "*" if field == "Resource" else []))
    return any(fnmatchcase(wanted.lower(), one.lower()) for one in said)


def _is_met(statement: Statement, context: Mapping[str, str], *, unknown: bool) -> bool:
    return all(
        _condition(operator, context.get(key.lower()), values, unknown=unknown)
        for operator, key, values in _conditions(statement)
    )


def _conditions(statement: Statement) -> Iterator[tuple[str, str, list[str]]]:
    for operator, keys in (statement.get("Condition") or {}).items():
        for key, values in keys.items():
            yield operator.removesuffix("IfExists"), key, _listed(values)


def _condition(operator: str, value: str | None, wanted: list[str], *, unknown: bool) -> bool:
    if value is None:
        return unknown
    match operator:
        case "StringEquals":
            return value in wanted
        case "StringLike" | "ArnLike" | "ArnEquals":
            return any(fnmatchcase(value, one) for one in wanted)
        case "Bool":
            return value in [one.lower() for one in wanted]
        case _:
            return unknown


def _listed(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


AREA: Final = "events"
TEMPLATE: Final = "deploy/cloudformation/events.yaml"
SEND: Final = "sqs:SendMessage"
LONG: Final = timedelta(days=1)
"""Outages of Temporal that last a night are outlived."""
RECEIPTS_A_MINUTE: Final = 2
"""Of each message while Temporal is away."""
_AWS_OWN: Final = "alias/aws/sqs"


def check_keeping(queue: str, attributes: Mapping[str, str]) -> Finding:
    """How long Temporal may be away before a message is lost."""
    subject, kept = f"queue {queue} retention", timedelta(seconds=int(attributes.get("MessageRetentionPeriod", 345600)))
    redrive = _receipts(attributes.get("RedrivePolicy", ""))
    moved = timedelta(minutes=redrive / RECEIPTS_A_MINUTE) if redrive else kept
    said = f"messages survive an outage of Temporal of {_words(min(kept, moved))}"
    if moved < kept and moved < LONG:
        todo = f"take the RedrivePolicy away, or let maxReceiveCount be more than {redrive}"
        return advice(AREA, subject, f"{said}: then they go to the dead-letter queue", todo)
    if kept < LONG:
        todo = f"set its MessageRetentionPeriod to 345600 (4 days), as {TEMPLATE} does; keeping costs nothing"
        return advice(AREA, subject, f"{said}, and are lost then", todo)
    return ok(AREA, subject, said)


def check_policy(queue: str, attributes: Mapping[str, str], rules: Mapping[str, str]) -> list[Finding]:
    """`rules`: the ARNs, by name, of those that send to it. Where there is none any rule of the account is meant."""
    arn, subject = attributes["QueueArn"], f"queue {queue}"
    statements = statements_of(attributes.get("Policy", ""))
    partition, region, account = arn.split(":")[1], *arn.split(":")[3:5]
    asked = rules or {"any rule": f"arn:{partition}:events:{region}:{account}:rule/any"}
    context = {"aws:sourceaccount": account, "aws:securetransport": "true"}
    refused = {
        name: why
        for name, one in asked.items()
        if (why := refusal(statements, SEND, arn, {**context, "aws:sourcearn": one}))
    }
    if refused:
        who = "EventBridge" if len(refused) == len(asked) else f"the rules {', '.join(refused)}"
        todo = f"allow events.amazonaws.com {SEND} in the queue's policy, as {TEMPLATE} does"
        return [problem(AREA, subject, f"its policy lets {who} send nothing: {next(iter(refused.values()))}", todo)]
    found = [ok(AREA, subject, "there, and EventBridge may send to it")]
    if open_to_all(statements, SEND):
        todo = "let only events.amazonaws.com and sqs.amazonaws.com send: what is in it is believed"
        found.append(advice(AREA, subject, "its policy lets anybody send to it", todo))
    return found


async def check_key(clients: AwsClients, queue: str, attributes: Mapping[str, str]) -> list[Finding]:
    """Nothing where SQS encrypts with its own key, or not at all: EventBridge can use that."""
    key, subject = attributes.get("KmsMasterKeyId", ""), f"queue {queue} key"
    if not key:
        return []
    own = "give it a key whose policy allows events.amazonaws.com kms:GenerateDataKey and kms:Decrypt, or SSE-SQS"
    if key.endswith(_AWS_OWN):
        return [problem(AREA, subject, f"EventBridge cannot use {_AWS_OWN}: nothing arrives", own)]
    try:
        metadata = (await clients.call(clients.kms.describe_key, KeyId=key))["KeyMetadata"]
        answer = await clients.call(clients.kms.get_key_policy, KeyId=metadata["KeyId"], PolicyName="default")
    except NotFound as fault:
        return [problem(AREA, subject, f"{key}: {fault.message}", own)]
    except Fault as fault:
        todo = "run the doctor once with credentials that may kms:DescribeKey and kms:GetKeyPolicy on it"
        return [unknown(AREA, subject, f"{key} cannot be looked at: {fault.message}", todo)]
    return [_key(subject, key, metadata, answer["Policy"], attributes["QueueArn"], own)]


def _key(subject: str, key: str, metadata: Mapping[str, Any], policy: str, queue: str, own: str) -> Finding:
    if (state := metadata.get("KeyState", "Enabled")) != "Enabled":
        return problem(AREA, subject, f"{key} is {state}: nothing can be sent or read", f"enable it, or {own}")
    context = {"aws:sourceaccount": queue.split(":")[4], "kms:encryptioncontext:aws:sqs:arn": queue}
    refused = {
        action: why
        for action in ("kms:GenerateDataKey", "kms:Decrypt")
        if (why := refusal(statements_of(policy), action, str(metadata.get("Arn", key)), context))
    }
    if refused:
        why = next(iter(refused.values()))
        return problem(AREA, subject, f"EventBridge cannot use {key} ({', '.join(refused)}): {why}", own)
    return ok(AREA, subject, f"EventBridge may use {key}; the worker's role needs kms:Decrypt on it too")


def _receipts(redrive: str) -> int:
    try:
        return int(json.loads(redrive)["maxReceiveCount"]) if redrive else 0
    except (ValueError, KeyError, TypeError):
        return 0


def _words(span: timedelta) -> str:
    minutes = span / timedelta(minutes=1)
    return f"{minutes:g} minutes" if span < 2 * LONG else f"{minutes:g} minutes ({span / LONG:g} days)"
