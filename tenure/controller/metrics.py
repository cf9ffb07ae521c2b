"""Gauges of the cluster, recorded by the process that hosts the watch; `close` sets them to 0 for the next host."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from temporalio.client import Client
from temporalio.common import MetricMeter

from tenure import metrics
from tenure.apis import labels, resources
from tenure.controller.cache.changes import ChangeBatch, ChangeSet, PodBound, PodDeleted, PodReady
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nodepools import list_false_conditions
from tenure.controller.cache.tables import set_or_remove
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.disruption.controller import DisruptionPass
from tenure.controller.watched_cluster import WatchedCluster
from tenure.endpoints import Endpoints
from tenure.metrics import GaugeFamily, Meter
from tenure.model.disruption.decision import BUDGET_REASONS, METHODS, Decision
from tenure.model.facts import NodeClaimFact
from tenure.model.instance_types import Catalogue, InstanceType
from tenure.model.nodeclaim.state import Phase
from tenure.scheduling.disruption.cost import offering_price

PENDING_PODS_SECONDS: Final = 5.0
"""Between two counts of pending pods."""
_PRICE_DIGITS: Final = 5
"""AWS prices have no more digits."""
_MILLI: Final = 1000


def meter_of(temporal: Client) -> MetricMeter:
    """The meter of the worker's metrics; without metrics, one that records nothing."""
    runtime = temporal.service_client.config.runtime
    return runtime.metric_meter if runtime else MetricMeter.noop


def monitor_endpoints(meter: Meter) -> Endpoints:
    """Record as a metric whether APIs respond."""
    gauge = metrics.ENDPOINT_UNREACHABLE.bind(meter)
    return Endpoints(lambda endpoint, unreachable: gauge.record(int(unreachable), api=endpoint))


class ControllerMetrics:
    """All gauges of one session."""

    def __init__(self, cluster: WatchedCluster, meter: Meter, now: Callable[[], datetime]) -> None:
        self._pod_verdicts, self._now = cluster.pod_verdicts, now
        self._pending_pods = GaugeFamily(metrics.PENDING_PODS, meter)
        self._nodeclaims = NodeClaimMetrics(cluster.cache, cluster.pause, meter)
        self._nodepools = NodePoolMetrics(cluster.cache, meter)
        self._offerings = OfferingMetrics(meter)
        self._expected_pods = cluster.expected_pods
        self._not_bound = GaugeFamily(metrics.PODS_NOT_BOUND, meter)
        self._pod_durations = PodDurations(cluster.cache, meter, now)

    def on_changes(self, batch: ChangeBatch) -> None:
        self._nodeclaims.update(batch.changes)
        self._nodepools.update(batch.changes)
        self._not_bound.record(self._expected_pods.count_not_bound(batch.now))

    async def run(self) -> None:
        """Runs until cancelled. Verdicts on pods also change without an event."""
        while True:
            self._pending_pods.record(await self._pod_verdicts.count_by_code(self._now()))
            await asyncio.sleep(PENDING_PODS_SECONDS)

    def on_catalogue(self, catalogue: Catalogue) -> None:
        self._nodeclaims.update_prices(catalogue)
        asyncio.get_running_loop().run_in_executor(None, self._offerings.record, catalogue)

    def close(self) -> None:
        self._nodeclaims.close()
        self._nodepools.close()
        self._not_bound.record({})
        self._pending_pods.record({})


class PodDurations:
    """Records the durations of pods that were pending while this process watched. Conditions of pods have seconds."""

    def __init__(self, cache: ClusterCache, meter: Meter, now: Callable[[], datetime]) -> None:
        self._cache, self._now = cache, now
        self._bound = metrics.PODS_BOUND_DURATION.bind(meter)
        self._startup = metrics.PODS_STARTUP_DURATION.bind(meter)
        self._starting: set[str] = set()
        """UIDs of bound pods that were not Ready yet."""
        cache.subscribe(PodBound, self._on_bound)
        cache.subscribe(PodReady, self._on_ready)
        cache.subscribe(PodDeleted, lambda event: self._starting.discard(event.pod.uid))

    def _on_bound(self, event: PodBound) -> None:
        pod = self._cache.pods[event.uid]
        self._bound.record(((pod.bound or self._now()) - pod.created).total_seconds())
        self._starting.add(event.uid)

    def _on_ready(self, event: PodReady) -> None:
        if event.uid in self._starting:
            self._starting.remove(event.uid)
            self._startup.record((self._now() - self._cache.pods[event.uid].created).total_seconds())


class _NodeClaimSample(NamedTuple):
    label_values: tuple[str, str, str]
    """Phase, NodePool, capacity type."""
    attention_code: str
    """Of a blocker that does not clear by itself."""
    is_drain_waiting: bool
    is_paused: bool
    price: float


class NodeClaimMetrics:
    """Computed from conditions and annotations of the objects, which outlive any worker."""

    def __init__(self, cache: ClusterCache, cluster_pause: ClusterPause, meter: Meter) -> None:
        self._cache, self._cluster_pause = cache, cluster_pause
        self._nodeclaims, self._needing_attention, self._drain_waiting, self._pauses, self._cost = self._gauges = [
            GaugeFamily(one, meter)
            for one in (
                metrics.NODECLAIMS,
                metrics.NODECLAIMS_NEEDING_ATTENTION,
                metrics.NODECLAIMS_DRAIN_WAITING,
                metrics.PAUSES,
                metrics.NODEPOOLS_COST_TOTAL,
            )
        ]
        self._samples: dict[str, _NodeClaimSample] = {}
        self._types: dict[tuple[str, str], InstanceType] = {}
        """By EC2NodeClass and name."""

    def update_prices(self, catalogue: Catalogue) -> None:
        self._types = {(name, one.name): one for name, types in catalogue.by_node_class.items() for one in types}
        self._update_samples(self._cache.nodeclaims.keys())
        self._record()

    def update(self, changes: ChangeSet) -> None:
        for claim in changes.deleted_nodeclaims.values():
            self._samples.pop(claim.name, None)
        self._update_samples(changes.nodeclaims)
        if changes.nodeclaims or changes.deleted_nodeclaims or changes.nodepools:
            self._record()

    def close(self) -> None:
        self._samples.clear()
        for one in self._gauges:
            one.record({})

    def _update_samples(self, names: Iterable[str]) -> None:
        for name in names:
            found = self._cache.nodeclaims.get(name)
            if found is None:
                self._samples.pop(name, None)
            else:
                self._samples[name] = self._sample(found)

    def _sample(self, claim: NodeClaimFact) -> _NodeClaimSample:
        claim_labels = claim.labels
        kind = self._types.get((claim.node_class, claim_labels.get(labels.INSTANCE_TYPE, "")))
        return _NodeClaimSample(
            label_values=(phase_of(claim).value, claim.pool, claim_labels.get(labels.CAPACITY_TYPE, "")),
            attention_code=claim.attention_code,
            is_drain_waiting=claim.drain_waits,
            is_paused=labels.PAUSE in claim.annotations,
            price=offering_price(claim_labels, kind) if claim.launched else 0.0,
        )

    def _record(self) -> None:
        samples = self._samples.values()
        self._nodeclaims.record(Counter(one.label_values for one in samples))
        self._needing_attention.record(
            Counter((one.attention_code, one.label_values[1]) for one in samples if one.attention_code)
        )
        self._drain_waiting.record(Counter(one.label_values[1:2] for one in samples if one.is_drain_waiting))
        cost: dict[tuple[str, ...], float] = {}
        for one in samples:
            cost[one.label_values[1:2]] = cost.get(one.label_values[1:2], 0.0) + one.price
        self._cost.record({pool: round(dollars, _PRICE_DIGITS) for pool, dollars in cost.items()})
        self._pauses.record(
            {
                ("Cluster",): int(bool(self._cluster_pause.text)),
                ("NodePool",): sum(bool(one.pause) for one in self._cache.nodepools.values()),
                ("NodeClaim",): sum(one.is_paused for one in samples),
            }
        )


def phase_of(claim: NodeClaimFact) -> Phase:
    """The phase according to the conditions of a NodeClaim."""
    if claim.instance_terminating:
        return Phase.TERMINATION
    if claim.deleting:
        return Phase.DRAIN
    if claim.initialized:
        return Phase.READY
    if claim.registered:
        return Phase.INITIALIZATION
    return Phase.REGISTRATION if claim.launched else Phase.LAUNCH


class NodePoolMetrics:
    """The limits of NodePools, and the capacity of their launched NodeClaims, as in the status of a NodePool. Also
    NodePools and EC2NodeClasses that are not ready."""

    def __init__(self, cache: ClusterCache, meter: Meter) -> None:
        self._cache = cache
        self._usage = GaugeFamily(metrics.NODEPOOLS_USAGE, meter)
        self._limit = GaugeFamily(metrics.NODEPOOLS_LIMIT, meter)
        self._not_ready = GaugeFamily(metrics.NOT_READY_OBJECTS, meter)
        self._claims: dict[str, tuple[str, dict[str, int]]] = {}
        """NodePool and resources, by NodeClaim."""
        self._used: dict[str, dict[str, int]] = {}
        """By NodePool, updated only for NodeClaims that change."""

    def update(self, changes: ChangeSet) -> None:
        for name in {*changes.nodeclaims, *(claim.name for claim in changes.deleted_nodeclaims.values())}:
            self._subtract(name)
            self._add(name)
        if changes.nodeclaims or changes.deleted_nodeclaims:
            self._usage.record(dict(_iter_samples(self._used)))
        if changes.nodepools or changes.deleted_nodepools:
            limits = {name: view.fact.limits for name, view in self._cache.nodepools.items()}
            self._limit.record(dict(_iter_samples(limits)))
        if changes.nodepools or changes.deleted_nodepools or changes.nodeclasses or changes.deleted_nodeclasses:
            self._not_ready.record(self._count_not_ready())

    def close(self) -> None:
        self._claims.clear()
        self._used.clear()
        self._usage.record({})
        self._limit.record({})
        self._not_ready.record({})

    def _count_not_ready(self) -> Counter[tuple[str, ...]]:
        """By kind and condition."""
        found: Counter[tuple[str, ...]] = Counter(
            ("NodePool", one) for view in self._cache.nodepools.values() for one in view.not_ready
        )
        for node_class in self._cache.nodeclasses.values():
            found.update(
                ("EC2NodeClass", one) for one in list_false_conditions(node_class, labels.NODECLASS_CONDITIONS)
            )
        return found

    def _subtract(self, name: str) -> None:
        pool, amounts = self._claims.pop(name, ("", {}))
        if amounts:
            remaining = resources.subtract(self._used[pool], amounts)
            used = {resource: amount for resource, amount in remaining.items() if amount}
            set_or_remove(self._used, pool, used or None)

    def _add(self, name: str) -> None:
        claim = self._cache.nodeclaims.get(name)
        if claim is None or not claim.pool or not claim.provider_id:
            return
        amounts = resources.add(claim.capacity, {resources.NODES: 1})
        self._claims[name] = (claim.pool, amounts)
        self._used[claim.pool] = resources.add(self._used.get(claim.pool, {}), amounts)


def _iter_samples(amounts_by_pool: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[tuple[str, str], float]]:
    """With the resource names and units of Karpenter's metrics."""
    for pool, amounts in amounts_by_pool.items():
        for name, amount in amounts.items():
            yield (pool, name.lower().replace("-", "_")), amount / _MILLI if name == resources.CPU else amount


_OfferingKey = tuple[str, str, str]
"""Instance type, capacity type, zone."""


class OfferingMetrics:
    """Records only changes, since a region has tens of thousands of offerings. Offerings that EC2 recently rejected
    count as available here: only the Provisioning workflow knows them."""

    def __init__(self, meter: Meter) -> None:
        self._cores = metrics.CLOUDPROVIDER_INSTANCE_TYPE_CPU_CORES.bind(meter)
        self._memory = metrics.CLOUDPROVIDER_INSTANCE_TYPE_MEMORY_BYTES.bind(meter)
        self._available = metrics.CLOUDPROVIDER_INSTANCE_TYPE_OFFERING_AVAILABLE.bind(meter)
        self._price = metrics.CLOUDPROVIDER_INSTANCE_TYPE_OFFERING_PRICE_ESTIMATE.bind(meter)
        self._offerings: dict[_OfferingKey, tuple[bool, float]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def record(self, catalogue: Catalogue) -> None:
        """Call it in a thread: many changes take a tenth of a second."""
        with self._lock:
            self._record_sizes(catalogue)
            self._record_offerings(_offerings_of(catalogue))

    def _record_sizes(self, catalogue: Catalogue) -> None:
        for types in catalogue.by_node_class.values():
            for one in types:
                size = (one.capacity.get(labels.CPU, 0) // 1000, one.capacity.get(labels.MEMORY, 0))
                if self._sizes.get(one.name) != size:
                    self._sizes[one.name] = size
                    self._cores.record(size[0], instance_type=one.name)
                    self._memory.record(size[1], instance_type=one.name)

    def _record_offerings(self, found: Mapping[_OfferingKey, tuple[bool, float]]) -> None:
        """A removed offering counts as unavailable, at its last price."""
        withdrawn = {key: (False, price) for key, (_, price) in self._offerings.items() if key not in found}
        for key, value in {**withdrawn, **found}.items():
            if self._offerings.get(key) != value:
                self._offerings[key] = value
                kind, capacity_type, zone = key
                self._available.record(int(value[0]), instance_type=kind, capacity_type=capacity_type, zone=zone)
                self._price.record(value[1], instance_type=kind, capacity_type=capacity_type, zone=zone)


def _offerings_of(catalogue: Catalogue) -> dict[_OfferingKey, tuple[bool, float]]:
    """An offering is available if it is under any NodeClass. Several reservations have the same price."""
    found: dict[_OfferingKey, tuple[bool, float]] = {}
    for types in catalogue.by_node_class.values():
        for one in types:
            for offering in one.offerings:
                key = (one.name, offering.capacity_type, offering.zone)
                available = offering.available or found.get(key, (False, 0.0))[0]
                found[key] = (available, offering.price)
    return found


class DisruptionMetrics:
    """Of the last disruption pass."""

    def __init__(self, meter: Meter) -> None:
        self._allowed = GaugeFamily(metrics.NODEPOOLS_ALLOWED_DISRUPTIONS, meter, records_zero=True)
        self._consuming = GaugeFamily(metrics.NODEPOOLS_NODES_CONSUMING_BUDGETS, meter, records_zero=True)
        self._eligible = GaugeFamily(metrics.VOLUNTARY_DISRUPTION_ELIGIBLE_NODES, meter)
        self._excluded = GaugeFamily(metrics.DISRUPTION_EXCLUDED_NODES, meter)
        self._duration = metrics.DISRUPTION_PASS_DURATION.bind(meter)

    def record_pass(self, found: DisruptionPass, decision: Decision) -> None:
        pools = found.allowed_disruptions.pools
        self._allowed.record(
            {
                (pool, method.lower()): budget.allowed
                for pool, budgets in pools.items()
                for method, budget in budgets.items()
                if method in BUDGET_REASONS
            }
        )
        # A budget counts a node that consumes it for every reason.
        self._consuming.record(
            {(pool, method.lower()): found.consuming.get(pool, 0) for pool in pools for method in BUDGET_REASONS}
        )
        self._duration.record(found.seconds)
        eligible = Counter(method for one in decision.nodes for method in one.eligible)
        self._eligible.record({(method.lower(),): eligible[method] for method in METHODS})
        self._excluded.record({(cause,): count for cause, count in decision.count_by_cause.items()})

    def close(self) -> None:
        for one in (self._allowed, self._consuming, self._eligible, self._excluded):
            one.record({})
