"""Inputs from bug reports on limits, reservations and PodDisruptionBudgets, by their ID: `tests/cases/*/ID.*`."""

import json
from typing import Any

import pytest
import yaml
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tenure.kube.facts.objects import node_fact
from tenure.kube.facts.pod_disruption_budgets import pod_budget_fact
from tenure.kube.facts.pods import pod_fact
from tenure.scheduling.snapshot import Fact
from tests.support.cases import case_file
from tests.unit.scheduling.builders import Cluster, pool


def simulate(capsys: CaptureFixture[str], nodepools: str, pods: str, types: str = "types.json") -> list[dict[str, Any]]:
    """The planned nodes."""
    files = {"instance-types": types, "nodepools": nodepools, "pods": pods}
    options = [text for option, name in files.items() for text in (f"--{option}", str(case_file(name)))]
    assert cli_main.main(["simulate", *options, "-o", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert not found["unschedulable"]
    nodes: list[dict[str, Any]] = found["nodes"]
    return nodes


def test_limits_drop_types(capsys: CaptureFixture[str]) -> None:
    (limited,) = simulate(capsys, "limits-drop-types.pool.yaml", "limits-drop-types.pods.yaml")
    (unlimited,) = simulate(capsys, "pool.yaml", "limits-drop-types.pods.yaml")
    assert limited["instanceTypes"] == unlimited["instanceTypes"] and len(limited["instanceTypes"]) == 5


@pytest.mark.parametrize("case", ["reserved-zone-term", "reserved-zone-spread"])
def test_reserved_zone_term(capsys: CaptureFixture[str], case: str) -> None:
    nodes = simulate(capsys, "reserved-zone-term.pool.yaml", f"{case}.pods.yaml", "types-reserved.json")
    assert [one["capacityTypes"] for one in nodes] == [["reserved"]] * 2
    assert {zone for one in nodes for zone in one["zones"]} == {"us-west-2a"}


def read_objects(name: str) -> list[dict[str, Any]]:
    """The objects of a file with the metadata that the API server adds."""
    objects = list(yaml.safe_load_all(case_file(name).read_text()))
    for one in objects:
        stamp = {"uid": one["metadata"]["name"], "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
        one["metadata"] = stamp | one["metadata"]
    return objects


@pytest.mark.parametrize("spec", [{}, {"maxUnavailable": "0%"}, {"maxUnavailable": None, "minAvailable": "100%"}])
def test_pdb_blocked_pod(spec: dict[str, Any]) -> None:
    node, database = read_objects("pdb-blocked-pod.nodes.yaml")
    (app,) = read_objects("pdb-blocked-pod.pods.yaml")
    (budget,) = read_objects("pdb-blocked-pod.budget.yaml")
    budget["spec"] |= spec
    waiting = pod_fact(app).model_copy(update={"unschedulable": True})
    facts: list[Fact] = [pool(), node_fact(node), pod_fact(database), waiting]
    assert [set(one.pods) for one in Cluster(*facts).plan().claims] == [{"app", "database"}]
    assert [set(one.pods) for one in Cluster(*facts, pod_budget_fact(budget)).plan().claims] == [{"app"}]
