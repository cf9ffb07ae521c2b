"""The node requirements of a pod's volumes, and the volumes that CSI drivers attach for it.

Rejected pods: reference 2.2. Topology: 2.15. Attachments: 2.7.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple

from tenure.apis.labels import HOSTNAME, PV_BIND_COMPLETED
from tenure.model.facts import PodFact, Term, VolumeClaimFact
from tenure.model.requirements import IN, RequirementError, Requirements, one_of
from tenure.scheduling.nodepool_template import RejectionReason
from tenure.scheduling.snapshot import Storage

Attachment = tuple[str, str]
"""A CSI driver, and the claim as `namespace/name` whose volume it attaches."""

_AUTO_MODE: Final = "only EKS Auto Mode's own nodes have"
UNSUPPORTED_PROVISIONERS: Final = frozenset({"ebs.csi.eks.amazonaws.com"})
UNSUPPORTED_TOPOLOGY_KEYS: Final = frozenset({"eks.amazonaws.com/compute-type"})


class VolumeRequirements(NamedTuple):
    alternatives: tuple[Requirements, ...] = ()
    """Alternative node requirements of the volumes; empty: any node."""
    attachments: frozenset[Attachment] = frozenset()


NO_VOLUME_REQUIREMENTS: Final = VolumeRequirements()


def volume_requirements(pod: PodFact, storage: Storage) -> VolumeRequirements | RejectionReason:
    """The combined requirements of its volumes, or the problem to fix before the pod can be planned."""
    if not pod.volumes:
        return NO_VOLUME_REQUIREMENTS
    alternatives: tuple[Requirements, ...] = ()
    for name in dict.fromkeys(pod.volumes):
        volume_nodes = _claim_alternatives(f"{pod.namespace}/{name}", storage)
        if isinstance(volume_nodes, RejectionReason):
            return volume_nodes
        intersection = _intersect_alternatives(alternatives, volume_nodes)
        if not intersection and volume_nodes:
            others = " or ".join(str(one) for one in alternatives)
            return RejectionReason(
                f"its volumes are in different places: that of PersistentVolumeClaim {pod.namespace}/{name} needs a "
                f"node with {' or '.join(str(one) for one in volume_nodes)}, the others need {others}; move one of them"
            )
        alternatives = intersection
    return VolumeRequirements(alternatives, volume_attachments(pod, storage))


def volume_attachments(pod: PodFact, storage: Storage) -> frozenset[Attachment]:
    """The volumes that a CSI driver attaches for this pod, if the driver is known."""
    found = set()
    for name in pod.volumes:
        key = f"{pod.namespace}/{name}"
        driver = _csi_driver(storage.claims.get(key), storage)
        if driver:
            found.add((driver, key))
    return frozenset(found)


def find_unknown_volume_field(pod: PodFact, storage: Storage) -> str:
    """The first field of its PersistentVolumes that Tenure does not know, with the reason; empty if there is none."""
    for name in pod.volumes:
        claim = storage.claims.get(f"{pod.namespace}/{name}")
        volume = storage.volumes.get(claim.volume) if claim else None
        if volume is not None and volume.unknown_field:
            return f"PersistentVolume {volume.name}: {volume.unknown_field}"
    return ""


def merge_alternatives(alternatives: Iterable[Requirements]) -> tuple[Requirements, ...]:
    """Merge alternatives that differ only in the values of one label into one with the values of both."""
    found = list(dict.fromkeys(alternatives))
    while pair := next((one for one in combinations(found, 2) if _single_differing_key(*one)), None):
        first, second = pair
        key = _single_differing_key(first, second)
        union = one_of(key, *first[key].values, *second[key].values)
        found[found.index(first)] = Requirements([*first.without(key).values(), union])
        found.remove(second)
    return tuple(found)


def _single_differing_key(first: Requirements, second: Requirements) -> str:
    """The only label in which they differ, if it has the operator In in both; else empty."""
    if first.keys() != second.keys():
        return ""
    keys = [key for key in first if first[key] != second[key]]
    plain = len(keys) == 1 and all(one[keys[0]].operator == IN for one in (first, second))
    return keys[0] if plain else ""


@lru_cache(maxsize=1 << 14)
def _intersect_alternatives(
    first: tuple[Requirements, ...], second: tuple[Requirements, ...]
) -> tuple[Requirements, ...]:
    """The intersection of every consistent pair; an empty side leaves the other unchanged."""
    if not (first and second):
        return first or second
    return merge_alternatives(one.intersection(other) for one in first for other in second if not one.conflicts(other))


@lru_cache(maxsize=1 << 14)
def _parse_terms(terms: tuple[Term, ...], without: str = "") -> tuple[Requirements, ...]:
    """Terms as alternatives, without the key `without`. Terms without expressions are dropped; empty if one allows any
    node."""
    found = merge_alternatives(
        Requirements.from_expressions(one for one in term if one.key != without) for term in terms if term
    )
    return found if all(found) else ()


def _claim_alternatives(key: str, storage: Storage) -> tuple[Requirements, ...] | RejectionReason:
    """The node requirements of a claim, as alternatives; empty: any node."""
    claim = storage.claims.get(key)
    if claim is None:
        return RejectionReason(f"PersistentVolumeClaim {key} does not exist; create it")
    if claim.deleting:
        return RejectionReason(f"PersistentVolumeClaim {key} is being deleted; recreate it once it is gone")
    if claim.lost:
        return RejectionReason(
            f"PersistentVolumeClaim {key} is Lost: its PersistentVolume {claim.volume} is gone; restore the volume, or "
            "delete the claim and recreate it"
        )
    driver = _csi_driver(claim, storage)
    if driver in UNSUPPORTED_PROVISIONERS:
        return RejectionReason(
            f"PersistentVolumeClaim {key}: its volume is of the provisioner {driver}, which {_AUTO_MODE}; use a "
            "StorageClass of ebs.csi.aws.com"
        )
    try:
        return (
            _bound_volume_alternatives(claim, storage) if claim.volume else _storage_class_alternatives(claim, storage)
        )
    except RequirementError as error:
        return RejectionReason(f"PersistentVolumeClaim {key}: the topology of its volume is invalid: {error}")


def _bound_volume_alternatives(claim: VolumeClaimFact, storage: Storage) -> tuple[Requirements, ...] | RejectionReason:
    subject = f"PersistentVolumeClaim {claim.key} names PersistentVolume {claim.volume}"
    volume = storage.volumes.get(claim.volume)
    if volume is None:
        return RejectionReason(f"{subject}, which does not exist; restore it, or delete the claim and recreate it")
    if volume.deleting:
        return RejectionReason(f"{subject}, which is being deleted; once it is gone delete the claim and recreate it")
    if not claim.bound:
        return RejectionReason(
            f"{subject} and is not bound to it: the annotation {PV_BIND_COMPLETED} is missing; check that the "
            "volume is unbound and matches the claim"
        )
    if volume.unknown_field:
        return RejectionReason(f"{subject}: {volume.unknown_field}")
    if volume.terms is None:
        return ()
    if not any(volume.terms):
        return RejectionReason(f"{subject}, whose node affinity has no expressions, which no node satisfies")
    # A local volume is lost with its node, so its pods may run on another node (reference 2.15).
    return _parse_terms(volume.terms, HOSTNAME if volume.local else "")


def _storage_class_alternatives(claim: VolumeClaimFact, storage: Storage) -> tuple[Requirements, ...] | RejectionReason:
    subject = f"PersistentVolumeClaim {claim.key}"
    if not claim.storage_class:
        return RejectionReason(
            f"{subject} is not bound and names no StorageClass; set spec.storageClassName, or create a "
            "PersistentVolume "
            "for it"
        )
    known = storage.classes.get(claim.storage_class)
    if known is None:
        return RejectionReason(f"{subject} names StorageClass {claim.storage_class}, which does not exist; create it")
    if known.unknown_field:
        return RejectionReason(f"{subject}: StorageClass {known.name}: {known.unknown_field}")
    if not known.waits:
        return RejectionReason(
            f"{subject} is not bound yet, and StorageClass {known.name} binds Immediate, before there is a "
            f"node; find out why {known.driver} creates no volume, or use a StorageClass with WaitForFirstConsumer"
        )
    unsupported = next(
        (one.key for term in known.topologies for one in term if one.key in UNSUPPORTED_TOPOLOGY_KEYS), ""
    )
    if unsupported:
        return RejectionReason(
            f"{subject}: StorageClass {known.name} allows topologies by the label {unsupported}, which "
            f"{_AUTO_MODE}; use "
            "a StorageClass without it"
        )
    return _parse_terms(known.topologies)


def _csi_driver(claim: VolumeClaimFact | None, storage: Storage) -> str:
    """Empty if it is unknown, or the volume is not attached by a driver."""
    if claim is None:
        return ""
    volume = storage.volumes.get(claim.volume)
    if volume is not None:
        return volume.driver
    known = storage.classes.get(claim.storage_class)
    return known.driver if known else ""
