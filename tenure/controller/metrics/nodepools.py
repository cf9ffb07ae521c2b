"""Gauges of what NodePools have and may have: Karpenter's `nodepools_usage` and `nodepools_limit`.

Told by the process that hosts the watch, as the NodePools' status tells it: the capacity of their NodeClaims, and how
many have an instance. Each NodeClaim that changes is put in anew; the others are not counted again.

Karpenter's gauges of what can be bought: instance types, their offerings and prices, as planning knows them.

Told by the process that hosts the watch. What EC2 refused lately is not in it: the Provisioning workflow knows that.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Final

from temporalio.client import Client
from temporalio.common import MetricMeter

from tenure.apis import labels, resources
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty
from tenure.controller.metrics.planner import ToldGauge
from tenure.model.instance_types import Catalogue

USAGE: Final = "karpenter_nodepools_usage"
LIMIT: Final = "karpenter_nodepools_limit"
_LABELS: Final = ("nodepool", "resource_type")
_MILLI: Final = 1000


class PoolGauges:
    def __init__(self, caches: Caches, meter: MetricMeter) -> None:
        self._caches = caches
        self._usage = ToldGauge(meter.create_gauge_float(USAGE, "Capacity of a NodePool's nodes"), *_LABELS)
        self._limit = ToldGauge(meter.create_gauge_float(LIMIT, "What a NodePool's limits allow"), *_LABELS)
        self._claims: dict[str, tuple[str, dict[str, int]]] = {}
        """NodePool and resources, by NodeClaim."""
        self._used: dict[str, dict[str, int]] = {}
        """By NodePool."""

    def look(self, dirty: Dirty) -> None:
        """At NodeClaims and NodePools that changed, or are gone."""
        for name in {*dirty.claims, *(claim.name for claim in dirty.gone_claims.values())}:
            self._take_out(name)
            self._put_in(name)
        if dirty.claims or dirty.gone_claims:
            self._usage.show({place: amount for pool, used in self._used.items() for place, amount in _of(pool, used)})
        if dirty.pools or dirty.gone_pools:
            pools = self._caches.pools.items()
            self._limit.show({place: amount for name, view in pools for place, amount in _of(name, view.fact.limits)})

    def close(self) -> None:
        """Another process tells from here on."""
        self._claims.clear()
        self._used.clear()
        self._usage.show({})
        self._limit.show({})

    def _take_out(self, name: str) -> None:
        pool, amounts = self._claims.pop(name, ("", {}))
        if amounts:
            left = resources.subtract(self._used[pool], amounts)
            self._used[pool] = {resource: amount for resource, amount in left.items() if amount}

    def _put_in(self, name: str) -> None:
        claim = self._caches.claims.get(name)
        if claim is None or not claim.pool or not claim.provider_id:
            return
        amounts = resources.add(claim.capacity, {resources.NODES: 1})
        self._claims[name] = (claim.pool, amounts)
        self._used[claim.pool] = resources.add(self._used.get(claim.pool, {}), amounts)


def _of(pool: str, amounts: Mapping[str, int]) -> Iterator[tuple[tuple[str, str], float]]:
    """As Karpenter's labels and units have it."""
    for name, amount in amounts.items():
        yield (pool, name.lower().replace("-", "_")), amount / _MILLI if name == resources.CPU else amount


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
