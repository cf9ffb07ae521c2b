"""The rules of EventBridge that bring EC2's events into the cluster's queue: seeded as Karpenter's template makes them,
then kept by moto, and asked for every event that is sent.
"""

from __future__ import annotations

import json
from typing import Any

from moto.events.models import events_backends

from sandbox.aws.settings import SimSettings

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
    """The queue's own: what it keeps, and who may send to it."""
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
    backend = _backend(settings)
    for name, source, kind in SEEDED:
        full = f"{settings.cluster_name}-{name}"
        backend.put_rule(full, event_pattern=json.dumps({"source": [source], "detail-type": [kind]}))
        backend.put_targets(full, None, [{"Id": "KarpenterInterruptionQueueTarget", "Arn": queue_arn(settings)}])


def queues_for(settings: SimSettings, event: dict[str, Any]) -> list[str]:
    """Names of the queues that an event of AWS comes to: it is asked of every enabled rule of the default bus."""
    return [
        target["Arn"].rpartition(":")[2]
        for rule in _backend(settings).event_buses["default"].rules.values()
        if rule.state == "ENABLED" and rule.event_pattern.matches_event(event)
        for target in rule.targets
        if target["Arn"].startswith(f"arn:aws:sqs:{settings.region}:{settings.account}:")
    ]


def _backend(settings: SimSettings) -> Any:
    return events_backends[settings.account][settings.region]
