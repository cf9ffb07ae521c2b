"""Inputs from bug reports and reviews, by their ID: `tests/cases/*/ID.*`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tests.support.cases import case_file, find_case_file


def simulate(capsys: CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    exit_code = cli_main.main(
        ["simulate", "--instance-types", str(case_file("types.json")), *map(str, arguments), "-o", "json"]
    )
    out, err = capsys.readouterr()
    return exit_code, json.loads(out or "{}"), err


def files(case: str) -> list[str | Path]:
    """Options for the files of a case; plain files replace a missing NodePool or pods file."""
    found: list[str | Path] = []
    for option, plain in (("pool", "pool.yaml"), ("pods", "pods.yaml"), ("daemonsets", ""), ("nodes", "")):
        path = find_case_file(f"{case}.{option}.yaml") or find_case_file(plain)
        if path is not None:
            found += [f"--{option}".replace("pool", "nodepools"), path]
    return found


@pytest.mark.parametrize(
    ("case", "unschedulable", "planned"),
    (
        (
            "huge-request",
            {"huge": "spec.containers[app].resources.requests.memory: 9e30 is more than any instance type has"},
            ["app"],
        ),
        (
            "huge-daemonset",
            {
                "app": "pool general: DaemonSets leave no memory on any allowed instance type: "
                "kube-system/agent requests 8Pi"
            },
            [],
        ),
        (
            "runtimeclass-name-only",
            {"isolated": "spec.runtimeClassName: 'kata': no file has this RuntimeClass; add it to the files"},
            [],
        ),
        ("simulate-other-kinds", {}, ["web-0", "web-1"]),
        ("simulate-replicas-zero", {}, []),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_plan(capsys: CaptureFixture[str], case: str, unschedulable: dict[str, str], planned: list[str]) -> None:
    exit_code, found, err = simulate(capsys, *files(case))
    assert exit_code == 0, err
    assert found["unschedulable"] == unschedulable
    assert [pod for node in found["nodes"] for pod in node["pods"]] == planned


@pytest.mark.parametrize(
    ("case", "message"),
    (
        ("nodeoverlay-huge-capacity", "NodeOverlay huge: spec.capacity.example.com/device: too large"),
        ("simulate-alias-bomb", "its aliases expand to more than 2,000,000 values"),
        ("simulate-list-as-kind", "kind: ['Node']: invalid kind"),
        ("simulate-unvalidated-pool", "spec.disruption.budgets[1].nodes: '120%': invalid value"),
    ),
)
def test_invalid_input_is_one_line_that_names_file(capsys: CaptureFixture[str], case: str, message: str) -> None:
    exit_code, _, err = simulate(capsys, *files(case))
    assert exit_code == 2
    assert case in err and message in err and err.count("\n") == 1, err


def test_skipped_kinds_are_counted_in_one_line(capsys: CaptureFixture[str]) -> None:
    _, _, err = simulate(capsys, *files("simulate-other-kinds"))
    assert err == "skipped kinds that do not affect the plan: 1 ServiceAccount, 1 ConfigMap, 1 Service\n"


def test_workload_without_replicas_is_named(capsys: CaptureFixture[str]) -> None:
    _, found, _ = simulate(capsys, *files("simulate-replicas-zero"))
    assert found["withoutReplicas"] == ["Deployment inflate"]


def test_runtime_class_adds_its_overhead_and_node_selector(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    pool = yaml.safe_load(case_file("pool.yaml").read_text())
    pool["spec"]["template"]["metadata"] = {"labels": {"runtime": "kata"}}
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump_all([pool, unlabelled(pool)]))
    _, found, _ = simulate(capsys, "--nodepools", tmp_path / "pool.yaml", "--pods", case_file("runtimeclass.pods.yaml"))
    (node,) = found["nodes"]
    assert (node["nodePool"], node["instanceTypes"][0]) == ("general", "c6a.xlarge")


def unlabelled(pool: dict[str, Any]) -> dict[str, Any]:
    return {**pool, "metadata": {"name": "other"}, "spec": {"template": {"spec": pool["spec"]["template"]["spec"]}}}


def test_pdb_blocked_pod(capsys: CaptureFixture[str], tmp_path: Path) -> None:
    """The budget may be in any file."""
    nodes = case_file("pdb-blocked-pod.nodes.yaml").read_text()
    for budget, planned in (
        ("", ["app", "database"]),
        (case_file("pdb-blocked-pod.budget.yaml").read_text(), ["app"]),
    ):
        (tmp_path / "nodes.yaml").write_text(f"{nodes}\n---\n{budget}")
        _, found, _ = simulate(capsys, *files("pdb-blocked-pod")[:4], "--nodes", tmp_path / "nodes.yaml")
        assert sorted(pod for node in found["nodes"] for pod in node["pods"]) == planned


def planned_nodes(capsys: CaptureFixture[str], pool: str, pods: str, types: str = "types.json") -> list[dict[str, Any]]:
    """The planned nodes."""
    arguments = ("--nodepools", case_file(pool), "--pods", case_file(pods), "--instance-types", case_file(types))
    exit_code, found, err = simulate(capsys, *arguments)
    assert (exit_code, found["unschedulable"]) == (0, {}), err
    nodes: list[dict[str, Any]] = found["nodes"]
    return nodes


def test_limits_drop_types(capsys: CaptureFixture[str]) -> None:
    (limited,) = planned_nodes(capsys, "limits-drop-types.pool.yaml", "limits-drop-types.pods.yaml")
    (unlimited,) = planned_nodes(capsys, "pool.yaml", "limits-drop-types.pods.yaml")
    assert limited["instanceTypes"] == unlimited["instanceTypes"] and len(limited["instanceTypes"]) == 5


@pytest.mark.parametrize("case", ["reserved-zone-term", "reserved-zone-spread"])
def test_reserved_zone_term(capsys: CaptureFixture[str], case: str) -> None:
    nodes = planned_nodes(capsys, "reserved-zone-term.pool.yaml", f"{case}.pods.yaml", "types-reserved.json")
    assert [one["capacityTypes"] for one in nodes] == [["reserved"]] * 2
    assert {zone for one in nodes for zone in one["zones"]} == {"us-west-2a"}
