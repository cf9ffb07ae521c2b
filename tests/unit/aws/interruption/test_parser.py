"""EventBridge messages: every kind that Karpenter supports, and malformed messages without exceptions."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenure.aws.interruption.parser import parse
from tenure.model.interruption.messages import InterruptionMessage
from tenure.model.interruption.records import ParsedEvent
from tenure.sandbox.aws.services import eventbridge
from tenure.sandbox.aws.settings import SimSettings

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SENT = NOW + timedelta(seconds=3)
SIM_SETTINGS = SimSettings(cluster_name="demo")
ONE, OTHER = "i-0123456789abcdef0", "i-0fedcba9876543210"
STARTS = "Mon, 16 Mar 2026 04:00:00 GMT"


def read(message: dict[str, Any], **changed: Any) -> ParsedEvent:
    return parse(json.dumps({**message, **changed}), sent=SENT)


def health(*ids: str, **detail: Any) -> dict[str, Any]:
    return eventbridge.health_event(SIM_SETTINGS, NOW, list(ids), **{"startTime": STARTS, **detail})


def only_event(parsed: ParsedEvent) -> InterruptionMessage:
    (event,) = parsed.interruptions
    assert event.instance_id == ONE
    return event.message


def state(name: str) -> dict[str, Any]:
    return eventbridge.state_change(SIM_SETTINGS, NOW, ONE, name)


SPOT = eventbridge.spot_interruption(SIM_SETTINGS, NOW, ONE)
RESERVATION = eventbridge.reservation_interruption(SIM_SETTINGS, NOW, ONE)
REBALANCE = eventbridge.rebalance_recommendation(SIM_SETTINGS, NOW, ONE)
RETIREMENT = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED"


@pytest.mark.parametrize(
    "message, kind, name, code",
    [
        (SPOT, "spotInterruption", "spot_interrupted", "terminate"),
        (RESERVATION, "capacityReservationInterruption", "capacity_reservation_interrupted", "terminate"),
        (REBALANCE, "rebalanceRecommendation", "rebalance_recommendation", ""),
        (state("stopping"), "instanceStopping", "instance_stopped", "stopping"),
        (state("stopped"), "instanceStopping", "instance_stopped", "stopped"),
        (state("shutting-down"), "instanceTerminating", "instance_terminated", "shutting-down"),
        (state("terminated"), "instanceTerminating", "instance_terminated", "terminated"),
        (health(ONE), "scheduledChange", "scheduled_change", RETIREMENT),
    ],
)
def test_every_karpenter_event_kind_is_parsed(message: dict[str, Any], kind: str, name: str, code: str) -> None:
    found = read(message)
    parsed = only_event(found)
    assert (parsed.kind, found.message_type, parsed.code) == (kind, name, code)
    assert (parsed.at, parsed.source, parsed.status) == (NOW, "queue", "announced")
    assert not found.dropped


def test_health_event_has_instances_times_and_text() -> None:
    found = read(health(ONE, OTHER, endTime="Mon, 16 Mar 2026 06:00:00 GMT", eventArn="arn:one"))
    assert [event.instance_id for event in found.interruptions] == [ONE, OTHER]
    message = found.interruptions[0].message
    assert message.id == "arn:one"
    assert message.starts == datetime(2026, 3, 16, 4, tzinfo=UTC)
    assert message.ends == datetime(2026, 3, 16, 6, tzinfo=UTC)
    assert message.text == "An event scheduled for the instances."


def test_instance_arn_is_accepted() -> None:
    entity = {"entityValue": f"arn:aws:ec2:us-west-2:123456789012:instance/{ONE}"}
    assert only_event(read(health(affectedEntities=[entity]))).kind == "scheduledChange"


@pytest.mark.parametrize("at, status", [("2026-03-10T00:00:00Z", "withdrawn"), ("2026-03-16T05:00:00Z", "over")])
def test_closed_event_is_withdrawn_before_its_start_and_over_after(at: str, status: str) -> None:
    assert only_event(read(health(ONE, statusCode="closed"), time=at)).status == status


def test_one_of_two_instances_may_be_resolved() -> None:
    entities = [{"entityValue": ONE, "status": "RESOLVED"}, {"entityValue": OTHER, "status": "PENDING"}]
    found = read(health(affectedEntities=entities))
    assert [event.message.status for event in found.interruptions] == ["withdrawn", "announced"]


def test_unreadable_start_time_is_unknown() -> None:
    assert only_event(read(health(ONE, startTime="some day"))).starts is None


def test_repeated_event_has_same_id_and_later_stop_has_another() -> None:
    later = NOW + timedelta(days=3)

    def ids(make: Any, *more: str) -> set[str]:
        return {only_event(read(make(SIM_SETTINGS, at, ONE, *more))).id for at in (NOW, later)}

    assert len(ids(eventbridge.spot_interruption)) == len(ids(eventbridge.rebalance_recommendation)) == 1
    assert len(ids(eventbridge.state_change, "terminated")) == 1
    assert len(ids(eventbridge.state_change, "stopped")) == 2


@pytest.mark.parametrize("body", ["", "not json", "[]", "null", '{"version": "0"}', "[" * 100_000], ids=range(6))
def test_invalid_envelope_is_malformed(body: str) -> None:
    found = parse(body, sent=SENT)
    assert (found.dropped, found.interruptions, found.at, found.message_type) == ("malformed", (), SENT, "no_op")
    assert found.why


@pytest.mark.parametrize(
    "changed, dropped",
    [
        ({"version": "1"}, "unknown"),
        ({"source": "aws.ec3"}, "unknown"),
        ({"detail-type": "EC2 Something New"}, "unknown"),
        ({"detail": None}, "malformed"),
        ({"detail": {"instance-action": "terminate"}}, "malformed"),
        ({"detail": {"instance-id": 7}}, "malformed"),
        ({"detail": {"instance-id": "vol-1"}}, "malformed"),
        ({"detail-type": ["EC2"]}, "malformed"),
    ],
)
def test_unexpected_envelope_is_dropped(changed: dict[str, Any], dropped: str) -> None:
    found = read(SPOT, **changed)
    assert (found.dropped, found.at) == (dropped, NOW)


@pytest.mark.parametrize(
    "message",
    [
        health(ONE, service="RDS"),
        health(ONE, eventTypeCategory="issue"),
        health(ONE, eventTypeCategory="accountNotification"),
        health(),
        health("vol-0123"),
        state("running"),
        state("pending"),
    ],
)
def test_known_kind_about_other_resources_is_unwanted(message: dict[str, Any]) -> None:
    assert read(message).dropped == "unwanted"


def test_missing_time_is_send_time() -> None:
    assert only_event(read(REBALANCE, time=None)).at == SENT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["service", "eventTypeCategory", "affectedEntities", "startTime", "endTime", "eventArn", "eventDescription"]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(FIELDS, JSON), st.dictionaries(st.sampled_from(["time", "detail", "version"]), JSON, max_size=1))
def test_any_detail_parses_or_is_dropped(detail: dict[str, Any], changed: dict[str, Any]) -> None:
    found = read(health(ONE, **detail), **changed)
    assert bool(found.interruptions) != bool(found.dropped)


@pytest.mark.parametrize(
    ("changed", "why"),
    (
        ({"time": "Fri, 22 Jul 2016 00:00:00 +99999999999999999999"}, "out of range"),
        ({"time": "0001-01-01T00:00:00+23:59"}, "out of range"),
        ({"time": "0001-01-01T00:00:00Z"}, "out of range"),
        ({"time": "9999-12-31T23:59:59Z"}, "out of range"),
        ({"detail": {"instance-id": "i-1", "instance-action": "\ud800"}}, "surrogate"),
    ),
    ids=("queue-impossible-time", "time-before-year-1", "year-1", "year-9999", "queue-lone-surrogate"),
)
def test_out_of_range_value_is_malformed(changed: dict[str, Any], why: str) -> None:
    found = read(SPOT, **changed)
    assert found.dropped == "malformed" and why in found.why


def test_start_in_year_1_is_malformed() -> None:
    """Go writes an unset time like this. The lead time of a drain cannot be subtracted from it."""
    found = read(health(ONE, startTime="0001-01-01T00:00:00Z"))
    assert found.dropped == "malformed" and "out of range" in found.why


@given(st.text())
def test_any_text_is_dropped(text: str) -> None:
    assert parse(text, sent=SENT).dropped
