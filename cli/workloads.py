"""Pods from manifests: Pods as they are, and the pods that workloads would make."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cli.admission import admitted
from cli.manifests import Object, described, namespace_of, refusing
from cli.volumes import claim_name

_COUNTS: Final[Mapping[str, str]] = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "ReplicationController": "replicas",
    "Job": "parallelism",
    "CronJob": "parallelism",
}
KINDS: Final = ("Pod", *_COUNTS)


def pods_of(path: Path, objects: list[Object]) -> Iterator[Object]:
    """One object for each pod, as the API server would have it. Raises `Refused` for what it would not let in."""
    for one in objects:
        if one["kind"] == "Pod":
            with refusing(f"{path}: {described(one)}"):
                spec = admitted(one.get("spec", {}))
            yield {**one, "spec": spec}
        else:
            yield from _replicas(path, one)


def _replicas(path: Path, one: Object) -> Iterator[Object]:
    """Named like a StatefulSet's; the UID tells those of two kinds apart."""
    with refusing(f"{path}: {described(one)}"):
        field, spec = "spec", _object(one, "spec", "spec")
        if one["kind"] == "CronJob":
            field = "spec.jobTemplate.spec"
            spec = _object(_object(spec, "jobTemplate", "spec.jobTemplate"), "spec", field)
        number = _number(spec, _COUNTS[one["kind"]], field)
        if "completions" in spec and _COUNTS[one["kind"]] == "parallelism":
            number = min(number, _number(spec, "completions", field))
        template = _object(spec, "template", f"{field}.template")
        pod = admitted(_object(template, "spec", f"{field}.template.spec"), f"{field}.template.spec")
        metadata = _object({"metadata": {}, **template}, "metadata", f"{field}.template.metadata")
        claims = list(_claim_templates(spec)) if one["kind"] == "StatefulSet" else []
    namespace, name = namespace_of(one), one["metadata"]["name"]
    for index in range(number):
        yield {
            "kind": "Pod",
            "metadata": {
                **metadata,
                "name": f"{name}-{index}",
                "namespace": namespace,
                "uid": f"{one['kind']}/{namespace}/{name}-{index}",
            },
            "spec": _with_claims(pod, claims, name, index),
        }


def _claim_templates(spec: Mapping[str, Any]) -> Iterator[str]:
    """By name."""
    for number, one in enumerate(spec.get("volumeClaimTemplates", ())):
        metadata = _object(one, "metadata", f"spec.volumeClaimTemplates[{number}].metadata")
        if not metadata.get("name"):
            raise ValueError(f"spec.volumeClaimTemplates[{number}].metadata.name is missing; give it a name")
        yield metadata["name"]


def _with_claims(spec: Object, claims: list[str], owner: str, index: int) -> Object:
    """Each pod of a StatefulSet has claims of its own, which stand in for volumes of the same name."""
    if not claims:
        return spec
    others = [volume for volume in spec.get("volumes", ()) if volume.get("name") not in claims]
    own = [{"name": one, "persistentVolumeClaim": {"claimName": claim_name(one, owner, index)}} for one in claims]
    return {**spec, "volumes": [*others, *own]}


def _object(holder: Mapping[str, Any], key: str, field: str) -> dict[str, Any]:
    found = holder.get(key)
    if not isinstance(found, dict):
        raise ValueError(f"{field} is missing" if found is None else f"{field}: {found!r:.60} is no object")
    return found


def _number(spec: Mapping[str, Any], key: str, field: str) -> int:
    number = spec.get(key, 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{field}.{key}: {number!r}; write a number that is not negative")
    return number
