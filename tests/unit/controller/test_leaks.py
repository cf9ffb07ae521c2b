"""Deleted objects leave no entry in any container of the controller and its planner."""

from tests.unit.controller.node_lifecycles import assert_no_entries_remain


async def test_node_lifecycles_leave_no_entries() -> None:
    await assert_no_entries_remain(batches=4, nodes=50)
