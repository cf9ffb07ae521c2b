"""Decoders of the kinds that `cluster_cache.py` stores as decoded: by plural, the key and the fact of a raw object."""

from collections.abc import Callable, Mapping
from typing import Final

from tenure.kube.client import resources
from tenure.kube.client.errors import Json
from tenure.kube.client.list_watch import Delta
from tenure.kube.facts import volumes
from tenure.kube.facts.objects import namespace_fact, overlay_fact
from tenure.kube.facts.pods import read_protection
from tenure.model.facts import StorageFact
from tenure.scheduling.snapshot import Fact, FactKind, StorageKind

_READERS: Final[Mapping[str, tuple[FactKind, Callable[[Json], Fact]]]] = {
    resources.NAMESPACES.plural: ("namespace", namespace_fact),
    resources.NODE_OVERLAYS.plural: ("overlay", overlay_fact),
}
KINDS: Final = frozenset(_READERS)


def find_annotation_problem(plural: str, raw: Json) -> str:
    """The problem with the annotation do-not-disrupt of a Node or a DaemonSet's pod template; empty if it is valid."""
    if plural == resources.NODES.plural:
        return read_protection(raw["metadata"].get("annotations") or {}, durations=False)[1]
    if plural == resources.DAEMON_SETS.plural:
        template = raw["spec"]["template"].get("metadata") or {}
        path = "spec.template.metadata.annotations"
        return read_protection(template.get("annotations") or {}, path=path, protects="its pods")[1]
    return ""


def decode_object(plural: str, delta: Delta) -> tuple[FactKind, str, Fact | None]:
    """The kind, the key and the fact; None for an object that is gone. Raises ValueError and KeyError."""
    kind, read = _READERS[plural]
    return kind, delta.object["metadata"]["name"], None if delta.is_deleted else read(delta.object)


_STORAGE_READERS: Final[Mapping[str, tuple[StorageKind, Callable[[Json], StorageFact]]]] = {
    resources.PERSISTENT_VOLUME_CLAIMS.plural: ("volume_claim", volumes.volume_claim_fact),
    resources.PERSISTENT_VOLUMES.plural: ("volume", volumes.volume_fact),
    resources.STORAGE_CLASSES.plural: ("storage_class", volumes.storage_class_fact),
    resources.CSI_NODES.plural: ("csi_node", volumes.csi_node_fact),
}


def decode_storage(plural: str, delta: Delta) -> tuple[StorageKind, str, StorageFact | None]:
    """The kind, the key and the fact; None for an object that is gone. Raises ValueError and KeyError."""
    kind, read = _STORAGE_READERS[plural]
    metadata = delta.object["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}" if kind == "volume_claim" else metadata["name"]
    return kind, key, None if delta.is_deleted else read(delta.object)
