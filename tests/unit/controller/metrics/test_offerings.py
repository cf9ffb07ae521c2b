"""Gauges of instance types and offerings: Karpenter's names, and only what changed."""

from collections.abc import Mapping
from typing import Any, cast

from temporalio.common import MetricMeter

from tenure.controller.metrics.nodepools import OfferingMetrics
from tenure.model.instance_types import Catalogue, InstanceType, Offering

PREFIX = "karpenter_cloudprovider_instance_type_"


class Gauge:
    def __init__(self, name: str, records: list[Any]) -> None:
        self._name, self._records = name, records

    def set(self, value: float, attributes: Mapping[str, str]) -> None:
        self._records.append((self._name.removeprefix(PREFIX), tuple(attributes.values()), value))


class Counter:
    def __init__(self, name: str, records: list[Any]) -> None:
        self._name, self._records = name, records

    def add(self, value: int, attributes: Mapping[str, str]) -> None:
        self._records.append((self._name, tuple(attributes.values()), value))


class Histogram:
    def __init__(self, name: str, records: list[Any]) -> None:
        self._name, self._records = name, records

    def record(self, value: float) -> None:
        self._records.append((self._name, (), value))


class FakeMeter:
    def __init__(self) -> None:
        self.records: list[Any] = []

    def create_gauge(self, name: str, description: str) -> Gauge:
        return Gauge(name, self.records)

    create_gauge_float = create_gauge

    def create_counter(self, name: str, description: str) -> Counter:
        return Counter(name, self.records)

    def create_histogram_float(self, name: str, description: str, unit: str) -> Histogram:
        return Histogram(name, self.records)

    def drain_records(self) -> list[Any]:
        drained, self.records[:] = list(self.records), []
        return sorted(drained)


def gauges(meter: FakeMeter) -> OfferingMetrics:
    return OfferingMetrics(cast(MetricMeter, meter))


def catalogue(*offerings: Offering, more: tuple[Offering, ...] = ()) -> Catalogue:
    capacity = {"cpu": 2000, "memory": 8 << 30}
    kinds = [
        InstanceType(name="m5.large", labels={}, capacity=capacity, overhead={}, offerings=o) for o in (offerings, more)
    ]
    return Catalogue(by_node_class={"a": (kinds[0],), "b": (kinds[1],)} if more else {"a": (kinds[0],)})


def offering(zone: str = "a", price: float = 0.1, available: bool = True) -> Offering:
    return Offering(zone=zone, capacity_type="spot", price=price, available=available)


def test_what_is_no_longer_offered_is_unavailable() -> None:
    meter = FakeMeter()
    one = gauges(meter)
    one.record(catalogue(offering("a"), offering("b")))
    meter.drain_records()
    one.record(catalogue(offering("a")))
    assert ("offering_available", ("m5.large", "spot", "b"), 0) in meter.drain_records()


def test_available_under_one_class_is_available() -> None:
    meter = FakeMeter()
    gauges(meter).record(catalogue(offering("a"), more=(offering("a", available=False),)))
    assert ("offering_available", ("m5.large", "spot", "a"), 1) in meter.drain_records()
