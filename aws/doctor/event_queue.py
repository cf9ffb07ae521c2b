"""The queue of EC2's events by itself: how long it keeps, whether EventBridge may send to it, and with which key."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from aws.client import AwsClients
from aws.doctor.service_policy import open_to_all, refusal, statements_of
from model.faults import Fault, NotFound
from model.findings import Finding, advice, ok, problem, unknown

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
