"""Karpenter's own example files are valid and run in `tenure simulate` unchanged, from its provider's Go module."""

import json
from pathlib import Path
from typing import Final

import pytest
from _pytest.capture import CaptureFixture

from benchmarks.generators.instance_types import catalogue
from tenure.cli.main import main
from tenure.cli.simulate.portable_types import EXPORTED
from tenure.model.instance_types import InstanceType
from tests.support.sandbox.go_modules import download_module

VERSION: Final = "1.14.0"
"""Later versions need a newer Go than the control plane's."""
INVALID: Final = {"windows-custom-userdata.yaml": "spec.template.spec.nodeClassRef.group"}
"""The fields that Karpenter's CRDs reject, too."""
OTHER_OS: Final = ("windows-2019.yaml", "windows-2022.yaml", "windows-2025.yaml")


@pytest.fixture(scope="module")
def examples() -> Path:
    return download_module("github.com/aws/karpenter-provider-aws", VERSION) / "examples"


@pytest.fixture(scope="module")
def types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Linux types on-demand and spot, and the same with local disks."""
    found = [each for one in catalogue(192).by_node_class["default"] for each in (one, with_local_disk(one))]
    path = tmp_path_factory.mktemp("types") / "types.json"
    path.write_text(json.dumps({EXPORTED: [one.model_dump(mode="json") for one in found]}))
    return path


def with_local_disk(one: InstanceType) -> InstanceType:
    labels = {**one.labels, "karpenter.k8s.aws/instance-local-nvme": ("900",)}
    return one.model_copy(update={"name": f"{one.name}-disk", "labels": labels})


def test_nodepools_and_nodeclasses_are_valid(examples: Path, capsys: CaptureFixture[str]) -> None:
    files = sorted((examples / "v1").glob("*.yaml"))
    assert len(files) > 20
    for file in files:
        code = main(["validate", str(file), "-o", "json"])
        found = json.loads(capsys.readouterr().out)
        expected = [INVALID[file.name]] if file.name in INVALID else []
        assert [one["field"] for one in found["findings"]] == expected, file.name
        assert code == bool(expected)


def test_pods_of_each_workload_are_planned_with_each_nodepool(
    examples: Path, types: Path, capsys: CaptureFixture[str], tmp_path: Path
) -> None:
    """Deployments without replicas are named, and get one replica here."""
    workloads = {one.name: one.read_text() for one in sorted((examples / "workloads").glob("*.yaml"))}
    assert len(workloads) > 8
    pools = [one for one in sorted((examples / "v1").glob("*.yaml")) if one.name not in (*INVALID, *OTHER_OS)]
    pods = tmp_path / "pods.yaml"
    for pool in pools:
        pods.write_text("\n---\n".join(workloads.values()))
        arguments = ["simulate", "--instance-types", str(types), "--nodepools", str(pool), "--pods", str(pods)]
        assert main([*arguments, "-o", "json"]) == 0, (pool.name, capsys.readouterr().err)
        assert json.loads(capsys.readouterr().out)["withoutReplicas"]
        pods.write_text(pods.read_text().replace("replicas: 0", "replicas: 1"))
        assert main([*arguments, "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        planned = {pod for node in found["nodes"] for pod in node["pods"]}
        assert "inflate-0" in planned, (pool.name, found["unschedulable"])
        assert all("-" in pod and reason for pod, reason in found["unschedulable"].items())
