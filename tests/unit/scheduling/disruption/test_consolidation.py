"""Consolidation of underutilized nodes by removal or replacement, single-node and multi-node, and rejections."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.labels import CAPACITY_TYPE
from tenure.model.disruption.decision import Command, Decision, DisruptionSettings
from tenure.model.instance_types import UnavailableOffering
from tests.unit.scheduling.builders import NOW, instance_type, pod, pods, types_of, values_of
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pool

BOTH = ("spot", "on-demand")
MIXED = tuple(
    instance_type(f"m.{size}", cpu=cpu, memory=cpu * 4, capacity_types=BOTH)
    for size, cpu in (("large", 2), ("xlarge", 4), ("2xlarge", 8))
)
SPOTS = (
    *(
        instance_type(f"s{number}.large", cpu=4, memory=16, price=0.1 + number / 1000, capacity_types=BOTH)
        for number in range(20)
    ),
    instance_type("big.large", cpu=16, memory=64, price=1.0, capacity_types=BOTH),
)
"""Twenty types that are cheaper than big.large."""


def only_command(found: Decision) -> Command:
    assert len(found.commands) == 1, found.commands
    return found.commands[0]


def rejected(found: Decision, name: str = "n") -> str:
    return "; ".join(next(one.rejected for one in found.nodes if one.claim == name))


def test_node_whose_pods_fit_elsewhere_is_removed() -> None:
    fleet = Fleet().node("big", "m.2xlarge", *pods(5)).node("n", "m.xlarge", *pods(2))
    found = only_command(fleet.decide())
    assert (found.reason, found.kind, found.node_names, found.replacements) == ("Underutilized", "single", ("n",), ())
    assert {one.target for one in found.moves} == {"big"} and len(found.moves) == 2
    assert (found.price_before, found.price_after) == (0.2, 0.0)


def test_oversized_node_is_replaced_by_a_cheaper_one() -> None:
    found = only_command(Fleet().node("n", "m.2xlarge", pod()).decide())
    (nodeclaim,) = found.replacements
    assert types_of(nodeclaim) == ("m.large", "m.xlarge")
    assert found.moves[0].replacement == 0 and found.moves[0].target == ""
    assert (found.price_before, found.price_after, found.price_at_most) == (0.4, 0.1, 0.2)


@pytest.mark.parametrize(("cpu", "cheapest"), [(0.5, "t3.large"), (0.6, "m.large")])
def test_burstable_type_replaces_a_node_whose_pods_fit_its_baseline(cpu: float, cheapest: str) -> None:
    types = (instance_type("t3.large", cpu=2, memory=8, price=0.05, capacity_types=BOTH), *MIXED)
    found = only_command(Fleet(instance_types=types).node("n", "m.2xlarge", pod(cpu=cpu)).decide())
    assert types_of(found.replacements[0])[0] == cheapest


def test_well_utilized_node_is_rejected_with_a_reason() -> None:
    found = Fleet().node("n", "m.xlarge", *pods(3)).decide()
    assert found.commands == ()
    assert (
        "fits nowhere (and 2 more pods): no other node has room; and no single node with room for 3 cpu, "
        in rejected(found)
    )
    assert rejected(found).endswith(" is available below 0.2 $/h")


def test_missing_cheaper_offering_is_the_reason() -> None:
    found = Fleet().node("n", "m.2xlarge", pod("p", cpu=7)).decide()
    assert rejected(found) == (
        "cannot be disrupted: pod default/p fits nowhere: no other node has room; "
        "and no single node with room for 7 cpu, "
        "1Gi memory, 1 pods is available below 0.4 $/h"
    )
    smallest = Fleet().node("n", "m.large", pod("p")).decide()
    assert rejected(smallest) == (
        "cannot be disrupted: pod default/p fits nowhere: no other node has room; "
        "and there is no offering below 0.1 $/h"
    )


def test_replacement_at_the_same_price_is_rejected() -> None:
    same = (instance_type("a.large", cpu=4, price=0.2), instance_type("b.large", cpu=4, price=0.2))
    assert Fleet(instance_types=same).node("n", "a.large", pod()).decide().commands == ()


def test_type_with_one_expensive_zone_is_excluded() -> None:
    """EC2 might launch it in the expensive zone."""
    uneven = instance_type("u.large", cpu=2, memory=8)
    expensive = uneven.offerings[2].model_copy(update={"price": 0.5})
    uneven = uneven.model_copy(update={"offerings": (*uneven.offerings[:2], expensive)})
    fleet = Fleet(
        instance_types=(uneven, instance_type("m.large", cpu=2, price=0.3), instance_type("m.2xlarge", cpu=8))
    ).node("n", "m.2xlarge", pod())
    assert types_of(only_command(fleet.decide()).replacements[0]) == ("m.large",)


def test_pods_do_not_move_to_recently_changed_or_uninitialized_nodes() -> None:
    resting = Fleet(pool(consolidate_after="30m"), instance_types=(instance_type("m.xlarge", cpu=4),))
    resting.node("n", "m.xlarge", pod()).node("other", "m.xlarge", pod(), last_pod_event=NOW - timedelta(minutes=1))
    assert resting.decide().commands == ()
    uninitialized = Fleet(instance_types=(instance_type("m.xlarge", cpu=4),)).node("n", "m.xlarge", pod("p"))
    uninitialized.node("other", "m.xlarge", initialized=False)
    assert (
        rejected(uninitialized.decide())
        == "cannot be disrupted: pod default/p would run on other, which is not initialized yet"
    )


def test_capacity_for_pending_pods_is_not_used() -> None:
    fleet = Fleet(facts=pods(3), instance_types=(instance_type("m.xlarge", cpu=4),))
    fleet.node("other", "m.xlarge").node("n", "m.xlarge", pod())
    assert fleet.decide().commands == ()


def test_pending_pods_that_fit_nowhere_do_not_stop_consolidation() -> None:
    fleet = Fleet(facts=pods(2, cpu=1000), instance_types=(instance_type("m.xlarge", cpu=4),))
    fleet.node("other", "m.xlarge", pod()).node("n", "m.xlarge", pod())
    assert only_command(fleet.decide()).reason == "Underutilized"


def test_two_nodes_are_replaced_by_one() -> None:
    fleet = Fleet(
        instance_types=(instance_type("m.xlarge", cpu=4, price=0.2), instance_type("m.2xlarge", cpu=8, price=0.3))
    )
    fleet.node("a", "m.xlarge", *pods(3)).node("b", "m.xlarge", *pods(3))
    found = only_command(fleet.decide())
    assert found.kind == "multi" and set(found.node_names) == {"a", "b"}
    assert [types_of(one) for one in found.replacements] == [("m.2xlarge",)]


def test_three_nodes_are_replaced_by_two_if_one_is_not_sufficient() -> None:
    """Karpenter uses at most one replacement."""
    fleet = Fleet(
        instance_types=(instance_type("old.xlarge", cpu=4, price=0.3), instance_type("new.xlarge", cpu=6, price=0.31))
    )
    for name in "abc":
        fleet.node(name, "old.xlarge", *pods(3))
    found = only_command(fleet.decide())
    assert len(found.candidates) == 3 and [types_of(one) for one in found.replacements] == [("new.xlarge",)] * 2


def test_blocked_node_does_not_block_multi_node_consolidation() -> None:
    """All prefixes that Karpenter tries contain the first node in the order, which cannot be removed."""
    stuck = instance_type("stuck.large", cpu=2, memory=8, price=9.0)
    fleet = Fleet(instance_types=(stuck, instance_type("m.xlarge", cpu=4))).node("big", "m.xlarge")
    fleet.pods["big"] = [pod("held", cpu=0.1, node="big", do_not_disrupt="true")]
    fleet.node("stuck", "stuck.large", pod(selector={"node.kubernetes.io/instance-type": "stuck.large"}))
    fleet.node("a", "m.xlarge", pod()).node("b", "m.xlarge", pod())
    found = only_command(fleet.decide())
    assert found.kind == "multi" and set(found.node_names) == {"a", "b"} and not found.replacements
    assert any("stuck" in one.nodes for one in found.rejected)


def test_node_is_not_replaced_by_the_same_type() -> None:
    fleet = Fleet(instance_types=(instance_type("m.large", cpu=2), instance_type("m.2xlarge", cpu=8, price=0.11)))
    fleet.node("a", "m.large", pod()).node("b", "m.2xlarge", pod(cpu=0.5))
    found = only_command(fleet.decide())
    assert found.node_names == ("a",) or not found.replacements


def test_on_demand_node_is_replaced_by_spot_if_available() -> None:
    found = only_command(Fleet(instance_types=MIXED).node("n", "m.2xlarge", pod(), capacity_type="on-demand").decide())
    assert values_of(found.replacements[0], CAPACITY_TYPE) == ("spot",)


def test_on_demand_node_is_replaced_by_on_demand_without_spot() -> None:
    unavailable = tuple(
        UnavailableOffering(instance_type=one.name, zone="*", capacity_type="spot", until=NOW + timedelta(minutes=3))
        for one in MIXED
    )
    found = only_command(Fleet(instance_types=MIXED).node("n", "m.2xlarge", pod()).decide(unavailable=unavailable))
    assert values_of(found.replacements[0], CAPACITY_TYPE) == ("on-demand",)


SPOT_TO_SPOT = DisruptionSettings(spot_to_spot=True)


def test_spot_to_spot_requires_its_feature_gate() -> None:
    found = Fleet(instance_types=SPOTS).node("n", "big.large", pod(), capacity_type="spot").decide()
    assert not found.commands and "SpotToSpotConsolidation" in rejected(found)


def test_single_spot_node_is_replaced_by_the_fifteen_cheapest_types() -> None:
    found = only_command(
        Fleet(instance_types=SPOTS).node("n", "big.large", pod(), capacity_type="spot").decide(settings=SPOT_TO_SPOT)
    )
    assert types_of(found.replacements[0]) == tuple(f"s{number}.large" for number in range(15))
    assert values_of(found.replacements[0], CAPACITY_TYPE) == ("spot",)


def test_single_spot_node_with_fewer_than_fifteen_cheaper_types_is_rejected() -> None:
    found = (
        Fleet(instance_types=SPOTS[6:])
        .node("n", "big.large", pod(), capacity_type="spot")
        .decide(settings=SPOT_TO_SPOT)
    )
    assert not found.commands and "only 14 spot instance types are cheaper" in rejected(found)


def test_multi_node_spot_consolidation_needs_no_fifteen_types() -> None:
    fleet = Fleet(instance_types=SPOTS[14:]).node("a", "big.large", pod(cpu=1.5), capacity_type="spot")
    found = only_command(fleet.node("b", "big.large", pod(cpu=1.5), capacity_type="spot").decide(settings=SPOT_TO_SPOT))
    assert found.kind == "multi" and len(found.replacements) == 1


def test_cheaper_types_must_satisfy_min_values() -> None:
    varied = pool("default", "node.kubernetes.io/instance-type Exists minValues=3")
    found = Fleet(varied).node("n", "m.2xlarge", pod()).decide()
    assert not found.commands and "minValues" in rejected(found)
    two = pool("default", "node.kubernetes.io/instance-type Exists minValues=2")
    assert types_of(only_command(Fleet(two).node("n", "m.2xlarge", pod()).decide()).replacements[0]) == (
        "m.large",
        "m.xlarge",
    )


def test_one_node_is_not_replaced_by_two() -> None:
    instance_types = (instance_type("m.large", cpu=3, price=0.1), instance_type("m.2xlarge", cpu=8, price=0.5))
    fleet = Fleet(instance_types=instance_types).node("n", "m.2xlarge", *pods(2, cpu=2))
    found = fleet.decide()
    assert not found.commands and "no single node with room for 4 cpu" in rejected(found)


def test_limits_do_not_count_candidates() -> None:
    limited = pool(limits={"cpu": 8_000, "nodes": 1})
    assert len(only_command(Fleet(limited).node("n", "m.2xlarge", pod()).decide()).replacements) == 1


def test_replacement_may_come_from_a_cheaper_nodepool() -> None:
    fleet = Fleet(
        pool("expensive", f"{CAPACITY_TYPE} In on-demand"),
        pool("cheap", f"{CAPACITY_TYPE} In spot"),
        instance_types=MIXED,
    )
    found = only_command(fleet.node("n", "m.large", pod(), of="expensive").decide())
    assert found.replacements[0].pool == "cheap"


def test_broken_nodepool_does_not_affect_others() -> None:
    fleet = Fleet(pool(), pool("broken", node_class="unknown")).node("n", "m.2xlarge", pod())
    fleet.node("lost", "m.2xlarge", pod(), of="broken")
    assert only_command(fleet.decide()).node_names == ("n",)


@pytest.mark.parametrize(("cpu", "is_disrupted"), [(2, True), (7, False)])
def test_balanced_nodepool_requires_a_sufficient_score(cpu: int, is_disrupted: bool) -> None:
    """With seven pods to move, the score of the saving is too low."""
    fleet = Fleet(pool(consolidation_policy="Balanced")).node("n", "m.2xlarge", *pods(cpu, cpu=0.2, memory=0.2))
    for name in ("a", "b", "c"):
        do_not_disrupt: dict[str, Any] = {"do_not_disrupt": "true"}
        fleet.node(name, "m.2xlarge", pod(cpu=7.9), pod(cpu=0, memory=0, **do_not_disrupt))
    found = fleet.decide()
    assert bool(found.commands) is is_disrupted
    if not is_disrupted:
        assert "is Balanced, and the move scores" in rejected(found)


def test_node_beyond_the_budget_is_rejected_with_a_reason() -> None:
    few: dict[str, Any] = {"pools": {"default": {"Underutilized": {"allowed": 1, "why": "budget 1 of 2 nodes"}}}}
    fleet = Fleet().node("a", "m.2xlarge", pod()).node("n", "m.xlarge", pod())
    found = fleet.decide(allowed_disruptions=few)
    assert only_command(found).node_names == ("a",)
    assert rejected(found).startswith("the budgets of NodePool default allow 1 disruptions (budget 1 of 2 nodes)")


def test_in_flight_command_reserves_its_capacity() -> None:
    """`other` fits the pods of one node, and the first command reserves this capacity."""
    instance_types = (instance_type("m.xlarge", cpu=4),)
    fleet = Fleet(instance_types=instance_types).node("other", "m.xlarge", pod("held", do_not_disrupt="true"))
    fleet.node("a", "m.xlarge", *pods(2)).node("b", "m.xlarge", *pods(2))
    first = only_command(fleet.decide())
    second = fleet.decide(under_way=(first,))
    assert len(first.node_names) == 1 and not second.commands


def test_unreached_candidates_come_first_in_the_next_pass() -> None:
    fleet = Fleet(pool("a"), pool("b"))
    for name in ("n1", "n2", "n3"):
        fleet.node(name, "m.2xlarge", pod(cpu=7), of="a")
    few = DisruptionSettings(most_simulations=4)
    found = fleet.decide(settings=few)
    assert found.unreached and not found.commands
    second = fleet.decide(settings=DisruptionSettings(most_simulations=4), first=found.unreached)
    assert not set(found.unreached) <= set(second.unreached)


def test_full_node_is_not_part_of_a_command_for_an_oversized_one() -> None:
    """Both together would save the same amount, and the pod of the full node would move without a benefit."""
    found = only_command(Fleet().node("big", "m.2xlarge", pod()).node("full", "m.2xlarge", pod(cpu=7)).decide())
    assert (found.node_names, found.kind) == (("big",), "single") and abs(
        found.price_before - found.price_after - 0.3
    ) < 1e-9
