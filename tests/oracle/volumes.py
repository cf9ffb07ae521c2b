"""Proof that pods can use their volumes on their nodes, and that CSI drivers can attach them.

A local volume is lost with its node. Attachment limits of planned nodes are unknown.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tenure.model.facts import CSINodeFact, Expression, PodFact, StorageClassFact, VolumeClaimFact, VolumeFact

Matches = Callable[[Mapping[str, str], Expression], bool]
_ZONE: Final = "topology.kubernetes.io/zone"
_EQUIVALENT_LABELS: Final = {"topology.ebs.csi.aws.com/zone": _ZONE, "failure-domain.beta.kubernetes.io/zone": _ZONE}
"""Labels that CSI drivers know under another name."""
_AUTO_MODE: Final = ("ebs.csi.eks.amazonaws.com", "eks.amazonaws.com/compute-type")


@dataclass(frozen=True, kw_only=True)
class StorageInputs:
    """Storage inputs of a plan: claims by `namespace/name`, other objects by name."""

    claims: Mapping[str, VolumeClaimFact] = field(default_factory=dict)
    volumes: Mapping[str, VolumeFact] = field(default_factory=dict)
    classes: Mapping[str, StorageClassFact] = field(default_factory=dict)
    csi_nodes: Mapping[str, CSINodeFact] = field(default_factory=dict)


def find_unusable_volumes(pod: PodFact, disks: StorageInputs) -> Iterator[str]:
    """Reasons for which the kube-scheduler would not try any node."""
    for name in pod.volumes:
        claim = disks.claims.get(f"{pod.namespace}/{name}")
        if claim is None or claim.deleting or claim.lost:
            yield f"claim {name} is not there, goes or is lost"
        elif claim.volume:
            volume = disks.volumes.get(claim.volume)
            if volume is None or volume.deleting or not claim.bound:
                yield f"volume {claim.volume} of {name} is not there, goes or is not bound"
            elif volume.driver in _AUTO_MODE:
                yield f"volume {claim.volume} is for other nodes"
        else:
            storage_class = disks.classes.get(claim.storage_class)
            if storage_class is None or not storage_class.waits:
                yield f"no volume waits for the node of {name}"
            elif storage_class.driver in _AUTO_MODE or any(
                one.key in _AUTO_MODE for term in storage_class.topologies for one in term
            ):
                yield f"volumes of {storage_class.name} are for other nodes"


def unreachable_claims(
    pod: PodFact, labels: Mapping[str, str], disks: StorageInputs, matches: Matches
) -> Iterator[str]:
    """Claims of a pod that are not usable on a node with these labels."""
    known = {**{other: labels[name] for other, name in _EQUIVALENT_LABELS.items() if name in labels}, **labels}
    for name in pod.volumes:
        claim = disks.claims.get(f"{pod.namespace}/{name}")
        terms = _volume_terms(claim, disks) if claim else None
        if terms is not None and not any(all(matches(known, one) for one in term) for term in terms):
            yield name


def find_exceeded_limits(
    node: str, running: Sequence[PodFact], planned: Sequence[PodFact], disks: StorageInputs
) -> Iterator[tuple[str, int, int]]:
    """Drivers over their attachment limit, with the number of attached volumes and the limit."""
    limits = disks.csi_nodes[node].limits if node in disks.csi_nodes else {}
    before, after = _attached_claims(running, disks), _attached_claims([*running, *planned], disks)
    for driver, limit in limits.items():
        if len(after[driver]) > limit and after[driver] != before[driver]:
            yield driver, len(after[driver]), limit


def _volume_terms(claim: VolumeClaimFact, disks: StorageInputs) -> list[Sequence[Expression]] | None:
    """Topology terms, which are ORed; None if any node will do."""
    if claim.volume:
        volume = disks.volumes.get(claim.volume)
        if volume is None or volume.terms is None:
            return None
        ignored_keys = {"kubernetes.io/hostname"} if volume.local else set()
        return [[one for one in term if one.key not in ignored_keys] for term in volume.terms if term]
    storage_class = disks.classes.get(claim.storage_class)
    return list(storage_class.topologies) if storage_class and storage_class.topologies else None


def _attached_claims(pods: Iterable[PodFact], disks: StorageInputs) -> dict[str, set[str]]:
    """Claims by driver."""
    found: dict[str, set[str]] = defaultdict(set)
    for pod in pods:
        for name in pod.volumes:
            key = f"{pod.namespace}/{name}"
            claim = disks.claims.get(key)
            if claim is not None:
                volume, storage_class = disks.volumes.get(claim.volume), disks.classes.get(claim.storage_class)
                found[volume.driver if volume else storage_class.driver if storage_class else ""].add(key)
    return found
