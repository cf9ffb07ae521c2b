"""Karpenter's gauges of what can be bought: instance types, their offerings and prices, as planning knows them.

Told by the process that hosts the watch. What EC2 refused lately is not in it: the Provisioning workflow knows that.
"""

import threading
from collections.abc import Mapping
from typing import Final

from temporalio.client import Client
from temporalio.common import MetricMeter

from model import labels
from model.catalogue import Catalogue

_PREFIX: Final = "karpenter_cloudprovider_instance_type"
_Place = tuple[str, str, str]
"""Instance type, capacity type, zone."""


def meter_of(temporal: Client) -> MetricMeter:
    """That of the worker's metrics; one that tells nobody where there are none."""
    runtime = temporal.service_client.config.runtime
    return runtime.metric_meter if runtime else MetricMeter.noop


class OfferingGauges:
    """Only what changed is told: there are tens of thousands of offerings in a region."""

    def __init__(self, meter: MetricMeter) -> None:
        self._cores = meter.create_gauge(f"{_PREFIX}_cpu_cores", "vCPUs of an instance type")
        self._memory = meter.create_gauge(f"{_PREFIX}_memory_bytes", "Memory of an instance type, as planned with")
        self._available = meter.create_gauge(
            f"{_PREFIX}_offering_available", "Whether some EC2NodeClass can be launched so"
        )
        self._price = meter.create_gauge_float(f"{_PREFIX}_offering_price_estimate", "Price of an hour")
        self._offerings: dict[_Place, tuple[bool, float]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._telling = threading.Lock()

    def show(self, catalogue: Catalogue) -> None:
        """Takes a tenth of a second when much is new, so that it is best called in a thread."""
        with self._telling:
            self._show_sizes(catalogue)
            self._show_offerings(_offerings_of(catalogue))

    def _show_sizes(self, catalogue: Catalogue) -> None:
        for types in catalogue.by_node_class.values():
            for one in types:
                size = (one.capacity.get(labels.CPU, 0) // 1000, one.capacity.get(labels.MEMORY, 0))
                if self._sizes.get(one.name) != size:
                    self._sizes[one.name] = size
                    self._cores.set(size[0], {"instance_type": one.name})
                    self._memory.set(size[1], {"instance_type": one.name})

    def _show_offerings(self, found: Mapping[_Place, tuple[bool, float]]) -> None:
        """What is no longer offered is said to be unavailable, at its last price."""
        gone = {place: (False, price) for place, (_, price) in self._offerings.items() if place not in found}
        for place, said in {**gone, **found}.items():
            if self._offerings.get(place) != said:
                self._offerings[place] = said
                attributes = dict(zip(("instance_type", "capacity_type", "zone"), place, strict=True))
                self._available.set(int(said[0]), attributes)
                self._price.set(said[1], attributes)


def _offerings_of(catalogue: Catalogue) -> dict[_Place, tuple[bool, float]]:
    """Available when it is under some class; of several reservations the price is one and the same."""
    found: dict[_Place, tuple[bool, float]] = {}
    for types in catalogue.by_node_class.values():
        for one in types:
            for offering in one.offerings:
                place = (one.name, offering.capacity_type, offering.zone)
                available = offering.available or found.get(place, (False, 0.0))[0]
                found[place] = (available, offering.price)
    return found
