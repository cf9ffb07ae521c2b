"""NodePools for Linux and for Windows that offer the same instance types."""

import pytest

from tenure.model.instance_types import Catalogue
from tenure.model.plan import Plan
from tests.unit.scheduling.builders import COMMON, Cluster, pod, pool

OS = "kubernetes.io/os"
WINDOWS = tuple(one.model_copy(update={"labels": {**one.labels, OS: ("windows",)}}) for one in COMMON)


def plan_with_both(count: int, *, selector: dict[str, str] | None = None, windows_weight: int = 0) -> Plan:
    """`count` pods and two pools with equal prices. Without a preference, the later name would come first."""
    pools = (
        pool("linux", template_labels={"pool": "linux"}),
        pool("windows2022", node_class="windows", weight=windows_weight),
    )
    cluster = Cluster(*pools, *(pod(cpu=cpu, selector=selector) for cpu in (0.5, 1, 2) for _ in range(count)))
    cluster.state.set_catalogue(Catalogue(by_node_class={"default": COMMON, "windows": WINDOWS}))
    return cluster.plan()


def nodepools_of(plan: Plan) -> set[str]:
    assert not plan.unschedulable
    return {one.pool for one in plan.claims}


@pytest.mark.parametrize("count", [1, 30, 120])
def test_linux_is_preferred_at_equal_prices(count: int) -> None:
    """`windows-price`: most pods name no operating system, and their images are for Linux."""
    assert nodepools_of(plan_with_both(count)) == {"linux"}


def test_pod_that_selects_windows_gets_windows() -> None:
    assert nodepools_of(plan_with_both(2, selector={OS: "windows"})) == {"windows2022"}


def test_weight_comes_before_the_operating_system() -> None:
    assert nodepools_of(plan_with_both(2, windows_weight=1)) == {"windows2022"}


def test_cheaper_nodepool_comes_before_the_operating_system() -> None:
    cheap = tuple(
        one.model_copy(
            update={
                "offerings": tuple(
                    offering.model_copy(update={"price": offering.price / 2}) for offering in one.offerings
                )
            }
        )
        for one in WINDOWS
    )
    cluster = Cluster(pool("linux"), pool("windows2022", node_class="windows"), pod())
    cluster.state.set_catalogue(Catalogue(by_node_class={"default": COMMON, "windows": cheap}))
    assert nodepools_of(cluster.plan()) == {"windows2022"}
