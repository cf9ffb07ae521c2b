"""Nodes of static NodePools are replaced shortly before they expire, if limits and budgets allow it."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.labels import DO_NOT_DISRUPT
from tenure.model.disruption.decision import Decision, DisruptionBudgets
from tenure.model.facts import NodePoolFact
from tenure.model.nodeclaim.expiry import static_replacement_at
from tests.unit.scheduling.builders import NOW, pod
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pool
from tests.unit.scheduling.disruption.test_static_drift import rejections, static_pool

LIFETIME = timedelta(days=1)
EXACT: dict[str, Any] = {"expiry_jitter_by_pool": {"default": 0.0}}


def aging_fleet(of: NodePoolFact, *left: timedelta, lifetime: timedelta = LIFETIME, **node: Any) -> Fleet:
    """A node for each remaining lifetime."""
    fleet = Fleet(of)
    for number, remaining in enumerate(left):
        fields: dict[str, Any] = {
            "created": NOW + remaining - lifetime,
            "expire_after_seconds": int(lifetime.total_seconds()),
        }
        fleet.node(f"n{number}", "m.large", pod(f"p{number}"), **(fields | node))
    return fleet


def replaced(found: Decision) -> list[str]:
    """The nodes that are replaced before they expire."""
    commands = [one for one in found.commands if one.reason == "Expired"]
    assert all(len(one.replacements) == 1 and not one.terminate_first for one in commands)
    return [name for one in commands for name in one.node_names]


def test_static_node_is_replaced_in_the_hour_before_it_expires() -> None:
    fleet = aging_fleet(static_pool(2), timedelta(minutes=59), timedelta(minutes=61))
    found = fleet.decide(**EXACT)
    assert replaced(found) == ["n0"]
    (command,) = found.commands
    assert "replaces expiring node n0: one of spec.replicas=2" in command.why and command.moves == ()


def test_node_with_a_short_lifetime_is_replaced_in_its_last_quarter() -> None:
    left = timedelta(minutes=9), timedelta(minutes=11)
    assert replaced(aging_fleet(static_pool(2), *left, lifetime=timedelta(minutes=40)).decide(**EXACT)) == ["n0"]


def test_node_without_expiration_and_nodes_of_dynamic_pools_are_not_replaced() -> None:
    assert replaced(Fleet(static_pool(1)).node("n", "m.large").decide()) == []
    assert replaced(aging_fleet(pool(), timedelta(0)).decide(**EXACT)) == []


def test_replacement_precedes_the_expiration_with_jitter() -> None:
    created = NOW - LIFETIME
    found = [static_replacement_at(created, LIFETIME, f"uid-{number}", 0.5) for number in range(200)]
    assert min(found) < NOW - LIFETIME * 0.45 and max(found) <= NOW - timedelta(hours=1)
    assert static_replacement_at(created, LIFETIME, "uid", 0.5) == static_replacement_at(created, LIFETIME, "uid", 0.5)


def test_expiring_nodes_are_replaced_within_limits_and_budgets() -> None:
    soon = [timedelta(minutes=5)] * 3
    assert len(replaced(aging_fleet(static_pool(3), *soon).decide(**EXACT))) == 3
    assert len(replaced(aging_fleet(static_pool(3, limit=4), *soon).decide(**EXACT))) == 1
    budget = DisruptionBudgets.model_validate({"pools": {"default": {"Expired": {"allowed": 2, "why": "budget 2"}}}})
    assert len(replaced(aging_fleet(static_pool(3), *soon).decide(allowed_disruptions=budget, **EXACT))) == 2


def test_node_at_the_limit_ends_when_it_expires() -> None:
    found = aging_fleet(static_pool(1, limit=1), timedelta(minutes=5)).decide(**EXACT)
    assert found.commands == ()
    assert any(one.endswith("its replacement is launched when it expires") for one in rejections(found))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"node": {"annotations": {DO_NOT_DISRUPT: "true"}}}, ["n0"]),
        ({"initialized": False}, []),
        ({"deleting": True}, []),
    ],
)
def test_only_the_state_of_the_node_prevents_its_replacement(fields: dict[str, Any], expected: list[str]) -> None:
    assert replaced(aging_fleet(static_pool(1), timedelta(minutes=5), **fields).decide(**EXACT)) == expected
