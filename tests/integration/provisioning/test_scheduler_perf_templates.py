"""Plans for the pod templates of Kubernetes' own scheduler benchmark, from the Go module of the control plane."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from benchmarks.generators.workloads import Scenario, make_scenario
from tenure.model.plan import Plan
from tenure.sandbox.controlplane.versions import DEFAULT_MINOR, RELEASES
from tenure.scheduling.cluster_state import Change
from tests.oracle.cluster_plan import NOW
from tests.support.sandbox.go_modules import download_module

PODS_PER_TEMPLATE = 3
COUNT = 10
"""The number of objects that templates divide by."""
REASONS = (
    "Dynamic Resource Allocation is not supported",
    "no instance type has ",
    "no instance type satisfies ",
    "is required and not defined",
    "no launchable node and no existing node has the label topology",
    "no node with the pods that its affinity selects has room",
    "pod affinity on topology.kubernetes.io/zone: none of the selected pods",
    "PersistentVolumeClaim ",
    "metadata.name (field) In [scheduler-perf-node]",
    "].NodeAffinityPolicy: Tenure does not know this field",
)
"""Templates need objects of their test cases, such as labeled nodes, claims and other pods. One spells
`nodeAffinityPolicy` in a way that API servers drop."""


@pytest.fixture(scope="module")
def templates() -> Mapping[str, str]:
    """Pod templates by path."""
    module = download_module("k8s.io/kubernetes", RELEASES[DEFAULT_MINOR].kubernetes)
    folder = module / "test" / "integration" / "scheduler_perf"
    found = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("templates/**/*.yaml"))}
    return {name: text for name, text in found.items() if "\nkind: Pod\n" in text}


def test_pod_templates_are_planned_without_an_error(templates: Mapping[str, str]) -> None:
    assert len(templates) > 50
    scenario, unexpected = make_scenario("plain", 0), dict[str, list[str]]()
    for name, text in templates.items():
        pods = [_render_template(text, index) for index in range(PODS_PER_TEMPLATE)]
        plan = _plan(replace(scenario, pods=pods))
        planned = sum(len(claim.pods) for claim in plan.claims) + len(plan.unschedulable)
        assert planned == (0 if "nodeName" in pods[0]["spec"] else PODS_PER_TEMPLATE), name
        reasons = [one.reason for one in plan.unschedulable if not any(known in one.reason for known in REASONS)]
        unexpected |= {name: reasons} if reasons else {}
    assert unexpected == {}


def _render_template(text: str, index: int) -> dict[str, Any]:
    """The pod of a Go template with `.Index`, `.Count`, `div` and `mod`."""
    values = {".Index": str(index), ".Count": str(COUNT)}

    def evaluate(match: re.Match[str]) -> str:
        arguments = [values.get(name, name) for name in match[1].split()]
        if arguments[0] == "div":
            return str(int(arguments[1]) // int(arguments[2]))
        if arguments[0] == "mod":
            return str(int(arguments[1]) % int(arguments[2]))
        return arguments[0]

    pod: dict[str, Any] = yaml.safe_load(re.sub(r"\{\{(.*?)\}\}", evaluate, text))
    pod["metadata"]["name"] = f"pod-{index}"
    return pod


def _plan(scenario: Scenario) -> Plan:
    state = scenario.cluster_state()
    state.apply(Change(kind="pod", key=one.uid, fact=one) for one in scenario.pod_facts())
    return state.provision(now=NOW)
