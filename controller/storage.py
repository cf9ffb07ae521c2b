"""How `caches.py` reads what the list-watches of storage deliver: the kinds that only planning decides on.

By the plural of each resource: what the planner calls it, and how raw JSON becomes its fact.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kube import resources, volume_facts
from kube.errors import Json
from kube.listwatch import Delta
from model.volume_facts import StorageFact
from scheduling.storage import StorageKind

_READERS: Final[Mapping[str, tuple[StorageKind, Callable[[Json], StorageFact]]]] = {
    resources.PERSISTENT_VOLUME_CLAIMS.plural: ("volume_claim", volume_facts.volume_claim_fact),
    resources.PERSISTENT_VOLUMES.plural: ("volume", volume_facts.volume_fact),
    resources.STORAGE_CLASSES.plural: ("storage_class", volume_facts.storage_class_fact),
    resources.CSI_NODES.plural: ("csi_node", volume_facts.csi_node_fact),
}


def heard(plural: str, delta: Delta) -> tuple[StorageKind, str, StorageFact | None]:
    """The kind, the key and the fact; None for an object that is gone. Raises ValueError and KeyError."""
    kind, read = _READERS[plural]
    metadata = delta.object["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}" if kind == "volume_claim" else metadata["name"]
    return kind, key, None if delta.gone else read(delta.object)
