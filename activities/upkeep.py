"""What the tasks of upkeep share: one thing after the other is put away, and what fails hurts only itself.

Counts go to the worker's metrics as they happen; the answer of a run sums them up.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import structlog
from temporalio import activity

from activities.several import each
from model.faults import Fault
from model.upkeep import UpkeepAsked, UpkeepDone

T = TypeVar("T")
COLLECTED = "tenure_upkeep_collected_total"
FAILED = "tenure_upkeep_failed_total"
GARBAGE = "GarbageCollected"
"""The reason of its events."""
AT_ONCE = 50
"""Things put away together: what EC2 is asked of many at a time becomes one call."""
UNREADABLE = (Fault, ValueError)
"""What one thing may raise without hurting another: a call that failed, or words that no model can read."""
_NOTES = 5
_NOTE_LIMIT = 200
_SUSPECTS = 1000
"""The rest is suspected by a later run."""
log = structlog.get_logger(__name__)


def why(error: Exception) -> str:
    return f"{error.code} {error.message}".strip() if isinstance(error, Fault) else str(error)


class Tally:
    """One run of a task."""

    def __init__(self, asked: UpkeepAsked) -> None:
        self._task = asked.task
        self.looked_at = 0
        self._collected = 0
        self._failures: list[str] = []
        self.suspects: list[str] = []
        """UIDs of what goes if the next run finds it as it is."""
        meter = activity.metric_meter()
        self._collections = meter.create_counter(COLLECTED, "Things that upkeep put away or put right")
        self._failed = meter.create_counter(FAILED, "Things that upkeep could not look at or put away")

    def collected(self, kind: str, name: str, **facts: object) -> None:
        """Count it, and leave a line in the log."""
        self._collected += 1
        self._collections.add(1, {"kind": kind})
        log.info("collected", kind=kind, name=name, **facts)

    def failed(self, kind: str, name: str, why: str) -> None:
        self._failures.append(f"{kind} {name}: {why}"[:_NOTE_LIMIT])
        self._failed.add(1, {"kind": kind})
        log.warning("not collected", kind=kind, name=name, why=why)

    async def each(self, kind: str, things: Iterable[tuple[str, T]], act: Callable[[T], Awaitable[None]]) -> None:
        """Do it with each, named so; the fault of one is noted and the others go on."""

        async def one(named: tuple[str, T]) -> None:
            name, thing = named
            try:
                await act(thing)
            except UNREADABLE as error:
                self.failed(kind, name, why(error))

        await each(things, one, at_once=AT_ONCE)

    def done(self) -> UpkeepDone:
        return UpkeepDone(
            task=self._task,
            looked_at=self.looked_at,
            collected=self._collected,
            failed=len(self._failures),
            notes=tuple(self._failures[:_NOTES]),
            suspects=tuple(self.suspects[:_SUSPECTS]),
        )
