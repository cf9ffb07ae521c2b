"""Parses EventBridge envelopes of the queue into messages per instance (reference 5.1).

Version, source and detail-type determine the kind; the kinds are Karpenter's. Any other envelope is a dropped event.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from tenure.model.interruption.messages import EventKind, InterruptionMessage
from tenure.model.interruption.records import Dropped, InstanceInterruption, ParsedEvent

_TEXT: Final = 300
"""Maximum length of a description, in characters."""
_STATES: Final[Mapping[str, EventKind]] = {
    "stopping": "instanceStopping",
    "stopped": "instanceStopping",
    "shutting-down": "instanceTerminating",
    "terminated": "instanceTerminating",
}
_YEARS: Final = range(1970, 2200)
"""Durations are added to and subtracted from times, so that others overflow in workflows."""
_CLOSED: Final = "closed"
_RESOLVED: Final = "RESOLVED"
"""Status of an affected entity for which the change is over, regardless of other entities."""

Detail = Mapping[str, Any]


class _MessageDropped(Exception):
    def __init__(self, dropped: Dropped, why: str) -> None:
        super().__init__(why)
        self.dropped, self.why = dropped, why


def parse(body: str, *, sent: datetime) -> ParsedEvent:
    """Never raises: an invalid body is `malformed`. `sent` is used if the envelope has no time."""
    at = sent
    try:
        envelope = _require_object(_parse_json(body), "the body")
        at = _parse_time(envelope.get("time")) or sent
        messages = _find_parser(envelope)(_require_object(envelope.get("detail"), "detail"), at)
        return ParsedEvent(interruptions=messages, at=at)
    except _MessageDropped as nothing:
        return ParsedEvent(at=at, dropped=nothing.dropped, why=nothing.why)
    except Exception as error:
        return ParsedEvent(at=at, dropped="malformed", why=f"{type(error).__name__}: {str(error)[:100]}")


def _parse_json(body: str) -> Any:
    try:
        found = json.loads(body)
        if "\\ud" in body.lower():
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeEncodeError as error:
        raise _MessageDropped("malformed", "the body has an unpaired surrogate, expected Unicode text") from error
    except (ValueError, RecursionError) as error:
        raise _MessageDropped("malformed", f"the body is not JSON: {str(error)[:100]}") from error


def _find_parser(envelope: Detail) -> Callable[[Detail, datetime], tuple[InstanceInterruption, ...]]:
    key = tuple(envelope.get(name) for name in ("version", "source", "detail-type"))
    if not all(isinstance(part, str) and part for part in key):
        raise _MessageDropped("malformed", "no version, source or detail-type: not an EventBridge message")
    found = _PARSERS.get(key)
    if found is None:
        raise _MessageDropped("unknown", " ".join(str(part)[:100] for part in key))
    return found


def _spot_interruption(detail: Detail, at: datetime) -> tuple[InstanceInterruption, ...]:
    """The id is EC2's action, because a spot instance is interrupted only once."""
    action = _text_field(detail, "instance-action") or "terminate"
    return _single_message(detail, InterruptionMessage(kind="spotInterruption", id=action, at=at, code=action))


def _reservation_interruption(detail: Detail, at: datetime) -> tuple[InstanceInterruption, ...]:
    action = _text_field(detail, "instance-action") or "terminate"
    starts = _parse_time(detail.get("instance-termination-time"))
    return _single_message(
        detail,
        InterruptionMessage(kind="capacityReservationInterruption", id=action, at=at, starts=starts, code=action),
    )


def _rebalance_recommendation(detail: Detail, at: datetime) -> tuple[InstanceInterruption, ...]:
    return _single_message(detail, InterruptionMessage(kind="rebalanceRecommendation", id="rebalance", at=at))


def _state_change(detail: Detail, at: datetime) -> tuple[InstanceInterruption, ...]:
    """The id of a stop includes its time, because an instance may be stopped several times but terminates once."""
    state = _text_field(detail, "state")
    if not state:
        raise _MessageDropped("malformed", "detail.state is missing")
    kind = _STATES.get(state)
    if kind is None:
        raise _MessageDropped("unwanted", f"the instance is {state[:100]}")
    name = state if kind == "instanceTerminating" else f"{state}/{at.isoformat()}"
    return _single_message(detail, InterruptionMessage(kind=kind, id=name, at=at, code=state))


def _health_event(detail: Detail, at: datetime) -> tuple[InstanceInterruption, ...]:
    """One message per affected instance. All messages of an event have its eventArn as id."""
    service, category = _text_field(detail, "service"), _text_field(detail, "eventTypeCategory")
    if service != "EC2" or category != "scheduledChange":
        raise _MessageDropped("unwanted", f"{category[:100] or 'an event'} of {service[:100] or 'no service'}")
    entities = detail.get("affectedEntities") or []
    if not isinstance(entities, list):
        raise _MessageDropped("malformed", "detail.affectedEntities is not a list")
    starts, ends = _parse_time(detail.get("startTime")), _parse_time(detail.get("endTime"))
    code = _text_field(detail, "eventTypeCode")
    message = InterruptionMessage(
        kind="scheduledChange",
        id=_text_field(detail, "eventArn") or f"{code}/{starts.isoformat() if starts else ''}",
        at=at,
        starts=starts,
        ends=ends,
        code=code,
        text=_description(detail),
    )
    messages = {}
    for entity in entities:
        instance = _instance_id(entity.get("entityValue")) if isinstance(entity, dict) else ""
        if instance:
            over = detail.get("statusCode") == _CLOSED or entity.get("status") == _RESOLVED
            messages[instance] = InstanceInterruption(
                instance_id=instance, message=_close_event(message) if over else message
            )
    if not messages:
        raise _MessageDropped("unwanted", "the event has no affected instance")
    return tuple(messages.values())


def _close_event(message: InterruptionMessage) -> InterruptionMessage:
    """AWS closes both completed and cancelled events. An event that is closed before its start was cancelled."""
    early = message.starts is not None and message.at < message.starts
    return message.model_copy(update={"status": "withdrawn" if early else "over"})


_PARSERS: Final[Mapping[tuple[Any, ...], Callable[[Detail, datetime], tuple[InstanceInterruption, ...]]]] = {
    ("0", "aws.ec2", "EC2 Spot Instance Interruption Warning"): _spot_interruption,
    ("0", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): _reservation_interruption,
    ("0", "aws.ec2", "EC2 Instance Rebalance Recommendation"): _rebalance_recommendation,
    ("0", "aws.ec2", "EC2 Instance State-change Notification"): _state_change,
    ("0", "aws.health", "AWS Health Event"): _health_event,
}


def _single_message(detail: Detail, message: InterruptionMessage) -> tuple[InstanceInterruption, ...]:
    instance = _instance_id(detail.get("instance-id"))
    if not instance:
        raise _MessageDropped("malformed", "detail.instance-id is not an instance id")
    return (InstanceInterruption(instance_id=instance, message=message),)


def _instance_id(value: Any) -> str:
    """From an id or an ARN; empty for anything else."""
    found = value.rpartition("/")[2] if isinstance(value, str) else ""
    return found if found.startswith("i-") and len(found) <= 40 else ""


def _require_object(value: Any, name: str) -> Detail:
    if not isinstance(value, dict):
        raise _MessageDropped("malformed", f"{name} is not an object")
    return value


def _text_field(detail: Detail, name: str) -> str:
    value = detail.get(name)
    return value if isinstance(value, str) else ""


def _parse_time(value: Any) -> datetime | None:
    """EventBridge uses ISO 8601, AWS Health RFC 2822; None for any other form."""
    if not isinstance(value, str):
        return None
    out_of_range = _MessageDropped("malformed", f"the time {value[:60]!a} is out of range")
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(value)
            at = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        except OverflowError as error:
            raise out_of_range from error
        except (ValueError, TypeError, IndexError):
            continue
        if at.year not in _YEARS:
            raise out_of_range
        return at
    return None


def _description(detail: Detail) -> str:
    descriptions = detail.get("eventDescription")
    for one in descriptions if isinstance(descriptions, list) else ():
        if isinstance(one, dict) and isinstance(one.get("latestDescription"), str):
            return " ".join(one["latestDescription"].split())[:_TEXT]
    return ""
