"""Deletion costs of pods: classes, budgets, order, and costs that stay."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.model.disruption.decision import BudgetHeadroom, Cause, DisruptionBudgets, Ineligibility, NodeVerdict
from tenure.scheduling.disruption.deletion_cost import (
    SPACING,
    TERMINATING_COST,
    CostedNode,
    assign_costs,
    decide_deletion_costs,
)

UNLIMITED = DisruptionBudgets()
COSTS = st.lists(st.one_of(st.none(), st.integers(-40, 3), st.integers(-(2**31), 2**31 - 1)), max_size=30)


def node(name: str, *causes: Cause, price: float = 0.1, cost: float = 1.0, **fields: Any) -> CostedNode:
    excluded = tuple(Ineligibility(cause=cause, message="x") for cause in causes)
    verdict = NodeVerdict(claim=name, node=name, pool="general", price=price, cost=cost, excluded=excluded)
    return CostedNode(verdict, **fields)


def allowed(**headroom: int) -> DisruptionBudgets:
    pools: Any = {"general": {method: BudgetHeadroom(allowed=count) for method, count in headroom.items()}}
    return DisruptionBudgets(pools=pools)


def test_most_saved_per_moved_pod_goes_first() -> None:
    nodes = [node("cheap", price=0.1, cost=2), node("costly", price=0.4, cost=2), node("full", price=0.4, cost=9)]
    costs = decide_deletion_costs(nodes, UNLIMITED)
    assert list(costs) == ["costly", "cheap", "full"]
    assert [costs[name] for name in costs] == [-3 * SPACING, -2 * SPACING, -SPACING]


def test_drifted_nodes_precede_underutilized_nodes() -> None:
    nodes = [node("costly", price=0.9), node("drifted", is_drifted=True), node("static", "StaticPool", is_drifted=True)]
    assert list(decide_deletion_costs(nodes, UNLIMITED)) == ["drifted", "costly", "static"]


@pytest.mark.parametrize(
    "one",
    [node("n", "Deleting", "PodDoNotDisrupt"), node("n", "InProgress"), node("n", is_disrupted=True)],
    ids=["deleting", "in a command", "tainted"],
)
def test_pods_of_a_leaving_node_have_the_lowest_cost(one: CostedNode) -> None:
    assert decide_deletion_costs([one, node("other")], allowed(Underutilized=0)) == {
        "n": TERMINATING_COST,
        "other": None,
    }


@pytest.mark.parametrize("cause", ["PodDoNotDisrupt", "PodDisruptionBudget", "Nominated", "NotInitialized", "Paused"])
def test_node_that_stays_has_no_cost(cause: Cause) -> None:
    assert decide_deletion_costs([node("n", cause, is_drifted=True, written=-5)], UNLIMITED) == {"n": None}


def test_node_with_a_pinning_pod_has_no_cost() -> None:
    assert decide_deletion_costs([node("n", has_pinning_pods=True)], UNLIMITED) == {"n": None}


@pytest.mark.parametrize("cause", ["Resting", "Policy", "StaticPool", "CapacityBuffer", "Bounced"])
def test_rests_and_policies_do_not_exclude_a_node(cause: Cause) -> None:
    assert decide_deletion_costs([node("n", cause)], UNLIMITED) == {"n": -SPACING}


def test_consolidate_after_never_excludes_nodes_without_drift() -> None:
    nodes = [node("drifted", "Never", is_drifted=True), node("other", "Never")]
    assert decide_deletion_costs(nodes, UNLIMITED) == {"drifted": -SPACING, "other": None}


def test_budget_limits_the_nodes_of_each_reason() -> None:
    nodes = [node(f"d{number}", is_drifted=True) for number in range(3)] + [node(f"u{number}") for number in range(3)]
    costs = decide_deletion_costs(nodes, allowed(Drifted=1, Underutilized=2))
    assert [name for name, cost in costs.items() if cost is not None] == ["d0", "u0", "u1"]


def test_added_node_changes_no_other_cost() -> None:
    before = decide_deletion_costs([node(f"n{number}") for number in range(9)], UNLIMITED)
    nodes = [node(name, written=cost) for name, cost in before.items()]
    for name, price in (("first", 0.2), ("middle", 0.1), ("last", 0.05)):
        after = decide_deletion_costs([*nodes, node(name, price=price)], UNLIMITED)
        assert {one: after[one] for one in before} == before and len(set(after.values())) == 10


@given(COSTS)
def test_costs_ascend_below_zero_and_are_stable(written: list[int | None]) -> None:
    costs = assign_costs(written)
    assert len(costs) == len(written)
    assert all(TERMINATING_COST < low < high < 0 for low, high in pairwise([*costs, -1]) if low != -1)
    assert all(low < high for low, high in pairwise(costs))
    assert assign_costs(costs) == costs


def test_costs_are_renumbered_when_no_room_is_left() -> None:
    assert assign_costs([-3, None, -2]) == [-3 * SPACING, -2 * SPACING, -SPACING]
    assert assign_costs([-1, None]) == [-2 * SPACING, -SPACING]
    assert assign_costs([None, TERMINATING_COST + 1]) == [-2 * SPACING, -SPACING]


def test_as_many_costs_as_possible_stay() -> None:
    assert assign_costs([-10, -900, -500, -20, None]) == [-900 - SPACING, -900, -500, -20, -10]


def test_forty_thousand_nodes_fit() -> None:
    costs = assign_costs([None] * 40_000)
    assert costs[0] > TERMINATING_COST and len(set(costs)) == 40_000
