"""One pass by what capacity is worth: the pods that wait, the homes that stand and the offers in, a plan out.

`tenure/scheduling/cluster_state.py` prepares all of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from tenure.model.facts import PodFact
from tenure.model.provisioning import Plan, PlannedClaim, Unplaced
from tenure.scheduling.existing_nodes import Homes
from tenure.scheduling.instance_type_table import Amounts
from tenure.scheduling.nodepool_template import Offer, Option, Refusal
from tenure.scheduling.packing.instance_selection import Buyer
from tenure.scheduling.packing.nodeclaims import Emission
from tenure.scheduling.packing.nodes import Attachments, Places, alike, standing
from tenure.scheduling.packing.packer import Packing, unplaced
from tenure.scheduling.packing.pod_classes import PodClass, classes_of, fullest, grain, least_nodes, sizes_of
from tenure.scheduling.packing.pod_requirements import ALONE, Shape, astray, shape_of
from tenure.scheduling.packing.topology_rules import Book
from tenure.scheduling.packing.valuation import Appraisal
from tenure.scheduling.snapshot import Facts
from tenure.scheduling.volumes import NOTHING, Attachment, Needs, needs

Standing = tuple[dict[int, Mapping[str, int]], dict[int, set[Attachment]]]
"""Of homes by number: limits by CSI driver, and what is attached."""
_FEW: Final = 300
"""So many pods cost little enough time to be planned in several ways."""


class Way(NamedTuple):
    """How a plan is made. `blended`: pods that may go anywhere are put on nodes by a mix, not class by class.
    `whole_pods`: machines are judged by patterns, not by room. `lean`: how much a node counts for beyond the wish."""

    blended: bool = True
    whole_pods: bool = False
    lean: float = 0.0


_WAYS: Final = (Way(), Way(whole_pods=True), Way(blended=False, whole_pods=True), Way(False, True, lean=0.05))
"""The first does for many pods."""


@dataclass(frozen=True)
class Attempt:
    packing: Packing
    emission: Emission

    @property
    def is_free(self) -> bool:
        """All pods have a place, and nothing is bought: no other way can do better."""
        return not (self.packing.unplaced or self.packing.places.bought)

    def cost(self, of_node: float) -> tuple[int, float]:
        """Pods without a place, then US dollars an hour, each node `of_node` dearer than it is."""
        nodes = range(len(self.packing.places.bought))
        return len(self.packing.unplaced), sum(self.emission.price(number) + of_node for number in nodes)


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

    def again(self) -> "Ground":
        """The same, whatever is spent on this one."""
        rooms = {id(offer.rooms): deepcopy(offer.rooms) for offer in self.offers}
        offers = [replace(one, budget=replace(one.budget), rooms=rooms[id(one.rooms)]) for one in self.offers]
        return replace(self, offers=offers)


@dataclass(frozen=True)
class Wishes:
    """The settings of the plan."""

    preference_policy: str
    min_values_policy: str
    most_instance_types: int
    node_cost: float


def plan(shaped: Sequence[tuple[Shape, PodFact]], ground: Ground, wishes: Wishes) -> Plan:
    """Where each pod goes, and what is to be bought. Few pods are planned in several ways, and the best is kept."""
    refused: list[Unplaced] = []
    limits, held = standing(ground.facts, ground.homes) if any(pod.volumes for _, pod in shaped) else ({}, {})
    asking = list(with_needs(shaped, ground.facts, held.values(), refused))
    tried = _WAYS if len(asking) <= _FEW else _WAYS[:1]
    ways: list[Attempt] = []
    for way in tried:
        ways.append(_attempt(asking, ground.again(), wishes, way, (limits, held)))
        if ways[-1].is_free:
            break
    found = min(ways, key=lambda one: one.cost(wishes.node_cost)) if len(ways) > 1 else ways[0]
    refused.sort(key=lambda one: one.pod_uid)
    return _written({pod.uid: pod for _, pod in asking}, found, refused)


def _attempt(
    shaped: Sequence[tuple[Shape, PodFact]], ground: Ground, wishes: Wishes, way: Way, attached: Standing
) -> Attempt:
    book = _book(ground.facts, (shape for shape, _ in shaped))
    classes = classes_of(shaped, book, wishes.preference_policy)
    packing = _packing(ground, classes, wishes, way, Attachments(len(ground.homes.homes), *attached))
    _count_standing(ground.facts, book, packing, {pod.uid for _, pod in shaped})
    if ground.promised:
        for one in classes:
            packing.keep(one, ground.promised)
    packing.place_all(classes)
    pods = {pod.uid: pod for _, pod in shaped}
    emission = Emission(packing.places, pods, wishes.min_values_policy, wishes.most_instance_types)
    return Attempt(packing, emission)


def with_needs(
    shaped: Iterable[tuple[Shape, PodFact]], facts: Facts, held: Iterable[set[Attachment]], refused: list[Unplaced]
) -> Iterator[tuple[Shape, PodFact]]:
    """Those whose volumes can be planned for; the others go to `refused`."""
    found: dict[str, Needs] = {}
    usable: list[tuple[Shape, PodFact]] = []
    for shape, pod in shaped:
        asked = needs(pod, facts.storage) if pod.volumes else NOTHING
        if isinstance(asked, Refusal):
            refused.append(unplaced(pod, asked))
            continue
        usable.append((shape, pod))
        if asked is not NOTHING:
            found[pod.uid] = asked
    volumes = alike(found, held)
    for plain, pod in usable:
        shape = plain._replace(volumes=volumes[pod.uid]) if pod.uid in volumes else plain
        reason = astray(shape) if shape.volumes.alternatives else ""
        if reason:
            refused.append(unplaced(pod, reason))
        else:
            yield shape, pod


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


def _packing(
    ground: Ground, classes: Sequence[PodClass], wishes: Wishes, way: Way, attachments: Attachments
) -> Packing:
    known = {key for offer in ground.offers for key in offer.table.resources} | set(ground.homes.resources)
    places = Places(ground.homes, sorted(known | {key for one in classes for key in one.requests}), attachments)
    return packing_on(places, ground.offers, ground.closed, classes, wishes, way)


def packing_on(
    places: Places,
    offers: Sequence[Offer],
    closed: Mapping[str, Refusal],
    classes: Sequence[PodClass],
    wishes: Wishes,
    way: Way,
) -> Packing:
    """The packing of these classes, still to be begun."""
    sold: dict[Option, Amounts] = {}
    wanting = [one for one in classes if _can_be_bought_for(one, offers, sold)]
    demand = sum((places.vector(one.requests) * len(one.pods) for one in wanting), places.vector({}))
    appraisal = Appraisal(
        places.resources,
        demand,
        grain=np.array([grain(wanting, key) for key in places.resources], dtype=np.int64),
        fullest=np.array([fullest(wanting, key) for key in places.resources], dtype=np.int64),
        sizes=sizes_of(wanting if way.whole_pods else (), places.resources),
        least_nodes=least_nodes(wanting),
        node_cost=wishes.node_cost + way.lean,
    )
    buyer = Buyer(offers, appraisal, wishes.min_values_policy)
    return Packing(places, buyer, closed, way.blended)


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


def _written(pods: Mapping[str, PodFact], found: Attempt, refused: Iterable[Unplaced]) -> Plan:
    claims, packing = list[PlannedClaim](), found.packing
    unplaceable = [*refused, *packing.unplaced]
    for number, bought in enumerate(packing.places.bought):
        planned = found.emission.claim(number)
        if isinstance(planned, Refusal):
            reason = f"pool {packing.places.lanes[bought.lane].offer.name}: {planned}"
            unplaceable += [unplaced(pods[uid], reason) for uid in bought.pods]
        else:
            claims.append(planned)
    return Plan(claims=tuple(claims), nominations=packing.nominations, unplaced=tuple(unplaceable))
