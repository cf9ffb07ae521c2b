"""Pauses: validation of requests, and the pause annotation."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.signals import Pause
from tenure.policy.lifecycle.pauses import (
    NEVER,
    describe_pause,
    is_pause_active,
    normalize_pause,
    pause_blocker,
    pause_end,
    pause_from_annotation,
    problem_of,
    read_pause,
    write_pause,
)

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
TEXT = "until=2026-06-01T18:00:00Z, by=ann, reason=training runs, all of them"


def pause(**fields: object) -> Pause:
    return Pause.model_validate({"by": "ann", "reason": "why", "until": NOW + timedelta(hours=1), **fields})


def test_annotation_is_parsed_in_any_order() -> None:
    found = read_pause(TEXT)
    assert found == Pause(by="ann", reason="training runs, all of them", until=datetime(2026, 6, 1, 18, tzinfo=UTC))
    assert read_pause("by=ann,until=2026-06-01T20:00+02:00,reason=training runs, all of them") == found
    assert write_pause(found) == TEXT


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("2h", "'2h' has no reason, expected it last"),
        ("until=2026-06-01T18:00:00Z, by=ann", "has no reason"),
        ("until=2026-06-01T18:00:00Z, reason=x", "has no by"),
        ("by=ann, reason=x", "has no until"),
        ("until=tomorrow, by=ann, reason=x", "until='tomorrow': invalid time"),
        ("until=2026-06-01T18:00:00, by=ann, reason=x", "missing time zone"),
        ("until=2026-06-01T18:00:00Z, who=ann, reason=x", "'who=ann' is unknown"),
        ("until=2026-06-01T18:00:00Z, by=ann, reason= ", "expected 1 to 300"),
        ("until=2226-06-01T18:00:00Z, by=ann, reason=x", "too far in the future"),
    ],
)
def test_invalid_annotation_pauses_without_end_and_names_the_expected_form(text: str, named: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        read_pause(text)
    assert named in str(error.value)
    found = pause_from_annotation(text)
    assert found is not None and found.until == NEVER and pause_end(found) is None
    assert (
        is_pause_active(found, NOW + timedelta(days=10_000))
        and named in describe_pause(found)
        and "tenure.sh/pause" in describe_pause(found)
    )


def test_absent_or_expired_annotation_does_not_pause() -> None:
    assert pause_from_annotation("") is None
    over = pause_from_annotation(TEXT)
    assert over is not None and not is_pause_active(over, over.until)
    assert pause_blocker("pool", "gpu", TEXT, over.until) is None
    blocker = pause_blocker("pool", "gpu", TEXT, NOW)
    assert blocker is not None
    assert (blocker.name, blocker.until) == ("gpu", over.until)
    assert blocker.why == "by ann: training runs, all of them"


@pytest.mark.parametrize("until", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:01+14:00"])
def test_zero_time_has_ended(until: str) -> None:
    found = pause_from_annotation(f"until={until}, by=ann, reason=x")
    assert found is not None and not is_pause_active(found, NOW)


def test_end_in_another_zone_after_the_last_representable_time_is_normalized() -> None:
    until = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
    assert is_pause_active(normalize_pause(pause(until=until)), NOW)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"by": " "}, "by: ' ': invalid name"),
        ({"by": "ann, bob"}, "by: 'ann, bob': invalid name"),
        ({"by": "x" * 100}, ""),
        ({"by": "x" * 101}, "invalid name"),
        ({"reason": "x" * 300}, ""),
        ({"reason": ""}, "reason: '' of 0 characters, expected 1 to 300"),
        ({"reason": "x" * 301}, "of 301 characters, expected 1 to 300"),
        ({"until": NOW}, "in the past, expected a future time"),
        ({"until": NOW.replace(tzinfo=None)}, "missing time zone, expected"),
        ({}, ""),
    ],
)
def test_invalid_pause_request_is_reported_with_the_expected_form(fields: dict[str, object], named: str) -> None:
    problem = problem_of(pause(**fields), NOW)
    assert named in problem and bool(problem) == bool(named)


@given(
    by=st.text(max_size=120),
    reason=st.text(max_size=400),
    until=st.datetimes(min_value=datetime(2000, 1, 2), max_value=datetime(2099, 12, 30)),
    zone=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30)), None]),
)
def test_written_annotation_is_parsed_to_the_same_pause(
    by: str, reason: str, until: datetime, zone: timezone | None
) -> None:
    normalized = normalize_pause(Pause(by=by, reason=reason, until=until.replace(tzinfo=zone)))
    assert pause_from_annotation(write_pause(normalized)) == normalized
    assert normalized.until >= until.replace(tzinfo=zone or UTC)
