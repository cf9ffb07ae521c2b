"""What budgets leave as the caches have the cluster: who counts, and who uses them up."""

from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.disruption.budgets import Allowing
from tests.support.controller.builders import World, at, claim, node, pool

DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}


def world(**disruption: Any) -> World:
    made = World()
    made.hear("nodepools", pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "50%"}], **disruption}))
    for name in ("a", "b", "c", "d"):
        stand(made, name)
    return made


def stand(made: World, name: str, *, phase: str = "Initialized", zone: str = "z1", **more: Any) -> None:
    made.hear("nodeclaims", claim(name, phase=phase, deleting=more.pop("deleting", False)))
    made.hear("nodes", node(f"n-{name}", of=name, labels={"topology.kubernetes.io/zone": zone}, **more))


def drifted(made: World, *under_way: str, rules: LifecycleRules | None = None) -> int:
    return Allowing(made.caches, lambda pool: rules).allowances(under_way, at(0)).pools["general"]["Drifted"].allowed


def test_percent_counts_initialized_nodes_of_the_pool() -> None:
    made = world()
    assert drifted(made) == 2
    stand(made, "young", phase="Registered")
    assert drifted(made) == 2
    stand(made, "e")
    assert drifted(made) == 3


@pytest.mark.parametrize("more", [{"ready": False}, {"taints": [DISRUPTED]}, {"deleting": True}])
def test_who_is_not_ready_or_on_its_way_out_uses_the_budget_up(more: dict[str, Any]) -> None:
    made = world()
    stand(made, "a", **more)
    assert drifted(made) == 1


def test_a_claim_that_lost_its_node_keeps_no_other() -> None:
    made = world()
    made.lose("nodes", node("n-a", of="a"))
    assert drifted(made) == 2


def test_a_node_whose_disruption_has_begun_uses_it_up_before_its_taint_is_there() -> None:
    assert drifted(world(), "uid-a", "uid-b") == 0


def test_rules_of_a_policy_count_by_zone_and_over_all_pools() -> None:
    rules = LifecycleRules.model_validate({"disruption": {"perZone": {"nodes": "1"}, "clusterNodes": "1"}})
    made = world()
    stand(made, "d", zone="z2", ready=False)
    found = Allowing(made.caches, lambda pool: rules).allowances((), at(0))
    assert {zone: room.allowed for zone, room in found.zones["general"].items()} == {"z1": 1, "z2": 0}
    assert found.cluster["general"].allowed == 0
