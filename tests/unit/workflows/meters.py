"""A meter in the place of a workflow's, for what is counted and measured without one."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from tenure.model.nodeclaim.state import NodeClaimIdentity

BORN = datetime(2026, 3, 1, tzinfo=UTC)
WHO = NodeClaimIdentity(cluster="prod", name="a", uid="uid-a", pool="general", created=BORN)
"""Whose life it is."""


class FakeMeter:
    """Stands for the module `temporalio.workflow`; `time` is what its clock says."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[Any, ...]] = Counter()
        self.recorded: dict[tuple[Any, ...], float] = {}
        self.time = BORN

    def now(self) -> datetime:
        return self.time

    def upsert_search_attributes(self, updates: Any) -> None:
        """What a life shows is not looked at here."""

    def set_current_details(self, text: str) -> None:
        """Nor this."""

    def metric_meter(self) -> "FakeMeter":
        return self

    def create_counter(self, name: str, described: str | None = None, unit: str | None = None) -> Any:
        counted = self.counted

        class Found:
            def add(self, value: int, labels: dict[str, str]) -> None:
                counted[name, *sorted(labels.items())] += value

        return Found()

    def create_histogram_float(self, name: str, described: str | None = None, unit: str | None = None) -> Any:
        recorded = self.recorded

        class Found:
            def record(self, value: float, labels: dict[str, str]) -> None:
                recorded[name, *sorted(labels.items())] = value

        return Found()
