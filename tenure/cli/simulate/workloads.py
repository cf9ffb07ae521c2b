"""Pods from manifests (Pods, replicas of workloads, virtual pods of CapacityBuffers) and their storage objects.

Storage objects may be in any file. PersistentVolumeClaims that a controller would create are generated.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tenure.apis.capacitybuffer import CapacityBuffer
from tenure.cli.simulate.manifests import (
    Object,
    describe_object,
    namespace_of,
    parse_object,
    raising_usage_error,
    read_metadata,
)
from tenure.cli.simulate.pod_admission import AdmissionObjects
from tenure.kube.facts.pods import virtual_pod_fact
from tenure.kube.facts.volumes import csi_node_fact, storage_class_fact, volume_claim_fact, volume_fact
from tenure.model.extra_capacity import BufferFact, build_virtual_pods
from tenure.model.facts import PodFact, StorageClassFact, StorageFact, VolumeClaimFact
from tenure.policy.capacity_buffer import SCALABLE, decide_replicas
from tenure.scheduling.snapshot import Change, StorageKind

CLAIM: Final = "PersistentVolumeClaim"
_READERS: Final[Mapping[str, tuple[StorageKind, Callable[[Mapping[str, Any]], StorageFact]]]] = {
    CLAIM: ("volume_claim", volume_claim_fact),
    "PersistentVolume": ("volume", volume_fact),
    "StorageClass": ("storage_class", storage_class_fact),
    "CSINode": ("csi_node", csi_node_fact),
}
STORAGE_KINDS: Final = tuple(_READERS)


@dataclass
class StorageObjects:
    """Methods raise `UsageError` for invalid objects."""

    _facts: dict[tuple[StorageKind, str], StorageFact] = field(default_factory=dict)
    _unnamed: set[str] = field(default_factory=set)
    """Keys of PersistentVolumeClaims that name no StorageClass."""

    def add_objects(self, path: Path, objects: Iterable[Object]) -> None:
        """Add the storage objects among these objects."""
        for one in objects:
            if one["kind"] in STORAGE_KINDS:
                self._add_object(path, one)

    def add_generated_claims(self, path: Path, claims: Iterable[Object]) -> None:
        """Add generated PersistentVolumeClaims, except those that the files contain."""
        for one in claims:
            if ("volume_claim", f"{namespace_of(one)}/{one['metadata']['name']}") not in self._facts:
                self._add_object(path, one)

    def to_changes(self) -> list[Change]:
        """A PersistentVolumeClaim without a StorageClass gets the default class, as from the API server."""
        classes = (one for one in self._facts.values() if isinstance(one, StorageClassFact) and one.default)
        default = min((one.name for one in classes), default="")
        return [
            Change(kind=kind, key=key, fact=self._with_default_class(fact, default))
            for (kind, key), fact in self._facts.items()
        ]

    def _add_object(self, path: Path, one: Object) -> None:
        kind, read = _READERS[one["kind"]]
        fact = parse_object(path, one, read)
        key = fact.key if isinstance(fact, VolumeClaimFact) else fact.name
        self._facts[kind, key] = fact
        self._unnamed.discard(key)
        if isinstance(fact, VolumeClaimFact) and "storageClassName" not in one.get("spec", {}):
            self._unnamed.add(key)

    def _with_default_class(self, fact: StorageFact, default: str) -> StorageFact:
        if not isinstance(fact, VolumeClaimFact) or fact.volume or fact.key not in self._unnamed:
            return fact
        return fact.model_copy(update={"storage_class": default})


def ephemeral_claims(pods: Iterable[Object]) -> Iterator[Object]:
    """PersistentVolumeClaims of generic ephemeral volumes."""
    for pod in pods:
        for volume in pod["spec"].get("volumes", ()):
            if volume.get("ephemeral"):
                name = f"{pod['metadata']['name']}-{volume.get('name')}"
                yield _make_claim(name, namespace_of(pod), _nested_object(volume["ephemeral"], "volumeClaimTemplate"))


def claims_of_sets(workloads: Iterable[Object]) -> Iterator[Object]:
    """PersistentVolumeClaims of StatefulSets, one for each replica and template."""
    for one in workloads:
        if one["kind"] == "StatefulSet":
            for index in range(one["spec"].get("replicas", 1)):
                for template in one["spec"].get("volumeClaimTemplates", ()):
                    name = claim_name(template["metadata"]["name"], one["metadata"]["name"], index)
                    yield _make_claim(name, namespace_of(one), template)


def claim_name(template: str, owner: str, index: int) -> str:
    """The name that the StatefulSet controller uses."""
    return f"{template}-{owner}-{index}"


def _make_claim(name: str, namespace: str, template: Any) -> Object:
    return {"kind": CLAIM, "metadata": {"name": name, "namespace": namespace}, "spec": _nested_object(template, "spec")}


def _nested_object(holder: Any, key: str) -> Any:
    """Empty if it is missing or not an object."""
    found = holder.get(key) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


_COUNTS: Final[Mapping[str, str]] = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "ReplicationController": "replicas",
    "Job": "parallelism",
    "CronJob": "parallelism",
}
KINDS: Final = ("Pod", *_COUNTS)


def pods_of(path: Path, objects: Sequence[Object], admission: AdmissionObjects) -> Iterator[Object]:
    """Raises `UsageError` for pods that an API server would reject.

    A workload whose pods or ReplicaSet are in the file, as in the output of `kubectl get all`, has no other pods."""
    owners = {key for one in objects for key in _controllers(one)}
    for one in objects:
        if one["kind"] == "Pod":
            with raising_usage_error(f"{path}: {describe_object(one)}"):
                spec = admission.admit_pod(one)
            yield {**one, "spec": spec}
        elif _owner_key(one["kind"], namespace_of(one), one["metadata"]) not in owners:
            yield from _expand_replicas(path, one, admission)


def workloads_without_replicas(objects: Iterable[Object]) -> list[str]:
    """Workloads that are scaled to zero, e.g. `Deployment web`."""
    return [
        describe_object(one)
        for one in objects
        if one["kind"] in _COUNTS and _nested_object(one, "spec").get(_COUNTS[one["kind"]]) == 0
    ]


def _controllers(one: Object) -> Iterator[tuple[str, str, str]]:
    for owner in one["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            yield _owner_key(owner.get("kind"), namespace_of(one), owner)


def _owner_key(kind: Any, namespace: str, named: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(kind), namespace, str(named.get("name"))


def _expand_replicas(path: Path, one: Object, admission: AdmissionObjects) -> Iterator[Object]:
    """Pods are named like those of a StatefulSet; the UID distinguishes kinds."""
    with raising_usage_error(f"{path}: {describe_object(one)}"):
        field, spec = "spec", _require_object(one, "spec", "spec")
        if one["kind"] == "CronJob":
            field = "spec.jobTemplate.spec"
            spec = _require_object(_require_object(spec, "jobTemplate", "spec.jobTemplate"), "spec", field)
        number = _require_count(spec, _COUNTS[one["kind"]], field)
        if "completions" in spec and _COUNTS[one["kind"]] == "parallelism":
            number = min(number, _require_count(spec, "completions", field))
        template = _require_object(spec, "template", f"{field}.template")
        pod = _require_object(template, "spec", f"{field}.template.spec")
        pod = admission.admit(pod, namespace_of(one), f"{field}.template.spec")
        metadata = read_metadata(template, f"{field}.template.metadata")
        claims = list(_claim_templates(spec)) if one["kind"] == "StatefulSet" else []
    namespace, name = namespace_of(one), one["metadata"]["name"]
    owner_uid = _owner_uid(one["kind"], namespace, name)
    owner = {"kind": one["kind"], "name": name, "uid": one["metadata"].get("uid") or owner_uid, "controller": True}
    for index in range(number):
        yield {
            "kind": "Pod",
            "metadata": {
                **metadata,
                "name": f"{name}-{index}",
                "namespace": namespace,
                "uid": f"{owner_uid}-{index}",
                "ownerReferences": [owner],
            },
            "spec": _with_claims(pod, claims, name, index),
        }


SPREAD_KINDS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController")
"""Workloads whose selectors count for default topology spread."""


def spread_selector(one: Object) -> tuple[str, Object]:
    """For `DefaultSpread.update`: the kind, and the object with the UID that its pods refer to. Pods of a Deployment
    without a ReplicaSet get the selector of the Deployment."""
    kind, metadata = one["kind"], one["metadata"]
    uid = metadata.get("uid") or _owner_uid(kind, namespace_of(one), metadata["name"])
    found = {**one, "metadata": {**metadata, "namespace": namespace_of(one), "uid": uid}}
    return ("ReplicaSet" if kind == "Deployment" else kind), found


def _owner_uid(kind: str, namespace: str, name: str) -> str:
    return f"{kind}/{namespace}/{name}"


def _claim_templates(spec: Mapping[str, Any]) -> Iterator[str]:
    """Names of the templates."""
    for number, one in enumerate(spec.get("volumeClaimTemplates", ())):
        metadata = _require_object(one, "metadata", f"spec.volumeClaimTemplates[{number}].metadata")
        if not metadata.get("name"):
            raise ValueError(f"spec.volumeClaimTemplates[{number}].metadata.name: missing, expected a name, e.g. web")
        yield metadata["name"]


def _with_claims(spec: Object, claims: list[str], owner: str, index: int) -> Object:
    """The claims of a StatefulSet's pod replace volumes of the same name."""
    if not claims:
        return spec
    others = [volume for volume in spec.get("volumes", ()) if volume.get("name") not in claims]
    own = [{"name": one, "persistentVolumeClaim": {"claimName": claim_name(one, owner, index)}} for one in claims]
    return {**spec, "volumes": [*others, *own]}


def _require_object(holder: Mapping[str, Any], key: str, field: str) -> dict[str, Any]:
    found = holder.get(key)
    if not isinstance(found, dict):
        raise ValueError(f"{field} is missing" if found is None else f"{field}: {found!r:.60} is not an object")
    return found


def _require_count(spec: Mapping[str, Any], key: str, field: str) -> int:
    number = spec.get(key, 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{field}.{key}: {number!r}, expected a whole number of 0 or more")
    return number


BUFFERS_KINDS = ("CapacityBuffer", "PodTemplate")


def read_buffer_pods(path: Path, objects: Sequence[Object], admission: AdmissionObjects) -> list[PodFact]:
    buffers = [one for one in objects if one["kind"] == "CapacityBuffer"]
    return [
        pod for one in buffers for pod in parse_object(path, one, lambda raw: _buffer_pods(raw, objects, admission))
    ]


def _buffer_pods(raw: Mapping[str, Any], objects: Sequence[Object], admission: AdmissionObjects) -> tuple[PodFact, ...]:
    buffer = CapacityBuffer.from_object(raw)
    meta, spec = buffer.metadata, buffer.spec
    if spec.pod_template_ref is not None:
        named = _find_object(objects, "PodTemplate", meta.namespace, spec.pod_template_ref.name)
        template, replicas = named.get("template") or {}, 0
    elif spec.scalable_ref is not None and spec.scalable_ref.kind in SCALABLE:
        named = _find_object(objects, spec.scalable_ref.kind, meta.namespace, spec.scalable_ref.name)
        workload = named.get("spec") or {}
        template, replicas = workload.get("template") or {}, workload.get("replicas", 1)
    else:
        raise ValueError(
            f"spec: no pods referenced, expected podTemplateRef, or scalableRef of a {' or '.join(SCALABLE)}"
        )
    admitted = admission.rules.apply_defaults(template.get("spec") or {}, meta.namespace)
    pod = virtual_pod_fact(raw, {**template, "spec": admitted})
    desired_replicas = decide_replicas(spec, pod.requests, replicas)
    return build_virtual_pods(
        BufferFact(uid=meta.uid, namespace=meta.namespace, name=meta.name, replicas=desired_replicas, pod=pod)
    )


def _find_object(objects: Sequence[Object], kind: str, namespace: str, name: str) -> Object:
    for one in objects:
        meta = one.get("metadata") or {}
        if (one["kind"], meta.get("namespace", "default"), meta.get("name")) == (kind, namespace, name):
            return one
    raise ValueError(f"spec: {kind} {namespace}/{name} is not in the file; add it")
