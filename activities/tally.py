"""What became of the queue's messages, counted for people and carried by the heartbeat of the activity that reads them.

A worker that takes the reading over counts on from there, as far as the heartbeat told. It costs no event of the
workflow, and `tenure events` finds it with the workflow's description.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from model.event_records import Tally


class Counting:
    """Of one activity. `counted`: the process's own counts, which go on while it lives."""

    def __init__(self, counted: Mapping[str, int], told_before: Sequence[Any], now: datetime) -> None:
        self._counted, self._first = counted, Counter(counted)
        self._before = _read(told_before) or Tally(since=now)

    def tally(self) -> Tally:
        here = Counter(self._counted) - self._first
        return self._before.model_copy(update={"counts": dict(Counter(self._before.counts) + here)})


def _read(details: Sequence[Any]) -> Tally | None:
    """None for a first attempt, and for the heartbeat of a worker that did not count."""
    try:
        return Tally.model_validate(details[0]) if details else None
    except ValidationError:
        return None
