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
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.dirty import ChangeSet
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.metrics.planner import LabeledGauge
from tenure.model.facts import NodeClaimFact
from tenure.model.instance_types import Catalogue, InstanceType
from tenure.model.nodeclaim.state import Phase
from tenure.scheduling.disruption.cost import offering_price

NODES: Final = "tenure_nodeclaims"
WAITING: Final = "tenure_nodeclaims_drain_waiting"
PAUSED: Final = "tenure_pauses"
COST: Final = "karpenter_nodepools_cost_total"
_DIGITS: Final = 5
"""Of prices: AWS has no more."""


class _NodeClaimSample(NamedTuple):
    label_values: tuple[str, str, str]
    """Phase, NodePool, capacity type."""
    is_drain_waiting: bool
    is_paused: bool
    price: float


class NodeClaimMetrics:
    def __init__(self, cache: ClusterCache, cluster_pause: ClusterPause, meter: MetricMeter) -> None:
        self._cache, self._cluster_pause = cache, cluster_pause
        self._nodes = LabeledGauge(
            meter.create_gauge(NODES, "NodeClaims, by phase"), "phase", "nodepool", "capacity_type"
        )
        self._waiting = LabeledGauge(
            meter.create_gauge(WAITING, "NodeClaims whose drain waits for pods or volumes"), "nodepool"
        )
        self._paused = LabeledGauge(
            meter.create_gauge(PAUSED, "What is paused: the cluster, NodePools, NodeClaims"), "kind"
        )
        self._cost = LabeledGauge(
            meter.create_gauge_float(COST, "Price of a NodePool's instances, dollars an hour"), "nodepool"
        )
        self._claims: dict[str, _NodeClaimSample] = {}
        self._types: dict[tuple[str, str], InstanceType] = {}
        """By EC2NodeClass and name."""

    def update_prices(self, catalogue: Catalogue) -> None:
        """What instances cost from now on."""
        self._types = {(name, one.name): one for name, types in catalogue.by_node_class.items() for one in types}
        self._update_samples(self._cache.nodeclaims.keys())
        self._record()

    def update(self, changes: ChangeSet) -> None:
        """At NodeClaims that changed, or are gone."""
        for claim in changes.deleted_nodeclaims.values():
            self._claims.pop(claim.name, None)
        self._update_samples(changes.nodeclaims)
        if changes.nodeclaims or changes.deleted_nodeclaims or changes.nodepools:
            self._record()

    def close(self) -> None:
        """Another process tells from here on."""
        self._claims.clear()
        for one in (self._nodes, self._waiting, self._paused, self._cost):
            one.record({})

    def _update_samples(self, names: Iterable[str]) -> None:
        for name in names:
            found = self._cache.nodeclaims.get(name)
            if found is None:
                self._claims.pop(name, None)
            else:
                self._claims[name] = self._sample(found)

    def _sample(self, claim: NodeClaimFact) -> _NodeClaimSample:
        claim_labels = claim.labels
        kind = self._types.get((claim.node_class, claim_labels.get(labels.INSTANCE_TYPE, "")))
        return _NodeClaimSample(
            label_values=(phase_of(claim).value, claim.pool, claim_labels.get(labels.CAPACITY_TYPE, "")),
            is_drain_waiting=claim.drain_waits,
            is_paused=labels.PAUSE in claim.annotations,
            price=offering_price(claim_labels, kind) if claim.launched else 0.0,
        )

    def _record(self) -> None:
        claims = self._claims.values()
        self._nodes.record(Counter(one.label_values for one in claims))
        self._waiting.record(Counter(one.label_values[1:2] for one in claims if one.is_drain_waiting))
        cost: dict[tuple[str, ...], float] = {}
        for one in claims:
            cost[one.label_values[1:2]] = cost.get(one.label_values[1:2], 0.0) + one.price
        self._cost.record({pool: round(dollars, _DIGITS) for pool, dollars in cost.items()})
        pools = self._cache.nodepools.values()
        self._paused.record(
            {
                ("Cluster",): int(bool(self._cluster_pause.text)),
                ("NodePool",): sum(bool(one.pause) for one in pools),
                ("NodeClaim",): sum(one.is_paused for one in claims),
            }
        )


def phase_of(claim: NodeClaimFact) -> Phase:
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
_LabelValues = tuple[str, str]
"""Phase and NodePool."""


class OverdueMetrics:
    def __init__(self, cache: ClusterCache, meter: MetricMeter) -> None:
        self._cache = cache
        self._gauge = meter.create_gauge(NAME, "NodeClaims in a phase that is past its deadline, and are kept")
        self._overdue: dict[str, _LabelValues] = {}
        """By NodeClaim."""
        self._recorded: Counter[_LabelValues] = Counter()

    def update(self, changes: ChangeSet) -> None:
        """At NodeClaims that changed, or are gone."""
        for claim in changes.deleted_nodeclaims.values():
            self._overdue.pop(claim.name, None)
        for name in changes.nodeclaims:
            found = self._cache.nodeclaims.get(name)
            if found is not None and found.overdue:
                self._overdue[name] = (found.overdue, found.pool)
            else:
                self._overdue.pop(name, None)
        self._record(Counter(self._overdue.values()))

    def close(self) -> None:
        """Another process tells from here on."""
        self._overdue.clear()
        self._record(Counter())

    def _record(self, now: Counter[_LabelValues]) -> None:
        for label_values in now.keys() | self._recorded.keys():
            if now[label_values] != self._recorded[label_values]:
                phase, pool = label_values
                self._gauge.set(now[label_values], {"phase": phase, "nodepool": pool})
        self._recorded = now
