"""A valid object of each kind, and the hostile objects of `fields.yaml`, each with one hostile value.

No object selects the ordinary pool: such a DaemonSet or PodDisruptionBudget would affect it by design.
"""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final

import yaml

from tenure.apis import labels
from tests.support.hostile.values import FAMILIES
from tests.support.product.objects import (
    NODE_CLASS,
    Object,
    daemon_set,
    lifecycle_policy,
    node_claim,
    node_class,
    node_pool,
    pod_spec,
)

MESSAGE: Final = "Message"
"""A message of the interruption queue, which has no API version."""
POOL: Final = "hostile"
"""The NodePool that hostile pods select."""
VALUES_PER_FIELD: Final = 6
_STEP: Final = 5
"""Adjacent fields of one family start with different values."""
_SEGMENT: Final = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")


@dataclass(frozen=True, eq=False)
class HostileObject:
    kind: str
    path: str
    value: str
    """Name of the value in its family."""
    manifest: Object

    def __str__(self) -> str:
        return f"{self.kind} {self.path}={self.value}"


@lru_cache
def list_fields(kind: str = "") -> tuple[tuple[str, str, str], ...]:
    """Kind, family and path of each field, of one kind or of all kinds."""
    fields = yaml.safe_load((Path(__file__).parent / "fields.yaml").read_text())
    return tuple(
        (found, family, path)
        for found, families in fields.items()
        for family, paths in families.items()
        for path in paths
        if kind in ("", found)
    )


def build_hostile_objects() -> list[HostileObject]:
    """The same objects in every process. Objects of one kind and field are far apart in the list."""
    numbers = count()
    found = []
    for round_number in range(VALUES_PER_FIELD):
        for position, (kind, family, path) in enumerate(list_fields()):
            values = FAMILIES[family]
            name = list(values)[(position * _STEP + round_number) % len(values)]
            found.append(HostileObject(kind, path, name, _build(kind, path, values[name], next(numbers))))
    return found


def _build(kind: str, path: str, value: Any, number: int) -> Object:
    manifest = build_base(kind, path)
    if kind != MESSAGE:
        manifest["metadata"]["name"] = f"hostile-{number}"
    put(manifest, path, value)
    return manifest


def build_base(kind: str, path: str) -> Object:
    """A valid object of the kind that the field at `path` can be set in."""
    manifest = copy.deepcopy(BASES[kind])
    for prefix, target, value in SIBLINGS.get(kind, ()):
        if path.startswith(prefix):
            put(manifest, target, copy.deepcopy(value))
    return manifest


def put(target: Any, path: str, value: Any) -> None:
    """Set the field at `path`, and create missing lists and mappings."""
    segments = [bracketed or plain for bracketed, plain in _SEGMENT.findall(path)]
    for segment, following in pairwise(segments):
        empty: Any = [] if following.isdigit() else {}
        if isinstance(target, list):
            if not target:
                target.append(empty)
            target = target[int(segment)]
        else:
            if not isinstance(target.get(segment), dict | list):
                target[segment] = empty
            target = target[segment]
    if isinstance(target, list):
        target[:] = [value]
    else:
        target[segments[-1]] = value


def _manifest(kind: str, version: str, *, spec: Object | None = None, **fields: Any) -> Object:
    body = {"spec": spec} if spec is not None else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "hostile"}, **body, **fields}


def _pod() -> Object:
    spec = pod_spec(POOL, cpu="10m") | {"tolerations": [{"key": "example.com/t", "operator": "Equal", "value": "a"}]}
    spec["containers"][0]["resources"] = {"requests": {"cpu": "10m"}}
    expression = {"key": "example.com/k", "operator": "In", "values": ["a"]}
    preferred = {"weight": 1, "preference": {"matchExpressions": [expression]}}
    spread = {
        "maxSkew": 1,
        "topologyKey": labels.ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"hostile": "yes"}},
    }
    anti = {"labelSelector": {"matchLabels": {"example.com/k": "a"}}, "topologyKey": labels.HOSTNAME}
    spec["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]},
    }
    spec["topologySpreadConstraints"] = [spread | {"whenUnsatisfiable": "ScheduleAnyway"}]
    spec["volumes"] = [{"name": "data"}]
    return _manifest("Pod", "v1", spec=spec) | {
        "metadata": {"name": "hostile", "namespace": "default", "labels": {"hostile": "yes"}}
    }


def _node_pool() -> Object:
    pool = node_pool("hostile", of_class=NODE_CLASS)
    pool["spec"]["disruption"]["budgets"] = [{"nodes": "1", "schedule": "@daily", "duration": "1h"}]
    return pool


def _lifecycle_policy() -> Object:
    return lifecycle_policy(
        "hostile",
        POOL,
        disruption={
            "windows": [{"schedule": "@daily", "duration": "1h"}],
            "freezes": [{"start": "2026-01-01", "end": "2026-01-02"}],
        },
        hooks={"beforeDrain": [{"name": "a", "http": {"url": "https://example.com/"}}]},
        rollout={"waves": [{"nodes": "1", "soak": "1m"}]},
    )


def _budget() -> Object:
    spec = {"selector": {"matchLabels": {"hostile": "yes"}}}
    return _manifest("PodDisruptionBudget", "policy/v1", spec=spec)


def _volume() -> Object:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
        "storageClassName": "hostile",
    }
    return _manifest("PersistentVolume", "v1", spec=spec)


def _claim_of_volume() -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return _manifest("PersistentVolumeClaim", "v1", spec=spec)


def _message() -> Object:
    return {
        "version": "0",
        "id": "11111111-2222-3333-4444-555555555555",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "time": "2026-11-25T10:00:00Z",
        "detail": {"instance-id": "i-0000000000000001", "instance-action": "terminate"},
    }


def _overlay() -> Object:
    spec = {"requirements": [{"key": labels.NODEPOOL, "operator": "In", "values": [POOL]}], "weight": 1}
    return _manifest("NodeOverlay", "karpenter.sh/v1alpha1", spec=spec)


def _buffer() -> Object:
    spec = {"podTemplateRef": {"name": POOL}, "replicas": 1}
    return _manifest("CapacityBuffer", "autoscaling.x-k8s.io/v1beta1", spec=spec)


BASES: Final[dict[str, Object]] = {
    "Pod": _pod(),
    "Node": _manifest("Node", "v1", spec={}),
    "NodeClaim": node_claim("hostile"),
    "NodePool": _node_pool(),
    "EC2NodeClass": node_class("hostile"),
    "NodeOverlay": _overlay(),
    "LifecyclePolicy": _lifecycle_policy(),
    "CapacityBuffer": _buffer(),
    "PodDisruptionBudget": _budget(),
    "DaemonSet": daemon_set("hostile", pool=POOL),
    "PersistentVolume": _volume(),
    "PersistentVolumeClaim": _claim_of_volume(),
    "StorageClass": _manifest("StorageClass", "storage.k8s.io/v1", provisioner="ebs.csi.aws.com"),
    MESSAGE: _message(),
}


def _spec_without(kind: str, field: str, **more: Any) -> Object:
    return {key: value for key, value in BASES[kind]["spec"].items() if key != field} | more


_WINDOWS: Final = [{"schedule": "@daily", "duration": "1h"}]
_TAINT: Final = [{"key": "example.com/t", "effect": "NoSchedule"}]
_POD_TEMPLATE: Final = {"spec": pod_spec(POOL)}
_EVENTS: Final = ("instanceStatus", "rebalanceRecommendation", "scheduledChange", "systemStatus")


def _policy_siblings() -> Iterator[tuple[str, str, Any]]:
    for point in ("afterDrain", "beforeDrain", "beforeTerminate"):
        http, job = ({"http": {"url": "https://example.com/"}}, {"job": {"template": _POD_TEMPLATE}})
        yield f"spec.hooks.{point}", f"spec.hooks.{point}", [{"name": "a", **http}]
        yield f"spec.hooks.{point}.0.job", f"spec.hooks.{point}", [{"name": "a", **job}]
    for event in (*(f"spec.interruption.{one}" for one in _EVENTS), "spec.interruption.workloads.0"):
        labels = {"matchLabels": {"example.com/k": "a"}} if event.endswith("0") else {}
        actions: list[tuple[str, Object]] = [
            ("windows", {"action": "window", "windows": _WINDOWS}),
            *((one, {"action": "waitForApproval"}) for one in ("deadline", "lead", "matchLabels")),
        ]
        for field, more in actions:
            yield f"{event}.{field}", event, {**more, **labels}
    condition = {"type": "Ready", "status": "False", "toleration": "1h"}
    yield "spec.nodePoolSelector.matchLabels", "spec.nodePoolSelector", {}
    yield "spec.repair.conditions", "spec.repair.conditions", [condition]
    yield "spec.disruption.rates", "spec.disruption.rates", [{"nodes": "1", "within": "1h"}]
    yield "spec.rollout.health.queries", "spec.rollout.health.queries", [{"query": "up", "above": "1"}]
    yield "spec.rollout.health.queries.0.below", "spec.rollout.health.queries", [{"query": "up"}]


SIBLINGS: Final[dict[str, tuple[tuple[str, str, Any], ...]]] = {
    "CapacityBuffer": (
        (
            "spec.scalableRef",
            "spec",
            {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "a"}, "percentage": 10},
        ),
    ),
    "EC2NodeClass": (
        *(
            (f"spec.amiSelectorTerms.0.{one}", *target)
            for one in ("id", "name", "owner", "ssmParameter", "tags")
            for target in (
                ("spec.amiFamily", "AL2023"),
                ("spec.amiSelectorTerms", [{"name": "a"} if one == "owner" else {}]),
            )
        ),
        *(
            (f"spec.{one}.0.{field}", f"spec.{one}", [{}])
            for one in ("securityGroupSelectorTerms", "subnetSelectorTerms")
            for field in ("id", "name")
        ),
        (
            "spec.blockDeviceMappings.0",
            "spec.blockDeviceMappings",
            [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "snapshotID": "snap-0123456789abcdef0"}}],
        ),
        ("spec.instanceProfile", "spec", _spec_without("EC2NodeClass", "role")),
        (
            "spec.networkInterfaces",
            "spec.networkInterfaces",
            [{"deviceIndex": 0, "networkCardIndex": 0, "interfaceType": "interface"}],
        ),
        ("spec.capacityReservationSelectorTerms.0.ownerID", "spec.capacityReservationSelectorTerms", [{"tags": {}}]),
    ),
    "Node": (("spec.taints", "spec.taints", _TAINT),),
    "NodeClaim": tuple((f"spec.{one}", f"spec.{one}", _TAINT) for one in ("taints", "startupTaints")),
    "NodePool": (
        *((f"spec.template.spec.{one}", f"spec.template.spec.{one}", _TAINT) for one in ("taints", "startupTaints")),
        ("spec.replicas", "spec.limits", {"nodes": "1"}),
    ),
    "LifecyclePolicy": tuple(_policy_siblings()),
    "PersistentVolume": tuple(
        (f"spec.{one}", "spec", _spec_without("PersistentVolume", "csi", **source))
        for one, source in (
            ("hostPath", {}),
            ("local", {}),
            ("awsElasticBlockStore", {}),
            ("azureDisk", {"azureDisk": {"diskURI": "a"}}),
            ("azureFile", {"azureFile": {"secretName": "a"}}),
            ("cinder", {}),
            ("gcePersistentDisk", {}),
            ("portworxVolume", {}),
            ("vsphereVolume", {}),
        )
    ),
}
"""By kind: a prefix of paths, and a field with the value that a field there needs to be valid."""
