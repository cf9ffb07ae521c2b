"""The file of the comparison of random clusters: an interrupted run continues with it."""

from pathlib import Path

from tests.integration.sandbox.comparison_results import ComparisonResults
from tests.oracle.cluster_plan import compare_nodes
from tests.unit.oracle.test_random_cluster import bound_pod, stuck_pod, two_pod_plan


def test_run_continues_with_the_clusters_that_the_file_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "compare.jsonl"
    first = ComparisonResults(path)
    assert first.missing(range(2)) == [0, 1]
    first.add(
        compare_nodes(two_pod_plan(), {"first": stuck_pod("first", "no room"), "second": bound_pod("second", "old")})
    )
    continued = ComparisonResults(path)
    assert continued.missing(range(2)) == [1]
    assert continued.summary() == first.summary()
    assert (continued.count("planned"), continued.count("stuck")) == (2, 1)
    assert "no room" in path.read_text()


def test_results_need_no_file() -> None:
    found = ComparisonResults(None)
    found.add(compare_nodes(two_pod_plan(), {name: bound_pod(name, "new") for name in ("first", "second")}))
    assert found.summary() == "1 clusters, 2 planned pods, 1 bound elsewhere, 0 not bound, 0 bound without a plan"
