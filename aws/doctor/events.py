"""The queue of EC2's events and the EventBridge rules that fill it: whatever is missing is named."""

from aws.client import AwsClients
from aws.doctor.event_queue import AREA, TEMPLATE, check_keeping, check_key, check_policy
from aws.doctor.event_rules import Where, check_rules, rules_of
from model.faults import Fault, Forbidden, NotFound
from model.findings import Finding, advice, problem, unknown
from model.interruptions import EventKind


async def check_events(
    clients: AwsClients, queue: str, *, ignored: frozenset[EventKind] = frozenset()
) -> list[Finding]:
    """An empty name: nothing is read, which is a choice and has a price. `ignored`: kinds that every NodePool's
    LifecyclePolicies ignore, which need no rule."""
    if not queue:
        todo = f"make the queue and its rules ({TEMPLATE}), and set INTERRUPTION_QUEUE to its name"
        return [advice(AREA, "INTERRUPTION_QUEUE", "not set: spot interruptions come unannounced", todo)]
    subject = f"queue {queue}"
    try:
        url = (await clients.call(clients.sqs.get_queue_url, QueueName=queue))["QueueUrl"]
    except NotFound as fault:
        todo = f"make it there ({TEMPLATE}), or correct INTERRUPTION_QUEUE or AWS_REGION"
        return [problem(AREA, subject, f"not in {clients.region}: {fault.message}", todo)]
    except Forbidden as fault:
        return [problem(AREA, subject, fault.message, "allow sqs:GetQueueUrl on it: deploy/iam/interruption.json")]
    except Fault as fault:
        return [unknown(AREA, subject, fault.message, "try again")]
    try:
        answer = await clients.call(clients.sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["All"])
    except Fault as fault:
        todo = "run the doctor once with credentials that may sqs:GetQueueAttributes"
        return [unknown(AREA, subject, f"it is there; its attributes cannot be read: {fault.message}", todo)]
    attributes = {str(key): str(value) for key, value in answer.get("Attributes", {}).items()}
    itself = [check_keeping(queue, attributes), *await check_key(clients, queue, attributes)]
    where = Where(queue=queue, arn=attributes["QueueArn"])
    try:
        rules = await rules_of(clients, where)
    except Fault as fault:
        todo = "run the doctor once with credentials that may events:ListRuleNamesByTarget and events:DescribeRule"
        found = [unknown(AREA, "rules", f"they cannot be read: {fault.message}", todo)]
        return [*check_policy(queue, attributes, {}), *itself, *found]
    allowed = check_policy(queue, attributes, {one.name: one.arn for one in rules if one.arn})
    return [*allowed, *itself, *await check_rules(clients, where, rules, ignored)]
