"""Decoders of the kinds that `cluster_cache.py` stores as decoded: by plural, the key and the fact of a raw object.

LimitRanges, RuntimeClasses and DeviceClasses change the pods of the templates of DaemonSets.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tenure.controller.cache.tables import set_or_remove
from tenure.kube.client import resources
from tenure.kube.client.errors import Json
from tenure.kube.client.list_watch import Delta
from tenure.kube.facts import volumes
from tenure.kube.facts.device_classes import DeviceClasses
from tenure.kube.facts.objects import namespace_fact, overlay_fact
from tenure.kube.facts.pod_admission import PodAdmission, limit_range_rules, runtime_class_defaults
from tenure.kube.facts.pods import daemonset_fact, read_protection
from tenure.model.facts import DaemonSetFact, StorageFact
from tenure.model.invalid_objects import InvalidObjects, object_key
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


TEMPLATE_KINDS: Final = frozenset(
    one.plural for one in (resources.DAEMON_SETS, resources.LIMIT_RANGES, resources.RUNTIME_CLASSES)
)


class DaemonTemplates:
    """Keeps DaemonSets as objects, since a change of another kind changes their facts."""

    def __init__(self, admission: PodAdmission, device_classes: DeviceClasses, invalid_objects: InvalidObjects) -> None:
        """`update` keeps the LimitRanges and RuntimeClasses of `admission`."""
        self._admission, self._device_classes, self._invalid_objects = admission, device_classes, invalid_objects
        self._daemonsets: dict[str, Json] = {}
        """By UID."""

    def update(self, plural: str, delta: Delta) -> Iterator[tuple[str, DaemonSetFact | None]]:
        """The DaemonSets that the change concerns, by UID; None if it has no pods. Raises ValueError and KeyError."""
        changed, metadata = delta.object, delta.object["metadata"]
        if plural == resources.DAEMON_SETS.plural:
            yield metadata["uid"], None if delta.is_deleted else self._read_daemonset(changed)
            set_or_remove(self._daemonsets, metadata["uid"], None if delta.is_deleted else changed)
        elif plural == resources.LIMIT_RANGES.plural:
            rules = None if delta.is_deleted else limit_range_rules(changed)
            self._admission.set_limit_range(metadata["namespace"], metadata["name"], rules)
            yield from self._decode_dependents(lambda one: one["metadata"]["namespace"] == metadata["namespace"])
        else:
            runtime_class = None if delta.is_deleted else runtime_class_defaults(changed)
            self._admission.set_runtime_class(metadata["name"], runtime_class)
            yield from self._decode_dependents(lambda one: _pod_spec(one).get("runtimeClassName") == metadata["name"])

    def decode_all(self) -> Iterator[tuple[str, DaemonSetFact | None]]:
        """All DaemonSets, by UID, after a change of the DeviceClasses."""
        return self._decode_dependents(lambda _: True)

    def _decode_dependents(self, is_concerned: Callable[[Json], bool]) -> Iterator[tuple[str, DaemonSetFact | None]]:
        """After a change of another object. A DaemonSet that raises an error keeps its last known fact."""
        for uid, one in filter(lambda known: is_concerned(known[1]), self._daemonsets.items()):
            with self._invalid_objects.guard(object_key(one, resources.DAEMON_SETS.kind)):
                yield uid, self._read_daemonset(one)

    def _read_daemonset(self, one: Json) -> DaemonSetFact | None:
        """None if the API server rejects its pods, so that it never has one."""
        namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
        spec = self._admission.apply_defaults(_pod_spec(one), namespace)
        if self._admission.explain_rejection(name, spec, namespace):
            return None
        return self._device_classes.check_daemonset(daemonset_fact(one, spec))


def _pod_spec(daemonset: Json) -> Json:
    spec: Json = daemonset["spec"]["template"]["spec"]
    return spec
