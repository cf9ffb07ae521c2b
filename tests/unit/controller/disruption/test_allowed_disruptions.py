"""What budgets leave as the caches have the cluster: who counts, and who uses them up."""

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


def test_percent_counts_initialized_nodes_of_the_pool() -> None:
    harness = harness_with_nodes()
    assert allowed_drifted(harness) == 2
    add_node(harness, "young", phase="Registered")
    assert allowed_drifted(harness) == 2
    add_node(harness, "e")
    assert allowed_drifted(harness) == 3


@pytest.mark.parametrize("more", [{"ready": False}, {"taints": [DISRUPTED]}, {"deleting": True}])
def test_who_is_not_ready_or_on_its_way_out_uses_the_budget_up(more: dict[str, Any]) -> None:
    harness = harness_with_nodes()
    add_node(harness, "a", **more)
    assert allowed_drifted(harness) == 1


def test_a_claim_that_lost_its_node_keeps_no_other() -> None:
    harness = harness_with_nodes()
    harness.delete_objects("nodes", node("n-a", of="a"))
    assert allowed_drifted(harness) == 2


def test_a_node_whose_disruption_has_begun_uses_it_up_before_its_taint_is_there() -> None:
    assert allowed_drifted(harness_with_nodes(), "uid-a", "uid-b") == 0


def test_rules_of_a_policy_count_by_zone_and_over_all_pools() -> None:
    rules = LifecycleRules.model_validate({"disruption": {"perZone": {"nodes": "1"}, "clusterNodes": "1"}})
    harness = harness_with_nodes()
    add_node(harness, "d", zone="z2", ready=False)
    allowed_disruptions = NodePoolBudgets(harness.cache, lambda pool: rules).allowed_disruptions((), at(0))
    assert {zone: budget.allowed for zone, budget in allowed_disruptions.zones["general"].items()} == {"z1": 1, "z2": 0}
    assert allowed_disruptions.cluster["general"].allowed == 0
