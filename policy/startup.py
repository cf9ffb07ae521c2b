"""How long a phase of start-up is expected to take, from how long others took. Pure.

Who takes longer is slow: that is shown, and nothing follows from it.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from model.base import Value

ENOUGH: Final = 3
"""Nodes from which an expectation can be had."""
UNKNOWN_SHARE: Final = 10
"""Where too few were seen: one part in so many of the phase's deadline."""
LEAST: Final = timedelta(seconds=10)


class Summary(Value):
    """Seconds."""

    count: int
    median: float
    p90: float
    longest: float


def summary_of(seconds: Sequence[float]) -> Summary:
    """Nearest ranks. Raises ValueError where there is nothing."""
    if not seconds:
        raise ValueError("no times were handed in, so that there is nothing to sum up")
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return Summary(count=len(ordered), median=ordered[last // 2], p90=ordered[round(last * 0.9)], longest=ordered[last])


def decide_expected(seconds: Sequence[float]) -> timedelta | None:
    """Twice what is usual, and a quarter more than what nearly all took; None where too few were seen."""
    if len(seconds) < ENOUGH:
        return None
    found = summary_of(seconds)
    return max(LEAST, timedelta(seconds=max(2 * found.median, 1.25 * found.p90)))


def unknown(deadline: timedelta) -> timedelta:
    """What is expected while nothing is known."""
    return max(LEAST, deadline / UNKNOWN_SHARE)
