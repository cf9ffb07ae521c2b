"""The lower bound is below every plan and close to plans of divisible loads; the model of Karpenter's choice costs
more.
"""

import json
from pathlib import Path

import pytest

from benchmarks.generators.workloads import KINDS, make_scenario
from benchmarks.karpenter_models import greedy_price
from benchmarks.lower_bound import lower_bound, needed_nodes
from benchmarks.planner import measure_row
from tenure.cli.simulate.portable_types import read_types


@pytest.mark.parametrize("kind", ["equal", "plain", "ragged", "diverse", "crossed", "preferences", "mixed", "gpu"])
def test_plan_costs_at_least_the_lower_bound(kind: str) -> None:
    row = measure_row(f"{kind}:200", 1)
    assert row["wrong"] == [] and not row["unplaced"]
    assert 0 < row["bound"] <= row["price"]


def test_plain_load_costs_within_5_percent_of_the_bound_and_less_than_greedy() -> None:
    row = measure_row("plain:1000", 1)
    assert row["price"] <= 1.05 * row["bound"]
    assert row["price"] < row["greedy"]


def test_diverse_load_costs_10_percent_less_than_greedy() -> None:
    inputs = make_scenario("diverse", 400)
    price, nodes = greedy_price(inputs.pod_facts(), inputs.pool_facts(), inputs.types, inputs.daemon_facts())
    assert nodes >= needed_nodes(inputs.pod_facts()) == 80
    assert measure_row("diverse:400", 1)["price"] <= 0.9 * price


def test_pods_without_fitting_type_have_no_lower_bound() -> None:
    inputs = make_scenario("gpu", 20)
    with pytest.raises(ValueError, match="no lower bound"):
        lower_bound(inputs.pod_facts(), inputs.pool_facts()[:1], inputs.types)


@pytest.mark.parametrize("kind", KINDS)
def test_seed_is_reproducible_and_types_are_read_as_written(kind: str, tmp_path: Path) -> None:
    one, other = make_scenario(kind, 50, seed=7), make_scenario(kind, 50, seed=7)
    assert one == other and one.pod_facts() == other.pod_facts()
    one.write(tmp_path)
    assert len(json.loads((tmp_path / "pods.json").read_text())["items"]) == 50
    types, *_ = read_types(tmp_path / "instance-types.json")
    read = {kind.name: kind for kind in types}
    assert all(read[kind.name].allocatable() == kind.allocatable() for kind in one.types)
