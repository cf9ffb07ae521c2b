"""EventBridge rules that send EC2's events to the cluster's queue, and the events: interruption, rebalance, state
change, health.

The initial rules are those of Karpenter's template. moto stores them, and every event is matched against them.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from moto.events.models import events_backends
from moto.sqs.models import sqs_backends

from tenure.sandbox.aws.settings import SimSettings
from tenure.sandbox.aws.wire.xml import iso

# Rule, source, detail-type.
SEEDED = (
    ("scheduled-change", "aws.health", "AWS Health Event"),
    ("spot-interruption", "aws.ec2", "EC2 Spot Instance Interruption Warning"),
    ("rebalance", "aws.ec2", "EC2 Instance Rebalance Recommendation"),
    ("instance-state-change", "aws.ec2", "EC2 Instance State-change Notification"),
    ("reservation-interruption", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
)
RETENTION_SECONDS = 300


def queue_arn(settings: SimSettings) -> str:
    return f"arn:aws:sqs:{settings.region}:{settings.account}:{settings.cluster_name}"


def queue_attributes(settings: SimSettings) -> dict[str, Any]:
    """Retention and policy of the queue."""
    policy = {
        "Version": "2012-10-17",
        "Id": "EC2InterruptionPolicy",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
                "Action": "sqs:SendMessage",
                "Resource": queue_arn(settings),
            },
            {
                "Sid": "DenyHTTP",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "sqs:*",
                "Resource": queue_arn(settings),
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            },
        ],
    }
    return {
        "MessageRetentionPeriod": str(RETENTION_SECONDS),
        "SqsManagedSseEnabled": "true",
        "Policy": json.dumps(policy),
    }


def seed_rules(settings: SimSettings) -> None:
    backend = _events_backend(settings)
    for name, source, kind in SEEDED:
        full = f"{settings.cluster_name}-{name}"
        backend.put_rule(full, event_pattern=json.dumps({"source": [source], "detail-type": [kind]}))
        backend.put_targets(full, None, [{"Id": "KarpenterInterruptionQueueTarget", "Arn": queue_arn(settings)}])


def queues_for(settings: SimSettings, event: dict[str, Any]) -> list[str]:
    """Names of the queues for an AWS event, from all enabled rules of the default bus."""
    return [
        target["Arn"].rpartition(":")[2]
        for rule in _events_backend(settings).event_buses["default"].rules.values()
        if rule.state == "ENABLED" and rule.event_pattern.matches_event(event)
        for target in rule.targets
        if target["Arn"].startswith(f"arn:aws:sqs:{settings.region}:{settings.account}:")
    ]


def _events_backend(settings: SimSettings) -> Any:
    return events_backends[settings.account][settings.region]


def send_event(settings: SimSettings, event: dict[str, Any]) -> None:
    """Send an AWS event to the queues of the matching rules."""
    there = sqs_backends[settings.account][settings.region]
    for queue in queues_for(settings, event):
        if queue in there.queues:
            there.send_message(queue, json.dumps(event))


def send_message(settings: SimSettings, message: dict[str, Any]) -> str:
    """Put a message into the cluster's queue. Returns its ID."""
    queue = sqs_backends[settings.account][settings.region]
    return str(queue.send_message(settings.cluster_name, json.dumps(message)).id)


def count_queued_messages(settings: SimSettings) -> int:
    """Number of messages in the cluster's queue, including received ones that are not deleted yet."""
    queue = sqs_backends[settings.account][settings.region].queues[settings.cluster_name]
    return int(queue.approximate_number_of_messages + queue.approximate_number_of_messages_not_visible)


def make_event(
    settings: SimSettings, now: Any, detail_type: str, detail: dict[str, Any], ids: list[str]
) -> dict[str, Any]:
    """An EventBridge envelope. The source is aws.health for health events, else aws.ec2."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": "aws.health" if detail_type == "AWS Health Event" else "aws.ec2",
        "account": settings.account,
        "time": iso(now)[:19] + "Z",
        "region": settings.region,
        "resources": [f"arn:aws:ec2:{settings.region}:{settings.account}:instance/{one}" for one in ids],
        "detail": detail,
    }


def spot_interruption(settings: SimSettings, now: Any, instance_id: str) -> dict[str, Any]:
    detail = {"instance-id": instance_id, "instance-action": "terminate"}
    return make_event(settings, now, "EC2 Spot Instance Interruption Warning", detail, [instance_id])


def reservation_interruption(settings: SimSettings, now: Any, instance_id: str) -> dict[str, Any]:
    detail = {"instance-id": instance_id, "instance-action": "terminate"}
    name = "EC2 Capacity Reservation Instance Interruption Warning"
    return make_event(settings, now, name, detail, [instance_id])


def rebalance_recommendation(settings: SimSettings, now: Any, instance_id: str) -> dict[str, Any]:
    return make_event(
        settings, now, "EC2 Instance Rebalance Recommendation", {"instance-id": instance_id}, [instance_id]
    )


def state_change(settings: SimSettings, now: Any, instance_id: str, state: str) -> dict[str, Any]:
    detail = {"instance-id": instance_id, "state": state}
    return make_event(settings, now, "EC2 Instance State-change Notification", detail, [instance_id])


def health_event(settings: SimSettings, now: Any, ids: list[str], **fields: Any) -> dict[str, Any]:
    """`fields`: members of the detail: eventTypeCode, eventTypeCategory, startTime, endTime, statusCode and others."""
    detail = {
        "eventArn": f"arn:aws:health:{settings.region}::event/EC2/{uuid.uuid4()}",
        "service": "EC2",
        "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
        "eventTypeCategory": "scheduledChange",
        "statusCode": "upcoming",
        "startTime": now.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "eventDescription": [{"language": "en_US", "latestDescription": "An event scheduled for the instances."}],
        "affectedEntities": [{"entityValue": one} for one in ids],
        **fields,
    }
    return make_event(settings, now, "AWS Health Event", detail, ids)
