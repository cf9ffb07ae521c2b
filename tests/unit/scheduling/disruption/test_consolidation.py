"""Underutilized nodes: removed, or replaced by cheaper ones, one by one and several at once; and why not."""

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
"""Twenty types that are cheaper than the one that is big."""


def only_command(found: Decision) -> Command:
    assert len(found.commands) == 1, found.commands
    return found.commands[0]


def rejected(found: Decision, name: str = "n") -> str:
    return "; ".join(next(one.rejected for one in found.nodes if one.claim == name))


def test_a_node_whose_pods_have_room_elsewhere_goes() -> None:
    fleet = Fleet().node("big", "m.2xlarge", *pods(5)).node("n", "m.xlarge", *pods(2))
    found = only_command(fleet.decide())
    assert (found.reason, found.kind, found.node_names, found.replacements) == ("Underutilized", "single", ("n",), ())
    assert {one.target for one in found.moves} == {"big"} and len(found.moves) == 2
    assert found.price_before == 0.2 and found.hourly_saving == 0.2


def test_a_node_that_is_too_large_is_replaced_by_a_cheaper_one() -> None:
    found = only_command(Fleet().node("n", "m.2xlarge", pod()).decide())
    (nodeclaim,) = found.replacements
    assert types_of(nodeclaim) == ("m.large", "m.xlarge")
    assert found.moves[0].replacement == 0 and found.moves[0].target == ""
    assert (found.price_before, found.price_after, found.price_at_most) == (0.4, 0.1, 0.2)


def test_a_node_that_fits_its_pods_stays_and_says_why() -> None:
    found = Fleet().node("n", "m.xlarge", *pods(3)).decide()
    assert found.commands == ()
    assert "fits nowhere, as 2 more: no other node has room; and no single node with room for 3 cpu, " in rejected(
        found
    )
    assert rejected(found).endswith(" is available below 0.2 $/h")


def test_a_node_for_whose_pods_nothing_cheaper_is_made_says_so() -> None:
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


def test_a_replacement_that_costs_as_much_is_none() -> None:
    same = (instance_type("a.large", cpu=4, price=0.2), instance_type("b.large", cpu=4, price=0.2))
    assert Fleet(instance_types=same).node("n", "a.large", pod()).decide().commands == ()


def test_the_threshold_has_to_be_saved_whatever_is_launched() -> None:
    fleet = Fleet().node("n", "m.2xlarge", pod())
    assert types_of(only_command(fleet.decide(settings=DisruptionSettings(threshold=0.25))).replacements[0]) == (
        "m.large",
    )
    assert not fleet.decide(settings=DisruptionSettings(threshold=0.3)).commands


def test_a_type_of_which_one_zone_is_dearer_than_what_goes_is_not_offered() -> None:
    """It might be launched there."""
    uneven = instance_type("u.large", cpu=2, memory=8)
    expensive = uneven.offerings[2].model_copy(update={"price": 0.5})
    uneven = uneven.model_copy(update={"offerings": (*uneven.offerings[:2], expensive)})
    fleet = Fleet(
        instance_types=(uneven, instance_type("m.large", cpu=2, price=0.3), instance_type("m.2xlarge", cpu=8))
    ).node("n", "m.2xlarge", pod())
    assert types_of(only_command(fleet.decide()).replacements[0]) == ("m.large",)


def test_pods_do_not_go_to_a_node_that_rests_nor_to_one_that_is_not_up() -> None:
    resting = Fleet(pool(consolidate_after="30m"), instance_types=(instance_type("m.xlarge", cpu=4),))
    resting.node("n", "m.xlarge", pod()).node("other", "m.xlarge", pod(), last_pod_event=NOW - timedelta(minutes=1))
    assert resting.decide().commands == ()
    coming = Fleet(instance_types=(instance_type("m.xlarge", cpu=4),)).node("n", "m.xlarge", pod("p"))
    coming.node("other", "m.xlarge", initialized=False)
    assert (
        rejected(coming.decide())
        == "cannot be disrupted: pod default/p would run on other, which is not initialized yet"
    )


def test_the_room_of_pods_that_wait_is_not_taken() -> None:
    fleet = Fleet(facts=pods(3), instance_types=(instance_type("m.xlarge", cpu=4),))
    fleet.node("other", "m.xlarge").node("n", "m.xlarge", pod())
    assert fleet.decide().commands == ()


def test_two_nodes_are_replaced_by_one() -> None:
    fleet = Fleet(
        instance_types=(instance_type("m.xlarge", cpu=4, price=0.2), instance_type("m.2xlarge", cpu=8, price=0.3))
    )
    fleet.node("a", "m.xlarge", *pods(3)).node("b", "m.xlarge", *pods(3))
    found = only_command(fleet.decide())
    assert found.kind == "multi" and set(found.node_names) == {"a", "b"}
    assert [types_of(one) for one in found.replacements] == [("m.2xlarge",)]


def test_three_nodes_are_replaced_by_two_where_no_single_one_would_do() -> None:
    """Karpenter replaces by one node or not at all."""
    fleet = Fleet(
        instance_types=(instance_type("old.xlarge", cpu=4, price=0.3), instance_type("new.xlarge", cpu=6, price=0.31))
    )
    for name in "abc":
        fleet.node(name, "old.xlarge", *pods(3))
    found = only_command(fleet.decide())
    assert len(found.candidates) == 3 and [types_of(one) for one in found.replacements] == [("new.xlarge",)] * 2


def test_a_node_in_the_way_does_not_hold_up_the_others() -> None:
    """Karpenter's prefixes all contain the first in the order, which cannot go."""
    stuck = instance_type("stuck.large", cpu=2, memory=8, price=9.0)
    fleet = Fleet(instance_types=(stuck, instance_type("m.xlarge", cpu=4))).node("big", "m.xlarge")
    fleet.pods["big"] = [pod("held", cpu=0.1, node="big", do_not_disrupt="true")]
    fleet.node("stuck", "stuck.large", pod(selector={"node.kubernetes.io/instance-type": "stuck.large"}))
    fleet.node("a", "m.xlarge", pod()).node("b", "m.xlarge", pod())
    found = only_command(fleet.decide())
    assert found.kind == "multi" and set(found.node_names) == {"a", "b"} and not found.replacements
    assert any("stuck" in one.nodes for one in found.rejected)


def test_one_of_the_same_type_is_not_bought_again() -> None:
    fleet = Fleet(instance_types=(instance_type("m.large", cpu=2), instance_type("m.2xlarge", cpu=8, price=0.11)))
    fleet.node("a", "m.large", pod()).node("b", "m.2xlarge", pod(cpu=0.5))
    found = only_command(fleet.decide())
    assert found.node_names == ("a",) or not found.replacements


def test_on_demand_is_replaced_by_spot_where_there_is_any() -> None:
    found = only_command(Fleet(instance_types=MIXED).node("n", "m.2xlarge", pod(), capacity_type="on-demand").decide())
    assert values_of(found.replacements[0], CAPACITY_TYPE) == ("spot",)


def test_and_by_on_demand_where_there_is_none() -> None:
    unavailable = tuple(
        UnavailableOffering(instance_type=one.name, zone="*", capacity_type="spot", until=NOW + timedelta(minutes=3))
        for one in MIXED
    )
    found = only_command(Fleet(instance_types=MIXED).node("n", "m.2xlarge", pod()).decide(unavailable=unavailable))
    assert values_of(found.replacements[0], CAPACITY_TYPE) == ("on-demand",)


ON = DisruptionSettings(spot_to_spot=True)


def test_spot_is_not_replaced_by_spot_while_the_gate_is_off() -> None:
    found = Fleet(instance_types=SPOTS).node("n", "big.large", pod(), capacity_type="spot").decide()
    assert not found.commands and "SpotToSpotConsolidation" in rejected(found)


def test_a_single_spot_node_is_replaced_by_the_fifteen_cheapest() -> None:
    found = only_command(
        Fleet(instance_types=SPOTS).node("n", "big.large", pod(), capacity_type="spot").decide(settings=ON)
    )
    assert types_of(found.replacements[0]) == tuple(f"s{number}.large" for number in range(15))
    assert values_of(found.replacements[0], CAPACITY_TYPE) == ("spot",)


def test_with_fewer_than_fifteen_it_stays() -> None:
    found = Fleet(instance_types=SPOTS[6:]).node("n", "big.large", pod(), capacity_type="spot").decide(settings=ON)
    assert not found.commands and "only 14 spot instance types are cheaper" in rejected(found)


def test_several_spot_nodes_need_no_fifteen() -> None:
    fleet = Fleet(instance_types=SPOTS[14:]).node("a", "big.large", pod(cpu=1.5), capacity_type="spot")
    found = only_command(fleet.node("b", "big.large", pod(cpu=1.5), capacity_type="spot").decide(settings=ON))
    assert found.kind == "multi" and len(found.replacements) == 1


def test_min_values_have_to_be_kept_by_what_is_cheaper() -> None:
    varied = pool("default", "node.kubernetes.io/instance-type Exists minValues=3")
    found = Fleet(varied).node("n", "m.2xlarge", pod()).decide()
    assert not found.commands and "minValues" in rejected(found)
    two = pool("default", "node.kubernetes.io/instance-type Exists minValues=2")
    assert types_of(only_command(Fleet(two).node("n", "m.2xlarge", pod()).decide()).replacements[0]) == (
        "m.large",
        "m.xlarge",
    )


def test_one_node_is_replaced_by_two_where_that_is_wanted() -> None:
    instance_types = (instance_type("m.large", cpu=3, price=0.1), instance_type("m.2xlarge", cpu=8, price=0.5))
    fleet = Fleet(instance_types=instance_types).node("n", "m.2xlarge", *pods(2, cpu=2))
    found = fleet.decide()
    assert not found.commands and "no single node with room for 4 cpu" in rejected(found)
    multi_replacement = fleet.decide(settings=DisruptionSettings(replace_one_with_many=True))
    assert len(only_command(multi_replacement).replacements) == 2


def test_limits_do_not_count_what_goes() -> None:
    limited = pool(limits={"cpu": 8_000, "nodes": 1})
    assert len(only_command(Fleet(limited).node("n", "m.2xlarge", pod()).decide()).replacements) == 1


def test_another_pool_may_be_cheaper() -> None:
    fleet = Fleet(
        pool("dear", f"{CAPACITY_TYPE} In on-demand"), pool("cheap", f"{CAPACITY_TYPE} In spot"), instance_types=MIXED
    )
    found = only_command(fleet.node("n", "m.large", pod(), of="dear").decide())
    assert found.replacements[0].pool == "cheap"


def test_a_broken_pool_leaves_the_others_alone() -> None:
    fleet = Fleet(pool(), pool("broken", node_class="unknown")).node("n", "m.2xlarge", pod())
    fleet.node("lost", "m.2xlarge", pod(), of="broken")
    assert only_command(fleet.decide()).node_names == ("n",)


@pytest.mark.parametrize(("cpu", "is_disrupted"), [(2, True), (7, False)])
def test_a_balanced_pool_wants_its_disturbance_to_pay(cpu: int, is_disrupted: bool) -> None:
    """Half of the pool's price for nine tenths of its pods is too little."""
    fleet = Fleet(pool(consolidation_policy="Balanced")).node("n", "m.2xlarge", *pods(cpu, cpu=0.2, memory=0.2))
    for name in ("a", "b", "c"):
        do_not_disrupt: dict[str, Any] = {"do_not_disrupt": "true"}
        fleet.node(name, "m.2xlarge", pod(cpu=7.9), pod(cpu=0, memory=0, **do_not_disrupt))
    found = fleet.decide()
    assert bool(found.commands) is is_disrupted
    if not is_disrupted:
        assert "is Balanced, and the move scores" in rejected(found)


def test_nodes_that_budgets_hold_say_so() -> None:
    few: dict[str, Any] = {"pools": {"default": {"Underutilized": {"allowed": 1, "why": "budget 1 of 2 nodes"}}}}
    fleet = Fleet().node("a", "m.2xlarge", pod()).node("n", "m.xlarge", pod())
    found = fleet.decide(allowed_disruptions=few)
    assert only_command(found).node_names == ("a",)
    assert rejected(found).startswith("the budgets of NodePool default allow 1 disruptions (budget 1 of 2 nodes)")


def test_a_command_under_way_keeps_its_room() -> None:
    """`other` has room for the pods of one node; it is promised already."""
    instance_types = (instance_type("m.xlarge", cpu=4),)
    fleet = Fleet(instance_types=instance_types).node("other", "m.xlarge", pod("held", do_not_disrupt="true"))
    fleet.node("a", "m.xlarge", *pods(2)).node("b", "m.xlarge", *pods(2))
    first = only_command(fleet.decide())
    second = fleet.decide(under_way=(first,))
    assert len(first.node_names) == 1 and not second.commands


def test_what_is_not_reached_is_named_and_comes_first() -> None:
    fleet = Fleet(pool("a"), pool("b"))
    for name in ("n1", "n2", "n3"):
        fleet.node(name, "m.2xlarge", pod(cpu=7), of="a")
    few = DisruptionSettings(most_simulations=4)
    found = fleet.decide(settings=few)
    assert found.unreached and not found.commands
    second = fleet.decide(settings=DisruptionSettings(most_simulations=4), first=found.unreached)
    assert not set(found.unreached) <= set(second.unreached)


def test_a_full_node_is_not_bought_again_beside_one_that_is_too_large() -> None:
    """Both together would save as much, and move the pod of the full one for nothing."""
    found = only_command(Fleet().node("big", "m.2xlarge", pod()).node("full", "m.2xlarge", pod(cpu=7)).decide())
    assert (found.node_names, found.kind) == (("big",), "single") and abs(found.hourly_saving - 0.3) < 1e-9
