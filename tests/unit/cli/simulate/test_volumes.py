"""`tenure simulate` with PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes among the manifests."""

from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tests.unit.cli.simulate.test_simulate import Files, pod, pool, run_simulation

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


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


def test_the_nodes_are_in_the_zones_of_the_volumes(files: Files, capsys: CaptureFixture[str]) -> None:
    files.write(
        "pods.yaml",
        pod_with_claims("x", "one"),
        pod_with_claims("y", "two"),
        *bound_claim("one", "b"),
        *bound_claim("two", "c"),
    )
    assert zones_by_pod(run_simulation(files, capsys)) == {"x": ["b"], "y": ["c"]}


def test_storage_may_stand_in_any_file(files: Files, capsys: CaptureFixture[str]) -> None:
    files.write("pods.yaml", pod_with_claims("x", "data"), claim("data", storageClassName="gp3"))
    files.write("pools.yaml", storage_class("gp3", "b", "c"), pool())
    assert zones_by_pod(run_simulation(files, capsys)) == {"x": ["b", "c"]}


def test_a_claim_that_is_not_given_refuses_its_pod_alone(files: Files, capsys: CaptureFixture[str]) -> None:
    files.write("pods.yaml", pod_with_claims("x", "data"), pod("y", cpu="1"))
    found = run_simulation(files, capsys)
    assert found["unschedulable"] == {"x": "PersistentVolumeClaim default/data does not exist; create it"}
    assert set(zones_by_pod(found)) == {"y"}


def test_a_claim_without_a_class_has_the_default_one(files: Files, capsys: CaptureFixture[str]) -> None:
    files.write("pods.yaml", pod_with_claims("x", "data"), claim("data"), storage_class("gp3", "c", default=True))
    assert zones_by_pod(run_simulation(files, capsys)) == {"x": ["c"]}
    files.write(
        "pods.yaml",
        pod_with_claims("x", "data"),
        claim("data", storageClassName=""),
        storage_class("gp3", default=True),
    )
    assert "names no StorageClass" in run_simulation(files, capsys)["unschedulable"]["x"]


def test_claims_of_ephemeral_volumes_are_made_up(files: Files, capsys: CaptureFixture[str]) -> None:
    raw = pod("x", cpu="1")
    raw["spec"]["volumes"] = [
        {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "gp3"}}}}
    ]
    files.write("pods.yaml", raw, storage_class("gp3", "b"))
    assert zones_by_pod(run_simulation(files, capsys)) == {"x": ["b"]}
    files.write("pods.yaml", raw)
    message = run_simulation(files, capsys)["unschedulable"]["x"]
    assert message == "PersistentVolumeClaim default/x-tmp names StorageClass gp3, which does not exist; create it"


def test_the_pods_of_a_stateful_set_have_claims_of_their_own(files: Files, capsys: CaptureFixture[str]) -> None:
    stateful = {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 3,
            "template": {"spec": pod("x", cpu="1")["spec"]},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "gp3"}}],
        },
    }
    files.write("pods.yaml", stateful, storage_class("gp3", "b"), *bound_claim("data-db-1", "a"))
    assert zones_by_pod(run_simulation(files, capsys)) == {"db-0": ["b"], "db-1": ["a"], "db-2": ["b"]}


def test_a_csinode_tells_how_many_volumes_a_node_takes(files: Files, capsys: CaptureFixture[str]) -> None:
    drivers = [{"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 1}}]
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "9"}
    files.write(
        "nodes.yaml",
        {"kind": "Node", "metadata": {"name": "n1", "labels": {ZONE: "b"}}, "status": {"allocatable": allocatable}},
        {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": drivers}},
    )
    files.write(
        "pods.yaml",
        pod_with_claims("x", "one"),
        pod_with_claims("y", "two"),
        *bound_claim("one", "b"),
        *bound_claim("two", "b"),
    )
    found = run_simulation(files, capsys, "--nodes", str(files.folder / "nodes.yaml"))
    assert found["existing"] == {"n1": ["x"]} and zones_by_pod(found) == {"y": ["b"]}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        ({"kind": "StorageClass", "metadata": {"name": "gp3"}}, ("StorageClass gp3", "'provisioner'", "missing")),
        ({"kind": "PersistentVolume", "metadata": {}, "spec": {}}, ("PersistentVolume", "metadata.name is missing")),
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
            ("StatefulSet db", "spec.volumeClaimTemplates[0].metadata.name is missing"),
        ),
    ],
)
def test_wrong_storage_is_named(
    files: Files, capsys: CaptureFixture[str], one: Json, expected: tuple[str, ...]
) -> None:
    files.write("pods.yaml", pod("x", cpu="1"), one)
    assert cli_main.main(files.arguments()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert all(part in line for part in ("pods.yaml", *expected)), line
