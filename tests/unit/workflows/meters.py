"""A fake meter that records the metrics of a workflow without a server."""

import logging
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from tenure.model.nodeclaim.state import NodeClaimIdentity

BORN = datetime(2026, 3, 1, tzinfo=UTC)
WHO = NodeClaimIdentity(cluster="prod", name="a", uid="uid-a", pool="general", created=BORN)


class FakeMeter:
    """Replaces the module `temporalio.workflow`; its clock returns `time`."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[Any, ...]] = Counter()
        self.recorded: dict[tuple[Any, ...], float] = {}
        self.time = BORN
        self.logger = logging.getLogger(__name__)

    def now(self) -> datetime:
        return self.time

    def upsert_search_attributes(self, updates: Any) -> None:
        """Search attributes are not recorded."""

    def set_current_details(self, text: str) -> None:
        """Details are not recorded."""

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
