"""Burstable instance types count with their baseline CPU, unless a requirement names them."""

import pytest

from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_CATEGORY, INSTANCE_FAMILY, INSTANCE_TYPE
from tenure.model.facts import PodFact
from tenure.scheduling.burstable_types import baseline_millicores
from tests.unit.scheduling.builders import (
    Cluster,
    daemonset,
    expressions,
    instance_type,
    pod,
    pods,
    pool,
    reasons,
    types_of,
)

TYPES = (
    instance_type("t3.large", cpu=2, memory=8, price=0.08, labels={INSTANCE_CATEGORY: "t"}),
    instance_type("t3.2xlarge", cpu=8, memory=32, price=0.33, labels={INSTANCE_CATEGORY: "t"}),
    instance_type("m5.large", cpu=2, memory=8, price=0.1, labels={INSTANCE_CATEGORY: "m"}),
)
"""Baselines: 600 and 3,200 millicores. The overhead of each type is 100 millicores."""


@pytest.mark.parametrize(
    ("name", "millicores"),
    [
        ("t3.nano", 100),
        ("t3.medium", 400),
        ("t3a.large", 600),
        ("t4g.2xlarge", 3200),
        ("t2.micro", 100),
        ("t2.xlarge", 900),
        ("t2.2xlarge", 1360),
        ("m5.large", None),
        ("trn1.2xlarge", None),
    ],
)
def test_baseline_is_the_cpu_that_earned_credits_sustain(name: str, millicores: int | None) -> None:
    assert baseline_millicores(name) == millicores


@pytest.mark.parametrize(
    ("cpu", "expected"), [(0.5, ("t3.large", "m5.large", "t3.2xlarge")), (0.6, ("m5.large", "t3.2xlarge"))]
)
def test_only_pods_within_the_baseline_use_burstable_types(cpu: float, expected: tuple[str, ...]) -> None:
    [nodeclaim] = Cluster(pool(), pod(cpu=cpu), instance_types=TYPES).plan().claims
    assert types_of(nodeclaim) == expected


def test_daemonsets_use_part_of_the_baseline() -> None:
    agent = daemonset("agent", pod(cpu=0.2))
    [nodeclaim] = Cluster(pool(), agent, pod(cpu=0.5), instance_types=TYPES).plan().claims
    assert types_of(nodeclaim)[0] == "m5.large"


@pytest.mark.parametrize(
    ("requirement", "cheapest"),
    [
        (f"{INSTANCE_TYPE} In t3.large m5.large", "t3.large"),
        (f"{INSTANCE_FAMILY} In t3 m5", "t3.large"),
        (f"{INSTANCE_CATEGORY} In m t", "t3.large"),
        (f"{INSTANCE_FAMILY} NotIn t2", "m5.large"),
        (f"{INSTANCE_FAMILY} Exists", "m5.large"),
        (f"{CAPACITY_TYPE} In on-demand", "m5.large"),
    ],
)
def test_only_a_nodepool_that_names_burstable_types_gets_all_of_their_cpu(requirement: str, cheapest: str) -> None:
    [nodeclaim] = Cluster(pool("default", requirement), pod(cpu=1.5), instance_types=TYPES).plan().claims
    assert types_of(nodeclaim)[0] == cheapest


@pytest.mark.parametrize(
    "naming",
    [
        pod(cpu=1.5, selector={INSTANCE_FAMILY: "t3"}),
        pod(cpu=1.5, selector={INSTANCE_TYPE: "t3.large"}),
        pod(cpu=1.5, terms=(expressions(f"{INSTANCE_FAMILY} In t3 m5"),)),
    ],
)
def test_pod_that_names_burstable_types_gets_all_of_their_cpu(naming: PodFact) -> None:
    """Its neighbor in the same plan does not name them and still gets the baseline."""
    plan = Cluster(pool(), naming, pod("other", cpu=1.5), instance_types=TYPES).plan()
    assert {one.pods: types_of(one)[0] for one in plan.claims} == {
        (naming.uid,): "t3.large",
        ("other",): "m5.large",
    }


def test_nodepool_without_other_types_gets_all_of_their_cpu() -> None:
    plan = Cluster(pool(), *pods(2, cpu=1.5), instance_types=TYPES[:1]).plan()
    assert [types_of(one) for one in plan.claims] == [("t3.large",), ("t3.large",)]


def test_reason_names_the_cpu_that_a_burstable_type_sustains() -> None:
    plan = Cluster(pool(), pod(cpu=4), instance_types=TYPES).plan()
    assert "needs 4 cpu; the largest allowed instance type has 3100m" in reasons(plan)[0]
