"""One simulation: nodes are taken away, and their pods are planned onto what stays and what can be bought.

On the priced planner (`scheduling/priced/`), which also plans pods that wait: what is decided here is what the planner
would do if the nodes were gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tenure.apis.quantity import format_amount
from tenure.apis.resources import total
from tenure.model.disruption.planning import Method
from tenure.model.facts import PodFact
from tenure.model.provisioning import Unplaced
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import Stage
from tenure.scheduling.nodepool_template import NOT_TO_BE_HAD, Offer, Refusal
from tenure.scheduling.packing.nodeclaims import Emission
from tenure.scheduling.packing.nodes import Attachments, Places
from tenure.scheduling.packing.packer import NOTHING_SOLD
from tenure.scheduling.packing.planning_pass import Attempt, Way, packing_on, with_needs
from tenure.scheduling.packing.pod_classes import classes_of
from tenure.scheduling.packing.pod_requirements import ALONE, Shape
from tenure.scheduling.packing.topology_rules import Book

_JOINING: Final = Way()
_FEW: Final = (Way(whole_pods=True), Way(blended=False, whole_pods=True, lean=0.05))
_MANY: Final = (Way(), Way(lean=0.05))
_MOST_OF_FEW: Final = 300
_OFFERS: Final[Sequence[Offer]] = ()


@dataclass(slots=True)
class Simulation:
    """The removal of some nodes, in as many ways as it was tried."""

    leaving: Sequence[Candidate]
    pods: Mapping[str, PodFact]
    attempts: list[Attempt] = field(default_factory=list)
    """Ways in which every pod has a place."""
    problem: str = ""
    """Why there is none, in words."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.leaving)


@dataclass(frozen=True, slots=True)
class Moving:
    """The pods of the nodes that go."""

    shaped: list[tuple[Shape, PodFact]]
    method: Method | None


def simulate(
    stage: Stage,
    leaving: Sequence[Candidate],
    method: Method | None = None,
    *,
    ceiling: float = 0.0,
    one_node: bool = False,
) -> Simulation:
    """`method` decides which nodes take the pods. `ceiling`: nothing is bought that costs as much, in US dollars an
    hour; 0: nothing at all. `one_node`: more than one is of no use. A fault is a problem of these nodes alone."""
    try:
        found = _simulate(stage, leaving, method, ceiling=ceiling, one_node=one_node)
    except Exception as error:
        return Simulation(leaving, {}, problem=f"the simulation failed: {error!r}")
    if found.problem and ceiling > 0:
        found.problem = "; ".join((found.problem, *stage.unsold.values()))
    return found


def _simulate(
    stage: Stage,
    leaving: Sequence[Candidate],
    method: Method | None,
    *,
    ceiling: float,
    one_node: bool,
) -> Simulation:
    pods = {pod.uid: pod for one in leaving for pod in one.pods}
    found = Simulation(leaving, pods)
    refused: list[Unplaced] = []
    shaped = [(stage.shape(pod), pod) for pod in pods.values()]
    if any(pod.volumes for pod in pods.values()):
        shaped = list(with_needs(shaped, stage.facts, stage.volumes[1].values(), refused))
    if refused:
        found.problem = _nowhere(refused)
        return found
    moving = Moving(shaped, method)
    unsettled = stage.unsettled(lambda: book_of(stage, moving))
    if unsettled:
        found.problem = f"{unsettled} counts for these pods, and it is not known yet where its new node will be"
        return found
    joined = attempt(stage, leaving, moving, _OFFERS, _JOINING)
    if not joined.packing.unplaced:
        _accept(found, joined)
        return found
    found.problem = _nowhere(joined.packing.unplaced)
    if ceiling <= 0:
        return found
    if not any(offer.available.any() for offer in stage.offers_below(ceiling, leaving)):
        found.problem += f"; and nothing is sold below {ceiling:.4g} $/h"
        return found
    rest = [pods[one.pod_uid] for one in joined.packing.unplaced]
    for roomy, way in _ways(len(pods), one_node=one_node):
        offers = stage.offers_below(ceiling, leaving)
        if roomy:
            offers = _holding(offers, rest)
            if not offers:
                found.problem += f"; and {_too_much(rest)} is sold below {ceiling:.4g} $/h" if one_node else ""
                continue
        tried = attempt(stage, leaving, moving, offers, way)
        if not tried.packing.unplaced:
            _accept(found, tried)
        elif not found.attempts:
            limit = "" if ceiling == float("inf") else f" (of nodes below {ceiling:.4g} $/h)"
            found.problem = f"{_nowhere(tried.packing.unplaced)}{limit}"
    return found


def _ways(pods: int, *, one_node: bool) -> Iterator[tuple[bool, Way]]:
    """Whether all of a node is to hold what has no room elsewhere, and how it is packed."""
    yield True, _JOINING
    if not one_node:
        yield from ((False, way) for way in (_FEW if pods <= _MOST_OF_FEW else _MANY))


def attempt(stage: Stage, leaving: Sequence[Candidate], moving: Moving, offers: Sequence[Offer], way: Way) -> Attempt:
    """One way to place the pods, with what is offered."""
    book = book_of(stage, moving)
    classes = classes_of(moving.shaped, book, stage.wishes.preference_policy)
    homes = stage.homes_without(leaving, moving.method)
    limits, held = stage.volumes if any(pod.volumes for _, pod in moving.shaped) else ({}, {})
    places = Places(homes, stage.resources, Attachments(len(homes.homes), limits, held), np.maximum(stage.free, 0))
    packing = packing_on(places, offers, stage.closed if offers else {}, classes, stage.wishes, way)
    stage.count(book, packing, ports=any(one.ports for one in classes))
    packing.place_all(classes)
    pods = {pod.uid: pod for _, pod in moving.shaped}
    emission = Emission(places, pods, stage.wishes.min_values_policy, stage.wishes.most_instance_types)
    return Attempt(packing, emission)


def book_of(stage: Stage, moving: Moving) -> Book:
    """What these pods ask of others, and others of them."""
    book = Book({name: one.labels for name, one in stage.facts.namespaces.items()})
    said = {(shape.company, shape.constraints): shape for shape, _ in moving.shaped if shape.company is not ALONE}
    for shape in said.values():
        book.enter(shape)
    stage.enter(book)
    return book


def _accept(found: Simulation, tried: Attempt) -> None:
    """Pods that would go to a node which is not up yet make it too early to tell (reference 4.6)."""
    homes = tried.packing.places.homes
    early = {
        uid: name for uid, name in tried.packing.nominations.items() if not homes.homes[homes.index[name]].initialized
    }
    if early:
        uid, name = min(early.items())
        pod = found.pods[uid]
        found.problem = f"pod {pod.namespace}/{pod.name} would go to {name}, which is not initialized yet"
        return
    found.attempts.append(tried)
    found.problem = ""


def _holding(offers: Sequence[Offer], pods: Sequence[PodFact]) -> list[Offer]:
    """Of what is offered the types that have room for all of these pods."""
    asked, found = total(pod.requests for pod in pods), list[Offer]()
    for offer in offers:
        vector, base = offer.table.vector(asked), offer.base()
        if vector is not None:
            types = np.all(offer.template.room >= vector, axis=1)
            sold = offer.available & offer.table.reserved
            sold = sold if isinstance(base, Refusal) else sold | base.offerings
            available = sold & types[offer.table.offering_rows]
            if available.any():
                found.append(Offer(offer.template, np.asarray(available, dtype=bool), offer.budget, offer.rooms))
    return found


def _too_much(pods: Sequence[PodFact]) -> str:
    asked = total(pod.requests for pod in pods)
    said = ", ".join(f"{format_amount(key, asked[key])} {key}" for key in sorted(asked) if asked[key])
    return f"no single node with room for {said}"


def _nowhere(missing: Sequence[Unplaced]) -> str:
    first = missing[0]
    more = f", as {len(missing) - 1} more" if len(missing) > 1 else ""
    reason = first.reason.replace(NOTHING_SOLD, "no other node has room")
    reason = reason.replace(NOT_TO_BE_HAD, "is cheap enough and can be had now")
    return f"pod {first.namespace}/{first.name} fits nowhere{more}: {reason}"
