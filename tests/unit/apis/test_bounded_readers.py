"""Readers of user text: any text has a result or the one documented error, and a long text is refused unread."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.apis.cron import ScheduleError, next_time
from tenure.apis.durations import DurationError, parse_duration
from tenure.apis.quantity import QuantityError, parse

READERS: dict[str, tuple[Callable[[str], object], type[ValueError]]] = {
    "duration": (parse_duration, DurationError),
    "quantity": (parse, QuantityError),
    "schedule": (lambda text: next_time(text, datetime(2026, 1, 1, tzinfo=UTC)), ScheduleError),
}
PARTS = st.sampled_from(
    ("1", "9" * 50, ".", "-", "e", "Gi", "m", "h", "ns", "*", "/", "\u0663", "\uff19", "\0", "\ud800", " ", "Never")
)
TEXTS = st.text() | st.lists(PARTS, max_size=40).map("".join) | st.text(alphabet="0123456789.eEhmsiG-+", max_size=80)
HOSTILE = {
    "more digits than Python reads": "9" * 4301 + "h",
    "digits and no unit": "9" * 20_000 + "x",
    "dots": "1." * 20_000,
    "signs": "-" * 20_000,
    "long exponent": "1e" + "9" * 20_000,
    "spaces": " " * 100_000,
}
"""A regular expression that backtracks takes minutes for these."""


@pytest.mark.parametrize("reader", READERS)
@given(text=TEXTS)
@example(text="\ud800")
@example(text="\u0663s")
def test_any_text_has_a_result_or_the_documented_error(reader: str, text: str) -> None:
    read, error = READERS[reader]
    try:
        read(text)
    except error as refused:
        assert len(str(refused)) < 400 and "\n" not in str(refused)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_long_text_is_refused_before_it_is_parsed(reader: str, text: str) -> None:
    read, error = READERS[reader]
    with pytest.raises(error, match=f"{len(text)} characters"):
        read(text)


@pytest.mark.parametrize("text", ("٣s", "１h", "३0m"))
def test_digits_are_ascii(text: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(text)
