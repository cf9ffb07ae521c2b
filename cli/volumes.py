"""Storage objects among the manifests of a simulation, and the claims that Kubernetes itself would make for its pods.

They may stand in any file, so that `simulate.py` takes them out of each before it reads the rest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cli.manifests import Object, namespace_of, of_kind, parsed
from kube.volume_facts import csi_node_fact, storage_class_fact, volume_claim_fact, volume_fact
from model.volume_facts import StorageClassFact, StorageFact, VolumeClaimFact
from scheduling.facts import Change
from scheduling.storage import StorageKind

CLAIM: Final = "PersistentVolumeClaim"
_READERS: Final[Mapping[str, tuple[StorageKind, Callable[[Mapping[str, Any]], StorageFact]]]] = {
    CLAIM: ("volume_claim", volume_claim_fact),
    "PersistentVolume": ("volume", volume_fact),
    "StorageClass": ("storage_class", storage_class_fact),
    "CSINode": ("csi_node", csi_node_fact),
}


@dataclass
class Volumes:
    """What was found so far. Raises `Refused` for what cannot be read."""

    _facts: dict[tuple[StorageKind, str], StorageFact] = field(default_factory=dict)
    _unnamed: set[str] = field(default_factory=set)
    """Claims that leave the StorageClass open."""

    def taken_out(self, path: Path, objects: Iterable[Object]) -> list[Object]:
        """The objects that are not about storage."""
        every = list(objects)
        storage = [one for one in every if one.get("kind") in _READERS]
        for one in of_kind(path, storage, *_READERS) if storage else ():
            self._take(path, one)
        return [one for one in every if one.get("kind") not in _READERS]

    def make_up(self, path: Path, claims: Iterable[Object]) -> None:
        """Claims that a controller would make, as far as they are not given."""
        for one in claims:
            if ("volume_claim", f"{namespace_of(one)}/{one['metadata']['name']}") not in self._facts:
                self._take(path, one)

    def changes(self) -> list[Change]:
        """With the default StorageClass where a claim names none, as the API server fills it in."""
        classes = (one for one in self._facts.values() if isinstance(one, StorageClassFact) and one.default)
        default = min((one.name for one in classes), default="")
        return [
            Change(kind=kind, key=key, fact=self._filled(fact, default)) for (kind, key), fact in self._facts.items()
        ]

    def _take(self, path: Path, one: Object) -> None:
        kind, read = _READERS[one["kind"]]
        fact = parsed(path, one, read)
        key = fact.key if isinstance(fact, VolumeClaimFact) else fact.name
        self._facts[kind, key] = fact
        self._unnamed.discard(key)
        if isinstance(fact, VolumeClaimFact) and "storageClassName" not in one.get("spec", {}):
            self._unnamed.add(key)

    def _filled(self, fact: StorageFact, default: str) -> StorageFact:
        if not isinstance(fact, VolumeClaimFact) or fact.volume or fact.key not in self._unnamed:
            return fact
        return fact.model_copy(update={"storage_class": default})


def ephemeral_claims(pods: Iterable[Object]) -> Iterator[Object]:
    """Of generic ephemeral volumes."""
    for pod in pods:
        for volume in pod["spec"].get("volumes", ()):
            if volume.get("ephemeral"):
                name = f"{pod['metadata']['name']}-{volume.get('name')}"
                yield _claim(name, namespace_of(pod), _part(volume["ephemeral"], "volumeClaimTemplate"))


def claims_of_sets(workloads: Iterable[Object]) -> Iterator[Object]:
    """Of StatefulSets, one for each replica and template."""
    for one in workloads:
        if one["kind"] == "StatefulSet":
            for index in range(one["spec"].get("replicas", 1)):
                for template in one["spec"].get("volumeClaimTemplates", ()):
                    name = claim_name(template["metadata"]["name"], one["metadata"]["name"], index)
                    yield _claim(name, namespace_of(one), template)


def claim_name(template: str, owner: str, index: int) -> str:
    """As StatefulSets name them."""
    return f"{template}-{owner}-{index}"


def _claim(name: str, namespace: str, template: Any) -> Object:
    return {"kind": CLAIM, "metadata": {"name": name, "namespace": namespace}, "spec": _part(template, "spec")}


def _part(holder: Any, key: str) -> Any:
    """Empty where it is not there, or no object."""
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}
