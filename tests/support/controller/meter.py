"""A meter that stores its samples."""

from collections.abc import Mapping
from typing import Any

Sample = tuple[str, tuple[str, ...], float]
"""Name of the metric, label values in declared order, and value."""


class RecordingMeter:
    def __init__(self) -> None:
        self.records: list[Sample] = []

    def create_counter(self, name: str, description: str | None = None, unit: str | None = None) -> Any:
        return _Instrument(name, self.records)

    create_gauge_float = create_histogram_float = create_counter

    def drain_records(self) -> list[Sample]:
        drained, self.records[:] = list(self.records), []
        return sorted(drained)


class _Instrument:
    def __init__(self, name: str, records: list[Sample]) -> None:
        self._name, self._records = name, records

    def record(self, value: float, attributes: Mapping[str, str]) -> None:
        if value < 0:
            raise ValueError("Metric value cannot be negative")
        self._records.append((self._name, tuple(attributes.values()), value))

    add = set = record
