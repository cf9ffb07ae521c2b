"""Deleted objects leave no entry in any container of the controller and its planner."""

from tenure.apis.labels import ARCH
from tenure.controller.cache.nominations import Nominations
from tenure.controller.planning.discovered_capacity import CapacityDiscovery
from tenure.model.discovered_capacity import DiscoveredCapacity
from tests.support.containers import count_entries
from tests.support.controller.builders import CacheHarness, at, node, pod
from tests.unit.controller.node_lifecycles import assert_no_entries_remain
from tests.unit.controller.planning.test_discovered_capacity import (
    AMIS,
    discover,
    nodeclaim_and_node,
    resolved_nodeclass,
)


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


def test_ended_nominations_to_deleted_nodes_leave_no_entry() -> None:
    """Nodes without a NodeClaim come and go too, for example those of managed node groups."""
    nominations = Nominations()
    nominations.nominate({"a": "n1", "b": "n2"}, at(0))
    nominations.on_pod_bound("a", at(1))
    nominations.on_pod_deleted("b", "owner", at(1))
    nominations.forget_other_targets({"n1", "n2"})
    assert nominations.last_expiry("n1", at(0)) == at(1) and nominations.is_expecting("n2")
    nominations.forget_other_targets(())
    assert sum(count_entries(nominations).values()) == 0


def test_node_that_does_not_run_the_expected_image_leaves_no_entry() -> None:
    harness = CacheHarness()
    discovery = CapacityDiscovery(harness.cache)
    harness.apply_objects("ec2nodeclasses", resolved_nodeclass(*AMIS))
    one, other = nodeclaim_and_node("a", **{ARCH: "arm64"})
    discover(harness, (one, other), by=discovery)
    assert discovery._mismatched and discovery._images
    harness.delete_objects("nodes", other)
    harness.delete_objects("nodeclaims", one)
    harness.delete_objects("ec2nodeclasses", resolved_nodeclass(*AMIS))
    discovery.apply_stored(DiscoveredCapacity())
    assert not discovery._mismatched and not discovery._images
