"""Schedules fire at the same times as in Karpenter.

`tools/cron_table` writes `cron_schedules.tsv` with the times of robfig/cron.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.cron import MACROS, MAX_LENGTH, PATTERN, ScheduleError, next_time

BEGIN = datetime(2026, 2, 27, 22, 58, 30, tzinfo=UTC)
TIMES = 5
INVALID = "invalid"
EXPECTED = dict(
    line.rpartition("\t")[::2]
    for line in Path(__file__).with_name("cron_schedules.tsv").read_text().split("\n")
    if line
)
DIFFERENT = {"@every 1h"}
"""Karpenter's CRD rejects this schedule, although its parser accepts it."""


def format_next_times(schedule: str) -> str:
    at, times = BEGIN, list[str]()
    while len(times) < TIMES:
        try:
            following = next_time(schedule, at)
        except ScheduleError:
            return INVALID
        if following is None:
            break
        at = following
        times.append(f"{at:%Y-%m-%dT%H:%M}")
    return " ".join(times)


def test_schedules_fire_or_are_rejected_as_in_karpenter() -> None:
    assert len(EXPECTED) > 600
    different = {
        schedule: format_next_times(schedule)
        for schedule in EXPECTED
        if format_next_times(schedule) != EXPECTED[schedule]
    }
    assert different == dict.fromkeys(DIFFERENT, INVALID)


@pytest.mark.parametrize(
    ("schedule", "same"),
    (
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 1-7", "0 0 * * *"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 13 * 7", "0 0 13 * sun"),
    ),
)
def test_seven_is_sunday(schedule: str, same: str) -> None:
    assert format_next_times(schedule) == format_next_times(same) != INVALID


def test_schedule_that_never_fires_is_valid() -> None:
    assert next_time("0 0 31 2 *", BEGIN) is None


@pytest.mark.parametrize(
    ("schedule", "after", "following"),
    [
        # On 25 October, 02:00 to 03:00 in Berlin comes twice: from 00:00 UTC and from 01:00 UTC.
        ("45 2 * * *", "00:44", "25T02:45+0200"),
        ("45 2 * * *", "01:44", "26T02:45+0100"),
        ("45 2,4 * * *", "01:15", "25T04:45+0100"),
        ("45 * * * *", "01:44", "25T02:45+0100"),
    ],
)
def test_next_time_is_later_in_an_hour_that_comes_twice(schedule: str, after: str, following: str) -> None:
    at = datetime.fromisoformat(f"2026-10-25T{after}Z").astimezone(ZoneInfo("Europe/Berlin"))
    found = next_time(schedule, at)
    assert found is not None and f"{found:%dT%H:%M%z}" == following


@pytest.mark.parametrize(
    ("schedule", "message"),
    (
        ("0 25 * * *", "'0 25 .*': hour '25': expected 0 to 23 in rising order"),
        ("0 0 L * *", "day of month 'L': expected a number, e.g. 1"),
        ("0 0 * *", "'0 0 \\* \\*': expected five cron fields, or a macro such as @daily"),
        ("1/2/3 * * * *", "minute '1/2/3': expected a number, a range or a step, e.g. 1-5 or \\*/10"),
        ("0 " * 200, "has 400 characters, a schedule has at most 200"),
    ),
)
def test_schedule_error_names_field_value_and_expected_form(schedule: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        next_time(schedule, BEGIN)


NUMBERS = st.one_of(
    st.integers(0, 70).map(str),
    st.sampled_from(["", "+5", "05", "jan", "DEC", "sun", "Mon", "x", "*", "?", "-1", "1.5", "٣"]),
)
PARTS = st.one_of(
    NUMBERS,
    st.tuples(NUMBERS, NUMBERS).map("-".join),
    st.tuples(NUMBERS, NUMBERS).map("/".join),
    st.tuples(NUMBERS, NUMBERS, NUMBERS).map(lambda one: f"{one[0]}-{one[1]}/{one[2]}"),
    st.text("0123456789,-/*?+", max_size=4),
)
PLAUSIBLE = st.one_of(st.just("*"), st.integers(0, 9).map(str), PARTS)
SCHEDULES = st.one_of(
    st.lists(PLAUSIBLE, min_size=4, max_size=6).map(" ".join),
    st.tuples(st.integers(0, 4), PARTS).map(lambda one: " ".join(["*"] * one[0] + [one[1]] + ["*"] * (4 - one[0]))),
    st.sampled_from([*MACROS, "@every 1h", "@Daily", " @daily ", "@dailyx", "\t0 0\n* *  *", "0 0 * *"]),
)


@given(SCHEDULES)
def test_lifecycle_policies_accept_what_the_reader_accepts(schedule: str) -> None:
    """A pattern cannot compare the ends of a range; ValidationSucceeded of the LifecyclePolicy reports such a range."""
    accepted = len(schedule) <= MAX_LENGTH and re.search(PATTERN, schedule) is not None
    if (format_next_times(schedule) != INVALID) != accepted:
        assert accepted and re.search(r"\w-\+?\w", schedule)


def test_lifecycle_policies_accept_the_schedules_that_karpenter_accepts() -> None:
    disagreeing = [one for one in EXPECTED if (format_next_times(one) != INVALID) != bool(re.search(PATTERN, one))]
    assert [one for one in disagreeing if not re.search(r"\w-\+?\w", one) or format_next_times(one) != INVALID] == []
