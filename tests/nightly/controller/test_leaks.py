"""After 10,000 nodes launched and terminated, no container of the controller and its planner has entries left."""

from tests.unit.controller.conftest import planner_in_a_thread
from tests.unit.controller.node_lifecycles import assert_no_entries_remain

__all__ = ["planner_in_a_thread"]


async def test_10000_node_lifecycles_leave_no_entries() -> None:
    await assert_no_entries_remain(batches=100, nodes=100)
