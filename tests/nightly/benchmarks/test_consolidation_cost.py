"""After Tenure's consolidation clusters cost less than after a model of Karpenter's, in fewer passes."""

import pytest

from benchmarks.consolidation import measure_row
from benchmarks.generators.cluster import NOW, generate_cluster
from benchmarks.karpenter_models import Karpenter
from tenure.model.disruption.decision import DisruptionRequest


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["on-demand", "spot"])
def test_cluster_costs_no_more_than_after_karpenters_consolidation(kind: str, seed: int) -> None:
    row = measure_row(kind, 40, karpenter=True, seed=seed)
    assert row["after"] <= row["karpenter_after"] < row["price"]
    assert row["passes"] <= row["karpenter_passes"]


def test_karpenter_model_stops_when_no_command_saves_money() -> None:
    generated = generate_cluster(20, seed=3)
    before = generated.total_price()
    assert Karpenter(generated).consolidate() > 0
    assert generated.total_price() < before and Karpenter(generated).consolidate() == 0


def test_commands_keep_every_pod() -> None:
    generated = generate_cluster(40, spread=True)
    pods = {pod.uid for found in generated.pods.values() for pod in found}
    for command in generated.state().disrupt(DisruptionRequest(now=NOW)).commands:
        generated.carry_out(command)
    assert {pod.uid for found in generated.pods.values() for pod in found} == pods
    assert all(pod.node_name == name for name, found in generated.pods.items() for pod in found)
