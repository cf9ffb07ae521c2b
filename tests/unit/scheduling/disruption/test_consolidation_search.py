"""Multi-node search compared with Karpenter's binary search, scores, budgets, buffers, and absence of side effects."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from tenure.model.disruption.decision import DisruptionRequest, DisruptionSettings
from tenure.model.errors import Preempted
from tenure.model.extra_capacity import BufferFact
from tenure.model.instance_types import Catalogue, ReservationHeadroom
from tenure.scheduling.disruption.budget_usage import BudgetTracker
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import ClusterSnapshot
from tenure.scheduling.disruption.consolidation import Consolidation, Totals, balance_score, price_per_disruption_order
from tenure.scheduling.disruption.replacement import choose_replacement
from tenure.scheduling.disruption.simulation import simulate_removal
from tenure.scheduling.nodepool_template import RejectionReason
from tenure.scheduling.packing.packer import Packing
from tenure.scheduling.snapshot import Fact
from tests.support.properties import max_examples
from tests.unit.scheduling.builders import COMMON, NOW, csi_node, instance_type, pod, pods, pvc, types_of, volume
from tests.unit.scheduling.disruption.cluster_builder import Fleet, pool
from tests.unit.scheduling.disruption.test_disruption_properties import some_fleets

SPOT_TO_SPOT = DisruptionSettings(spot_to_spot=True)


def longest_prefix_saving(snapshot: ClusterSnapshot, ordered: Sequence[Candidate]) -> float:
    """The saving of Karpenter's binary search over prefixes, in $/h."""
    low, high, saved = 1, len(ordered) - 1, 0.0
    while low <= high:
        middle = (low + high) // 2
        removals = ordered[: middle + 1]
        before = sum(one.price for one in removals)
        result = choose_replacement(
            simulate_removal(snapshot, removals, "Underutilized", ceiling=before), snapshot, SPOT_TO_SPOT
        )
        accepted = not isinstance(result, RejectionReason) and len(result.nodeclaims) <= 1
        if accepted and not isinstance(result, RejectionReason):
            saved = before - result.price
        low, high = (middle + 1, high) if accepted else (low, middle - 1)
    return saved


@max_examples(40)
@given(some_fleets())
def test_multi_node_search_saves_at_least_as_much_as_the_prefix_search(fleet: Fleet) -> None:
    observed: list[tuple[ClusterSnapshot, list[Candidate]]] = []
    saved: list[float] = []
    search = Consolidation.find_multi_node

    def compare_with_prefixes(self: Consolidation, candidates: Any) -> Any:
        among = list(candidates)
        observed.append((self.snapshot, among))
        found = search(self, among)
        expected = longest_prefix_saving(self.snapshot, sorted(among, key=price_per_disruption_order))
        # Savings that differ by less than one percent count as equal.
        assert (found.price_before - found.price_after if found else 0.0) >= expected * 0.99 - 1e-9
        saved.append(expected)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Consolidation, "find_multi_node", compare_with_prefixes)
        fleet.decide(settings=SPOT_TO_SPOT)
    assert observed


def test_decision_has_no_side_effects() -> None:
    fleet = Fleet().node("a", "m.2xlarge", *pods(2)).node("b", "m.xlarge", pod()).node("c", "m.large")
    state = fleet.to_cluster().state
    before = state.provision(now=NOW)
    assert state.disrupt(DisruptionRequest(now=NOW)) == state.disrupt(DisruptionRequest(now=NOW))
    assert state.provision(now=NOW) == before


def test_pass_that_is_preempted_at_any_time_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = (
        Fleet().node("a", "m.2xlarge", *pods(2)).node("b", "m.xlarge", pod()).node("c", "m.large", drifted="AMIDrift")
    )
    remaining_checks = 0

    def check_preempted() -> None:
        nonlocal remaining_checks
        if remaining_checks == 0:
            raise Preempted
        remaining_checks -= 1

    state = fleet.to_cluster().state
    monkeypatch.setattr(state, "_check_preempted", check_preempted)
    request = DisruptionRequest(now=NOW, preemptible=True)
    expected, decided, preempted = state.disrupt(DisruptionRequest(now=NOW)), None, 0
    while decided is None:
        remaining_checks = preempted
        try:
            decided = state.disrupt(request)
        except Preempted:
            preempted += 1
    assert decided == expected == state.disrupt(DisruptionRequest(now=NOW))
    cluster_checks = 2  # Before and after the cluster is read, which takes half a second with 5,000 nodes.
    assert preempted == cluster_checks + len(fleet.nodeclaims) + expected.simulations


@pytest.mark.parametrize(
    ("saving", "cost", "score"),
    [(1.0, 10.0, 1.0), (1.0, 20.0, 0.5), (1.0, 21.0, 10 / 21), (0.0, 1.0, 0.0), (-1.0, 1.0, 0.0)],
)
def test_balance_score_is_share_saved_per_share_disrupted(saving: float, cost: float, score: float) -> None:
    assert balance_score(saving, cost, Totals(price=10.0, cost=100.0)) == pytest.approx(score)
    assert balance_score(saving, cost, Totals()) == 0.0


def test_exhausted_budget_is_named() -> None:
    fleet = Fleet().node("n", "m.large")
    found = fleet.decide(
        allowed_disruptions={"cluster": {"default": {"allowed": 0, "why": "clusterNodes 1 of 9 nodes"}}}
    )
    assert not found.commands
    assert found.nodes[0].rejected == ("the budgets of the cluster allow 0 disruptions (clusterNodes 1 of 9 nodes)",)
    assert BudgetTracker(DisruptionRequest(now=NOW).allowed_disruptions)


def test_reserved_capacity_replaces_on_demand() -> None:
    plain = instance_type("m.2xlarge", cpu=8, memory=32)
    reserved = plain.offerings[0].model_copy(
        update={"capacity_type": "reserved", "price": 0.0001, "reservation_id": "cr-1", "reservation_type": "default"}
    )
    instance_types = [plain.model_copy(update={"offerings": (*plain.offerings, reserved)})]
    fleet = Fleet(instance_types=instance_types).node("n", "m.2xlarge", pod(cpu=7))
    reservations = {"cr-1": ReservationHeadroom(available=1, at=NOW)}
    (found,) = fleet.decide(reservations=reservations).commands
    assert types_of(found.replacements[0]) == ("m.2xlarge",)
    requirements = {one.key: one.values for one in found.replacements[0].requirements}
    assert requirements["karpenter.sh/capacity-type"] == ("reserved",)
    assert found.price_at_most == 0.0001
    assert not fleet.decide(reservations={}).commands


def test_replacement_keeps_the_zone_of_its_pods() -> None:
    fleet = Fleet().node("n", "m.2xlarge", pod(selector={"topology.kubernetes.io/zone": "b"}), zone="b")
    (found,) = fleet.decide().commands
    requirements = {one.key: one.values for one in found.replacements[0].requirements}
    assert requirements["topology.kubernetes.io/zone"] == ("b",)


def test_changed_prices_apply_at_once() -> None:
    fleet = Fleet(
        pool(), instance_types=(instance_type("a.large", cpu=4, price=0.2), instance_type("b.large", cpu=4, price=0.3))
    )
    cluster = fleet.node("n", "a.large", pod()).to_cluster()
    request = DisruptionRequest(now=NOW)
    assert not cluster.state.disrupt(request).commands
    cheaper = (instance_type("a.large", cpu=4, price=0.2), instance_type("b.large", cpu=4, price=0.1))
    cluster.state.set_catalogue(Catalogue(by_node_class={"default": cheaper}))
    (found,) = cluster.state.disrupt(request).commands
    assert types_of(found.replacements[0]) == ("b.large",)


def test_buffer_capacity_is_moved_without_nominations() -> None:
    buffer = BufferFact(uid="b", namespace="default", name="spare", replicas=2, pod=pod("template", cpu=1))
    fleet = Fleet(facts=[buffer], instance_types=(instance_type("m.xlarge", cpu=4), instance_type("m.2xlarge", cpu=8)))
    fleet.node("n", "m.2xlarge", pod("p"), drifted="NodePoolDrifted")
    fleet.node("full", "m.xlarge", pod(cpu=3, do_not_disrupt="true"))
    found = fleet.decide()
    (command,) = found.commands
    assert [one.pod_uid for one in command.moves] == ["p"] and command.replacements[0].pods == ("p",)
    assert command.replacements[0].requests["cpu"] == 3000


def test_node_needed_by_a_buffer_is_ineligible() -> None:
    buffer = BufferFact(uid="b", namespace="default", name="spare", replicas=2, pod=pod("template", cpu=1))
    found = Fleet(facts=[buffer]).node("n", "m.xlarge").decide()
    assert [one.message for one in found.nodes[0].excluded] == [
        "it holds capacity for 2 pods of CapacityBuffer default/spare"
    ]


def test_moves_of_one_pass_respect_the_volume_limit_of_a_node() -> None:
    storage: list[Fact] = [volume(name) for name in ("v1", "v2", "v3")]
    storage += [pvc(f"c{number}", volume=f"v{number}") for number in (1, 2, 3)]
    fleet = Fleet(pool(consolidate_after="Never"), facts=[*storage, csi_node("o", 2)], instance_types=COMMON)
    fleet.node("o", "m.2xlarge", pod(volumes=("c1",), do_not_disrupt="true"))
    fleet.node("a", "m.large", pod(volumes=("c2",)), drifted="NodePoolDrifted")
    fleet.node("b", "m.large", pod(volumes=("c3",)), drifted="NodePoolDrifted")
    first, second = fleet.decide().commands
    assert first.moves[0].target == "o" and second.moves[0].replacement == 0


def test_simulation_error_of_one_nodepool_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 000-f: emptiness and the other NodePool continue."""
    schedule_all = Packing.schedule_all

    def failing(self: Packing, classes: Any) -> None:
        among = list(classes)
        if any(one.name == "failing" for of in among for one in of.pods):
            raise ZeroDivisionError("injected")
        schedule_all(self, among)

    fleet = Fleet(pool("a"), pool("b")).node("n", "m.2xlarge", pod("failing"), of="a")
    fleet.node("empty", "m.large", of="a").node("o", "m.2xlarge", pod(), of="b")
    monkeypatch.setattr(Packing, "schedule_all", failing)
    found = fleet.decide()
    assert {command.node_names for command in found.commands} == {("empty",), ("o",)}
    (message,) = next(one.rejected for one in found.nodes if one.claim == "n")
    assert message == "cannot be disrupted: the simulation failed: ZeroDivisionError('injected')"


def test_replacement_attaches_the_volumes_of_the_moved_pods() -> None:
    small = instance_type("s.large", cpu=2, memory=8, price=0.05, ebs_attachments=2)
    medium = instance_type("m.large", cpu=2, memory=8, price=0.08, ebs_attachments=8)
    large = instance_type("l.large", cpu=2, memory=8, price=0.3, ebs_attachments=8)
    storage: list[Fact] = [volume(name) for name in ("v1", "v2", "v3")]
    storage += [pvc(f"c{number}", volume=f"v{number}") for number in (1, 2, 3)]
    fleet = Fleet(facts=storage, instance_types=(small, medium, large))
    fleet.node("n", "l.large", *(pod(cpu=0.1, volumes=(f"c{number}",)) for number in (1, 2, 3)))
    (command,) = fleet.decide().commands
    assert types_of(command.replacements[0]) == ("m.large",)
