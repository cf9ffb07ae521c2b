"""What a pod's volumes ask of its node: where they are or may be made, and what drivers have to attach there.

Pure, over `tenure/scheduling/snapshot.py`. Which pods are refused is the reference's 2.2, where volumes may be its
2.15, what
is attached its 2.7. `priced/planning.py` asks for every pod of a pass.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from typing import Final, NamedTuple

from tenure.apis.labels import HOSTNAME, PV_BIND_COMPLETED
from tenure.model.facts import Expression, PodFact, StorageClassFact, Term, VolumeClaimFact
from tenure.model.requirements import IN, RequirementError, Requirements, one_of
from tenure.scheduling.nodepool_template import Refusal
from tenure.scheduling.snapshot import Storage

Attachment = tuple[str, str]
"""A CSI driver, and the claim as `namespace/name` whose volume it attaches."""

_AUTO_MODE: Final = "only EKS Auto Mode's own nodes have"
UNSUPPORTED_PROVISIONERS: Final = frozenset({"ebs.csi.eks.amazonaws.com"})
UNSUPPORTED_TOPOLOGY_KEYS: Final = frozenset({"eks.amazonaws.com/compute-type"})


class Needs(NamedTuple):
    alternatives: tuple[Requirements, ...] = ()
    """The node has to satisfy one of them; empty: any node will do. They say nothing about the pod itself."""
    attachments: frozenset[Attachment] = frozenset()


NOTHING: Final = Needs()


def needs(pod: PodFact, storage: Storage) -> Needs | Refusal:
    """What all its volumes ask for together, or why nothing can be planned for the pod before they are mended."""
    if not pod.volumes:
        return NOTHING
    together: tuple[Requirements, ...] = ()
    for name in dict.fromkeys(pod.volumes):
        found = _places(f"{pod.namespace}/{name}", storage)
        if isinstance(found, Refusal):
            return found
        both = _both(together, found)
        if not both and found:
            said = " or ".join(str(one) for one in together)
            return Refusal(
                f"its volumes are in different places: that of PersistentVolumeClaim {pod.namespace}/{name} needs a "
                f"node with {' or '.join(str(one) for one in found)}, the others need {said}; move one of them"
            )
        together = both
    return Needs(together, attachments(pod, storage))


def attachments(pod: PodFact, storage: Storage) -> frozenset[Attachment]:
    """The volumes that a CSI driver attaches for this pod, as far as they are known."""
    found = set()
    for name in pod.volumes:
        key = f"{pod.namespace}/{name}"
        driver = _driver(storage.claims.get(key), storage)
        if driver:
            found.add((driver, key))
    return frozenset(found)


def joined(alternatives: Iterable[Requirements]) -> tuple[Requirements, ...]:
    """The same in fewer: two that differ in the values of one label alone are one with the values of both."""
    found = list(dict.fromkeys(alternatives))
    while pair := next((one for one in combinations(found, 2) if _differing(*one)), None):
        first, second = pair
        key = _differing(first, second)
        union = one_of(key, *first[key].values, *second[key].values)
        found[found.index(first)] = Requirements([*first.without(key).values(), union])
        found.remove(second)
    return tuple(found)


def _differing(first: Requirements, second: Requirements) -> str:
    """The one label in which they differ, if it is a plain choice of values in both; else empty."""
    if first.keys() != second.keys():
        return ""
    keys = [key for key in first if first[key] != second[key]]
    plain = len(keys) == 1 and all(one[keys[0]].operator == IN for one in (first, second))
    return keys[0] if plain else ""


@lru_cache(maxsize=1 << 14)
def _both(first: tuple[Requirements, ...], second: tuple[Requirements, ...]) -> tuple[Requirements, ...]:
    """Every pair that does not contradict itself; what is empty leaves the other as it is."""
    if not (first and second):
        return first or second
    return joined(one.intersection(other) for one in first for other in second if not one.conflicts(other))


@lru_cache(maxsize=1 << 14)
def _read(terms: tuple[Term, ...], without: str = "") -> tuple[Requirements, ...]:
    """Terms as alternatives, those without expressions left out; empty if one of them lets any node do."""
    found = joined(Requirements.of(one for one in term if one.key != without) for term in terms if term)
    return found if all(found) else ()


def _places(key: str, storage: Storage) -> tuple[Requirements, ...] | Refusal:
    """The nodes on which a claim can be used, as alternatives; empty: on any."""
    claim = storage.claims.get(key)
    if claim is None:
        return Refusal(f"PersistentVolumeClaim {key} does not exist; create it")
    if claim.deleting:
        return Refusal(f"PersistentVolumeClaim {key} is being deleted; once it is gone create it anew")
    if claim.lost:
        return Refusal(
            f"PersistentVolumeClaim {key} is Lost: its PersistentVolume {claim.volume} is gone; restore the volume, or "
            "delete the claim and create it anew"
        )
    driver = _driver(claim, storage)
    if driver in UNSUPPORTED_PROVISIONERS:
        return Refusal(
            f"PersistentVolumeClaim {key}: its volume is of the provisioner {driver}, which {_AUTO_MODE}; use a "
            "StorageClass of ebs.csi.aws.com"
        )
    try:
        return _of_volume(claim, storage) if claim.volume else _of_class(claim, storage)
    except RequirementError as error:
        return Refusal(f"PersistentVolumeClaim {key}: where its volume may be is not valid: {error}")


def _of_volume(claim: VolumeClaimFact, storage: Storage) -> tuple[Requirements, ...] | Refusal:
    said = f"PersistentVolumeClaim {claim.key} names PersistentVolume {claim.volume}"
    volume = storage.volumes.get(claim.volume)
    if volume is None:
        return Refusal(f"{said}, which does not exist; restore it, or delete the claim and create it anew")
    if volume.deleting:
        return Refusal(f"{said}, which is being deleted; once it is gone delete the claim and create it anew")
    if not claim.bound:
        return Refusal(
            f"{said} and is not bound to it: the annotation {PV_BIND_COMPLETED} is missing; see that the volume is "
            "free and fits the claim"
        )
    if volume.terms is None:
        return ()
    if not any(volume.terms):
        return Refusal(f"{said}, whose node affinity has no expressions, which no node satisfies")
    # A local volume is given up with its node, so that its pods may go elsewhere (reference 2.15).
    return _read(volume.terms, HOSTNAME if volume.local else "")


def _of_class(claim: VolumeClaimFact, storage: Storage) -> tuple[Requirements, ...] | Refusal:
    said = f"PersistentVolumeClaim {claim.key}"
    if not claim.storage_class:
        return Refusal(
            f"{said} is not bound and names no StorageClass; set spec.storageClassName, or create a PersistentVolume "
            "for it"
        )
    known = storage.classes.get(claim.storage_class)
    if known is None:
        return Refusal(f"{said} names StorageClass {claim.storage_class}, which does not exist; create it")
    if not known.waits:
        return Refusal(
            f"{said} is not bound yet, and StorageClass {known.name} binds Immediate, before there is a node; see why "
            f"{known.driver} makes no volume, or use a StorageClass with WaitForFirstConsumer"
        )
    unsupported = next((one.key for one in _expressions(known) if one.key in UNSUPPORTED_TOPOLOGY_KEYS), "")
    if unsupported:
        return Refusal(
            f"{said}: StorageClass {known.name} allows topologies by the label {unsupported}, which {_AUTO_MODE}; use "
            "a StorageClass without it"
        )
    return _read(known.topologies)


def _expressions(known: StorageClassFact) -> Iterator[Expression]:
    return (one for term in known.topologies for one in term)


def _driver(claim: VolumeClaimFact | None, storage: Storage) -> str:
    """Empty when it is not known, or when nothing is attached."""
    if claim is None:
        return ""
    volume = storage.volumes.get(claim.volume)
    if volume is not None:
        return volume.driver
    known = storage.classes.get(claim.storage_class)
    return known.driver if known else ""
