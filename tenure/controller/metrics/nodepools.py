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
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.dirty import ChangeSet
from tenure.controller.metrics.planner import LabeledGauge
from tenure.model.instance_types import Catalogue

USAGE: Final = "karpenter_nodepools_usage"
LIMIT: Final = "karpenter_nodepools_limit"
_LABELS: Final = ("nodepool", "resource_type")
_MILLI: Final = 1000


class NodePoolMetrics:
    def __init__(self, cache: ClusterCache, meter: MetricMeter) -> None:
        self._cache = cache
        self._usage = LabeledGauge(meter.create_gauge_float(USAGE, "Capacity of a NodePool's nodes"), *_LABELS)
        self._limit = LabeledGauge(meter.create_gauge_float(LIMIT, "What a NodePool's limits allow"), *_LABELS)
        self._claims: dict[str, tuple[str, dict[str, int]]] = {}
        """NodePool and resources, by NodeClaim."""
        self._used: dict[str, dict[str, int]] = {}
        """By NodePool."""

    def update(self, changes: ChangeSet) -> None:
        """At NodeClaims and NodePools that changed, or are gone."""
        for name in {*changes.nodeclaims, *(claim.name for claim in changes.deleted_nodeclaims.values())}:
            self._subtract(name)
            self._add(name)
        if changes.nodeclaims or changes.deleted_nodeclaims:
            self._usage.record(
                {
                    label_values: amount
                    for pool, used in self._used.items()
                    for label_values, amount in _iter_samples(pool, used)
                }
            )
        if changes.nodepools or changes.deleted_nodepools:
            pools = self._cache.nodepools.items()
            self._limit.record(
                {
                    label_values: amount
                    for name, view in pools
                    for label_values, amount in _iter_samples(name, view.fact.limits)
                }
            )

    def close(self) -> None:
        """Another process tells from here on."""
        self._claims.clear()
        self._used.clear()
        self._usage.record({})
        self._limit.record({})

    def _subtract(self, name: str) -> None:
        pool, amounts = self._claims.pop(name, ("", {}))
        if amounts:
            remaining = resources.subtract(self._used[pool], amounts)
            self._used[pool] = {resource: amount for resource, amount in remaining.items() if amount}

    def _add(self, name: str) -> None:
        claim = self._cache.nodeclaims.get(name)
        if claim is None or not claim.pool or not claim.provider_id:
            return
        amounts = resources.add(claim.capacity, {resources.NODES: 1})
        self._claims[name] = (claim.pool, amounts)
        self._used[claim.pool] = resources.add(self._used.get(claim.pool, {}), amounts)


def _iter_samples(pool: str, amounts: Mapping[str, int]) -> Iterator[tuple[tuple[str, str], float]]:
    """As Karpenter's labels and units have it."""
    for name, amount in amounts.items():
        yield (pool, name.lower().replace("-", "_")), amount / _MILLI if name == resources.CPU else amount


_PREFIX: Final = "karpenter_cloudprovider_instance_type"
_OfferingKey = tuple[str, str, str]
"""Instance type, capacity type, zone."""


def meter_of(temporal: Client) -> MetricMeter:
    """That of the worker's metrics; one that tells nobody where there are none."""
    runtime = temporal.service_client.config.runtime
    return runtime.metric_meter if runtime else MetricMeter.noop


class OfferingMetrics:
    """Only what changed is told: there are tens of thousands of offerings in a region."""

    def __init__(self, meter: MetricMeter) -> None:
        self._cores = meter.create_gauge(f"{_PREFIX}_cpu_cores", "vCPUs of an instance type")
        self._memory = meter.create_gauge(f"{_PREFIX}_memory_bytes", "Memory of an instance type, as planned with")
        self._available = meter.create_gauge(
            f"{_PREFIX}_offering_available", "Whether some EC2NodeClass can be launched so"
        )
        self._price = meter.create_gauge_float(f"{_PREFIX}_offering_price_estimate", "Price of an hour")
        self._offerings: dict[_OfferingKey, tuple[bool, float]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def record(self, catalogue: Catalogue) -> None:
        """Takes a tenth of a second when much is new, so that it is best called in a thread."""
        with self._lock:
            self._record_sizes(catalogue)
            self._record_offerings(_offerings_of(catalogue))

    def _record_sizes(self, catalogue: Catalogue) -> None:
        for types in catalogue.by_node_class.values():
            for one in types:
                size = (one.capacity.get(labels.CPU, 0) // 1000, one.capacity.get(labels.MEMORY, 0))
                if self._sizes.get(one.name) != size:
                    self._sizes[one.name] = size
                    self._cores.set(size[0], {"instance_type": one.name})
                    self._memory.set(size[1], {"instance_type": one.name})

    def _record_offerings(self, found: Mapping[_OfferingKey, tuple[bool, float]]) -> None:
        """What is no longer offered is said to be unavailable, at its last price."""
        withdrawn = {key: (False, price) for key, (_, price) in self._offerings.items() if key not in found}
        for key, value in {**withdrawn, **found}.items():
            if self._offerings.get(key) != value:
                self._offerings[key] = value
                attributes = dict(zip(("instance_type", "capacity_type", "zone"), key, strict=True))
                self._available.set(int(value[0]), attributes)
                self._price.set(value[1], attributes)


def _offerings_of(catalogue: Catalogue) -> dict[_OfferingKey, tuple[bool, float]]:
    """Available when it is under some class; of several reservations the price is one and the same."""
    found: dict[_OfferingKey, tuple[bool, float]] = {}
    for types in catalogue.by_node_class.values():
        for one in types:
            for offering in one.offerings:
                key = (one.name, offering.capacity_type, offering.zone)
                available = offering.available or found.get(key, (False, 0.0))[0]
                found[key] = (available, offering.price)
    return found
