"""DaemonSets with the LimitRanges and RuntimeClasses that change the pods of their templates."""

from collections.abc import Callable, Iterator
from typing import Final

from tenure.controller.cache.dirty import set_or_remove
from tenure.kube.client import resources
from tenure.kube.client.errors import Json
from tenure.kube.client.list_watch import Delta
from tenure.kube.facts.pod_admission import (
    ContainerDefaults,
    RuntimeClassDefaults,
    apply_admission_defaults,
    container_defaults,
    runtime_class_defaults,
)
from tenure.kube.facts.pods import daemonset_fact
from tenure.model.facts import DaemonSetFact

KINDS: Final = frozenset(
    one.plural for one in (resources.DAEMON_SETS, resources.LIMIT_RANGES, resources.RUNTIME_CLASSES)
)


class DaemonTemplates:
    """Keeps DaemonSets as objects, since a change of another kind changes their facts."""

    def __init__(self) -> None:
        self._daemonsets: dict[str, Json] = {}
        """By UID."""
        self._container_defaults: dict[tuple[str, str], ContainerDefaults] = {}
        """By namespace and name of the LimitRange."""
        self._runtime_classes: dict[str, RuntimeClassDefaults] = {}

    def update(self, plural: str, delta: Delta) -> Iterator[tuple[str, DaemonSetFact | None]]:
        """The DaemonSets that the change concerns, by UID; None for a deleted one. Raises ValueError and KeyError."""
        changed, metadata = delta.object, delta.object["metadata"]
        if plural == resources.DAEMON_SETS.plural:
            yield metadata["uid"], None if delta.is_deleted else self._read_daemonset(changed)
            set_or_remove(self._daemonsets, metadata["uid"], None if delta.is_deleted else changed)
        elif plural == resources.LIMIT_RANGES.plural:
            key = metadata["namespace"], metadata["name"]
            set_or_remove(self._container_defaults, key, None if delta.is_deleted else container_defaults(changed))
            yield from self._decode_dependents(lambda one: one["metadata"]["namespace"] == metadata["namespace"])
        else:
            runtime_class = None if delta.is_deleted else runtime_class_defaults(changed)
            set_or_remove(self._runtime_classes, metadata["name"], runtime_class)
            yield from self._decode_dependents(lambda one: _pod_spec(one).get("runtimeClassName") == metadata["name"])

    def _decode_dependents(self, is_concerned: Callable[[Json], bool]) -> Iterator[tuple[str, DaemonSetFact]]:
        for uid, one in self._daemonsets.items():
            if is_concerned(one):
                yield uid, self._read_daemonset(one)

    def _read_daemonset(self, one: Json) -> DaemonSetFact:
        namespace = one["metadata"]["namespace"]
        defaults = [self._container_defaults[key] for key in sorted(self._container_defaults) if key[0] == namespace]
        return daemonset_fact(one, apply_admission_defaults(_pod_spec(one), defaults, self._runtime_classes))


def _pod_spec(daemonset: Json) -> Json:
    spec: Json = daemonset["spec"]["template"]["spec"]
    return spec
