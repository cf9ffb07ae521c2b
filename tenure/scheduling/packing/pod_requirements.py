"""The requirements of pods on their nodes and on other pods.

They are kept by UID until the pod changes, since a pod can have thousands of terms.
"""

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from tenure.model.facts import AffinityTerm, HostPort, PodFact, SpreadConstraint, Toleration
from tenure.model.requirements import RequirementError, Requirements, one_of
from tenure.scheduling.pods import (
    ANYWHERE,
    CACHES,
    Constraints,
    Variant,
    constraints_of,
    node_requirement_alternatives,
    validation_error,
)
from tenure.scheduling.volumes import Attachment


@dataclass(frozen=True, slots=True, eq=False)
class PodTopologyTerms:
    """A pod's rules about other pods; `namespace` is empty without rules.

    Pods with equal rules share one object (`_intern_topology_terms`), since it is compared for every pod.
    """

    namespace: str
    spreads: tuple[SpreadConstraint, ...]
    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]

    @property
    def count(self) -> int:
        return len(self.spreads) + len(self.affinity) + len(self.anti_affinity)


NO_TOPOLOGY_TERMS: Final = PodTopologyTerms("", (), (), ())


class VolumeTerms(NamedTuple):
    """A pod's volume requirements of its node."""

    alternatives: tuple[Requirements, ...] = ()
    """Alternative node requirements; empty: none. Topology counts ignore them."""
    own: tuple[tuple[str, int], ...] = ()
    """By CSI driver, the number of volumes attached for this pod only."""
    shared: frozenset[Attachment] = frozenset()
    """Volumes that other pods use, too."""


NO_VOLUME_TERMS: Final = VolumeTerms()


class PodShape(NamedTuple):
    """All properties of a pod that decide its placement, except the topology groups that count it."""

    requests: tuple[tuple[str, int], ...]
    constraints: Constraints
    topology_terms: PodTopologyTerms = NO_TOPOLOGY_TERMS
    ports: tuple[HostPort, ...] = ()
    volumes: VolumeTerms = NO_VOLUME_TERMS


def build_pod_shape(pod: PodFact) -> PodShape:
    requests = tuple(sorted([one for one in pod.demand.items() if one[1] > 0]))
    return PodShape(requests, constraints_of(pod), topology_terms_of(pod), pod.host_ports)


def topology_terms_of(pod: PodFact) -> PodTopologyTerms:
    if not (pod.spreads or pod.affinity or pod.anti_affinity):
        return NO_TOPOLOGY_TERMS
    return _intern_topology_terms(pod.namespace, pod.spreads, pod.affinity, pod.anti_affinity)


_intern_topology_terms = lru_cache(maxsize=1 << 16)(PodTopologyTerms)


@lru_cache(maxsize=1 << 14)
def intern_variant(
    requirements: Requirements, tolerations: tuple[Toleration, ...], tolerate_preferences: bool = False
) -> Variant:
    """Equal variants share one object, and so its cached results."""
    return Variant(requirements, tolerations, tolerate_preferences)


@lru_cache(maxsize=1 << 14)
def pin_label(one: Variant, key: str, value: str) -> Variant:
    """The variant with one label fixed."""
    fixed = one.requirements.intersection(Requirements([one_of(key, value)]))
    return intern_variant(fixed, one.tolerations, one.tolerate_preferences)


@lru_cache(maxsize=1 << 14)
def exclude_label(one: Variant, key: str) -> Variant:
    """The variant for nodes without one label."""
    absent = one.requirements.intersection(Requirements([one_of(key)]))
    return intern_variant(absent, one.tolerations, one.tolerate_preferences)


@lru_cache(maxsize=1 << 14)
def combine_with_volumes(strict: Requirements, volumes: tuple[Requirements, ...]) -> tuple[Requirements, ...]:
    """The pod's requirements combined with each alternative of its volumes; contradictions are dropped."""
    return tuple(strict.intersection(one) for one in volumes if not strict.conflicts(one)) if volumes else (strict,)


def volume_conflict(shape: PodShape) -> str:
    """Why no node can satisfy both the pod and its volumes; empty if one may."""
    own, needed = node_requirement_alternatives(shape.constraints), shape.volumes.alternatives
    if any(combine_with_volumes(strict, needed) for strict in own):
        return ""
    requested, found = (" or ".join(str(one) for one in many) for many in (own, needed))
    return f"its volumes need a node with {found}, while its node selector and affinity ask for {requested}"


@lru_cache(maxsize=1 << 14)
def preferred_node_affinity(constraints: Constraints) -> tuple[Requirements, ...]:
    """Preferred node affinity, highest weight first. The first term applies until it is relaxed. Invalid terms are
    left out."""
    valid = []
    for term in sorted(constraints.preferred_terms, key=lambda term: -term.weight):
        with suppress(RequirementError):
            valid.append(Requirements.from_expressions(term.expressions))
    return tuple(valid)


@lru_cache(maxsize=1 << 14)
def _intern_shape(shape: PodShape) -> PodShape:
    """Equal shapes share one object, so that a plan does not compare them again."""
    return shape


CACHES.register(_intern_topology_terms, intern_variant, pin_label, exclude_label, combine_with_volumes)
CACHES.register(preferred_node_affinity, _intern_shape)


class PodShapeCache:
    def __init__(self) -> None:
        self._shapes: dict[str, PodShape] = {}
        self._errors: dict[str, str] = {}

    def shape(self, pod: PodFact) -> PodShape:
        known = self._shapes.get(pod.uid)
        if known is None:
            known = self._shapes[pod.uid] = _intern_shape(build_pod_shape(pod))
        return known

    def validation_error(self, pod: PodFact) -> str:
        """Why the pod cannot be planned; empty if it can."""
        known = self._errors.get(pod.uid)
        if known is None:
            # An unplannable pod may have no shape; it has no terms.
            constraints = self.shape(pod).constraints if pod.required_terms else ANYWHERE
            known = self._errors[pod.uid] = validation_error(pod, constraints)
        return known

    def discard(self, uid: str) -> None:
        self._shapes.pop(uid, None)
        self._errors.pop(uid, None)

    def clear(self) -> None:
        self._shapes.clear()
        self._errors.clear()

    def discard_prefix(self, prefix: str) -> None:
        """Discard the pods whose UID starts with this text."""
        for uid in [uid for uid in {**self._shapes, **self._errors} if uid.startswith(prefix)]:
            self.discard(uid)
