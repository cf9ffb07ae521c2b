"""Every fact of storage by its key: PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes.

The planner has one in its `Facts`, the controller one in its caches; `scheduling/volumes.py` decides on it.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

from model.volume_facts import CSINodeFact, StorageClassFact, StorageFact, VolumeClaimFact, VolumeFact

StorageKind = Literal["volume_claim", "volume", "storage_class", "csi_node"]


class Storage:
    """Claims by `namespace/name`, the others by name."""

    def __init__(self) -> None:
        self.claims: dict[str, VolumeClaimFact] = {}
        self.volumes: dict[str, VolumeFact] = {}
        self.classes: dict[str, StorageClassFact] = {}
        self.csi_nodes: dict[str, CSINodeFact] = {}
        self._tables: Final[dict[StorageKind, tuple[type, dict[str, Any]]]] = {
            "volume_claim": (VolumeClaimFact, self.claims),
            "volume": (VolumeFact, self.volumes),
            "storage_class": (StorageClassFact, self.classes),
            "csi_node": (CSINodeFact, self.csi_nodes),
        }

    def put(self, kind: StorageKind, key: str, fact: object) -> bool:
        """Whether it makes a difference; None takes it out. Raises TypeError when the fact is not of the kind."""
        expected, table = self._tables[kind]
        if fact is not None and not isinstance(fact, expected):
            raise TypeError(f"a {kind} was announced and a {type(fact).__name__} given")
        if table.get(key) == fact:
            return False
        if fact is None:
            del table[key]
        else:
            table[key] = fact
        return True

    def everything(self) -> Iterator[tuple[StorageKind, str, StorageFact]]:
        for kind, (_, table) in self._tables.items():
            yield from ((kind, key, fact) for key, fact in table.items())
