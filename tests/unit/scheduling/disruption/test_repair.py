"""Repair as the first method of voluntary disruption: replacement first, budgets, order, blocked pods, static pools."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.resources import NODES
from tenure.model.disruption.decision import BudgetHeadroom, Command, Decision, DisruptionBudgets, DisruptionSettings
from tenure.model.facts import NodeCondition
from tenure.model.node_health import RepairDue
from tests.unit.scheduling.builders import NOW, pod
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pdb, pool

KERNEL = ("KernelReady", "False")
UNHEALTHY: dict[str, Any] = {"node": {"conditions": (NodeCondition(type=KERNEL[0], status=KERNEL[1], since=NOW),)}}


def repair_due(*, order_at: datetime = NOW, grace: timedelta | None = timedelta(minutes=10)) -> dict[str, Any]:
    due = RepairDue(
        condition="KernelReady=False", order_at=order_at, grace=grace, conditions=(KERNEL,), max_unhealthy="20%"
    )
    return {"repair_due": due, **UNHEALTHY}


def budgets(allowed: int) -> dict[str, Any]:
    return {"allowed_disruptions": DisruptionBudgets(pools={"default": {"Unhealthy": BudgetHeadroom(allowed=allowed)}})}


def repairs(found: Decision) -> list[Command]:
    return [one for one in found.commands if one.reason == "Unhealthy"]


def test_unhealthy_node_is_replaced_before_it_is_deleted() -> None:
    fleet = Fleet(pool(consolidate_after="Never")).node("n", "m.large", pod("p", cpu=1), **repair_due())
    (command,) = fleet.decide().commands
    assert (command.reason, command.kind, command.node_names) == ("Unhealthy", "repair", ("n",))
    assert [one.pods for one in command.replacements] == [("p",)]
    (again,) = fleet.decide(only=("n",), reason="Unhealthy").commands
    assert again.replacements == command.replacements
    assert fleet.decide(under_way=(command,)).commands == ()


def test_recovered_node_and_node_without_request_stay() -> None:
    without_condition = {"repair_due": repair_due()["repair_due"]}
    for fields in (without_condition, UNHEALTHY):
        assert repairs(Fleet().node("n", "m.large", pod("p"), **fields).decide()) == []


def test_repair_precedes_drift_of_the_same_node() -> None:
    fleet = Fleet(pool(consolidate_after="Never")).node("n", "m.large", pod("p"), drifted="Drifted", **repair_due())
    assert [one.reason for one in fleet.decide().commands] == ["Unhealthy"]


def test_nodes_are_repaired_by_waiting_time_then_cost_within_the_budget() -> None:
    fleet = Fleet(pool(consolidate_after="Never"))
    fleet.node("young", "m.large", pod("p1"), **repair_due())
    fleet.node("old", "m.large", pod("p2"), **repair_due(order_at=NOW - timedelta(hours=1)))
    fleet.node("costly", "m.large", pod("p3", priority=1000000), **repair_due())
    found = fleet.decide(**budgets(2))
    assert [one.node_names for one in repairs(found)] == [("old",), ("young",)]
    (verdict,) = (one for one in found.nodes if one.node == "costly")
    assert "allow 2 disruptions" in verdict.rejected[0]


def test_repair_in_an_annotation_has_a_time_with_a_zone() -> None:
    text = repair_due()["repair_due"].format()
    assert RepairDue.parse(text) == repair_due()["repair_due"]
    assert RepairDue.parse(text.replace("Z", "")) is None, "it cannot be compared with the others"


def test_node_that_never_initialized_needs_no_budget() -> None:
    fleet = Fleet(pool(consolidate_after="Never"))
    fleet.node("starting", "m.large", **{**repair_due(), "initialized": False})
    fleet.node("ready", "m.large", **repair_due())
    assert [one.node_names for one in repairs(fleet.decide(**budgets(0)))] == [("starting",)]


def test_do_not_disrupt_and_pods_do_not_block_a_bounded_drain_and_get_capacity() -> None:
    fleet = Fleet(
        pool(consolidate_after="Never"),
        facts=(pdb("never", "app In db", max_unavailable="0", expected=1, desired=1, current=1),),
    )
    guarded, protected = pod("db", cpu=1, labels={"app": "db"}), pod("batch", cpu=1, do_not_disrupt="true")
    due = repair_due()
    node = {**due["node"], "annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    fleet.node("n", "m.large", guarded, protected, **{**due, "node": node})
    (command,) = repairs(fleet.decide())
    assert sorted(uid for one in command.replacements for uid in one.pods) == ["batch", "db"]


@pytest.mark.parametrize(("grace", "own", "is_repaired"), [(None, "", False), (None, "1h", True), (0, "", True)])
def test_unbounded_drain_waits_for_pods_that_may_not_be_evicted(grace: int | None, own: str, is_repaired: bool) -> None:
    due = repair_due(grace=None if grace is None else timedelta(grace))
    fleet = Fleet(pool(consolidate_after="Never"))
    fleet.node("n", "m.large", pod("batch", do_not_disrupt="true"), termination_grace_period=own, **due)
    assert len(repairs(fleet.decide())) == is_repaired


def test_pod_that_cannot_be_planned_does_not_block_repair() -> None:
    fleet = Fleet(pool(consolidate_after="Never"))
    fleet.node("n", "m.large", pod("odd", unplannable="field x is unknown"), **repair_due())
    assert len(repairs(fleet.decide())) == 1


def test_pods_that_fit_nowhere_block_repair() -> None:
    fleet = Fleet(pool("default", "team In a", consolidate_after="Never"))
    fleet.node("n", "m.large", pod("p", cpu=1, node_selector={"team": "b"}), **repair_due())
    found = fleet.decide()
    assert repairs(found) == []
    assert found.nodes[0].rejected[0].startswith("cannot be disrupted")


def static_fleet(limit: int) -> Fleet:
    of = pool("default", static=True, replicas=1, limits={NODES: limit})
    return Fleet(of).node("n", "m.large", pod("p"), **repair_due())


def test_static_node_takes_a_slot_or_goes_first_with_the_gate() -> None:
    (command,) = repairs(static_fleet(2).decide())
    assert len(command.replacements) == 1 and command.moves == () and command.terminate_first == ""
    assert "replaces unhealthy node n" in command.why
    at_limit = static_fleet(1)
    rejected = at_limit.decide(settings=DisruptionSettings(terminate_first_drift=True)).nodes[0].rejected
    assert "the gate TerminateFirstRepair, which deletes the node first, is off" in rejected[0]
    (first,) = repairs(at_limit.decide(settings=DisruptionSettings(terminate_first_repair=True)))
    assert (first.replacements, first.terminate_first) == ((), "static-at-limit")
