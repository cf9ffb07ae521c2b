"""No content of an object of any watched kind ends the watch or affects other objects."""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, cast

import pytest

from tenure.apis.feature_gates import FeatureGate
from tenure.controller.cache.changes import ChangeBatch, SyncedKinds
from tenure.controller.settings import ControllerSettings
from tenure.controller.watched_cluster import WatchedCluster
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.list_watch import Delta, identity_stub
from tests.support.controller import builders
from tests.support.hostile.objects import BASES

Json = dict[str, Any]
Path = tuple[str | int, ...]

AT: Final = "2026-01-01T00:00:00Z"
SETTINGS: Final = ControllerSettings(
    cluster="demo",
    gates=frozenset(FeatureGate),
    plans_devices=True,
    default_constraints=({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},),
)
SYNCED: Final = SyncedKinds(
    nodeclaims=True, nodes=True, pods=True, nodepools=True, nodeclasses=True, warm_up_until=None
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, {}, [], "", "x", 1, -1, 2**70, 0.5, float("inf"), True, "9" * 4301, "\ud800"),
    *({"a": {"b": 1}}, ["a"], [None], [{}], {"": None}, {"cpu": "9e30"}),
)
IDENTITY: Final[tuple[Path, ...]] = tuple(("metadata", one) for one in ("name", "namespace", "uid"))

SELECTOR: Final = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]}
TEMPLATE: Final = {"metadata": {"labels": {"app": "a"}}, "spec": BASES["DaemonSet"]["spec"]["template"]["spec"]}
WORKLOAD: Final = {"selector": SELECTOR, "replicas": 1, "template": TEMPLATE}
CEL: Final = [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]
EXACTLY: Final = {"deviceClassName": "gpu", "selectors": CEL, "allocationMode": "ExactCount", "count": 1}
CLAIM: Final = {"devices": {"requests": [{"name": "g", "exactly": EXACTLY}]}}
RESULT: Final = {"request": "g", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
DEVICE: Final = {
    "name": "gpu-0",
    "attributes": {"model": {"string": "x"}, "number": {"int": 1}, "driver": {"version": "1.0.0"}},
    "capacity": {"memory": {"value": "80Gi"}},
}
LIMITS: Final = {
    "type": "Container",
    **{key: {"cpu": "1"} for key in ("default", "defaultRequest", "max", "min", "maxLimitRequestRatio")},
}
VOLUMES: Final = [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]
POD: Final = {
    **BASES["Pod"]["spec"],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "a"}],
    "volumes": VOLUMES,
}


def _condition(kind: str, status: str, **more: str) -> Json:
    return {"conditions": [{"type": kind, "status": status, "lastTransitionTime": AT, **more}]}


def _object(kind: str = "", **fields: Any) -> Json:
    metadata = {"name": "a", "namespace": "default", "uid": "a", "resourceVersion": "1", "generation": 1}
    metadata |= {"creationTimestamp": AT, "labels": {"app": "a"}, "annotations": {"tenure.sh/paused": "x"}}
    base = copy.deepcopy(BASES[kind]) if kind else {}
    return base | {"metadata": base.get("metadata", {}) | metadata} | copy.deepcopy(fields)


OBJECTS: Final[dict[str, Json]] = {
    "pods": _object(
        "Pod", spec=POD, status=_condition("PodScheduled", "False", reason="Unschedulable", message="none")
    ),
    "nodes": builders.node("n1", of="c1", labels={"a": "b"}),
    "nodeclaims": builders.claim("c1", phase="Initialized"),
    "nodepools": _object("NodePool"),
    "ec2nodeclasses": _object("EC2NodeClass"),
    "lifecyclepolicies": _object("LifecyclePolicy"),
    "daemonsets": _object("DaemonSet"),
    "namespaces": _object(),
    "storageclasses": _object(
        "StorageClass",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a"]}]}],
        volumeBindingMode="WaitForFirstConsumer",
        parameters={"type": "gp3"},
    ),
    "persistentvolumes": _object("PersistentVolume"),
    "persistentvolumeclaims": _object("PersistentVolumeClaim", status={"phase": "Pending"}),
    "csinodes": _object(
        spec={
            "drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i", "topologyKeys": ["z"], "allocatable": {"count": 2}}]
        }
    ),
    "poddisruptionbudgets": _object(
        spec={"selector": SELECTOR, "minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        status={"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    ),
    "volumeattachments": _object(
        spec={"attacher": "ebs.csi.aws.com", "nodeName": "n1", "source": {"persistentVolumeName": "a"}},
        status={"attached": True},
    ),
    "limitranges": _object(spec={"limits": [LIMITS]}),
    "runtimeclasses": _object(
        handler="a",
        overhead={"podFixed": {"cpu": "1"}},
        scheduling={"nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}]},
    ),
    "deviceclasses": _object(spec={"selectors": CEL, "extendedResourceName": "example.com/gpu"}),
    "resourceclaims": _object(
        spec=CLAIM, status={"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [{"uid": "a"}]}
    ),
    "resourceclaimtemplates": _object(spec={"spec": CLAIM}),
    "resourceslices": _object(
        spec={
            "driver": "gpu.nvidia.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [DEVICE],
        }
    ),
    "services": _object(spec={"selector": {"app": "a"}}),
    "replicasets": _object(spec=WORKLOAD),
    "statefulsets": _object(spec=WORKLOAD),
    "replicationcontrollers": _object(spec=WORKLOAD | {"selector": {"app": "a"}}),
    "deployments": _object(spec=WORKLOAD),
    "nodeoverlays": _object(
        "NodeOverlay", spec=BASES["NodeOverlay"]["spec"] | {"price": "1", "capacity": {"example.com/a": "1"}}
    ),
    "capacitybuffers": _object("CapacityBuffer", status=_condition("ReadyForProvisioning", "True")),
    "podtemplates": _object(template=TEMPLATE),
}
"""An object of each watched kind, with the fields that Tenure reads."""


class Watch:
    """Every kind is watched and has one object, and the ordinary pod `ordinary` waits."""

    def __init__(self) -> None:
        self.cluster = WatchedCluster(SETTINGS, KubeAdapters(cast(KubeClient, None)), self.now)
        for kind, raw in OBJECTS.items():
            self.deliver(kind, raw)
        self.deliver("pods", builders.pod("ordinary"))

    @staticmethod
    def now() -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def deliver(self, kind: str, raw: Json) -> None:
        self.cluster.on_deltas(kind, [Delta(copy.deepcopy(raw))])
        cache = self.cluster.cache
        cache.publish(ChangeBatch(cache.drain_changes(), SYNCED, self.now()))

    def delete(self, kind: str, raw: Json) -> None:
        """As after a later list: only the identity of the deleted object is known."""
        self.cluster.on_deltas(kind, [Delta(identity_stub(raw), is_deleted=True)])

    def invalid_names(self) -> set[tuple[str, str]]:
        return {(key.step, key.name) for key in self.cluster.cache.invalid_objects.items()}


@pytest.fixture
def watch() -> Watch:
    return Watch()


def list_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path and path not in IDENTITY and path != ("metadata",):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from list_paths(one, (*path, key))


def replace_value(raw: Json, path: Path, value: Any) -> Json:
    changed: Any = copy.deepcopy(raw)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = copy.deepcopy(value)
    return cast(Json, changed)


def test_every_watched_kind_has_an_object(watch: Watch) -> None:
    assert OBJECTS.keys() == watch.cluster._watches.keys() | watch.cluster._optional_watches.keys()


def test_valid_objects_of_every_kind_are_not_reported(watch: Watch) -> None:
    assert watch.invalid_names() == set()


@pytest.mark.parametrize("kind", OBJECTS)
def test_deletion_that_a_list_reveals_is_applied(watch: Watch, kind: str) -> None:
    watch.delete(kind, OBJECTS[kind])
    assert watch.invalid_names() == set()


def test_volume_attachment_that_a_list_no_longer_has_is_removed(watch: Watch) -> None:
    assert watch.cluster.cache.attachments_of("n1")
    watch.delete("volumeattachments", OBJECTS["volumeattachments"])
    assert not watch.cluster.cache.attachments_of("n1")


@pytest.mark.parametrize("kind", OBJECTS)
def test_any_value_in_any_field_affects_only_its_object(watch: Watch, kind: str) -> None:
    raw = OBJECTS[kind]
    for path in list_paths(raw):
        for value in VALUES:
            watch.deliver(kind, replace_value(raw, path, value))
            watch.deliver("pods", builders.pod("ordinary"))
            affected = {name for _, name in watch.invalid_names()} - {"default/a", "a", "n1", "c1"}
            assert not affected, (path, value)
            assert any(one.name == "ordinary" for one in watch.cluster.cache.pending.values()), (path, value)
        watch.deliver(kind, raw)
    assert watch.invalid_names() == set()
