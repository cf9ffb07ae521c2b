"""EventBridge rule patterns match sample events as in EventBridge, and the worker can parse the sample events."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from deploy.resources import EVENTS_STACK
from tenure.aws.doctor.eventbridge import KINDS, describe_event, events_of, matches_pattern, pattern_of
from tenure.aws.interruption.parser import parse
from tenure.model.interruption.messages import EventKind
from tests.unit.deploy.stacks import read_template

SPOT = events_of("spotInterruption", account="123456789012", region="eu-west-1")[0]
MAINTENANCE = events_of("scheduledChange")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_sample_events_parse_as_their_kind(kind: EventKind) -> None:
    for event in events_of(kind):
        read = parse(json.dumps(event), sent=datetime(2026, 1, 1, tzinfo=UTC))
        assert read.kind == kind, read.why
        assert event["detail-type"] in describe_event(kind) and event["source"] in describe_event(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_rule_of_a_remedy_has_the_pattern_of_the_stack(kind: EventKind) -> None:
    rules = read_template(EVENTS_STACK)["Resources"]
    assert pattern_of(kind) == rules[f"{kind[0].upper()}{kind[1:]}Rule"]["Properties"]["EventPattern"]
    assert all(matches_pattern(json.dumps(pattern_of(kind)), event) for event in events_of(kind))


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ({"source": ["aws.ec2"]}, True),
        ({"source": ["aws.s3"]}, False),
        ({"source": ["aws.s3", "aws.ec2"], "region": ["eu-west-1"]}, True),
        ({"source": ["aws.ec2"], "region": ["us-east-1"]}, False),
        ({"source": [{"prefix": "aws."}]}, True),
        ({"source": [{"suffix": ".s3"}]}, False),
        ({"source": [{"wildcard": "aws.*2"}]}, True),
        ({"source": [{"anything-but": "aws.ec2"}]}, False),
        ({"source": [{"anything-but": ["aws.s3"]}]}, True),
        ({"source": [{"anything-but": {"prefix": "aws"}}]}, False),
        ({"source": [{"equals-ignore-case": "AWS.EC2"}]}, True),
        ({"detail": {"instance-action": ["terminate"]}}, True),
        ({"detail": {"instance-action": [{"exists": False}]}}, False),
        ({"detail": {"no-such": [{"exists": False}]}}, True),
        ({"detail": {"no-such": ["x"]}}, False),
        ({"resources": [{"prefix": "arn:aws:ec2:"}]}, True),
        ({"$or": [{"source": ["aws.s3"]}, {"account": ["123456789012"]}]}, True),
        ({"$or": [{"source": ["aws.s3"]}]}, False),
        ({"source": [{"numeric": [">", 0]}]}, False),
        ({"source": "aws.ec2"}, False),
        ({"source": {"name": ["aws.ec2"]}}, False),
        ({"detail": {"no-such": {"name": ["x"]}}}, False),
        ({}, False),
    ],
)
def test_pattern_matches_like_eventbridge(pattern: dict[str, Any], matched: bool) -> None:
    assert matches_pattern(json.dumps(pattern), SPOT) is matched


def test_pattern_matches_in_lists_of_objects() -> None:
    assert matches_pattern('{"detail": {"affectedEntities": {"entityValue": [{"prefix": "i-"}]}}}', MAINTENANCE)
    assert not matches_pattern('{"detail": {"affectedEntities": {"entityValue": ["vol-1"]}}}', MAINTENANCE)


@pytest.mark.parametrize("pattern", ["", "{", "[]", "null"])
def test_invalid_pattern_matches_nothing(pattern: str) -> None:
    assert not matches_pattern(pattern, SPOT)
