"""Drifted nodes of static NodePools: a node of the template, within limits, or the drifted node deleted first."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.labels import CAPACITY_RESERVATION_ID, CAPACITY_TYPE, INSTANCE_TYPE
from tenure.apis.resources import NODES
from tenure.controller.disruption.replacements import to_proposal
from tenure.model.disruption.commands import CommandBackoff
from tenure.model.disruption.decision import Command, Decision, DisruptionBudgets, DisruptionSettings
from tenure.model.facts import NodePoolFact
from tenure.policy.disruption.commands import why_not_start
from tests.unit.scheduling.builders import NOW, pod, pods
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pool
from tests.unit.scheduling.test_capacity_reservations import LARGE, reservation_counts, with_reservations

DRIFTED: dict[str, Any] = {"drifted": "NodePoolDrifted"}
TERMINATE_FIRST = {"settings": DisruptionSettings(terminate_first_drift=True)}


def static_pool(replicas: int, *requirements: str, limit: int | None = None, **more: Any) -> NodePoolFact:
    limits = {} if limit is None else {NODES: limit}
    return pool("default", *requirements, static=True, replicas=replicas, limits=limits, **more)


def drifted_fleet(count: int, of: NodePoolFact, **node: Any) -> Fleet:
    fleet = Fleet(of, **({"instance_types": node.pop("instance_types")} if "instance_types" in node else {}))
    for number in range(count):
        fleet.node(f"n{number}", "m.large", pod(f"p{number}"), **DRIFTED, **node)
    return fleet


def rejections(found: Decision) -> set[str]:
    return {message for one in found.nodes for message in one.rejected}


def drift_commands(found: Decision) -> list[Command]:
    return [one for one in found.commands if one.reason == "Drifted"]


def test_drifted_static_node_is_replaced_by_its_template() -> None:
    of = static_pool(2, f"{INSTANCE_TYPE} In m.large", "team In a", template_labels={"tier": "edge"})
    fleet = Fleet(of).node("n", "m.large", *pods(2, cpu=1), **DRIFTED).node("o", "m.large")
    (command,) = drift_commands(fleet.decide())
    (planned,) = command.replacements
    assert planned.pool == "default" and planned.requests == {} and planned.pods == ()
    assert {"team": "a", "tier": "edge"}.items() <= planned.labels.items()
    assert {one.key: one.values for one in planned.requirements if one.key in (INSTANCE_TYPE, "team")} == {
        INSTANCE_TYPE: ("m.large",),
        "team": ("a",),
    }
    assert command.moves == () and command.terminate_first == ""
    assert "one of spec.replicas=2" in command.why


def test_empty_drifted_static_node_is_replaced_and_never_consolidated() -> None:
    (command,) = Fleet(static_pool(1)).node("n", "m.large", **DRIFTED).decide().commands
    assert command.reason == "Drifted" and len(command.replacements) == 1
    assert Fleet(static_pool(1)).node("n", "m.large").decide().commands == ()


def test_static_replacements_stay_within_budget_and_limit() -> None:
    budget = DisruptionBudgets.model_validate({"pools": {"default": {"Drifted": {"allowed": 2, "why": "budget 2"}}}})
    assert len(drift_commands(drifted_fleet(5, static_pool(5)).decide())) == 5
    assert len(drift_commands(drifted_fleet(5, static_pool(5)).decide(allowed_disruptions=budget))) == 2
    found = drifted_fleet(5, static_pool(5, limit=6)).decide()
    assert len(drift_commands(found)) == 1
    assert any(
        "limits.nodes=6 of NodePool default allows no further node: it has 6" in one for one in rejections(found)
    )
    (why,) = rejections(drifted_fleet(1, static_pool(1, limit=1)).decide())
    assert "the gate TerminateFirstDrift, which deletes the node first, is off" in why


def test_replacements_of_commands_in_flight_count_against_the_limit() -> None:
    fleet = drifted_fleet(3, static_pool(3, limit=4))
    (first,) = drift_commands(fleet.decide())
    assert drift_commands(fleet.decide(under_way=(first,))) == []


def test_terminating_static_nodes_count_against_the_limit() -> None:
    fleet = drifted_fleet(2, static_pool(2, limit=3)).node("going", "m.large", deleting=True)
    assert drift_commands(fleet.decide()) == []


def test_static_pool_shrinks_before_drifted_nodes_are_replaced() -> None:
    found = drifted_fleet(3, static_pool(2)).decide()
    assert drift_commands(found) == []
    assert rejections(found) == {"NodePool default has 3 nodes for spec.replicas=2"}
    replaced = drifted_fleet(2, static_pool(2)).node("old", "m.large", disruption="Drifted", disrupted_by="command")
    assert len(drift_commands(replaced.decide())) == 2


def test_unready_static_pool_replaces_nothing() -> None:
    found = drifted_fleet(1, static_pool(1, ready=False)).decide(**TERMINATE_FIRST)
    assert rejections(found) == {"NodePool default is not ready"}


def test_node_at_the_limit_is_deleted_first_with_the_gate() -> None:
    (command,) = drift_commands(drifted_fleet(1, static_pool(1, limit=1)).decide(**TERMINATE_FIRST))
    assert (command.replacements, command.terminate_first) == ((), "static-at-limit")
    assert "deleted before its replacement" in command.why


def test_nodes_at_the_limit_are_deleted_one_after_the_other() -> None:
    fleet = drifted_fleet(2, static_pool(2, limit=2))
    (first,) = drift_commands(fleet.decide(**TERMINATE_FIRST))
    (name,) = first.node_names
    fleet.nodeclaims[name] = fleet.nodeclaims[name].model_copy(update={"disrupted_by": "first"})
    validated = fleet.decide(only=(name,), reason="Drifted", **TERMINATE_FIRST)
    assert [one.terminate_first for one in drift_commands(validated)] == ["static-at-limit"]
    assert drift_commands(fleet.decide(under_way=(first,), **TERMINATE_FIRST)) == []
    fleet.nodeclaims[name] = fleet.nodeclaims[name].model_copy(update={"deleting": True})
    assert drift_commands(fleet.decide(under_way=(first,), **TERMINATE_FIRST)) == []


def test_node_is_not_deleted_first_while_a_new_node_starts() -> None:
    """Otherwise, a template whose nodes do not start would end the whole NodePool."""
    fleet = drifted_fleet(2, static_pool(3, limit=3)).node("new", "m.large", initialized=False)
    found = fleet.decide(**TERMINATE_FIRST)
    assert drift_commands(found) == []
    assert all(one.endswith("NodeClaim new is not initialized yet") for one in rejections(found))
    missing = drifted_fleet(2, static_pool(3, limit=3)).decide(**TERMINATE_FIRST)
    assert drift_commands(missing) == [], "the NodePool launches the missing node first"


def test_command_that_has_not_begun_counts_as_a_replacement() -> None:
    """Its node has no condition yet, and the next pass must not delete another one first."""
    fleet = drifted_fleet(2, static_pool(2, limit=3))
    (first,) = drift_commands(fleet.decide(**TERMINATE_FIRST))
    assert len(first.replacements) == 1
    assert drift_commands(fleet.decide(under_way=(first,), **TERMINATE_FIRST)) == []


def test_node_is_not_replaced_after_its_pool_was_scaled_down() -> None:
    fleet = drifted_fleet(2, static_pool(1))
    fleet.nodeclaims["n0"] = fleet.nodeclaims["n0"].model_copy(update={"disrupted_by": "command"})
    found = fleet.decide(only=("n0",), reason="Drifted")
    assert drift_commands(found) == []
    assert "NodePool default has 2 nodes for spec.replicas=1" in rejections(found)


def test_node_is_not_deleted_first_while_another_one_is_replaced() -> None:
    fleet = drifted_fleet(2, static_pool(2, limit=3))
    fleet.node("old", "m.large", disruption="Drifted", disrupted_by="command")
    assert drift_commands(fleet.decide(**TERMINATE_FIRST)) == []
    fleet.nodeclaims["old"] = fleet.nodeclaims["old"].model_copy(update={"deleting": True})
    found = fleet.decide(**TERMINATE_FIRST)
    assert drift_commands(found) == []
    assert all("some are terminating or being replaced" in one for one in rejections(found))


@pytest.mark.parametrize(("available", "expected"), [(0, "no-reserved-capacity"), (1, "")])
def test_node_in_a_full_reservation_is_deleted_first_with_the_gate(available: int, expected: str) -> None:
    of = static_pool(1, f"{CAPACITY_TYPE} In reserved", f"{INSTANCE_TYPE} In m.large")
    fleet = drifted_fleet(
        1,
        of,
        instance_types=(with_reservations(LARGE, "cr-1"),),
        capacity_type="reserved",
        labels={CAPACITY_RESERVATION_ID: "cr-1"},
    )
    counts = reservation_counts(cr_1=available)
    (command,) = drift_commands(fleet.decide(**counts, **TERMINATE_FIRST))
    assert command.terminate_first == expected and len(command.replacements) == int(not expected)
    if expected:
        assert drift_commands(fleet.decide(**counts)) == []


def test_node_outside_the_full_reservation_is_not_deleted_first() -> None:
    reserved = f"{CAPACITY_TYPE} In reserved", f"{INSTANCE_TYPE} In m.large"
    of, pool_of_one = static_pool(2, *reserved), static_pool(1, *reserved)
    fleet = Fleet(of, instance_types=(with_reservations(LARGE, "cr-1"),))
    fleet.node("outside", "m.large", labels={CAPACITY_RESERVATION_ID: "cr-0"}, **DRIFTED)
    fleet.node(
        "inside", "m.large", pod(), capacity_type="reserved", labels={CAPACITY_RESERVATION_ID: "cr-1"}, **DRIFTED
    )
    found = fleet.decide(**reservation_counts(cr_1=0), **TERMINATE_FIRST)
    assert [one.node_names for one in drift_commands(found)] == [("inside",)]
    alone = Fleet(pool_of_one, instance_types=(with_reservations(LARGE, "cr-1"),))
    alone.node("outside", "m.large", labels={CAPACITY_RESERVATION_ID: "cr-0"}, **DRIFTED)
    (why,) = rejections(alone.decide(**reservation_counts(cr_1=0), **TERMINATE_FIRST))
    assert why.endswith("the node uses none of them")


def test_replacements_stay_within_the_instances_of_a_reservation() -> None:
    of = static_pool(3, f"{CAPACITY_TYPE} In reserved", f"{INSTANCE_TYPE} In m.large")
    fleet = drifted_fleet(
        3,
        of,
        instance_types=(with_reservations(LARGE, "cr-1"),),
        capacity_type="reserved",
        labels={CAPACITY_RESERVATION_ID: "cr-1"},
    )
    (found,) = drift_commands(fleet.decide(**reservation_counts(cr_1=1)))
    assert len(found.replacements) == 1


def test_dynamic_node_in_a_full_reservation_is_deleted_first_with_the_gate() -> None:
    of = pool("default", f"{CAPACITY_TYPE} In reserved", consolidate_after="Never")
    fleet = Fleet(of, instance_types=(with_reservations(LARGE, "cr-1"),))
    fleet.node("n", "m.large", pod(), capacity_type="reserved", labels={CAPACITY_RESERVATION_ID: "cr-1"}, **DRIFTED)
    counts = reservation_counts(cr_1=0)
    assert drift_commands(fleet.decide(**counts)) == []
    (command,) = drift_commands(fleet.decide(**counts, **TERMINATE_FIRST))
    assert (command.replacements, command.terminate_first) == ((), "no-reserved-capacity")
    other = Fleet(of, instance_types=(with_reservations(LARGE, "cr-1"),))
    other.node("n", "m.large", pod(), labels={CAPACITY_RESERVATION_ID: "cr-0"}, **DRIFTED)
    assert drift_commands(other.decide(**counts, **TERMINATE_FIRST)) == []


def test_failed_replacements_of_the_pool_hold_back_a_node_that_is_deleted_first() -> None:
    """After its deletion, the NodePool launches the missing node itself."""
    (command,) = drift_commands(drifted_fleet(1, static_pool(1, limit=1)).decide(**TERMINATE_FIRST))
    proposal = to_proposal("id", command)
    assert (proposal.replacements, proposal.replacement_pools) == (0, ("default",))
    failed = CommandBackoff(pool="default", until=NOW + timedelta(minutes=5), why="not initialized")
    assert "the last replacements of NodePool default failed" in why_not_start(proposal, [], (failed,), NOW)
