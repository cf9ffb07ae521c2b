"""Which instance types a NodeClaim names in a NodePool with limits."""

import pytest

from tenure.apis.labels import HOSTNAME
from tenure.model.facts import AffinityTerm
from tenure.model.plan import Plan
from tenure.scheduling.settings import PlanSettings
from tests.unit.scheduling.builders import GIB, Cluster, expressions, instance_type, nodeclaim, pod, pool, types_of

FAMILY = (
    instance_type("c6a.large", cpu=2, memory=4),
    instance_type("c6a.xlarge", cpu=4, memory=8),
    instance_type("c6a.2xlarge", cpu=8, memory=16),
    instance_type("c6a.4xlarge", cpu=16, memory=32),
    instance_type("g4dn.xlarge", cpu=4, memory=16, price=0.526),
)
ALL_SIZES = (2, 4, 8, 16)
ANTI_AFFINITY = AffinityTerm(key=HOSTNAME, selector=expressions("app In web"))
"""As anti-affinity: one pod for each node."""


def plan_with(limits: dict[str, int], *cpus: float, most_types: int = 600) -> Plan:
    """Plan a node for each pod; `cpus`: their requests. Limits are in millicores and bytes."""
    pods = [pod(cpu=cpu, labels={"app": "web"}, anti_affinity=(ANTI_AFFINITY,)) for cpu in cpus]
    settings = PlanSettings(most_instance_types=most_types)
    return Cluster(pool(limits=limits), *pods, instance_types=FAMILY, settings=settings).plan()


def sizes_of(plan: Plan) -> list[tuple[int, ...]]:
    """The sizes, in vCPUs, of the types of each NodeClaim."""
    cpu_of = {one.name: one.capacity["cpu"] // 1000 for one in FAMILY}
    return sorted(tuple(sorted({cpu_of[name] for name in types_of(one)})) for one in plan.claims)


def test_limits_far_away_exclude_no_type() -> None:
    """`limits-drop-types`: a spot request reaches as many capacity pools as without limits."""
    unlimited, limited = plan_with({}, 1), plan_with({"cpu": 1_000_000}, 1)
    assert [types_of(one) for one in limited.claims] == [types_of(one) for one in unlimited.claims]
    assert len(types_of(limited.claims[0])) == len(FAMILY)


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        ({"cpu": 16_000}, (2, 4, 8, 16)),
        ({"cpu": 15_999}, (2, 4, 8)),
        ({"cpu": 7_000}, (2, 4)),
        ({"cpu": 2_000}, (2,)),
        ({"memory": 16 * GIB}, (2, 4, 8)),
        ({"cpu": 16_000, "memory": 8 * GIB}, (2, 4)),
        ({"nodes": 1}, ALL_SIZES),
        ({"cpu": 16_000, "example.com/fpga": 0}, ALL_SIZES),
    ],
)
def test_types_above_the_remaining_limits_are_excluded(limits: dict[str, int], sizes: tuple[int, ...]) -> None:
    assert sizes_of(plan_with(limits, 1)) == [sizes]


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (32_000, [(2, 4, 8, 16)] * 2),
        (31_000, [(2, 4, 8)] * 2),
        (10_000, [(2, 4)] * 2),
        (7_000, [(2,)] * 2),
    ],
)
def test_equal_nodes_share_the_limit_equally(limit: int, sizes: list[tuple[int, ...]]) -> None:
    """So they stay one launch group, and together they stay within the limit."""
    plan = plan_with({"cpu": limit}, 1, 1)
    assert sizes_of(plan) == sizes
    assert sum(one.capacity_bound["cpu"] for one in plan.claims) <= limit


def test_large_node_keeps_its_target_type() -> None:
    assert sizes_of(plan_with({"cpu": 21_000}, 1, 15)) == [(2, 4), (16,)]
    assert sizes_of(plan_with({"cpu": 24_000}, 1, 15)) == [(2, 4, 8), (16,)]


def test_existing_nodeclaims_leave_less_for_larger_types() -> None:
    existing = nodeclaim("old", capacity={"cpu": 8000, "memory": GIB}, launched=True)
    plan = Cluster(pool(limits={"cpu": 16_000}), existing, pod(cpu=1), instance_types=FAMILY).plan()
    assert sizes_of(plan) == [(2, 4, 8)]


def test_limit_counts_only_the_types_that_a_nodeclaim_names() -> None:
    assert sizes_of(plan_with({"cpu": 4_000}, 1, most_types=2)) == [(2, 4)]
    assert sizes_of(plan_with({"cpu": 8_000}, 1, 1, most_types=2)) == [(2, 4)] * 2


def test_plan_fills_the_limit_with_targets_first() -> None:
    """Larger types never take the place of another node."""
    plan = plan_with({"cpu": 6_000}, 1, 1, 1)
    assert sizes_of(plan) == [(2,)] * 3 and not plan.unschedulable
