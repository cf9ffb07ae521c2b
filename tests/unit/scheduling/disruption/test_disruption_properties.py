"""Invariants of commands over random clusters; `tests/oracle/plan.py` checks the placement of pods."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenure.model.disruption.decision import BudgetHeadroom, Command, Decision, DisruptionBudgets, DisruptionSettings
from tenure.model.facts import NodePoolFact, PodDisruptionBudgetFact, PodFact
from tenure.model.plan import Plan
from tests.oracle.plan import find_violations
from tests.support.properties import max_examples
from tests.unit.scheduling.builders import Cluster
from tests.unit.scheduling.disruption.cluster_builder import Choose, Fleet, cheapest, most_expensive, pdb
from tests.unit.scheduling.packing.test_packing_properties import some_topology_terms
from tests.unit.scheduling.random_clusters import INSTANCE_TYPES, some_pods, some_pools

_TOPOLOGY_TERMS: Any = some_topology_terms().map(lambda pod_fields: lambda name: {**pod_fields, "host_ports": ()})
_LABELS_ONLY: Any = st.just(lambda name: {"labels": {"app": "web"}})
choices: st.SearchStrategy[Choose] = st.sampled_from([cheapest, most_expensive])
some_budgets = st.lists(
    st.builds(
        pdb,
        st.sampled_from(["one", "two"]),
        st.sampled_from(["app In web", "app In db"]),
        allowed=st.sampled_from([0, 1, 1]),
    ),
    max_size=2,
    unique_by=lambda one: one.name,
)


@st.composite
def some_fleets(draw: st.DrawFn, more: Any = _LABELS_ONLY) -> Fleet:
    """Nodes launched for random pods, most of which are gone since; some nodes are more expensive than necessary."""
    pods: list[PodFact] = draw(some_pods(more))
    pools: list[NodePoolFact] = [
        one.model_copy(
            update={
                "consolidate_after": draw(st.sampled_from(["0s", "0s", "0s", "2h", "Never"])),
                "consolidation_policy": draw(
                    st.sampled_from(["WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced", "WhenEmpty"])
                ),
            }
        )
        for one in draw(some_pools())
    ]
    budgets: list[PodDisruptionBudgetFact] = draw(some_budgets)
    fleet = Fleet(*pools, instance_types=INSTANCE_TYPES, facts=budgets)
    choose = draw(choices)
    by_uid = {one.uid: one for one in pods}
    for planned in Cluster(*pods, *fleet.pools.values(), instance_types=INSTANCE_TYPES).plan().claims:
        staying = [by_uid[uid] for uid in planned.pods if draw(st.integers(0, 2)) == 0]
        do_not_disrupt = draw(st.sampled_from([*([""] * 9), "true"]))
        staying = [
            one.model_copy(update={"do_not_disrupt": do_not_disrupt if not index else ""})
            for index, one in enumerate(staying)
        ]
        name = fleet.launch(planned, staying, choose)
        if draw(st.integers(0, 4)) == 0:
            old = {"drifted": "NodePoolDrifted"}
            fleet.nodeclaims[name] = fleet.nodeclaims[name].model_copy(update=old)
    return fleet


def apply_decision(fleet: Fleet, decision: Decision, choose: Choose) -> list[str]:
    """Apply the commands in order. Returns violations."""
    found: list[str] = []
    for command in decision.commands:
        nominated = {one.pod_uid: one.target for one in command.moves if one.target}
        found += find_violations(
            Plan(claims=command.replacements, nominations=nominated), fleet.build_plan_inputs(command)
        )
        found += _pods_not_moved(fleet, command)
        before = fleet.price()
        fleet.apply(command, choose)
        if command.reason == "Underutilized" and fleet.price() >= before - 1e-12:
            found.append(f"{command.node_names}: price changed from {before} to {fleet.price()}")
    return found


def _pods_not_moved(fleet: Fleet, command: Command) -> list[str]:
    moved = {one.pod_uid for one in command.moves}
    return [pod.name for name in command.node_names for pod in fleet.pods[name] if pod.uid not in moved]


@max_examples(100)
@given(some_fleets(), choices)
def test_every_command_places_each_pod_and_saves_money(fleet: Fleet, choose: Choose) -> None:
    assert apply_decision(fleet, fleet.decide(), choose) == []


@max_examples(100)
@given(some_fleets(_TOPOLOGY_TERMS), choices)
def test_every_command_with_topology_terms_places_each_pod_and_saves_money(fleet: Fleet, choose: Choose) -> None:
    assert apply_decision(fleet, fleet.decide(), choose) == []


@max_examples(60)
@given(some_fleets(), st.booleans())
def test_ineligible_node_is_never_disrupted(fleet: Fleet, spot_to_spot: bool) -> None:
    decision = fleet.decide(settings=DisruptionSettings(spot_to_spot=spot_to_spot))
    eligible = {(one.node, method) for one in decision.nodes for method in one.eligible}
    assert all((name, command.reason) in eligible for command in decision.commands for name in command.node_names)
    blocked = {
        one.namespace for one in fleet.facts if isinstance(one, PodDisruptionBudgetFact) and not one.disruptions_allowed
    }
    closed = [one for one in fleet.facts if isinstance(one, PodDisruptionBudgetFact) and not one.disruptions_allowed]
    for command in decision.commands:
        pods = [pod for name in command.node_names for pod in fleet.pods[name]]
        assert not any(pod.do_not_disrupt for pod in pods)
        for budget in closed if blocked else ():
            assert not any(budget.selector and pod.labels.get("app") in budget.selector[0].values for pod in pods)


@max_examples(60)
@given(some_fleets(), st.data())
def test_unplannable_pod_keeps_its_node_out_of_every_command(fleet: Fleet, data: st.DataObject) -> None:
    occupied = sorted(name for name, pods in fleet.pods.items() if pods)
    if not occupied:
        return
    name = data.draw(st.sampled_from(occupied))
    fleet.pods[name][0] = fleet.pods[name][0].model_copy(update={"unplannable": "spec.newField: unknown"})
    commands = fleet.decide().commands
    assert not any(name in command.node_names for command in commands)
    assert not any(fleet.pods[name][0].uid == move.pod_uid for command in commands for move in command.moves)


@max_examples(60)
@given(some_fleets(), choices)
def test_consolidation_converges(fleet: Fleet, choose: Choose) -> None:
    disruption_settings = DisruptionSettings(spot_to_spot=True)
    for name, one in fleet.nodeclaims.items():
        fleet.nodeclaims[name] = one.model_copy(update={"drifted": ""})
    for _ in range(30):
        before, decision = fleet.price(), fleet.decide(settings=disruption_settings)
        if not decision.commands:
            return
        for command in decision.commands:
            assert command.price_before > command.price_at_most or command.reason != "Underutilized"
            fleet.apply(command, choose)
        assert fleet.price() < before
    raise AssertionError(f"consolidation does not converge: {decision.commands}")


@max_examples(60)
@given(some_fleets(), st.integers(0, 3))
def test_commands_respect_budgets(fleet: Fleet, allowed: int) -> None:
    few: dict[Any, BudgetHeadroom] = dict.fromkeys(
        ("Empty", "Drifted", "Underutilized"), BudgetHeadroom(allowed=allowed)
    )
    decision = fleet.decide(allowed_disruptions=DisruptionBudgets(pools=dict.fromkeys(fleet.pools, few)))
    for name in fleet.pools:
        disrupted = [one for command in decision.commands for one in command.candidates if one.pool == name]
        assert len(disrupted) <= allowed


@max_examples(30)
@given(some_fleets())
def test_decision_is_deterministic(fleet: Fleet) -> None:
    assert fleet.decide() == fleet.decide()
