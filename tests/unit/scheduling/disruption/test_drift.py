"""Drifted nodes: one command each, empty ones first, and a blocked node does not block others."""

from datetime import timedelta
from typing import Any

from tenure.apis.labels import NODE_NAME_FIELD, ZONE
from tenure.model.disruption.decision import Command, Decision, DisruptionBudgets
from tenure.model.facts import Expression, PodFact, SpreadConstraint
from tests.unit.scheduling.builders import NOW, expressions, instance_type, pod, pods, types_of
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pool

DRIFTED: dict[str, Any] = {"drifted": "NodePoolDrifted"}
NEVER = {"consolidate_after": "Never"}


def pinned(node: str, **more: Any) -> PodFact:
    on_node = Expression(key=NODE_NAME_FIELD, operator="In", values=(node,))
    return pod(terms=((on_node,),), **more)


def drifted_since(**ago: float) -> dict[str, Any]:
    return {**DRIFTED, "drifted_at": NOW - timedelta(**ago)}


def web(number: int, *, spread: bool = True) -> PodFact:
    """A pod of an app whose pods are spread over zones."""
    even = SpreadConstraint(key=ZONE, max_skew=1, selector=expressions("app In web"))
    return pod(f"web-{number}", labels={"app": "web"}, spreads=(even,) if spread else ())


def drift_commands(found: Decision) -> list[Command]:
    assert {one.kind for one in found.commands} <= {"drift"}
    return list(found.commands)


def allow_drifted(nodes: int) -> DisruptionBudgets:
    return DisruptionBudgets.model_validate(
        {"pools": {"default": {"Drifted": {"allowed": nodes, "why": f"budget {nodes}"}}}}
    )


def test_drifted_node_is_replaced_at_any_price() -> None:
    (found,) = drift_commands(Fleet(pool(**NEVER)).node("n", "m.large", pod(), **DRIFTED).decide())
    assert found.reason == "Drifted" and types_of(found.replacements[0])[0] == "m.large"
    assert found.price_before == found.price_after


def test_drifted_node_is_removed_if_its_pods_fit_elsewhere() -> None:
    (found,) = drift_commands(Fleet(pool(**NEVER)).node("n", "m.large", pod(), **DRIFTED).node("o", "m.large").decide())
    assert found.replacements == () and found.moves[0].target == "o"


def test_drifted_node_has_as_many_replacements_as_needed() -> None:
    small = (
        instance_type("m.large", cpu=3, memory=8),
        instance_type("gone.2xlarge", cpu=8, memory=32, available=False),
    )
    (found,) = drift_commands(
        Fleet(pool(**NEVER), instance_types=small).node("n", "gone.2xlarge", *pods(3, cpu=2), **DRIFTED).decide()
    )
    assert len(found.replacements) == 3


def test_empty_drifted_nodes_precede_the_oldest() -> None:
    fleet = Fleet(pool(**NEVER)).node("young", "m.large", pod(), **drifted_since(hours=1))
    fleet.node("old", "m.large", pod(), **drifted_since(hours=5)).node("empty", "m.large", **drifted_since(minutes=1))
    assert [one.node_names for one in drift_commands(fleet.decide())] == [("empty",), ("old",), ("young",)]
    assert [one.node_names for one in drift_commands(fleet.decide(allowed_disruptions=allow_drifted(2)))] == [
        ("empty",),
        ("old",),
    ]


def test_blocked_drifted_node_does_not_block_others() -> None:
    picky = pod("picky", selector={"topology.kubernetes.io/zone": "nowhere"})
    fleet = Fleet(pool(**NEVER)).node("stuck", "m.large", picky, **drifted_since(hours=9))
    found = fleet.node("n", "m.large", pod(), **drifted_since(hours=1)).decide(allowed_disruptions=allow_drifted(1))
    assert [one.node_names for one in drift_commands(found)] == [("n",)]
    (message,) = next(one.rejected for one in found.nodes if one.claim == "stuck")
    assert message.startswith("cannot be disrupted: pod default/picky fits nowhere")


def test_drifted_node_beyond_the_budget_is_rejected_with_a_reason() -> None:
    fleet = (
        Fleet(pool(**NEVER))
        .node("a", "m.large", pod(), **drifted_since(hours=2))
        .node("b", "m.large", pod(), **DRIFTED)
    )
    found = fleet.decide(allowed_disruptions=allow_drifted(1))
    (message,) = next(one.rejected for one in found.nodes if one.claim == "b")
    assert message == "the budgets of NodePool default allow 1 disruptions (budget 1), and this pass takes 1"


def test_pods_do_not_move_to_another_drifted_node() -> None:
    fleet = (
        Fleet(pool(**NEVER))
        .node("a", "m.2xlarge", pod(), **drifted_since(hours=2))
        .node("b", "m.2xlarge", pod(), **DRIFTED)
    )
    found = drift_commands(fleet.decide(allowed_disruptions=allow_drifted(1)))
    assert len(found[0].replacements) == 1 and found[0].moves[0].target == ""


def test_pods_move_to_another_drifted_node_if_no_launch_is_possible() -> None:
    full = pool(limits={"nodes": 1}, **NEVER)
    fleet = Fleet(full).node("a", "m.2xlarge", pod(), **drifted_since(hours=2)).node("b", "m.2xlarge", pod(), **DRIFTED)
    (found,) = drift_commands(fleet.decide())
    assert found.moves[0].target == "b"


def test_replacements_of_earlier_commands_count_against_the_limit() -> None:
    instance_types = (
        instance_type("m.large", cpu=3, memory=8),
        instance_type("gone.2xlarge", cpu=8, memory=32, available=False),
    )
    limited = pool(limits={"nodes": 3}, **NEVER)
    fleet = Fleet(limited, instance_types=instance_types).node(
        "a", "gone.2xlarge", *pods(2, cpu=2), **drifted_since(hours=2)
    )
    fleet.node("b", "gone.2xlarge", *pods(2, cpu=2), **drifted_since(hours=1))
    (found,) = drift_commands(fleet.decide())
    assert found.node_names == ("a",) and len(found.replacements) == 2


def test_two_commands_do_not_use_the_same_capacity() -> None:
    fleet = Fleet(pool(**NEVER), instance_types=(instance_type("m.large", cpu=2, memory=8),)).node("o", "m.large")
    fleet.node("a", "m.large", pod(), **drifted_since(hours=2)).node("b", "m.large", pod(), **DRIFTED)
    first, second = drift_commands(fleet.decide())
    assert first.moves[0].target == "o" and len(second.replacements) == 1


def test_spread_counts_pods_on_planned_replacements() -> None:
    fleet = Fleet(pool(**NEVER)).node("stays", "m.2xlarge", *(web(number) for number in range(3)), zone="a")
    fleet.node("old", "m.large", web(3), web(4), zone="b", **drifted_since(hours=2))
    fleet.node("young", "m.large", web(5), zone="b", **drifted_since(hours=1))
    first, *others = drift_commands(fleet.decide())
    assert first.node_names == ("old",) and {one.target for one in first.moves} == {""}
    assert not [one for command in others for one in command.moves if one.target == "stays"]


def test_pods_on_a_planned_replacement_count_for_the_spread_of_the_next_node() -> None:
    """Without them, zone b would have no pod, and the pod could not move to zone a."""
    in_b = [pod(f"web-{number}", labels={"app": "web"}, selector={ZONE: "b"}) for number in (2, 3)]
    fleet = Fleet(pool(**NEVER)).node("stays", "m.2xlarge", web(0), web(1), zone="a")
    fleet.node("old", "m.large", *in_b, zone="b", **drifted_since(hours=2))
    fleet.node("young", "m.large", web(4), zone="b", **drifted_since(hours=1))
    first, second = drift_commands(fleet.decide())
    assert first.node_names == ("old",) and {one.target for one in first.moves} == {""}
    assert [one.target for one in second.moves] == ["stays"] and not second.replacements


def test_spread_counts_the_zone_of_a_planned_replacement() -> None:
    fleet = Fleet(instance_types=(instance_type("m.large", cpu=4, memory=16),))
    fleet.node("old", "m.large", pod(cpu=3, selector={ZONE: "c"}), zone="c", **drifted_since(hours=2))
    fleet.node("one", "m.large", web(0), zone="a").node("other", "m.large", web(1), zone="b")
    assert [one.node_names for one in fleet.decide().commands] == [("old",)]


def test_spread_waits_for_the_unknown_zone_of_a_counted_pod() -> None:
    fleet = Fleet(pool(**NEVER)).node("old", "m.2xlarge", web(0, spread=False), zone="a", **drifted_since(hours=2))
    fleet.node("young", "m.2xlarge", web(1), web(2), zone="b", **drifted_since(hours=1))
    found = fleet.decide()
    assert [one.node_names for one in drift_commands(found)] == [("old",)]
    (message,) = next(one.rejected for one in found.nodes if one.claim == "young")
    assert "pod default/web-0 counts for these pods, and it is not known yet where its new node will be" in message


def test_empty_drifted_node_is_removed_as_empty_if_the_nodepool_consolidates() -> None:
    (found,) = Fleet().node("n", "m.large", **DRIFTED).decide().commands
    assert found.reason == "Empty"


def test_empty_nodes_are_removed_together_within_budgets() -> None:
    fleet = Fleet().node("a", "m.large").node("b", "m.xlarge").node("c", "m.2xlarge")
    (found,) = fleet.decide().commands
    assert found.kind == "empty" and found.node_names == ("c", "b", "a")
    few = DisruptionBudgets.model_validate({"pools": {"default": {"Empty": {"allowed": 2}}}})
    (fewer,) = fleet.decide(allowed_disruptions=few).commands
    assert fewer.node_names == ("c", "b")


def test_zones_at_once_limits_the_disrupted_zones() -> None:
    fleet = Fleet().node("a", "m.2xlarge", zone="a").node("b", "m.large", zone="b").node("c", "m.large", zone="a")
    rule = DisruptionBudgets.model_validate({"zones_at_once": {"default": {"max_zones": 1}}})
    (found,) = fleet.decide(allowed_disruptions=rule).commands
    assert set(found.node_names) == {"a", "c"}
    started = DisruptionBudgets.model_validate({"zones_at_once": {"default": {"max_zones": 1, "active_zones": ["b"]}}})
    (other,) = fleet.decide(allowed_disruptions=started).commands
    assert other.node_names == ("b",)


def test_zone_and_cluster_budgets_limit_commands() -> None:
    fleet = Fleet().node("a", "m.2xlarge", zone="a").node("b", "m.large", zone="b").node("c", "m.large", zone="a")
    by_zone = DisruptionBudgets.model_validate({"zones": {"default": {"a": {"allowed": 1}}}})
    (found,) = fleet.decide(allowed_disruptions=by_zone).commands
    assert set(found.node_names) == {"a", "b"}
    cluster_wide = DisruptionBudgets.model_validate({"cluster": {"default": {"allowed": 1}}})
    (first,) = fleet.decide(allowed_disruptions=cluster_wide).commands
    assert first.node_names == ("a",)


def test_pod_that_is_pinned_to_its_node_does_not_block_drift() -> None:
    """The pod ends with its node, and needs no place elsewhere."""
    fleet = Fleet(pool(**NEVER)).node("only", "m.large", pinned("only"), **DRIFTED)
    (found,) = drift_commands(fleet.node("both", "m.2xlarge", pinned("both", cpu=4), pod("p"), **DRIFTED).decide())[:1]
    assert (found.node_names, found.replacements) == (("only",), ())
    both = Fleet(pool(**NEVER)).node("both", "m.2xlarge", pinned("both", cpu=4), pod("p"), **DRIFTED)
    (found,) = drift_commands(both.decide())
    assert [one.pods for one in found.replacements] == [("p",)] and types_of(found.replacements[0])[0] == "m.large"


def test_pod_that_is_pinned_to_its_node_does_not_block_consolidation() -> None:
    fleet = Fleet().node("n", "m.large", pinned("n", cpu=0.1), pod("p", cpu=0.5)).node("other", "m.2xlarge", pod(cpu=4))
    (found,) = fleet.decide().commands
    assert (found.node_names, found.replacements) == (("n",), ()) and [one.pod_uid for one in found.moves] == ["p"]
