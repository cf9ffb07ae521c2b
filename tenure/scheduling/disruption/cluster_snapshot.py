"""What all simulations of one pass share: the nodes with their room after the pods that wait have theirs, who counts
where, and what can be bought. A simulation copies only what it changes.

`deciding.py` makes one per pass; every command that is decided is taken into account in it before the next is sought.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tenure.apis.labels import CAPACITY_TYPE, ZONE
from tenure.apis.resources import NODES, add, subtract
from tenure.model.disruption.planning import Method
from tenure.model.facts import HostPort, PodFact
from tenure.model.provisioning import Plan, PlannedClaim
from tenure.model.requirements import Requirement, Requirements
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.existing_nodes import Homes
from tenure.scheduling.instance_type_table import Amounts, Mask, Prices
from tenure.scheduling.nodepool_template import Budget, Offer
from tenure.scheduling.packing.nodes import free_of, standing
from tenure.scheduling.packing.packer import Packing
from tenure.scheduling.packing.planning_pass import Ground, Standing, Wishes
from tenure.scheduling.packing.pod_requirements import ALONE, Company, Shape, shape_of
from tenure.scheduling.packing.topology_rules import Book
from tenure.scheduling.snapshot import Facts
from tenure.scheduling.volumes import attachments

_Kind = tuple[str, frozenset[tuple[str, str]], Company]
"""Pods that are counted alike."""
_MARKS: Final = (ZONE, CAPACITY_TYPE)
"""What may be certain of a node that is still to be bought."""
_NO_PLACES: Final[Counter[int]] = Counter()


@dataclass(slots=True)
class Crowd:
    """Pods that are counted alike, by the number of the home that they run on."""

    example: PodFact
    places: Counter[int] = field(default_factory=Counter)


class Stage:
    def __init__(
        self,
        ground: Ground,
        wishes: Wishes,
        shape: Callable[[PodFact], Shape],
        unwilling: Mapping[Method, Iterable[str]],
    ):
        """`unwilling` are names of homes that take no pods of nodes that go for such a reason."""
        self.facts: Facts = ground.facts
        self.homes: Homes = ground.homes
        self.closed = ground.closed
        self.wishes, self.shape = wishes, shape
        self.offers: list[Offer] = list(ground.again().offers)
        known = {key for offer in ground.offers for key in offer.table.resources} | set(self.homes.resources)
        self.resources = sorted(known | {key for pod in self.facts.pods.values() for key in pod.requests})
        self.free: Amounts = free_of(self.homes, self.resources)
        self.gone: Mask = np.zeros(len(self.homes.homes), dtype=bool)
        self.unsold: dict[str, str] = {}
        """NodePools of which nothing is bought though it could be, and why."""
        self.receivers: set[str] = set()
        """Homes that take pods of nodes which go in this pass."""
        self._shut = {method: self._mask(names) for method, names in unwilling.items()}
        self.volumes: Standing = standing(self.facts, self.homes) if self.facts.storage.csi_nodes else ({}, {})
        self._crowds: dict[_Kind, Crowd] = {}
        self._ports: list[tuple[int, tuple[HostPort, ...]]] = []
        self._apart: dict[Company, None] = {}
        self._elsewhere: list[tuple[PodFact, Requirements]] = []
        """Pods on nodes that are still to be bought, with what is certain of these, ..."""
        self._coming: list[Requirements] = []
        """... and of those nodes themselves."""
        self._below: dict[float, list[Offer]] = {}
        self.worst: dict[tuple[str, Requirements, str], Prices] = {}
        """The most that each type may cost, by pool, requirements and reservation."""
        for number, home in enumerate(self.homes.homes):
            for pod in self.facts.bound_to(home.name):
                self._enter(pod, number)

    def take(self, plan: Plan, pods: Mapping[str, PodFact]) -> None:
        """What is planned for pods that wait: they have their places, whatever goes."""
        for uid, name in (*plan.nominations.items(), *plan.reserved.items()):
            if uid in pods and name in self.homes.index:
                self._put(pods[uid], self.homes.index[name])
        for claim in plan.claims:
            self._buy(claim)

    def close(self, pools: Mapping[str, str]) -> None:
        """Of these NodePools nothing is bought any more, for the reasons that are given."""
        self.offers = [one for one in self.offers if one.name not in pools]
        self.unsold = dict(pools)

    def commit(self, leaving: Sequence[Candidate], moves: Mapping[str, str], bought: Sequence[PlannedClaim]) -> None:
        """Nodes go, their pods move to homes by name, and nodes are bought for the others."""
        self.gone |= self._mask(one.name for one in leaving)
        for offer in self.offers:
            offer.budget = _budget_without(leaving, offer)
        self.settle({pod.uid: pod for one in leaving for pod in one.pods}, moves, bought)

    def settle(self, pods: Mapping[str, PodFact], moves: Mapping[str, str], bought: Sequence[PlannedClaim]) -> None:
        """Pods of nodes that are gone move to homes by name, and nodes are bought for the others."""
        for uid, name in moves.items():
            self._put(pods[uid], self.homes.index[name])
            self.receivers.add(name)
        for claim in bought:
            self._buy(claim)
            marks = Requirements(_certain(claim))
            self._coming.append(marks)
            self._elsewhere += [(pods[uid], marks) for uid in claim.pods if uid in pods]

    def again(self) -> "Stage":
        """A copy on which can be tried what is perhaps not done."""
        other = object.__new__(Stage)
        other.__dict__ |= self.__dict__
        other.free, other.gone = self.free.copy(), self.gone.copy()
        other.volumes = (self.volumes[0], dict(self.volumes[1]))
        other.receivers = set(self.receivers)
        other.offers = [replace(one, budget=replace(one.budget)) for one in self.offers]
        other._crowds = {key: Crowd(one.example, one.places.copy()) for key, one in self._crowds.items()}
        other._ports, other._elsewhere, other._coming = list(self._ports), list(self._elsewhere), list(self._coming)
        other._apart = dict(self._apart)
        return other

    def homes_without(self, leaving: Iterable[Candidate], method: Method | None) -> Homes:
        """None: every home is willing."""
        gone = self.gone | self._mask(one.name for one in leaving)
        return self.homes.without(gone, self._shut.get(method, gone) if method else gone)

    def offers_below(self, ceiling: float, leaving: Sequence[Candidate]) -> list[Offer]:
        """What costs less than so many US dollars an hour. The nodes that go do not count against limits."""
        known = self._below.get(ceiling)
        if known is None:
            known = self._below[ceiling] = [_below(one, ceiling) for one in self.offers]
        rooms = {id(one.rooms): deepcopy(one.rooms) for one in known}
        return [
            replace(one, budget=_budget_without(leaving, now), rooms=rooms[id(one.rooms)])
            for one, now in zip(known, self.offers, strict=True)
        ]

    def available(self, offer: Offer) -> Mask:
        """Which of its offerings can be had, whatever they cost."""
        return next(one.available for one in self.offers if one.name == offer.name)

    def enter(self, book: Book) -> None:
        """The terms by which pods that run keep others away."""
        for company in self._apart:
            book.enter_owners(company)

    def count(self, book: Book, packing: Packing, *, ports: bool) -> None:
        """Pods that run, on nodes that stay, count and hold their ports."""
        packing.universe.coming = self._coming
        gone = ~np.isin(np.arange(len(self.gone)), packing.places.homes.there)
        if ports:
            for number, taken in self._ports:
                if not gone[number]:
                    packing.places.take_ports(number, taken)
        if not any(True for _ in book.tallies):
            return
        for crowd in self._crowds.values():
            tallies = book.counted(crowd.example)
            for number, pods in crowd.places.items() if tallies else _NO_PLACES.items():
                if not gone[number]:
                    packing.stand(tallies, number, pods)
        for pod, marks in self._elsewhere:
            for tally in book.counted(pod):
                one = marks.get(tally.census.key)
                if one is not None and not tally.hostname:
                    tally.add(next(iter(one.values)), 1)

    def unsettled(self, book: Callable[[], Book]) -> str:
        """A pod that counts in such a book, on a node still to be bought of which it is not known in what zone, or of
        what capacity type, it will be. Empty where there is none."""
        open_ones = [(pod, marks) for pod, marks in self._elsewhere if len(marks) < len(_MARKS)]
        if not open_ones:
            return ""
        entered = book()
        for pod, marks in open_ones:
            keys = {tally.census.key for tally in entered.counted(pod)}
            if any(key not in marks for key in keys.intersection(_MARKS)):
                return f"pod {pod.namespace}/{pod.name}"
        return ""

    def _mask(self, names: Iterable[str]) -> Mask:
        mask: Mask = np.zeros(len(self.homes.homes), dtype=bool)
        mask[[self.homes.index[name] for name in names if name in self.homes.index]] = True
        return mask

    def _put(self, pod: PodFact, number: int) -> None:
        self.free[number] -= [pod.requests.get(key, 0) for key in self.resources]
        if pod.volumes and number in self.volumes[0]:
            self.volumes[1][number] = self.volumes[1].get(number, set()) | attachments(pod, self.facts.storage)
        self._enter(pod.model_copy(update={"deleting": False}), number)

    def _enter(self, pod: PodFact, number: int) -> None:
        if pod.host_ports:
            self._ports.append((number, pod.host_ports))
        company = shape_of(pod).company if pod.anti_affinity else ALONE
        if pod.anti_affinity:
            self._apart[company] = None
        if not pod.deleting:
            key = pod.namespace, frozenset(pod.labels.items()), company
            crowd = self._crowds.get(key)
            if crowd is None:
                crowd = self._crowds[key] = Crowd(pod)
            crowd.places[number] += 1

    def _buy(self, claim: PlannedClaim) -> None:
        for offer in self.offers:
            if offer.name == claim.pool and offer.limited:
                offer.budget.spend({**claim.capacity_bound, NODES: 1})


def capacity_of(leaving: Iterable[Candidate], pool: str) -> dict[str, int]:
    """What the nodes that go count against the limits of a pool."""
    used: dict[str, int] = {}
    for one in leaving:
        if one.claim.pool == pool:
            used = add(used, one.claim.capacity or (one.node.capacity if one.node else {}), {NODES: 1})
    return used


def _budget_without(leaving: Iterable[Candidate], offer: Offer) -> Budget:
    """What its pool may still buy once these are gone."""
    if not offer.limited:
        return offer.budget
    return Budget(offer.budget.limits, subtract(offer.budget.used, capacity_of(leaving, offer.name)))


def _below(offer: Offer, ceiling: float) -> Offer:
    cheap = offer.available & (offer.table.offering_prices < ceiling)
    return Offer(offer.template, np.asarray(cheap, dtype=bool), offer.budget, offer.rooms)


def _certain(claim: PlannedClaim) -> Iterable[Requirement]:
    """Zone and the like, where there is one value."""
    for key, one in Requirements.of(claim.requirements).items():
        if key in _MARKS and not one.complement and len(one.values) == 1:
            yield one
