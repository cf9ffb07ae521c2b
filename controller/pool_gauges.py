"""Gauges of what NodePools have and may have: Karpenter's `nodepools_usage` and `nodepools_limit`.

Told by the process that hosts the watch, as the NodePools' status tells it: the capacity of their NodeClaims, and how
many have an instance. Each NodeClaim that changes is put in anew; the others are not counted again.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from temporalio.common import MetricMeter

from controller.caches import Caches
from controller.dirty import Dirty
from controller.told_gauge import ToldGauge
from model import resources

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
