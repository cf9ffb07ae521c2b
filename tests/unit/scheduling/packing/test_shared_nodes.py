"""Pods without constraints share new nodes of the NodePool with the highest weight."""

import pytest

from tenure.apis.labels import INSTANCE_TYPE
from tenure.scheduling.packing.instance_selection import InstanceSelector
from tenure.scheduling.packing.node_requests import NodeRequest
from tests.unit.scheduling.builders import Cluster, instance_type, pod, pool, types_of

INSTANCE_TYPES = tuple(
    instance_type(f"m.{size}", cpu=cpu, memory=4 * cpu, price=0.05 * cpu)
    for size, cpu in (("large", 2), ("2xlarge", 8))
)
LARGE, SMALL = f"{INSTANCE_TYPE} In m.2xlarge", f"{INSTANCE_TYPE} In m.large"


def test_rest_of_a_mix_stays_in_the_nodepool_of_higher_weight() -> None:
    """Two pods fill the small type, while six pods leave much of the large type unused."""
    pods = [pod(f"p-{number}", cpu=0.94, memory=3.7) for number in range(326)]
    plan = Cluster(pool("first", LARGE, weight=10), pool("second", SMALL), *pods, instance_types=INSTANCE_TYPES).plan()
    assert {one.pool for one in plan.claims} == {"first"}


def test_nodepool_of_lower_weight_is_used_beyond_the_limits_of_the_first() -> None:
    pods = [pod(f"p-{number}", cpu=0.94, memory=3.7) for number in range(326)]
    limited = pool("first", LARGE, weight=10, limits={"nodes": 3})
    plan = Cluster(limited, pool("second", SMALL), *pods, instance_types=INSTANCE_TYPES).plan()
    assert [one.pool for one in plan.claims].count("first") == 3
    assert not plan.unschedulable


def test_pods_of_many_sizes_fill_their_nodes() -> None:
    pods = [pod(f"p-{number}", cpu=0.2 + number % 97 / 100, memory=1 + number % 89 / 40) for number in range(320)]
    plan = Cluster(pool(), *pods, instance_types=INSTANCE_TYPES).plan()
    assert not plan.unschedulable
    cpus = sum(8 if types_of(one)[0] == "m.2xlarge" else 2 for one in plan.claims)
    assert sum(one.requests["cpu"] for one in pods) >= 0.9 * 1000 * cpus


def test_pod_larger_than_every_type_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[int] = []
    choose_instance = InstanceSelector.choose_instance

    def record_request(self: InstanceSelector, request: NodeRequest) -> object:
        requested.append(int(request.vector.max()))
        return choose_instance(self, request)

    monkeypatch.setattr(InstanceSelector, "choose_instance", record_request)
    pods = [pod(f"p-{number}", cpu=0.94, memory=3.7) for number in range(301)]
    plan = Cluster(pool(), pod("huge", memory=10_000), *pods, instance_types=INSTANCE_TYPES).plan()
    assert [one.name for one in plan.unschedulable] == ["huge"]
    assert requested.count(10_000 << 30) == 1
