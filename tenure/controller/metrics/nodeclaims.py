"""Gauges of the NodeClaims that there are: by phase, what they cost, whose drain waits, and what is paused.

Told by the process that hosts the watch, from what stands on the objects; what is no more goes back to 0, also in a
process that hosts the watch no more. `karpenter_nodepools_cost_total` is Karpenter's.

A gauge of the NodeClaims that are overdue, by phase and NodePool, from the condition that stands on each.

Told by the process that hosts the watch. The condition outlives any worker, so a restart forgets none; what is overdue
no more goes back to 0, also in a process that hosts the watch no more.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from temporalio.common import MetricMeter

from tenure.apis import labels
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.metrics.planner import ToldGauge
from tenure.model.facts import ClaimFact
from tenure.model.instance_types import Catalogue, InstanceType
from tenure.model.nodeclaim_state import Phase
from tenure.scheduling.disruption.cost import price_of

NODES: Final = "tenure_nodeclaims"
WAITING: Final = "tenure_nodeclaims_drain_waiting"
PAUSED: Final = "tenure_paused"
COST: Final = "karpenter_nodepools_cost_total"
_DIGITS: Final = 5
"""Of prices: AWS has no more."""


class _Claim(NamedTuple):
    place: tuple[str, str, str]
    """Phase, NodePool, capacity type."""
    waits: bool
    paused: bool
    price: float


class LifeGauges:
    def __init__(self, caches: Caches, brake: ClusterBrake, meter: MetricMeter) -> None:
        self._caches, self._brake = caches, brake
        self._nodes = ToldGauge(meter.create_gauge(NODES, "NodeClaims, by phase"), "phase", "nodepool", "capacity_type")
        self._waiting = ToldGauge(
            meter.create_gauge(WAITING, "NodeClaims whose drain waits for pods or volumes"), "nodepool"
        )
        self._paused = ToldGauge(
            meter.create_gauge(PAUSED, "What is paused: the cluster, NodePools, NodeClaims"), "kind"
        )
        self._cost = ToldGauge(
            meter.create_gauge_float(COST, "Price of a NodePool's instances, dollars an hour"), "nodepool"
        )
        self._claims: dict[str, _Claim] = {}
        self._types: dict[tuple[str, str], InstanceType] = {}
        """By EC2NodeClass and name."""

    def show_prices(self, catalogue: Catalogue) -> None:
        """What instances cost from now on."""
        self._types = {(name, one.name): one for name, types in catalogue.by_node_class.items() for one in types}
        self._look_at(self._caches.claims.keys())
        self._show()

    def look(self, dirty: Dirty) -> None:
        """At NodeClaims that changed, or are gone."""
        for claim in dirty.gone_claims.values():
            self._claims.pop(claim.name, None)
        self._look_at(dirty.claims)
        if dirty.claims or dirty.gone_claims or dirty.pools:
            self._show()

    def close(self) -> None:
        """Another process tells from here on."""
        self._claims.clear()
        for one in (self._nodes, self._waiting, self._paused, self._cost):
            one.show({})

    def _look_at(self, names: Iterable[str]) -> None:
        for name in names:
            found = self._caches.claims.get(name)
            if found is None:
                self._claims.pop(name, None)
            else:
                self._claims[name] = self._seen(found)

    def _seen(self, claim: ClaimFact) -> _Claim:
        marks = claim.labels
        kind = self._types.get((claim.node_class, marks.get(labels.INSTANCE_TYPE, "")))
        return _Claim(
            place=(phase_of(claim).value, claim.pool, marks.get(labels.CAPACITY_TYPE, "")),
            waits=claim.drain_waits,
            paused=labels.PAUSE in claim.annotations,
            price=price_of(marks, kind) if claim.launched else 0.0,
        )

    def _show(self) -> None:
        claims = self._claims.values()
        self._nodes.show(Counter(one.place for one in claims))
        self._waiting.show(Counter(one.place[1:2] for one in claims if one.waits))
        cost: dict[tuple[str, ...], float] = {}
        for one in claims:
            cost[one.place[1:2]] = cost.get(one.place[1:2], 0.0) + one.price
        self._cost.show({pool: round(dollars, _DIGITS) for pool, dollars in cost.items()})
        pools = self._caches.pools.values()
        self._paused.show(
            {
                ("Cluster",): int(bool(self._brake.text)),
                ("NodePool",): sum(bool(one.pause) for one in pools),
                ("NodeClaim",): sum(one.paused for one in claims),
            }
        )


def phase_of(claim: ClaimFact) -> Phase:
    """As the conditions of a NodeClaim tell it."""
    if claim.instance_terminating:
        return Phase.TERMINATION
    if claim.deleting:
        return Phase.DRAIN
    if claim.initialized:
        return Phase.READY
    if claim.registered:
        return Phase.INITIALIZATION
    return Phase.REGISTRATION if claim.launched else Phase.LAUNCH


NAME: Final = "tenure_nodeclaims_overdue"
_Place = tuple[str, str]
"""Phase and NodePool."""


class OverdueGauges:
    def __init__(self, caches: Caches, meter: MetricMeter) -> None:
        self._caches = caches
        self._gauge = meter.create_gauge(NAME, "NodeClaims in a phase that is past its deadline, and are kept")
        self._overdue: dict[str, _Place] = {}
        """By NodeClaim."""
        self._shown: Counter[_Place] = Counter()

    def look(self, dirty: Dirty) -> None:
        """At NodeClaims that changed, or are gone."""
        for claim in dirty.gone_claims.values():
            self._overdue.pop(claim.name, None)
        for name in dirty.claims:
            found = self._caches.claims.get(name)
            if found is not None and found.overdue:
                self._overdue[name] = (found.overdue, found.pool)
            else:
                self._overdue.pop(name, None)
        self._show(Counter(self._overdue.values()))

    def close(self) -> None:
        """Another process tells from here on."""
        self._overdue.clear()
        self._show(Counter())

    def _show(self, now: Counter[_Place]) -> None:
        for place in now.keys() | self._shown.keys():
            if now[place] != self._shown[place]:
                phase, pool = place
                self._gauge.set(now[place], {"phase": phase, "nodepool": pool})
        self._shown = now
