"""Whether an EventBridge rule's pattern matches an event, and an event of each kind to ask it with. Pure.

The operators are those that make sense of names: of numbers and addresses nothing here is. What cannot be read
matches nothing, so that the doctor rather says too much.
"""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from model.interruptions import EventKind

_EC2: Final = "aws.ec2"
_STATE_CHANGE: Final = "EC2 Instance State-change Notification"
_INSTANCE: Final = "i-0123456789abcdef0"
_Event = tuple[str, str, Mapping[str, Any]]

_MAINTENANCE: Final = {
    "service": "EC2",
    "eventTypeCategory": "scheduledChange",
    "eventTypeCode": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
    "affectedEntities": [{"entityValue": _INSTANCE}],
}
_EVENTS: Final[Mapping[EventKind, tuple[_Event, ...]]] = {
    "spotInterruption": (
        (_EC2, "EC2 Spot Instance Interruption Warning", {"instance-action": "terminate"}),
        (_EC2, "EC2 Spot Instance Interruption Warning", {"instance-action": "stop"}),
        (_EC2, "EC2 Spot Instance Interruption Warning", {"instance-action": "hibernate"}),
    ),
    "capacityReservationInterruption": (
        (_EC2, "EC2 Capacity Reservation Instance Interruption Warning", {"instance-action": "terminate"}),
    ),
    "rebalanceRecommendation": ((_EC2, "EC2 Instance Rebalance Recommendation", {}),),
    "scheduledChange": (("aws.health", "AWS Health Event", _MAINTENANCE),),
    "instanceStopping": (
        (_EC2, _STATE_CHANGE, {"state": "stopping"}),
        (_EC2, _STATE_CHANGE, {"state": "stopped"}),
    ),
    "instanceTerminating": (
        (_EC2, _STATE_CHANGE, {"state": "shutting-down"}),
        (_EC2, _STATE_CHANGE, {"state": "terminated"}),
    ),
}
"""Source, detail-type and detail: what `aws/event_messages.py` reads (reference 5.1)."""
KINDS: Final = tuple(_EVENTS)
"""Those that come by the queue."""


def named(kind: EventKind) -> str:
    """Source and detail-type, as a rule has them."""
    source, detail_type, _ = _EVENTS[kind][0]
    return f"source {source}, detail-type {detail_type}"


def events_of(kind: EventKind, *, account: str = "", region: str = "") -> tuple[Mapping[str, Any], ...]:
    """Envelopes; a rule that sends one of them sends the kind."""
    return tuple(
        {
            "version": "0",
            "source": source,
            "detail-type": detail_type,
            "account": account,
            "region": region,
            "resources": [f"arn:aws:ec2:{region}:{account}:instance/{_INSTANCE}"],
            "detail": {**({} if source != _EC2 else {"instance-id": _INSTANCE}), **detail},
        }
        for source, detail_type, detail in _EVENTS[kind]
    )


def matches(pattern: str, event: Mapping[str, Any]) -> bool:
    """`pattern` as `describe_rule` has it; a rule of a schedule has none, and matches nothing."""
    try:
        said = json.loads(pattern) if pattern else None
    except ValueError:
        return False
    return isinstance(said, dict) and bool(said) and _object(said, event)


def _object(pattern: Mapping[str, Any], event: Any) -> bool:
    if not isinstance(event, Mapping):
        return False
    return all(
        any(isinstance(one, Mapping) and _object(one, event) for one in wanted)
        if key == "$or"
        else _field(wanted, key, event)
        for key, wanted in pattern.items()
    )


def _field(wanted: Any, key: str, event: Mapping[str, Any]) -> bool:
    value = event.get(key)
    many = value if isinstance(value, list) else [value]
    if isinstance(wanted, Mapping):
        return any(_object(wanted, one) for one in many)
    if not isinstance(wanted, list):
        return False
    return any(_value(one, single, there=key in event) for one in wanted for single in many)


def _value(wanted: Any, value: Any, *, there: bool) -> bool:
    if not isinstance(wanted, Mapping):
        return there and bool(wanted == value)
    if "exists" in wanted:
        return wanted["exists"] is there
    return there and isinstance(value, str) and all(_operator(name, said, value) for name, said in wanted.items())


def _operator(name: str, said: Any, value: str) -> bool:
    match name:
        case "prefix" if isinstance(said, str):
            return value.startswith(said)
        case "suffix" if isinstance(said, str):
            return value.endswith(said)
        case "equals-ignore-case" if isinstance(said, str):
            return value.lower() == said.lower()
        case "wildcard" if isinstance(said, str):
            return fnmatchcase(value, said.replace("[", "[[]").replace("?", "[?]"))
        case "anything-but" if isinstance(said, Mapping):
            return not any(_operator(inner, one, value) for inner, one in said.items())
        case "anything-but":
            return value not in (said if isinstance(said, list) else [said])
        case _:
            return False
