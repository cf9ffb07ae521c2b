"""Pods from manifests: Pods as they are, and the pods that workloads would make."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cli.exits import Refused
from cli.manifests import Object, described
from cli.volumes import claim_name

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
            "spec": _with_claims(path, one, template["spec"], index),
        }


def _with_claims(path: Path, one: Object, spec: Object, index: int) -> Object:
    """Each pod of a StatefulSet has claims of its own."""
    templates = (one.get("spec") or {}).get("volumeClaimTemplates") or ()
    if one["kind"] != "StatefulSet" or not templates:
        return spec
    try:
        names = {
            each["metadata"]["name"]: claim_name(each, one["metadata"].get("name", ""), index) for each in templates
        }
    except (KeyError, TypeError) as error:
        raise Refused(f"{path}: {described(one)}: spec.volumeClaimTemplates: metadata.name is missing") from error
    others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in names]
    own = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in names.items()]
    return {**spec, "volumes": [*others, *own]}
