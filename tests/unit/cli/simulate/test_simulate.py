"""`tenure simulate`: manifests in, a plan out; wrong input is one line that names file, object, field and value."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tests.support.paths import ROOT

ZONES = ("a", "b", "c")


def offering(zone: str, capacity_type: str, price: float) -> dict[str, Any]:
    labels = {"topology.kubernetes.io/zone": zone, "karpenter.sh/capacity-type": capacity_type}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"Price": price, "Available": True, "Requirements": requirements}


def instance_type(name: str, cpu: int, gpus: int = 0) -> dict[str, Any]:
    resources = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "58"} | (
        {"nvidia.com/gpu": str(gpus)} if gpus else {}
    )
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": resources,
        "overhead": {"cpu": "100m", "memory": "512Mi"},
        "offerings": [
            offering(zone, kind, cpu * price + gpus)
            for zone in ZONES
            for kind, price in (("on-demand", 0.05), ("spot", 0.02))
        ],
    }


TYPES = [instance_type("m5.large", 2), instance_type("m5.2xlarge", 8), instance_type("g5.xlarge", 4, gpus=1)]


def pool(*requirements: dict[str, Any], name: str = "general") -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"nodeClassRef": reference, "requirements": list(requirements)}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": spec}},
    }


def pod(name: str, **requests: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": requests}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def deployment(replicas: int, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**pod("x", cpu="1")["spec"], **spec}}
    return {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": replicas, "template": template}}


def overlay(name: str, **spec: Any) -> dict[str, Any]:
    requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.2xlarge"]}]
    kind = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}}
    return {**kind, "spec": {"requirements": requirements, **spec}}


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("pools.yaml", pool())
        self.write("pods.yaml", pod("one", cpu="1"))
        (folder / "types.json").write_text(json.dumps(TYPES))

    def write(self, name: str, *objects: dict[str, Any]) -> None:
        (self.folder / name).write_text(yaml.safe_dump_all(objects))

    def arguments(self, *more: str) -> list[str]:
        files = {"nodepools": "pools.yaml", "pods": "pods.yaml", "instance-types": "types.json"}
        file_options = [part for option, name in files.items() for part in (f"--{option}", str(self.folder / name))]
        return ["simulate", *file_options, *more]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def run_simulation(files: Files, capsys: CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert cli_main.main(files.arguments("-o", "json", *more)) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_plan_says_what_is_bought_at_which_price(files: Files, capsys: CaptureFixture[str]) -> None:
    files.write("pods.yaml", deployment(7))
    found = run_simulation(files, capsys)
    (node,) = found["nodes"]
    assert node["pods"] == [f"web-{index}" for index in range(7)]
    assert (node["nodePool"], node["instanceTypes"], node["price"]) == ("general", ["m5.2xlarge"], 0.16)
    assert node["zones"] == ["a", "b", "c"] and node["capacityTypes"] == ["on-demand", "spot"]
    assert (found["pricePerHour"], found["unschedulable"], found["existing"]) == (0.16, {}, {})
    assert found["solveSeconds"] > 0 and found["podsPerSecond"] > 0


def test_pods_spread_over_zones(files: Files, capsys: CaptureFixture[str]) -> None:
    selector = {"matchLabels": {"app": "web"}}
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    files.write("pods.yaml", deployment(6, topologySpreadConstraints=[{**spread, "labelSelector": selector}]))
    found = run_simulation(files, capsys)
    assert sorted((node["zones"], len(node["pods"])) for node in found["nodes"] for _ in node["pods"][:1])
    by_zone = {zone: sum(len(n["pods"]) for n in found["nodes"] if n["zones"] == [zone]) for zone in ZONES}
    assert by_zone == {"a": 2, "b": 2, "c": 2}


def test_nodes_that_stand_are_used_first(files: Files, capsys: CaptureFixture[str]) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
    }
    files.write("nodes.yaml", node)
    found = run_simulation(files, capsys, "--nodes", str(files.folder / "nodes.yaml"))
    assert (found["existing"], found["nodes"]) == ({"n1": ["one"]}, [])


def test_a_pod_without_a_place_is_told_the_nearest_miss(files: Files, capsys: CaptureFixture[str]) -> None:
    files.write("pods.yaml", pod("gpu", **{"nvidia.com/gpu": "4"}))
    found = run_simulation(files, capsys)
    assert "needs 4 nvidia.com/gpu" in found["unschedulable"]["gpu"] and "has 1" in found["unschedulable"]["gpu"]


def test_the_table_says_it_for_people(
    files: Files, capsys: CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    files.write("pods.yaml", deployment(7), pod("huge", cpu="500"))
    assert cli_main.main(files.arguments()) == 0
    output = capsys.readouterr().out
    assert "m5.2xlarge" in output and "huge" in output and "7 of 8 pods placed, 1 new nodes, 0.16 $/h" in output


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("pods.yaml", [pod("one", cpu="1.5.2")], ("pods.yaml", "Pod one", "1.5.2")),
        ("pods.yaml", [pool()], ("pods.yaml", "NodePool general", "Pod")),
        ("pods.yaml", [], ("pods.yaml", "no object")),
        ("pods.yaml", [{**deployment(1), "spec": {"replicas": -1}}], ("Deployment web", "spec.replicas", "-1")),
        ("pools.yaml", [pool({"key": "team", "operator": "Near", "values": ["x"]})], ("NodePool general", "Near")),
        (
            "pools.yaml",
            [pool({"key": "kubernetes.io/arch", "operator": "In", "values": ["riscv64"]})],
            ("NodePool general", "spec.template.spec.requirements", "riscv64"),
        ),
        ("pools.yaml", [{"kind": "NodePool", "metadata": {"name": "x"}}], ("NodePool x", "'spec'", "missing")),
    ],
)
def test_wrong_manifests_are_named_and_nothing_is_planned(
    files: Files, capsys: CaptureFixture[str], name: str, content: list[dict[str, Any]], expected: tuple[str, ...]
) -> None:
    files.write(name, *content)
    assert cli_main.main(files.arguments()) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert all(part in line for part in expected), line
    assert captured.out == ""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[]", "no instance types"),
        ("{", "not JSON"),
        (json.dumps([{**TYPES[0], "resources": {"cpu": "2 cores"}}]), "m5.large"),
        (json.dumps([{key: value for key, value in TYPES[0].items() if key != "offerings"}]), "'offerings'"),
        (json.dumps([{**TYPES[0], "offerings": [{**TYPES[0]["offerings"][0], "Price": "cheap"}]}]), "'cheap'"),
    ],
)
def test_wrong_instance_types_are_named(files: Files, capsys: CaptureFixture[str], content: str, expected: str) -> None:
    (files.folder / "types.json").write_text(content)
    assert cli_main.main(files.arguments()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line and "types.json" in line


def test_overlays_among_the_pools_change_what_is_bought_and_what_it_costs(
    files: Files, capsys: CaptureFixture[str]
) -> None:
    (before,) = run_simulation(files, capsys)["nodes"]
    assert before["instanceTypes"][0] == "m5.large"
    files.write("pools.yaml", pool(), overlay("cheap", price="0.001", capacity={"example.com/fuse": 1}))
    (after,) = run_simulation(files, capsys)["nodes"]
    assert (after["instanceTypes"][0], after["price"]) == ("m5.2xlarge", 0.001)
    files.write("pods.yaml", pod("fused", cpu="1", **{"example.com/fuse": "1"}))
    (fused,) = run_simulation(files, capsys)["nodes"]
    assert fused["instanceTypes"] == ["m5.2xlarge"]


@pytest.mark.parametrize(
    ("overlays", "expected"),
    (
        ([overlay("a", price="1"), overlay("b", price="2")], "NodeOverlay a: NodeOverlay b has the same weight 0"),
        ([overlay("a", capacity={"example.com/fuse": "1 MB"})], "NodeOverlay a: spec.capacity: example.com/fuse"),
        ([overlay("a", price="cheap")], "NodeOverlay a: spec.price: 'cheap'"),
    ),
)
def test_an_overlay_that_no_worker_would_heed_is_named(
    files: Files, capsys: CaptureFixture[str], overlays: list[dict[str, Any]], expected: str
) -> None:
    files.write("pools.yaml", pool(), *overlays)
    assert cli_main.main(files.arguments()) == 2
    assert expected in capsys.readouterr().err


def buffer(**spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "spare"}}
    return {**kind, "spec": spec}


def test_buffers_among_the_pods_want_room(files: Files, capsys: CaptureFixture[str]) -> None:
    shape = {"kind": "PodTemplate", "metadata": {"name": "web"}, "template": {"spec": pod("x", cpu="1")["spec"]}}
    files.write("pods.yaml", shape, buffer(podTemplateRef={"name": "web"}, replicas=2))
    plan = run_simulation(files, capsys)
    assert sorted(name for node in plan["nodes"] for name in node["pods"]) == [
        "capacity-buffer-spare-0",
        "capacity-buffer-spare-1",
    ]
    reference = {"kind": "Deployment", "apiGroup": "apps", "name": "web"}
    files.write("pods.yaml", deployment(10), buffer(scalableRef=reference, percentage=20))
    assert sum(len(node["pods"]) for node in run_simulation(files, capsys)["nodes"]) == 12


@pytest.mark.parametrize(
    ("spec", "expected"),
    (
        ({"podTemplateRef": {"name": "web"}, "replicas": 2}, "CapacityBuffer spare: spec: PodTemplate default/web"),
        ({}, "CapacityBuffer spare: spec: it names no pods; write podTemplateRef"),
        ({"podTemplateRef": {"name": "web"}, "replicas": "two"}, "CapacityBuffer spare: spec.replicas"),
    ),
)
def test_a_buffer_that_cannot_be_resolved_is_named(
    files: Files, capsys: CaptureFixture[str], spec: dict[str, Any], expected: str
) -> None:
    files.write("pods.yaml", pod("one", cpu="1"), buffer(**spec))
    assert cli_main.main(files.arguments()) == 2
    assert expected in capsys.readouterr().err


def test_lists_and_json_are_read_as_well(files: Files, capsys: CaptureFixture[str]) -> None:
    (files.folder / "pods.yaml").write_text(
        json.dumps({"kind": "List", "items": [pod("a", cpu="1"), pod("b", cpu="1")]})
    )
    assert sorted(name for node in run_simulation(files, capsys)["nodes"] for name in node["pods"]) == ["a", "b"]


def test_it_starts_without_temporal_kubernetes_or_aws() -> None:
    heavy = "[one for one in ('temporalio', 'kubernetes', 'boto3', 'aiohttp') if one in sys.modules]"
    code = f"import sys, tenure.cli.simulate.command; print({heavy})"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
