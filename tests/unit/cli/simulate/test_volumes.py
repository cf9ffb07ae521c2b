"""`tenure simulate` with PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes among the manifests."""

from typing import Any

import pytest

from tests.unit.cli.simulate.builders import Files, Json, pod, pool

ZONE = "topology.kubernetes.io/zone"


def pod_with_claims(name: str, *claims: str) -> Json:
    raw = pod(name, cpu="1")
    raw["spec"]["volumes"] = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return raw


def bound_claim(name: str, zone: str) -> list[Json]:
    terms = [{"matchExpressions": [{"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": [zone]}]}]
    annotations = {"pv.kubernetes.io/bind-completed": "yes"}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"volumeName": f"pv-{name}"},
        },
        {
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{name}"},
            "spec": {
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        },
    ]


def claim(name: str, **spec: Any) -> Json:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def storage_class(name: str, *zones: str, default: bool = False) -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}] if zones else [],
    }


def zones_by_pod(found: Json) -> dict[str, list[str]]:
    return {pod: node["zones"] for node in found["nodes"] for pod in node["pods"]}


def test_storage_objects_may_be_in_any_file(files: Files) -> None:
    files.write("pods.yaml", pod_with_claims("x", "data"), claim("data", storageClassName="gp3"))
    files.write("pools.yaml", storage_class("gp3", "b", "c"), pool())
    assert zones_by_pod(files.run()) == {"x": ["b", "c"]}


EPHEMERAL = pod("x", cpu="1")
EPHEMERAL["spec"]["volumes"] = [
    {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "gp3"}}}}
]
STATEFUL_SET = {
    "kind": "StatefulSet",
    "metadata": {"name": "db"},
    "spec": {
        "replicas": 3,
        "template": {"spec": pod("x", cpu="1")["spec"]},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "gp3"}}],
    },
}
TWO_PODS = [
    pod_with_claims("x", "one"),
    pod_with_claims("y", "two"),
    *bound_claim("one", "b"),
    *bound_claim("two", "c"),
]


@pytest.mark.parametrize(
    ("objects", "zones"),
    [
        (TWO_PODS, {"x": ["b"], "y": ["c"]}),
        ([pod_with_claims("x", "data"), claim("data"), storage_class("gp3", "c", default=True)], {"x": ["c"]}),
        ([EPHEMERAL, storage_class("gp3", "b")], {"x": ["b"]}),
        (
            [STATEFUL_SET, storage_class("gp3", "b"), *bound_claim("data-db-1", "a")],
            {"db-0": ["b"], "db-1": ["a"], "db-2": ["b"]},
        ),
    ],
    ids=["volumes", "default class", "ephemeral volume", "claims of a StatefulSet"],
)
def test_nodes_are_in_zones_of_volumes(files: Files, objects: list[Json], zones: dict[str, list[str]]) -> None:
    files.write("pods.yaml", *objects)
    assert zones_by_pod(files.run()) == zones


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([pod_with_claims("x", "data")], "PersistentVolumeClaim default/data does not exist; create it"),
        (
            [EPHEMERAL],
            "PersistentVolumeClaim default/x-tmp names StorageClass gp3, which does not exist; create it",
        ),
        (
            [
                pod_with_claims("x", "data"),
                claim("data", storageClassName=""),
                storage_class("gp3", default=True),
            ],
            "names no StorageClass",
        ),
    ],
    ids=["no claim", "no class", "empty class"],
)
def test_missing_storage_blocks_its_pod_only(files: Files, objects: list[Json], reason: str) -> None:
    files.write("pods.yaml", *objects, pod("y", cpu="1"))
    found = files.run()
    assert list(found["unschedulable"]) == ["x"] and reason in found["unschedulable"]["x"]
    assert set(zones_by_pod(found)) == {"y"}


def test_csinode_limits_volumes_of_node(files: Files) -> None:
    drivers = [{"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 1}}]
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "9"}
    files.write(
        "nodes.yaml",
        {"kind": "Node", "metadata": {"name": "n1", "labels": {ZONE: "b"}}, "status": {"allocatable": allocatable}},
        {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": drivers}},
    )
    files.write(
        "pods.yaml",
        *TWO_PODS[:2],
        *bound_claim("one", "b"),
        *bound_claim("two", "b"),
    )
    found = files.run("--nodes", str(files.folder / "nodes.yaml"))
    assert found["existing"] == {"n1": ["x"]} and zones_by_pod(found) == {"y": ["b"]}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        ({"kind": "StorageClass", "metadata": {"name": "gp3"}}, ("StorageClass gp3", "'provisioner'", "missing")),
        ({"kind": "PersistentVolume", "metadata": {}, "spec": {}}, ("PersistentVolume", "metadata.name: missing")),
        (
            {
                "kind": "CSINode",
                "metadata": {"name": "n"},
                "spec": {"drivers": [{"name": "d", "allocatable": {"count": "x"}}]},
            },
            ("CSINode n", "limits.d", "'x'"),
        ),
        (
            {
                "kind": "StatefulSet",
                "metadata": {"name": "db"},
                "spec": {"template": {"spec": pod("x")["spec"]}, "volumeClaimTemplates": [{"metadata": {}}]},
            },
            ("StatefulSet db", "spec.volumeClaimTemplates[0].metadata.name: missing"),
        ),
    ],
)
def test_invalid_storage_objects_are_named(files: Files, one: Json, expected: tuple[str, ...]) -> None:
    files.write("pods.yaml", pod("x", cpu="1"), one)
    line = files.usage_error()
    assert all(part in line for part in ("pods.yaml", *expected)), line
