"""The search for several nodes is never worse than Karpenter's binary search with the same simulations; costs; pods of
buffers; and that nothing of the state is spent by deciding."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from tenure.model.disruption.planning import DisruptionRequest, DisruptionSettings
from tenure.model.extra_capacity import BufferFact
from tenure.model.instance_types import Catalogue, ReservationRoom
from tenure.scheduling.disruption.budgets import Purse
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import Stage
from tenure.scheduling.disruption.consolidation import Consolidation, Totals, by_worth, score_of
from tenure.scheduling.disruption.replacement import evaluate
from tenure.scheduling.disruption.simulation import simulate
from tenure.scheduling.nodepool_template import Refusal
from tenure.scheduling.packing.packer import Packing
from tenure.scheduling.snapshot import Fact
from tests.support.properties import examples
from tests.unit.scheduling.builders import COMMON, NOW, csi_node, kind, pod, pods, pvc, types_of, volume
from tests.unit.scheduling.disruption.fleet import Fleet, pool
from tests.unit.scheduling.disruption.test_disruption_properties import some_fleets

ON = DisruptionSettings(spot_to_spot=True)


def prefix(stage: Stage, ordered: Sequence[Candidate]) -> float:
    """What Karpenter's search would save."""
    low, high, saved = 1, len(ordered) - 1, 0.0
    while low <= high:
        middle = (low + high) // 2
        leaving = ordered[: middle + 1]
        before = sum(one.price for one in leaving)
        answer = evaluate(simulate(stage, leaving, "Underutilized", ceiling=before), stage, ON)
        good = not isinstance(answer, Refusal) and len(answer.claims) <= 1
        if good and not isinstance(answer, Refusal):
            saved = before - answer.price
        low, high = (middle + 1, high) if good else (low, middle - 1)
    return saved


@examples(40)
@given(some_fleets())
def test_several_nodes_save_no_less_than_the_longest_prefix_would(fleet: Fleet) -> None:
    seen: list[tuple[Stage, list[Candidate]]] = []
    saved: list[float] = []
    search = Consolidation.multi

    def watched(self: Consolidation, candidates: Any) -> Any:
        among = list(candidates)
        seen.append((self.stage, among))
        found = search(self, among)
        expected = prefix(self.stage, sorted(among, key=by_worth))
        # Savings that differ by a hundredth are alike.
        assert (found.saving if found else 0.0) >= expected * 0.99 - 1e-9
        saved.append(expected)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Consolidation, "multi", watched)
        fleet.decide(settings=ON)
    assert seen


def test_deciding_changes_nothing() -> None:
    fleet = Fleet().node("a", "m.2xlarge", *pods(2)).node("b", "m.xlarge", pod()).node("c", "m.large")
    state = fleet.world().state
    before = state.provision(now=NOW)
    assert state.disrupt(DisruptionRequest(now=NOW)) == state.disrupt(DisruptionRequest(now=NOW))
    assert state.provision(now=NOW) == before


@pytest.mark.parametrize(
    ("saving", "cost", "score"),
    [(1.0, 10.0, 1.0), (1.0, 20.0, 0.5), (1.0, 21.0, 10 / 21), (0.0, 1.0, 0.0), (-1.0, 1.0, 0.0)],
)
def test_the_score_is_the_share_saved_for_the_share_disturbed(saving: float, cost: float, score: float) -> None:
    assert score_of(saving, cost, Totals(price=10.0, cost=100.0)) == pytest.approx(score)
    assert score_of(saving, cost, Totals()) == 0.0


def test_an_empty_purse_says_whose_it_is() -> None:
    fleet = Fleet().node("n", "m.large")
    found = fleet.decide(allowances={"cluster": {"default": {"allowed": 0, "why": "clusterNodes 1 of 9 nodes"}}})
    assert not found.commands
    assert found.nodes[0].rejected == ("the budgets of the cluster let 0 nodes go (clusterNodes 1 of 9 nodes)",)
    assert Purse(DisruptionRequest(now=NOW).allowances)


def test_reserved_capacity_replaces_what_is_paid_for() -> None:
    plain = kind("m.2xlarge", cpu=8, memory=32)
    reserved = plain.offerings[0].model_copy(
        update={"capacity_type": "reserved", "price": 0.0001, "reservation_id": "cr-1", "reservation_type": "default"}
    )
    kinds = [plain.model_copy(update={"offerings": (*plain.offerings, reserved)})]
    fleet = Fleet(kinds=kinds).node("n", "m.2xlarge", pod(cpu=7))
    room = {"cr-1": ReservationRoom(available=1, at=NOW)}
    (found,) = fleet.decide(reservations=room).commands
    assert types_of(found.replacements[0]) == ("m.2xlarge",)
    wanted = {one.key: one.values for one in found.replacements[0].requirements}
    assert wanted["karpenter.sh/capacity-type"] == ("reserved",)
    assert found.price_at_most == 0.0001
    assert not fleet.decide(reservations={}).commands


def test_a_node_that_is_replaced_by_what_its_pods_chose_keeps_their_zone() -> None:
    fleet = Fleet().node("n", "m.2xlarge", pod(selector={"topology.kubernetes.io/zone": "b"}), zone="b")
    (found,) = fleet.decide().commands
    wanted = {one.key: one.values for one in found.replacements[0].requirements}
    assert wanted["topology.kubernetes.io/zone"] == ("b",)


def test_prices_of_a_catalogue_that_changes_count_at_once() -> None:
    fleet = Fleet(pool(), kinds=(kind("a.large", cpu=4, price=0.2), kind("b.large", cpu=4, price=0.3)))
    world = fleet.node("n", "a.large", pod()).world()
    request = DisruptionRequest(now=NOW)
    assert not world.state.disrupt(request).commands
    cheaper = (kind("a.large", cpu=4, price=0.2), kind("b.large", cpu=4, price=0.1))
    world.state.set_catalogue(Catalogue(by_node_class={"default": cheaper}))
    (found,) = world.state.disrupt(request).commands
    assert types_of(found.replacements[0]) == ("b.large",)


def test_the_room_of_a_buffer_is_found_elsewhere_and_its_pods_are_told_nothing() -> None:
    buffer = BufferFact(uid="b", namespace="default", name="spare", replicas=2, pod=pod("template", cpu=1))
    fleet = Fleet(facts=[buffer], kinds=(kind("m.xlarge", cpu=4), kind("m.2xlarge", cpu=8)))
    fleet.node("n", "m.2xlarge", pod("p"), drifted="NodePoolDrifted")
    fleet.node("full", "m.xlarge", pod(cpu=3, do_not_disrupt="true"))
    found = fleet.decide()
    (command,) = found.commands
    assert [one.pod_uid for one in command.moves] == ["p"] and command.replacements[0].pods == ("p",)
    assert command.replacements[0].requests["cpu"] == 3000


def test_a_node_that_only_keeps_room_for_a_buffer_stays() -> None:
    buffer = BufferFact(uid="b", namespace="default", name="spare", replicas=2, pod=pod("template", cpu=1))
    found = Fleet(facts=[buffer]).node("n", "m.xlarge").decide()
    assert [one.words for one in found.nodes[0].excluded] == [
        "it keeps room for 2 pods of CapacityBuffer default/spare"
    ]


def test_two_moves_in_one_pass_do_not_attach_more_volumes_than_a_node_takes() -> None:
    storage: list[Fact] = [volume(name) for name in ("v1", "v2", "v3")]
    storage += [pvc(f"c{number}", volume=f"v{number}") for number in (1, 2, 3)]
    fleet = Fleet(pool(consolidate_after="Never"), facts=[*storage, csi_node("o", 2)], kinds=COMMON)
    fleet.node("o", "m.2xlarge", pod(volumes=("c1",), do_not_disrupt="true"))
    fleet.node("a", "m.large", pod(volumes=("c2",)), drifted="NodePoolDrifted")
    fleet.node("b", "m.large", pod(volumes=("c3",)), drifted="NodePoolDrifted")
    first, second = fleet.decide().commands
    assert first.moves[0].target == "o" and second.moves[0].replacement == 0


def test_a_fault_in_the_simulation_of_one_pool_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 000-f: emptiness and the other pool go on."""
    place_all = Packing.place_all

    def failing(self: Packing, classes: Any) -> None:
        among = list(classes)
        if any(one.name == "poison" for of in among for one in of.pods):
            raise ZeroDivisionError("bad luck")
        place_all(self, among)

    fleet = Fleet(pool("a"), pool("b")).node("n", "m.2xlarge", pod("poison"), of="a")
    fleet.node("empty", "m.large", of="a").node("o", "m.2xlarge", pod(), of="b")
    monkeypatch.setattr(Packing, "place_all", failing)
    found = fleet.decide()
    assert {command.nodes for command in found.commands} == {("empty",), ("o",)}
    (said,) = next(one.rejected for one in found.nodes if one.claim == "n")
    assert said == "cannot go: the simulation failed: ZeroDivisionError('bad luck')"
