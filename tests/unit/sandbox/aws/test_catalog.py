"""The instance type catalog and its on-demand prices."""

import pytest

from tenure.sandbox.aws.ec2.catalog import prices as table
from tenure.sandbox.aws.ec2.catalog.instance_types import all_types as catalogue


def test_larger_types_of_a_family_cost_more() -> None:
    """Families with GPUs are excluded, because the number of GPUs does not follow the size."""
    by_family: dict[str, list[tuple[int, float]]] = {}
    for name, facts in catalogue().items():
        price = table.on_demand_price(name)
        assert price is not None
        if "GpuInfo" not in facts:
            by_family.setdefault(name.split(".")[0], []).append((facts["VCpuInfo"]["DefaultVCpus"], price))
    assert len(by_family) > 150
    for family, sizes in by_family.items():
        cheapest: dict[int, float] = {}
        for vcpus, price in sizes:
            cheapest[vcpus] = min(price, cheapest.get(vcpus, price))
        ordered = [cheapest[vcpus] for vcpus in sorted(cheapest)]
        assert ordered == sorted(ordered), family


@pytest.mark.parametrize(
    ("cheaper", "higher_priced"),
    [
        ("m8g.large", "m8i.large"),
        ("c8i.large", "c8in.large"),
        ("c8g.large", "c9gd.large"),
        ("m5.large", "r5.large"),
        ("g6.2xlarge", "g7e.2xlarge"),
        ("g7e.2xlarge", "p5.48xlarge"),
        ("r8i.large", "r8ib.large"),
    ],
)
def test_estimated_prices_have_a_plausible_order(cheaper: str, higher_priced: str) -> None:
    low, high = table.on_demand_price(cheaper), table.on_demand_price(higher_priced)
    assert low is not None and high is not None
    assert low < high
