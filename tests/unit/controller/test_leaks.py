"""Deleted objects leave no entry in any container of the controller and its planner."""

from tests.support.containers import count_entries
from tests.support.controller.builders import CacheHarness, node, pod
from tests.unit.controller.node_lifecycles import assert_no_entries_remain


async def test_node_lifecycles_leave_no_entries() -> None:
    await assert_no_entries_remain(batches=4, nodes=50)


def test_pod_that_outlives_its_node_leaves_no_entry() -> None:
    harness = CacheHarness()
    before = count_entries(harness.cache)
    harness.apply_objects("nodes", node("n1"))
    harness.apply_objects("pods", pod("p", on="n1"))
    harness.delete_objects("nodes", node("n1"))
    harness.delete_objects("pods", pod("p", on="n1"))
    harness.cache.drain_changes()
    harness.cache.drain_planner_changes()
    assert count_entries(harness.cache) == before
