"""What pods ask of their nodes and say of other pods, and the readings of the former.

Beyond `tenure/scheduling/pods.py`, which knows nothing of other pods; `rules.py` reads the terms about those.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from tenure.model.facts import AffinityTerm, HostPort, PodFact, SpreadConstraint, Toleration
from tenure.model.requirements import Requirements, one_of
from tenure.scheduling.pods import Constraints, Variant, alternatives, constraints_of
from tenure.scheduling.volumes import Attachment

__all__ = [
    "ALONE",
    "NO_VOLUMES",
    "Company",
    "Constraints",
    "Shape",
    "Variant",
    "Volumes",
    "alternatives",
    "astray",
    "pinned",
    "shape_of",
    "variant",
    "wishes",
    "with_volumes",
]


@dataclass(frozen=True, slots=True, eq=False)
class Company:
    """What a pod says about other pods; `namespace` is empty where it says nothing. One object for all that say the
    same (`_company`), since it is compared for every pod."""

    namespace: str
    spreads: tuple[SpreadConstraint, ...]
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]


ALONE: Final = Company("", (), (), ())


class Volumes(NamedTuple):
    """What a pod's volumes ask of its node."""

    alternatives: tuple[Requirements, ...] = ()
    """Where they can be used; empty: anywhere. They restrict the node, and no count of pods takes notice of them."""
    own: tuple[tuple[str, int], ...] = ()
    """By CSI driver how many are attached for this pod alone."""
    shared: frozenset[Attachment] = frozenset()
    """Those that other pods use as well."""


NO_VOLUMES: Final = Volumes()


class Shape(NamedTuple):
    """Everything about a pod that decides where it may go, but for who counts it."""

    requests: tuple[tuple[str, int], ...]
    constraints: Constraints
    company: Company = ALONE
    ports: tuple[HostPort, ...] = ()
    volumes: Volumes = NO_VOLUMES


def shape_of(pod: PodFact, volumes: Volumes = NO_VOLUMES) -> Shape:
    requests = tuple(sorted([one for one in pod.requests.items() if one[1] > 0]))
    said = pod.spreads or pod.affinity or pod.anti_affinity
    company = _company(pod.namespace, pod.spreads, pod.affinity, pod.anti_affinity) if said else ALONE
    return Shape(requests, constraints_of(pod), company, pod.host_ports, volumes)


_company = lru_cache(maxsize=1 << 16)(Company)


@lru_cache(maxsize=1 << 14)
def variant(
    requirements: Requirements, tolerations: tuple[Toleration, ...], tolerate_preferences: bool = False
) -> Variant:
    """Equal readings are one object, so that what is found out about one is found out once."""
    return Variant(requirements, tolerations, tolerate_preferences)


@lru_cache(maxsize=1 << 14)
def pinned(one: Variant, key: str, value: str) -> Variant:
    """The reading with one label fixed."""
    fixed = one.requirements.intersection(Requirements([one_of(key, value)]))
    return variant(fixed, one.tolerations, one.tolerate_preferences)


@lru_cache(maxsize=1 << 14)
def with_volumes(strict: Requirements, volumes: tuple[Requirements, ...]) -> tuple[Requirements, ...]:
    """What the pod asks for, and beside it one place of its volumes after the other; without those that exclude it."""
    return tuple(strict.intersection(one) for one in volumes if not strict.conflicts(one)) if volumes else (strict,)


def astray(shape: Shape) -> str:
    """Why no node suits both the pod and its volumes; empty when one may."""
    own, needed = alternatives(shape.constraints), shape.volumes.alternatives
    if any(with_volumes(strict, needed) for strict in own):
        return ""
    asked, found = (" or ".join(str(one) for one in many) for many in (own, needed))
    return f"its volumes need a node with {found}, while its node selector and affinity ask for {asked}"


@lru_cache(maxsize=1 << 14)
def wishes(constraints: Constraints) -> tuple[Requirements, ...]:
    """Preferred node affinity, heaviest first: one at a time is held for as long as it can be."""
    terms = sorted(constraints.preferred_terms, key=lambda term: -term.weight)
    return tuple(Requirements.of(term.expressions) for term in terms)
