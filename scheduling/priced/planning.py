"""One pass by what capacity is worth: the pods that wait, the homes that stand and the offers in, a plan out.

`scheduling/state.py` prepares all of it and calls this where its settings say so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from model.facts import PodFact
from model.plans import Plan, PlannedClaim
from scheduling.facts import Facts
from scheduling.homes import Homes
from scheduling.pools import Offer, Option, Refusal
from scheduling.priced.buying import Buyer
from scheduling.priced.classes import PodClass, classes_of, fullest, grain, least_nodes
from scheduling.priced.demand import ALONE, Shape, shape_of
from scheduling.priced.emission import Emission
from scheduling.priced.packing import Packing, unplaced
from scheduling.priced.places import Places
from scheduling.priced.rules import Book
from scheduling.typetable import Amounts


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


def plan(shaped: Sequence[tuple[Shape, PodFact]], ground: Ground, wishes: Wishes) -> Plan:
    """Where each of the pods goes, and what is to be bought."""
    book = _book(ground.facts, (shape for shape, _ in shaped))
    classes = classes_of(shaped, book, wishes.preference_policy)
    packing = _packing(ground, classes, wishes)
    _count_standing(ground.facts, book, packing, {pod.uid for _, pod in shaped})
    if ground.promised:
        for one in classes:
            packing.keep(one, ground.promised)
    packing.place_all(classes)
    return _written(ground.facts, packing, wishes)


def _book(facts: Facts, shapes: Iterable[Shape]) -> Book:
    book = Book({name: one.labels for name, one in facts.namespaces.items()})
    said = {(shape.company, shape.constraints): shape for shape in shapes if shape.company is not ALONE}
    for shape in said.values():
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
    sold: dict[Option, Amounts] = {}
    wanting = [one for one in classes if _can_be_bought_for(one, ground.offers, sold)]
    demand = sum((places.vector(one.requests) * len(one.pods) for one in wanting), places.vector({}))
    buyer = Buyer(
        ground.offers,
        places.resources,
        demand,
        grain=np.array([grain(wanting, key) for key in places.resources], dtype=np.int64),
        fullest=np.array([fullest(wanting, key) for key in places.resources], dtype=np.int64),
        least_nodes=least_nodes(wanting),
        min_values_policy=wishes.min_values_policy,
        node_cost=wishes.node_cost,
    )
    return Packing(places, buyer, ground.closed)


def _can_be_bought_for(one: PodClass, offers: Iterable[Offer], sold: dict[Option, Amounts]) -> bool:
    """Pods for which no machine is made are no reason to buy others larger. `sold` remembers what options have."""
    for offer in offers:
        vector = offer.table.vector(one.requests)
        if vector is None:
            continue
        for option in (offer.narrowed(None, reading.variant) for reading in reversed(one.readings)):
            if isinstance(option, Refusal):
                continue
            if option not in sold:
                room = offer.template.room[option.types]
                sold[option] = room[np.argsort(-(room / np.maximum(room.max(axis=0), 1)).sum(axis=1))]
            room = sold[option]
            # Most pods fit the roomiest.
            if (room[0] >= vector).all() or (room >= vector).all(axis=1).any():
                return True
    return False


def _written(facts: Facts, packing: Packing, wishes: Wishes) -> Plan:
    emission = Emission(packing.places, facts.pods, wishes.min_values_policy, wishes.most_instance_types)
    claims: list[PlannedClaim] = []
    for number, bought in enumerate(packing.places.bought):
        planned = emission.claim(number)
        if isinstance(planned, Refusal):
            reason = f"pool {packing.places.lanes[bought.lane].offer.name}: {planned}"
            packing.unplaced += [unplaced(facts.pods[uid], reason) for uid in bought.pods]
        else:
            claims.append(planned)
    return Plan(claims=tuple(claims), nominations=packing.nominations, unplaced=tuple(packing.unplaced))
