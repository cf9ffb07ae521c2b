"""Objects that are gone leave no entry in any container of the controller and its planner."""

from tests.unit.controller.node_lifecycles import assert_no_entries_remain


async def test_lives_of_nodes_leave_no_entries() -> None:
    await assert_no_entries_remain(batches=4, nodes=50)
