"""`tenure simulate` reads manifests and prints a plan; invalid input is one line with file, object, field and value."""

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.unit.cli.simulate.builders import Files, Json, deployment, overlay, pod, pool


def test_plan_has_nodes_with_types_and_price(files: Files) -> None:
    files.write("pods.yaml", deployment(7))
    found = files.run()
    (node,) = found["nodes"]
    assert node["pods"] == [f"web-{index}" for index in range(7)]
    assert (node["nodePool"], node["instanceTypes"], node["price"]) == ("general", ["m5.2xlarge"], 0.16)
    assert node["zones"] == ["a", "b", "c"] and node["capacityTypes"] == ["on-demand", "spot"]
    assert (found["pricePerHour"], found["unschedulable"], found["existing"]) == (0.16, {}, {})
    assert found["solveSeconds"] > 0 and found["podsPerSecond"] > 0


def test_table_is_readable(files: Files) -> None:
    files.write("pods.yaml", deployment(7), pod("huge", cpu="500"))
    output = files.table()
    assert "m5.2xlarge" in output and "huge" in output and "7 of 8 pods scheduled, 1 new nodes, 0.16 $/h" in output


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("pods.yaml", [pool()], ("pods.yaml", "expected Pod or", "found 1 NodePool")),
        ("pods.yaml", [{**deployment(1), "spec": {"replicas": -1}}], ("Deployment web", "spec.replicas", "-1")),
        (
            "pools.yaml",
            [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "x"}}],
            ("NodePool x", "spec: required field is missing"),
        ),
        (
            "pools.yaml",
            [{**pool(), "apiVersion": "karpenter.sh/v1beta1"}],
            ("NodePool general", "karpenter.sh/v1beta1"),
        ),
    ],
)
def test_invalid_manifests_are_named(files: Files, name: str, content: list[Json], expected: tuple[str, ...]) -> None:
    files.write(name, *content)
    line = files.usage_error()
    assert all(part in line for part in expected), line


def test_node_overlays_change_selected_types_and_prices(files: Files) -> None:
    (before,) = files.run()["nodes"]
    assert before["instanceTypes"][0] == "m5.large"
    files.write("pools.yaml", pool(), overlay("cheap", price="0.001", capacity={"example.com/fuse": 1}))
    (after,) = files.run()["nodes"]
    assert (after["instanceTypes"][0], after["price"]) == ("m5.2xlarge", 0.001)
    files.write("pods.yaml", pod("fused", cpu="1", **{"example.com/fuse": "1"}))
    (fused,) = files.run()["nodes"]
    assert fused["instanceTypes"] == ["m5.2xlarge"]


@pytest.mark.parametrize(
    ("overlays", "expected"),
    (
        ([overlay("a", price="1"), overlay("b", price="2")], "NodeOverlay a: NodeOverlay b has the same weight 0"),
        (
            [overlay("a", capacity={"example.com/fuse": "1 MB"})],
            "NodeOverlay a: spec.capacity[example.com/fuse]: '1",
        ),
        ([overlay("a", price="cheap")], "NodeOverlay a: spec.price: 'cheap'"),
    ),
)
def test_invalid_node_overlay_is_named(files: Files, overlays: list[Json], expected: str) -> None:
    files.write("pools.yaml", pool(), *overlays)
    assert expected in files.usage_error()


def buffer(**spec: Any) -> Json:
    kind = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "spare"}}
    return {**kind, "spec": spec}


def test_capacity_buffers_request_nodes(files: Files) -> None:
    shape = {"kind": "PodTemplate", "metadata": {"name": "web"}, "template": {"spec": pod("x", cpu="1")["spec"]}}
    files.write("pods.yaml", shape, buffer(podTemplateRef={"name": "web"}, replicas=2))
    plan = files.run()
    assert sorted(name for node in plan["nodes"] for name in node["pods"]) == [
        "capacity-buffer-spare-0",
        "capacity-buffer-spare-1",
    ]
    reference = {"kind": "Deployment", "apiGroup": "apps", "name": "web"}
    files.write("pods.yaml", deployment(10), buffer(scalableRef=reference, percentage=20))
    assert sum(len(node["pods"]) for node in files.run()["nodes"]) == 12


@pytest.mark.parametrize(
    ("spec", "expected"),
    (
        ({"podTemplateRef": {"name": "web"}, "replicas": 2}, "CapacityBuffer spare: spec: PodTemplate default/web"),
        ({}, "CapacityBuffer spare: spec: no pods referenced, expected podTemplateRef"),
        ({"podTemplateRef": {"name": "web"}, "replicas": "two"}, "CapacityBuffer spare: spec.replicas"),
    ),
)
def test_unresolvable_capacity_buffer_is_named(files: Files, spec: Json, expected: str) -> None:
    files.write("pods.yaml", pod("one", cpu="1"), buffer(**spec))
    assert expected in files.usage_error()


def test_lists_and_json_are_accepted(files: Files) -> None:
    (files.folder / "pods.yaml").write_text(
        json.dumps({"kind": "List", "items": [pod("a", cpu="1"), pod("b", cpu="1")]})
    )
    assert sorted(name for node in files.run()["nodes"] for name in node["pods"]) == ["a", "b"]


def test_command_imports_no_heavy_libraries() -> None:
    heavy = "[one for one in ('temporalio', 'kubernetes', 'boto3', 'aiohttp') if one in sys.modules]"
    code = f"import sys, tenure.cli.simulate.command; print({heavy})"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_default_spread_places_pods_in_every_zone(files: Files) -> None:
    constraint = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    config = json.dumps({"podTopologySpread": {"defaultConstraints": [constraint]}})
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}}
    files.write("pods.yaml", deployment(6), service)
    assert len(files.run()["nodes"]) == 1
    nodes = files.run("--scheduler-config", config)["nodes"]
    pods_by_zone = Counter(zone for one in nodes for zone in one["zones"] for _ in one["pods"])
    assert pods_by_zone == {"a": 2, "b": 2, "c": 2}
    assert "--scheduler-config: " in files.usage_error("--scheduler-config", "profiles: []")
