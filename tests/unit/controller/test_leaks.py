"""Objects that are gone leave no entry in any container of the controller and its planner."""

from tests.support.controller.node_lives import assert_lives_leave_no_entries


async def test_lives_of_nodes_leave_no_entries() -> None:
    await assert_lives_leave_no_entries(batches=4, nodes=50)
