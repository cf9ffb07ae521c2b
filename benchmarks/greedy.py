"""A small model of how Karpenter's scheduler chooses (reference 2.4), to compare prices with. Benchmarks only.

Pods by CPU, then memory. Each goes to the planned node with the fewest pods that still has a type for all of them, in a
domain that its rules allow; else to a new one, to which every type is open. At the end a node is the cheapest type that
is left. Known are requests, node selectors, tolerations, zone and hostname spread, pod affinity and anti-affinity that
are required; of pools, weights, requirements and taints. Limits and preferences are not.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from model.catalogue import InstanceType
from model.facts import DaemonSetFact, PodFact, PoolFact
from model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, ZONE
from scheduling.validation import endures, matches, selects

Mask = npt.NDArray[np.bool_]
Group = tuple[str, str, str]
"""Of counted pods: kind of rule, topology key, what is selected."""


@dataclass
class Planned:
    pool: "Goods"
    offerings: Mask
    used: npt.NDArray[np.int64]
    pods: int = 0
    counts: Counter[Group] = field(default_factory=Counter)


class Goods:
    """What a pool sells: a row for each offering."""

    def __init__(
        self, pool: PoolFact, types: Iterable[InstanceType], daemons: Sequence[DaemonSetFact], resources: Sequence[str]
    ) -> None:
        self.pool = pool
        self.labels: list[dict[str, str]] = []
        prices, room = [], []
        for kind in types:
            single = {key: values[0] for key, values in kind.labels.items() if len(values) == 1}
            for one in kind.offerings:
                own = {NODEPOOL: pool.name, INSTANCE_TYPE: kind.name, ZONE: one.zone, CAPACITY_TYPE: one.capacity_type}
                labels = {**pool.template_labels, **single, **own}
                if one.available and all(matches(labels, wanted) for wanted in pool.requirements):
                    running = [d.pod for d in daemons if selects(d.pod, labels) and endures(d.pod, pool.taints)]
                    taken = Counter[str]()
                    for daemon in running:
                        taken.update(daemon.requests)
                    self.labels.append(labels)
                    prices.append(one.price)
                    room.append([kind.allocatable().get(key, 0) - taken[key] for key in resources])
        self.prices, self.room = np.array(prices), np.array(room, dtype=np.int64)
        self.zones = np.array([labels[ZONE] for labels in self.labels])
        self._suiting: dict[object, Mask] = {}

    def suiting(self, pod: PodFact) -> Mask:
        key = (tuple(sorted(pod.node_selector.items())), pod.required_terms)
        if key not in self._suiting:
            self._suiting[key] = np.array([selects(pod, labels) for labels in self.labels], dtype=bool)
        return self._suiting[key]


def greedy_price(
    pods: Sequence[PodFact],
    pools: Iterable[PoolFact],
    types: Sequence[InstanceType],
    daemons: Sequence[DaemonSetFact] = (),
) -> tuple[float, int]:
    """US dollars an hour, and the number of nodes. Raises ValueError for a pod that finds no place."""
    resources = sorted({key for pod in pods for key in pod.requests})
    ordered = sorted(pools, key=lambda pool: (-pool.weight, pool.name))
    model = _Model([Goods(pool, types, daemons, resources) for pool in ordered], resources)
    for pod in sorted(pods, key=lambda pod: (-pod.requests.get("cpu", 0), -pod.requests.get("memory", 0), pod.uid)):
        model.place(pod)
    return sum(float(one.pool.prices[one.offerings].min()) for one in model.nodes), len(model.nodes)


class _Model:
    def __init__(self, goods: Sequence[Goods], resources: Sequence[str]) -> None:
        self._goods, self._resources = goods, resources
        self.nodes: list[Planned] = []
        self._zones: dict[Group, Counter[str]] = {}

    def place(self, pod: PodFact) -> None:
        vector = np.array([pod.requests.get(key, 0) for key in self._resources], dtype=np.int64)
        zones = self._allowed_zones(pod)
        for node in sorted(self.nodes, key=lambda one: one.pods):
            if endures(pod, node.pool.pool.taints) and self._put(pod, vector, node, zones):
                return
        for goods in self._goods:
            fresh = Planned(goods, np.ones(len(goods.prices), dtype=bool), np.zeros_like(vector))
            if endures(pod, goods.pool.taints) and self._put(pod, vector, fresh, zones):
                self.nodes.append(fresh)
                return
        raise ValueError(f"{pod.name} finds no place")

    def _put(self, pod: PodFact, vector: npt.NDArray[np.int64], node: Planned, zones: list[str] | None) -> bool:
        if not self._host_allows(pod, node):
            return False
        goods, used = node.pool, node.used + vector
        left = node.offerings & goods.suiting(pod) & (goods.room >= used).all(axis=1)
        if zones is not None:
            chosen = next((zone for zone in zones if (left & (goods.zones == zone)).any()), None)
            left = left & (goods.zones == chosen) if chosen else np.zeros_like(left)
            if chosen is None:
                return False
            for group in _groups(pod, ZONE):
                self._zones.setdefault(group, Counter())[chosen] += 1
        if not left.any():
            return False
        node.offerings, node.used, node.pods = left, used, node.pods + 1
        node.counts.update(_groups(pod, HOSTNAME))
        return True

    def _host_allows(self, pod: PodFact, node: Planned) -> bool:
        most = {("spread", HOSTNAME, str(one.selector)): one.max_skew for one in pod.spreads if one.key == HOSTNAME}
        most |= {("apart", HOSTNAME, str(one.selector)): 1 for one in pod.anti_affinity if one.key == HOSTNAME}
        return all(node.counts[group] < limit for group, limit in most.items())

    def _allowed_zones(self, pod: PodFact) -> list[str] | None:
        """In the order in which they are tried: None where no rule is about zones."""
        groups = list(_groups(pod, ZONE))
        if not groups:
            return None
        every = sorted({str(zone) for goods in self._goods for zone in goods.zones})
        for group in groups:
            counts = self._zones.get(group, Counter[str]())
            if group[0] == "spread":
                every = [zone for zone in every if counts[zone] == min(counts[one] for one in every)]
            elif any(counts.values()):
                every = [zone for zone in every if counts[zone]]
            else:
                every = every[:1]
        return every


def _groups(pod: PodFact, key: str) -> Iterable[Group]:
    """The rules of this pod on a key, all of which are about its own kind in the scenarios."""
    yield from (("spread", key, str(one.selector)) for one in pod.spreads if one.key == key and one.hard)
    yield from (("together", key, str(one.selector)) for one in pod.affinity if one.key == key and not one.weight)
    yield from (("apart", key, str(one.selector)) for one in pod.anti_affinity if one.key == key and not one.weight)
