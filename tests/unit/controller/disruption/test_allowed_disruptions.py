"""Allowed disruptions from the cluster cache: counted nodes, and nodes that consume the budget."""

from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.disruption.cached_budgets import NodePoolBudgets
from tests.support.controller.builders import CacheHarness, at, claim, node, pool

DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}


def harness_with_nodes(**disruption: Any) -> CacheHarness:
    harness = CacheHarness()
    harness.apply_objects(
        "nodepools", pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "50%"}], **disruption})
    )
    for name in ("a", "b", "c", "d"):
        add_node(harness, name)
    return harness


def add_node(harness: CacheHarness, name: str, *, phase: str = "Initialized", zone: str = "z1", **more: Any) -> None:
    harness.apply_objects("nodeclaims", claim(name, phase=phase, deleting=more.pop("deleting", False)))
    harness.apply_objects("nodes", node(f"n-{name}", of=name, labels={"topology.kubernetes.io/zone": zone}, **more))


def allowed_drifted(harness: CacheHarness, *in_flight: str, rules: LifecycleRules | None = None) -> int:
    return (
        NodePoolBudgets(harness.cache, lambda pool: rules)
        .allowed_disruptions(in_flight, at(0))
        .pools["general"]["Drifted"]
        .allowed
    )


def test_percentage_applies_to_initialized_nodes_of_the_nodepool() -> None:
    harness = harness_with_nodes()
    assert allowed_drifted(harness) == 2
    add_node(harness, "young", phase="Registered")
    assert allowed_drifted(harness) == 2
    add_node(harness, "e")
    assert allowed_drifted(harness) == 3


@pytest.mark.parametrize("more", [{"ready": False}, {"taints": [DISRUPTED]}, {"deleting": True}])
def test_notready_or_terminating_node_consumes_the_budget(more: dict[str, Any]) -> None:
    harness = harness_with_nodes()
    add_node(harness, "a", **more)
    assert allowed_drifted(harness) == 1


def test_missing_node_consumes_the_budget() -> None:
    harness = harness_with_nodes()
    harness.delete_objects("nodes", node("n-a", of="a"))
    assert allowed_drifted(harness) == 1


def test_node_of_an_in_flight_command_consumes_the_budget_without_its_taint() -> None:
    assert allowed_drifted(harness_with_nodes(), "uid-a", "uid-b") == 0


def test_policy_budgets_count_per_zone_and_per_cluster() -> None:
    rules = LifecycleRules.model_validate({"disruption": {"perZone": {"nodes": "1"}, "clusterNodes": "1"}})
    harness = harness_with_nodes()
    add_node(harness, "d", zone="z2", ready=False)
    allowed_disruptions = NodePoolBudgets(harness.cache, lambda pool: rules).allowed_disruptions((), at(0))
    assert {zone: budget.allowed for zone, budget in allowed_disruptions.zones["general"].items()} == {"z1": 1, "z2": 0}
    assert allowed_disruptions.cluster["general"].allowed == 0
