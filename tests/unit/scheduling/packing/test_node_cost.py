"""NODE_COST bounds the number of nodes where small instance types are slightly cheaper."""

import pytest

from tenure.scheduling.settings import PlanSettings
from tests.unit.scheduling.builders import Cluster, instance_type, pods, pool

SIZES = {"medium": 1, "large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16}
"""vCPUs. Each size is 5 % more expensive per vCPU than the one before, as spot prices may be."""
TYPES = tuple(
    instance_type(f"c6.{size}", cpu=cpus, memory=2 * cpus, price=0.04 * cpus * (1 + number / 20))
    for number, (size, cpus) in enumerate(SIZES.items())
)
BURSTABLE = (
    instance_type("t4g.small", cpu=2, memory=2, price=0.0168),
    instance_type("t4g.medium", cpu=2, memory=4, price=0.0336),
)


def node_count(settings: PlanSettings) -> int:
    workload = pods(500, cpu=0.45, memory=0.3)
    return len(Cluster(pool(), *workload, instance_types=(*TYPES, *BURSTABLE), settings=settings).plan().claims)


def test_default_prefers_few_nodes_to_a_slightly_lower_price() -> None:
    assert node_count(PlanSettings()) <= 20


@pytest.mark.parametrize("node_cost", [0, 0.002])
def test_lower_node_cost_launches_many_small_nodes(node_cost: float) -> None:
    assert node_count(PlanSettings(node_cost=node_cost)) > 200


def test_burstable_types_do_not_multiply_nodes() -> None:
    """Two vCPUs of a t4g.small cost less than one of any other type, but it sustains 0.4."""
    types = (TYPES[-1], *BURSTABLE)
    plan = Cluster(pool(), *pods(500, cpu=0.45, memory=0.3), instance_types=types).plan()
    assert len(plan.claims) <= 20
