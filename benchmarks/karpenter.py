"""A small model of Karpenter's consolidation (reference 4.3 to 4.6), to compare prices with. Benchmarks only.

One command a pass: all empty nodes; else the longest prefix of at most 100 nodes, found by binary search, that can be
deleted or replaced by one node; else the first single node for which that holds. Pods go by CPU, then memory, to nodes
in the order of their names. Known are requests and the pools' requirements; rules between pods and limits are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.cluster import Cluster, add_node
from benchmarks.greedy import Goods
from model.facts import PodFact
from model.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from scheduling.disruption.costs import node_cost

RESOURCES = ("cpu", "memory", "pods")
Mask = npt.NDArray[np.bool_]
Vector = npt.NDArray[np.int64]
MOST_CANDIDATES = 100


@dataclass(frozen=True)
class Change:
    """What a command does: nodes that go, where pods go, and the offering that is bought for the others."""

    leaving: tuple[str, ...]
    moves: dict[str, str]
    bought: tuple[Goods, int] | None = None


class Karpenter:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._goods = [Goods(pool, cluster.types, (), RESOURCES) for pool in cluster.pools]
        self._names = [np.array([labels[INSTANCE_TYPE] for labels in one.labels], dtype=object) for one in self._goods]
        self._spot = [np.array([labels[CAPACITY_TYPE] == SPOT for labels in one.labels]) for one in self._goods]
        self._bought = 0

    def consolidate(self) -> int:
        """Until nothing more can be done; the number of passes."""
        passes = 0
        while (change := self._pass()) is not None:
            self._apply(change)
            passes += 1
        return passes

    def _pass(self) -> Change | None:
        empty = tuple(name for name, pods in self.cluster.pods.items() if not pods)
        if empty:
            return Change(empty, {})
        self._index()
        ordered = sorted(self._order, key=lambda name: (-self._prices[name] / node_cost(self.cluster.pods[name]), name))
        return self._multi(ordered[:MOST_CANDIDATES]) or self._single(ordered)

    def _index(self) -> None:
        """What every simulation of a pass starts from."""
        self._order = sorted(self.cluster.nodes)
        self._place = {name: number for number, name in enumerate(self._order)}
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

    def _multi(self, ordered: Sequence[str]) -> Change | None:
        low, high, found = 1, len(ordered) - 1, None
        while low <= high:
            middle = (low + high) // 2
            change = self._change(ordered[: middle + 1])
            if change is None:
                high = middle - 1
            else:
                found, low = change, middle + 1
        return found

    def _single(self, ordered: Sequence[str]) -> Change | None:
        return next((change for name in ordered if (change := self._change([name])) is not None), None)

    def _change(self, leaving: Sequence[str]) -> Change | None:
        """None where it is not worth it, or takes more than one node."""
        free = self._free.copy()
        free[[self._place[name] for name in leaving]] = -1
        pods = [pod for name in leaving for pod in self.cluster.pods[name]]
        moves: dict[str, str] = {}
        rest, asked = np.zeros(len(RESOURCES), dtype=np.int64), list[PodFact]()
        for pod in sorted(pods, key=lambda one: (-one.requests["cpu"], -one.requests["memory"], one.uid)):
            vector = np.array([pod.requests[key] for key in RESOURCES], dtype=np.int64)
            fitting: Mask = np.all(free >= vector, axis=1)
            number = int(fitting.argmax())
            if fitting[number]:
                free[number] -= vector
                moves[pod.uid] = self._order[number]
            else:
                rest = rest + vector
                asked.append(pod)
        if not asked:
            return Change(tuple(leaving), moves)
        bought = self._replacement(leaving, rest)
        return Change(tuple(leaving), moves, bought) if bought else None

    def _replacement(self, leaving: Sequence[str], rest: Vector) -> tuple[Goods, int] | None:
        """From the first pool that has types for all of it, as pools of equal weight are tried by name, descending."""
        for number in sorted(range(len(self._goods)), key=lambda one: self._goods[one].pool.name, reverse=True):
            fitting: Mask = np.all(self._goods[number].room >= rest, axis=1)
            if fitting.any():
                return self._worth_it(number, fitting, leaving)
        return None

    def _worth_it(self, number: int, fitting: Mask, leaving: Sequence[str]) -> tuple[Goods, int] | None:
        goods, spot = self._goods[number], self._spot[number]
        if all(self.cluster.nodes[name].labels[CAPACITY_TYPE] == SPOT for name in leaving) and (fitting & spot).any():
            return None
        limit = sum(self._prices[name] for name in leaving)
        worst = self._worst(number, fitting)
        if len(leaving) > 1:
            limit = min(limit, self._cheapest_alike(number, fitting, leaving))
        kept = fitting & (worst < limit)
        kept = kept & spot if (kept & spot).any() else kept
        if not kept.any():
            return None
        return goods, int(np.where(kept, goods.prices, np.inf).argmin())

    def _worst(self, number: int, fitting: Mask) -> npt.NDArray[np.float64]:
        """Of each offering's type the dearest spot offering, or the dearest at all where it has none."""
        goods, spot, names = self._goods[number], self._spot[number], self._names[number]
        worst = np.full(len(names), np.inf)
        for name in set(names[fitting]):
            mine = fitting & np.asarray(names == name, dtype=bool)
            worst[mine] = goods.prices[mine & spot].max() if (mine & spot).any() else goods.prices[mine].max()
        return worst

    def _cheapest_alike(self, number: int, fitting: Mask, leaving: Sequence[str]) -> float:
        offered = set(self._names[number][fitting])
        found = [self._prices[name] for name in leaving if self.cluster.nodes[name].labels[INSTANCE_TYPE] in offered]
        return min(found, default=float("inf"))

    def _apply(self, change: Change) -> None:
        made = self.cluster
        pods = {pod.uid: pod for name in change.leaving for pod in made.pods[name]}
        for name in change.leaving:
            del made.nodes[name], made.claims[name], made.pods[name]
        for uid, target in change.moves.items():
            made.pods[target].append(pods.pop(uid))
        if change.bought is not None:
            goods, row = change.bought
            labels = goods.labels[row]
            kind = next(one for one in made.types if one.name == labels[INSTANCE_TYPE])
            name = f"bought-{self._bought:04}"
            self._bought += 1
            add_node(made, name, goods.pool.name, kind, labels[ZONE], labels[CAPACITY_TYPE])
            made.pods[name] = list(pods.values())
