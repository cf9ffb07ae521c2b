"""Durations: the syntax of Go's parser, Go's canonical text, and advice for invalid text."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.durations import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    (
        ("0", 0),
        ("0s", 0),
        ("30s", 30),
        ("90m", 5400),
        ("1h30m", 5400),
        ("720h", 2592000),
        ("1h30m5s", 5405),
        ("5s1h", 3605),
        ("1.5h", 5400),
        (".5m", 30),
        ("1.s", 1),
        ("-30s", -30),
        ("+30s", 30),
        ("100ms", 0.1),
        ("15us", 0.000015),
        ("15µs", 0.000015),
        ("1500ns", 0.000001),
    ),
)
def test_duration_is_parsed_as_in_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


def test_never_is_parsed_as_none() -> None:
    assert parse_duration("Never") is None
    assert format_duration(None) == "Never"


@pytest.mark.parametrize(
    ("text", "advice"),
    (
        ("7d", "expected '168h'"),
        ("2 days", "expected '48h'"),
        ("30", "write '30s', '30m' or '30h'"),
        ("never", "expected 'Never'"),
        ("", "e.g. '30s' or '1h30m'"),
        ("1 h", "e.g. '30s' or '1h30m'"),
        ("h", "e.g. '30s' or '1h30m'"),
        ("1h-30m", "e.g. '30s' or '1h30m'"),
        ("3000000h", "less than 2562047h"),
    ),
)
def test_invalid_duration_error_gives_advice(text: str, advice: str) -> None:
    with pytest.raises(DurationError, match=advice):
        parse_duration(text)


@pytest.mark.parametrize(
    ("duration", "text"),
    (
        (timedelta(), "0s"),
        (timedelta(seconds=45), "45s"),
        (timedelta(minutes=20), "20m0s"),
        (timedelta(hours=1, minutes=30), "1h30m0s"),
        (timedelta(days=30), "720h0m0s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(milliseconds=100), "100ms"),
        (timedelta(milliseconds=1.5), "1.5ms"),
        (timedelta(microseconds=7), "7µs"),
        (-timedelta(minutes=1), "-1m0s"),
        (timedelta(seconds=60.000001), "1m0.000001s"),
    ),
)
def test_duration_is_formatted_as_in_go(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(days=-100_000), max_value=timedelta(days=100_000)))
def test_formatted_duration_is_parsed_to_the_same_value(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_an_error_with_the_expected_form(text: str) -> None:
    try:
        parse_duration(text)
    except DurationError as error:
        assert any(remedy in str(error) for remedy in ("expected", "write", "at most"))
