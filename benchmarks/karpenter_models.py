"""Small models of Karpenter's scheduler and consolidation, to compare prices with. Only for benchmarks.

Scheduler (reference 2.4): pods are sorted by CPU, then memory. Each pod goes to the planned node with the fewest pods
that still has an instance type for all of its pods, in a domain that its rules allow. Otherwise it goes to a new
node, which allows every type. Finally each node gets its cheapest remaining type. The model supports requests, node
selectors, tolerations, zone and hostname spread, and required pod affinity and anti-affinity, and of NodePools weights,
requirements and taints. It ignores limits and preferences.

Consolidation (reference 4.3 to 4.6): one command per pass. It is all empty nodes; else the longest prefix of at most
100 nodes, found by binary search, that can be deleted or replaced by one node; else the first such single node. Pods
are placed by CPU, then memory, on nodes in the order of their names. The model supports requests and the requirements
of NodePools. It ignores rules between pods, and limits.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from benchmarks.generators.cluster import Cluster, add_node
from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, SPOT, ZONE
from tenure.model.facts import DaemonSetFact, NodePoolFact, PodFact
from tenure.model.instance_types import InstanceType
from tenure.scheduling.disruption.cost import disruption_cost_of
from tests.oracle.plan import matches_expression, selects_node, tolerates_taints

Mask = npt.NDArray[np.bool_]
Group = tuple[str, str, str]
"""Group of counted pods: kind of rule, topology key, selector."""


@dataclass
class Planned:
    pool: "PoolOfferings"
    offerings: Mask
    used: npt.NDArray[np.int64]
    pods: int = 0
    counts: Counter[Group] = field(default_factory=Counter)


class PoolOfferings:
    """The offerings of a NodePool, one row each."""

    def __init__(
        self,
        pool: NodePoolFact,
        types: Iterable[InstanceType],
        daemons: Sequence[DaemonSetFact],
        resources: Sequence[str],
    ) -> None:
        self.pool = pool
        self.labels: list[dict[str, str]] = []
        prices, headroom = [], []
        for kind in types:
            single = {key: values[0] for key, values in kind.labels.items() if len(values) == 1}
            for one in kind.offerings:
                own = {NODEPOOL: pool.name, INSTANCE_TYPE: kind.name, ZONE: one.zone, CAPACITY_TYPE: one.capacity_type}
                labels = {**pool.template_labels, **single, **own}
                if one.available and all(matches_expression(labels, requirement) for requirement in pool.requirements):
                    running = [
                        d.pod for d in daemons if selects_node(d.pod, labels) and tolerates_taints(d.pod, pool.taints)
                    ]
                    taken = Counter[str]()
                    for daemon in running:
                        taken.update(daemon.requests)
                    self.labels.append(labels)
                    prices.append(one.price)
                    headroom.append([kind.allocatable().get(key, 0) - taken[key] for key in resources])
        self.prices, self.headroom = np.array(prices), np.array(headroom, dtype=np.int64)
        self.zones = np.array([labels[ZONE] for labels in self.labels])
        self._suiting: dict[object, Mask] = {}

    def matching_offerings(self, pod: PodFact) -> Mask:
        key = (tuple(sorted(pod.node_selector.items())), pod.required_terms)
        if key not in self._suiting:
            self._suiting[key] = np.array([selects_node(pod, labels) for labels in self.labels], dtype=bool)
        return self._suiting[key]


def greedy_price(
    pods: Sequence[PodFact],
    pools: Iterable[NodePoolFact],
    types: Sequence[InstanceType],
    daemons: Sequence[DaemonSetFact] = (),
) -> tuple[float, int]:
    """US dollars per hour, and the number of nodes. Raises ValueError for an unschedulable pod."""
    resources = sorted({key for pod in pods for key in pod.requests})
    ordered = sorted(pools, key=lambda pool: (-pool.weight, pool.name))
    model = _Model([PoolOfferings(pool, types, daemons, resources) for pool in ordered], resources)
    for pod in sorted(pods, key=lambda pod: (-pod.requests.get("cpu", 0), -pod.requests.get("memory", 0), pod.uid)):
        model.assign(pod)
    return sum(float(one.pool.prices[one.offerings].min()) for one in model.nodes), len(model.nodes)


class _Model:
    def __init__(self, pool_offerings: Sequence[PoolOfferings], resources: Sequence[str]) -> None:
        self._pool_offerings, self._resources = pool_offerings, resources
        self.nodes: list[Planned] = []
        self._zones: dict[Group, Counter[str]] = {}

    def assign(self, pod: PodFact) -> None:
        vector = np.array([pod.requests.get(key, 0) for key in self._resources], dtype=np.int64)
        zones = self._allowed_zones(pod)
        for node in sorted(self.nodes, key=lambda one: one.pods):
            if tolerates_taints(pod, node.pool.pool.taints) and self._try_assign(pod, vector, node, zones):
                return
        for pool_offerings in self._pool_offerings:
            fresh = Planned(pool_offerings, np.ones(len(pool_offerings.prices), dtype=bool), np.zeros_like(vector))
            if tolerates_taints(pod, pool_offerings.pool.taints) and self._try_assign(pod, vector, fresh, zones):
                self.nodes.append(fresh)
                return
        raise ValueError(f"{pod.name} is unschedulable")

    def _try_assign(self, pod: PodFact, vector: npt.NDArray[np.int64], node: Planned, zones: list[str] | None) -> bool:
        if not self._host_allows(pod, node):
            return False
        pool_offerings, used = node.pool, node.used + vector
        remaining = (
            node.offerings & pool_offerings.matching_offerings(pod) & (pool_offerings.headroom >= used).all(axis=1)
        )
        if zones is not None:
            chosen = next((zone for zone in zones if (remaining & (pool_offerings.zones == zone)).any()), None)
            remaining = remaining & (pool_offerings.zones == chosen) if chosen else np.zeros_like(remaining)
            if chosen is None:
                return False
            for group in _topology_groups(pod, ZONE):
                self._zones.setdefault(group, Counter())[chosen] += 1
        if not remaining.any():
            return False
        node.offerings, node.used, node.pods = remaining, used, node.pods + 1
        node.counts.update(_topology_groups(pod, HOSTNAME))
        return True

    def _host_allows(self, pod: PodFact, node: Planned) -> bool:
        most = {("spread", HOSTNAME, str(one.selector)): one.max_skew for one in pod.spreads if one.key == HOSTNAME}
        most |= {("apart", HOSTNAME, str(one.selector)): 1 for one in pod.anti_affinity if one.key == HOSTNAME}
        return all(node.counts[group] < limit for group, limit in most.items())

    def _allowed_zones(self, pod: PodFact) -> list[str] | None:
        """Allowed zones in order of preference; None without a rule about zones."""
        groups = list(_topology_groups(pod, ZONE))
        if not groups:
            return None
        every = sorted({str(zone) for pool_offerings in self._pool_offerings for zone in pool_offerings.zones})
        for group in groups:
            counts = self._zones.get(group, Counter[str]())
            if group[0] == "spread":
                every = [zone for zone in every if counts[zone] == min(counts[one] for one in every)]
            elif any(counts.values()):
                every = [zone for zone in every if counts[zone]]
            else:
                every = every[:1]
        return every


def _topology_groups(pod: PodFact, key: str) -> Iterable[Group]:
    """The rules of this pod for a topology key. In the scenarios, all select pods of its own kind."""
    yield from (("spread", key, str(one.selector)) for one in pod.spreads if one.key == key and one.hard)
    yield from (("together", key, str(one.selector)) for one in pod.affinity if one.key == key and not one.weight)
    yield from (("apart", key, str(one.selector)) for one in pod.anti_affinity if one.key == key and not one.weight)


RESOURCES = ("cpu", "memory", "pods")
Vector = npt.NDArray[np.int64]
MOST_CANDIDATES = 100


@dataclass(frozen=True)
class Change:
    """A command: removed nodes, target nodes of pods, and the offering that is launched for the other pods."""

    removed: tuple[str, ...]
    moves: dict[str, str]
    bought: tuple[PoolOfferings, int] | None = None


class Karpenter:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._pool_offerings = [PoolOfferings(pool, cluster.types, (), RESOURCES) for pool in cluster.pools]
        self._names = [
            np.array([labels[INSTANCE_TYPE] for labels in one.labels], dtype=object) for one in self._pool_offerings
        ]
        self._spot = [
            np.array([labels[CAPACITY_TYPE] == SPOT for labels in one.labels]) for one in self._pool_offerings
        ]
        self._bought = 0

    def consolidate(self) -> int:
        """Run passes until no command is found. Returns the number of passes."""
        passes = 0
        while (change := self._find_change()) is not None:
            self._apply(change)
            passes += 1
        return passes

    def _find_change(self) -> Change | None:
        empty = tuple(name for name, pods in self.cluster.pods.items() if not pods)
        if empty:
            return Change(empty, {})
        self._build_index()
        ordered = sorted(
            self._order, key=lambda name: (-self._prices[name] / disruption_cost_of(self.cluster.pods[name]), name)
        )
        return self._multi_node_change(ordered[:MOST_CANDIDATES]) or self._single_node_change(ordered)

    def _build_index(self) -> None:
        """Prepare the state from which every simulation of a pass starts."""
        self._order = sorted(self.cluster.nodes)
        self._row_by_name = {name: number for number, name in enumerate(self._order)}
        self._prices = {name: self.cluster.price_of(name) for name in self._order}
        self._free = np.array(
            [
                [
                    self.cluster.nodes[name].allocatable[key]
                    - sum(pod.requests[key] for pod in self.cluster.pods[name])
                    for key in RESOURCES
                ]
                for name in self._order
            ],
            dtype=np.int64,
        ).reshape(len(self._order), len(RESOURCES))

    def _multi_node_change(self, ordered: Sequence[str]) -> Change | None:
        low, high, found = 1, len(ordered) - 1, None
        while low <= high:
            middle = (low + high) // 2
            change = self._evaluate_removal(ordered[: middle + 1])
            if change is None:
                high = middle - 1
            else:
                found, low = change, middle + 1
        return found

    def _single_node_change(self, ordered: Sequence[str]) -> Change | None:
        return next((change for name in ordered if (change := self._evaluate_removal([name])) is not None), None)

    def _evaluate_removal(self, removed: Sequence[str]) -> Change | None:
        """None if it saves nothing or needs more than one new node."""
        free = self._free.copy()
        free[[self._row_by_name[name] for name in removed]] = -1
        pods = [pod for name in removed for pod in self.cluster.pods[name]]
        moves: dict[str, str] = {}
        rest, unscheduled = np.zeros(len(RESOURCES), dtype=np.int64), list[PodFact]()
        for pod in sorted(pods, key=lambda one: (-one.requests["cpu"], -one.requests["memory"], one.uid)):
            vector = np.array([pod.requests[key] for key in RESOURCES], dtype=np.int64)
            fitting: Mask = np.all(free >= vector, axis=1)
            number = int(fitting.argmax())
            if fitting[number]:
                free[number] -= vector
                moves[pod.uid] = self._order[number]
            else:
                rest = rest + vector
                unscheduled.append(pod)
        if not unscheduled:
            return Change(tuple(removed), moves)
        bought = self._find_replacement(removed, rest)
        return Change(tuple(removed), moves, bought) if bought else None

    def _find_replacement(self, removed: Sequence[str], rest: Vector) -> tuple[PoolOfferings, int] | None:
        """From the first NodePool with a type that fits; NodePools of equal weight are tried by descending name."""
        for number in sorted(
            range(len(self._pool_offerings)), key=lambda one: self._pool_offerings[one].pool.name, reverse=True
        ):
            fitting: Mask = np.all(self._pool_offerings[number].headroom >= rest, axis=1)
            if fitting.any():
                return self._cheaper_offering(number, fitting, removed)
        return None

    def _cheaper_offering(self, number: int, fitting: Mask, removed: Sequence[str]) -> tuple[PoolOfferings, int] | None:
        pool_offerings, spot = self._pool_offerings[number], self._spot[number]
        if all(self.cluster.nodes[name].labels[CAPACITY_TYPE] == SPOT for name in removed) and (fitting & spot).any():
            return None
        limit = sum(self._prices[name] for name in removed)
        worst = self._worst_prices(number, fitting)
        if len(removed) > 1:
            limit = min(limit, self._cheapest_alike(number, fitting, removed))
        cheaper = fitting & (worst < limit)
        cheaper = cheaper & spot if (cheaper & spot).any() else cheaper
        if not cheaper.any():
            return None
        return pool_offerings, int(np.where(cheaper, pool_offerings.prices, np.inf).argmin())

    def _worst_prices(self, number: int, fitting: Mask) -> npt.NDArray[np.float64]:
        """By offering, the highest spot price of its instance type, or the highest price without spot offerings."""
        pool_offerings, spot, names = self._pool_offerings[number], self._spot[number], self._names[number]
        worst = np.full(len(names), np.inf)
        for name in set(names[fitting]):
            mine = fitting & np.asarray(names == name, dtype=bool)
            worst[mine] = (
                pool_offerings.prices[mine & spot].max() if (mine & spot).any() else pool_offerings.prices[mine].max()
            )
        return worst

    def _cheapest_alike(self, number: int, fitting: Mask, removed: Sequence[str]) -> float:
        offered = set(self._names[number][fitting])
        found = [self._prices[name] for name in removed if self.cluster.nodes[name].labels[INSTANCE_TYPE] in offered]
        return min(found, default=float("inf"))

    def _apply(self, change: Change) -> None:
        cluster = self.cluster
        pods = {pod.uid: pod for name in change.removed for pod in cluster.pods[name]}
        for name in change.removed:
            del cluster.nodes[name], cluster.claims[name], cluster.pods[name]
        for uid, target in change.moves.items():
            cluster.pods[target].append(pods.pop(uid))
        if change.bought is not None:
            pool_offerings, row = change.bought
            labels = pool_offerings.labels[row]
            kind = next(one for one in cluster.types if one.name == labels[INSTANCE_TYPE])
            name = f"bought-{self._bought:04}"
            self._bought += 1
            add_node(cluster, name, pool_offerings.pool.name, kind, labels[ZONE], labels[CAPACITY_TYPE])
            cluster.pods[name] = list(pods.values())
