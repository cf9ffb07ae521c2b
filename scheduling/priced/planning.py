"""One pass by what capacity is worth: the pods that wait, the homes that stand and the offers in, a plan out.

`scheduling/state.py` prepares all of it and calls this where its settings say so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from model.facts import PodFact
from model.plans import Plan, PlannedClaim
from scheduling.emission import planned_claim
from scheduling.facts import Facts
from scheduling.homes import Homes
from scheduling.pools import Offer, Refusal
from scheduling.priced.buying import Buyer
from scheduling.priced.classes import PodClass, classes_of, fullest, grain, least_nodes
from scheduling.priced.demand import ALONE, Shape, shape_of
from scheduling.priced.emission import fill_of
from scheduling.priced.packing import Packing, unplaced
from scheduling.priced.places import Places
from scheduling.priced.rules import Book


@dataclass(frozen=True)
class Ground:
    """What a pass stands on."""

    facts: Facts
    homes: Homes
    offers: Sequence[Offer]
    closed: Mapping[str, Refusal]
    """Pools from which nothing can be bought, and why."""
    promised: Mapping[str, str]
    """Pods to the homes that were bought for them."""


@dataclass(frozen=True)
class Wishes:
    """The settings of the plan."""

    preference_policy: str
    min_values_policy: str
    most_instance_types: int
    node_cost: float


def plan(pods: Sequence[PodFact], ground: Ground, wishes: Wishes) -> Plan:
    """Where each of the pods goes, and what is to be bought."""
    shaped = [(shape_of(pod), pod) for pod in pods]
    book = _book(ground.facts, (shape for shape, _ in shaped))
    classes = classes_of(shaped, book, wishes.preference_policy)
    packing = _packing(ground, classes, wishes)
    _count_standing(ground.facts, book, packing, {pod.uid for pod in pods})
    if ground.promised:
        for one in classes:
            packing.keep(one, ground.promised)
    packing.place_all(classes)
    return _written({pod.uid: pod for pod in pods}, packing, wishes)


def _book(facts: Facts, shapes: Iterable[Shape]) -> Book:
    book = Book({name: one.labels for name, one in facts.namespaces.items()})
    for shape in dict.fromkeys(shapes):
        if shape.company is not ALONE:
            book.enter(shape)
    for node in facts.nodes:
        for pod in facts.bound_to(node):
            if pod.anti_affinity:
                book.enter_owners(shape_of(pod).company)
    return book


def _count_standing(facts: Facts, book: Book, packing: Packing, moving: set[str]) -> None:
    """Pods that run, on nodes that stay, count and hold their ports before anybody is placed."""
    counting = any(True for _ in book.tallies)
    for place, home in enumerate(packing.places.homes.homes):
        for pod in facts.bound_to(home.name):
            packing.places.take_ports(place, pod.host_ports)
            if counting and not pod.deleting and pod.uid not in moving:
                packing.stand(book.counted(pod), place)


def _packing(ground: Ground, classes: Sequence[PodClass], wishes: Wishes) -> Packing:
    known = {key for offer in ground.offers for key in offer.table.resources} | set(ground.homes.resources)
    places = Places(ground.homes, sorted(known | {key for one in classes for key in one.requests}))
    demand = sum((places.vector(one.requests) * len(one.pods) for one in classes), places.vector({}))
    buyer = Buyer(
        ground.offers,
        places.resources,
        demand,
        grain=np.array([grain(classes, key) for key in places.resources], dtype=np.int64),
        fullest=np.array([fullest(classes, key) for key in places.resources], dtype=np.int64),
        least_nodes=least_nodes(classes),
        min_values_policy=wishes.min_values_policy,
        node_cost=wishes.node_cost,
    )
    return Packing(places, buyer, ground.closed)


def _written(pods_by_uid: Mapping[str, PodFact], packing: Packing, wishes: Wishes) -> Plan:
    claims: list[PlannedClaim] = []
    for number, bought in enumerate(packing.places.bought):
        fill, pods = fill_of(packing.places, number), tuple(bought.pods)
        planned = planned_claim(fill, pods, wishes.min_values_policy, wishes.most_instance_types)
        if isinstance(planned, Refusal):
            reason = f"pool {fill.offer.name}: {planned}"
            packing.unplaced += [unplaced(pods_by_uid[uid], reason) for uid in pods]
        else:
            claims.append(planned)
    return Plan(claims=tuple(claims), nominations=packing.nominations, unplaced=tuple(packing.unplaced))
