"""CapacityBuffers in manifests, as the pods for which they want room; what they refer to has to be there too."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.manifests import Object, parsed
from kube.pod_facts import virtual_pod_fact
from model.buffers import BufferFact, virtual_pods
from model.facts import PodFact
from model.kinds import CapacityBuffer
from policy.buffers import SCALABLE, decide_replicas

KINDS = ("CapacityBuffer", "PodTemplate")


def room_of(path: Path, objects: Sequence[Object]) -> list[PodFact]:
    """Of all buffers among the objects. Raises `Refused`."""
    buffers = [one for one in objects if one["kind"] == "CapacityBuffer"]
    return [pod for one in buffers for pod in parsed(path, one, lambda raw: _room(raw, objects))]


def _room(raw: Mapping[str, Any], objects: Sequence[Object]) -> tuple[PodFact, ...]:
    """Raises ValueError."""
    buffer = CapacityBuffer.from_object(raw)
    meta, spec = buffer.metadata, buffer.spec
    if spec.pod_template_ref is not None:
        template = _found(objects, "PodTemplate", meta.namespace, spec.pod_template_ref.name).get("template") or {}
        replicas = 0
    elif spec.scalable_ref is not None and spec.scalable_ref.kind in SCALABLE:
        workload = _found(objects, spec.scalable_ref.kind, meta.namespace, spec.scalable_ref.name).get("spec") or {}
        template, replicas = workload.get("template") or {}, workload.get("replicas", 1)
    else:
        raise ValueError(f"spec: it names no pods; write podTemplateRef, or scalableRef of a {' or '.join(SCALABLE)}")
    pod = virtual_pod_fact(raw, template)
    wanted = decide_replicas(spec, pod.requests, replicas)
    return virtual_pods(BufferFact(uid=meta.uid, namespace=meta.namespace, name=meta.name, replicas=wanted, pod=pod))


def _found(objects: Sequence[Object], kind: str, namespace: str, name: str) -> Object:
    for one in objects:
        meta = one.get("metadata") or {}
        if (one["kind"], meta.get("namespace", "default"), meta.get("name")) == (kind, namespace, name):
            return one
    raise ValueError(f"spec: {kind} {namespace}/{name} is not in the file; add it")
