"""What planning knows of storage: claims, volumes, StorageClasses and CSINodes, pruned to what decides on a node.

Read by `kube/volume_facts.py`, kept by `controller/`, decided on by `scheduling/volumes.py`. Which claims a pod uses
stands in `model.facts.PodFact.volumes`.
"""

from model.base import Value
from model.facts import Expression

Term = tuple[Expression, ...]
"""Expressions that all hold; several terms are alternatives."""


class VolumeClaimFact(Value):
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    volume: str = ""
    """spec.volumeName."""
    bound: bool = False
    """Carries the annotation pv.kubernetes.io/bind-completed."""
    lost: bool = False
    storage_class: str = ""
    deleting: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class VolumeFact(Value):
    """A PersistentVolume."""

    name: str
    driver: str = ""
    """Of CSI, that of an in-tree volume translated; empty for what is not attached by a driver."""
    terms: tuple[Term, ...] | None = None
    """Its required node affinity; None: any node."""
    local: bool = False
    """A local or hostPath volume."""
    deleting: bool = False


class StorageClassFact(Value):
    name: str
    driver: str
    """Its provisioner, one of an in-tree volume translated to CSI's."""
    waits: bool = False
    """WaitForFirstConsumer; else Immediate."""
    topologies: tuple[Term, ...] = ()
    """allowedTopologies; empty: any node."""
    default: bool = False


class CSINodeFact(Value):
    """What the CSI drivers on a Node of the same name say of it."""

    name: str
    limits: dict[str, int] = {}
    """By driver how many volumes it can have attached; a driver that says nothing is unlimited."""


StorageFact = VolumeClaimFact | VolumeFact | StorageClassFact | CSINodeFact
