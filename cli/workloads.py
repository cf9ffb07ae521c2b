"""Pods from manifests: Pods as they are, and the pods that workloads would make."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cli.exits import Refused
from cli.manifests import Object, described

_COUNTS: Final[Mapping[str, str]] = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "ReplicationController": "replicas",
    "Job": "parallelism",
}
KINDS: Final = ("Pod", *_COUNTS)


def pods_of(path: Path, objects: list[Object]) -> Iterator[Object]:
    """One object for each pod. Raises `Refused` for a number of replicas that is none."""
    for one in objects:
        if one["kind"] == "Pod":
            yield one
        else:
            yield from _replicas(path, one)


def _replicas(path: Path, one: Object) -> Iterator[Object]:
    field = _COUNTS[one["kind"]]
    spec = one.get("spec") or {}
    number = spec.get(field, 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise Refused(f"{path}: {described(one)}: spec.{field}: {number!r}; write a number that is not negative")
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise Refused(f"{path}: {described(one)}: spec.template.spec is missing")
    metadata: Mapping[str, Any] = one.get("metadata") or {}
    for index in range(number):
        yield {
            "kind": "Pod",
            "metadata": {
                **(template.get("metadata") or {}),
                "name": f"{metadata.get('name', '')}-{index}",
                "namespace": metadata.get("namespace", "default"),
            },
            "spec": template["spec"],
        }
