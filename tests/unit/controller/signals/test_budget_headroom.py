"""When NodePools are notified that their budgets may allow more disruptions than before."""

from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.controller.cache.changes import ChangeSet
from tenure.controller.signals.disruption_trigger import BudgetHeadroomNotifier
from tenure.model.facts import NodeClaimFact
from tests.support.controller.builders import CacheHarness, claim, node, pod, pool


class HeadroomHarness(CacheHarness):
    """A NodePool `general` with three nodes: a and b run pods, c is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: dict[str, LifecycleRules] = {}
        self.drifted: set[str] = set()
        self.headroom_notifier = BudgetHeadroomNotifier(
            self.cache, rules_of=self.rules.get, is_drifted=self._has_drifted
        )
        self.apply_objects("nodepools", pool("general"), pool("gpu"))
        for name in "abc":
            self.add_node(name)
        self.apply_objects("pods", *(pod(f"on-{name}", on=f"node-{name}") for name in "ab"))
        self.notified_nodepools()

    def _has_drifted(self, one: NodeClaimFact) -> bool:
        return one.name in self.drifted

    def add_node(self, name: str, *, pool: str = "general", phase: str = "Initialized", **more: Any) -> None:
        self.apply_objects("nodeclaims", claim(name, phase=phase, pool=pool, **more))
        self.apply_objects("nodes", node(f"node-{name}", of=name))

    def flap(self) -> set[str]:
        """Make node a NotReady and let it recover. Returns the NodePools notified after the recovery."""
        self.apply_objects("nodes", node("node-a", of="a", ready=False))
        self.notified_nodepools()
        self.apply_objects("nodes", node("node-a", of="a"))
        return self.notified_nodepools()

    def notified_nodepools(self) -> set[str]:
        """NodePools notified for the pending changes."""
        before = {name: self.headroom_notifier.released(name) for name in self.cache.nodepools}
        changes = self.cache.drain_changes()
        others, changes.nodepools = changes.nodepools, set()
        self.headroom_notifier.update(changes, known=True)
        assert changes.nodepools == {
            name for name in self.cache.nodepools if self.headroom_notifier.released(name) != before[name]
        }
        assert others | changes.nodepools >= changes.nodepools
        return changes.nodepools


@pytest.fixture
def harness() -> HeadroomHarness:
    return HeadroomHarness()


@pytest.mark.parametrize(
    "more", [{"ready": False}, {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}]
)
def test_recovered_or_untainted_node_releases_headroom(harness: HeadroomHarness, more: dict[str, Any]) -> None:
    harness.apply_objects("nodes", node("node-a", of="a", **more))
    assert harness.notified_nodepools() == set()
    harness.apply_objects("nodes", node("node-a", of="a"))
    assert harness.notified_nodepools() == {"general"}
    assert harness.notified_nodepools() == set()


def test_initialized_node_releases_headroom_of_percentages(harness: HeadroomHarness) -> None:
    harness.add_node("d", phase="Registered")
    assert harness.notified_nodepools() == set()
    harness.add_node("d")
    assert harness.notified_nodepools() == {"general"}


def test_terminating_node_releases_headroom_once_it_is_not_counted(harness: HeadroomHarness) -> None:
    harness.apply_objects("nodeclaims", claim("a", phase="Initialized", deleting=True))
    assert harness.notified_nodepools() == set()
    terminating_nodeclaim = claim("a", phase="Initialized", deleting=True)
    terminating = {"type": "InstanceTerminating", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    terminating_nodeclaim["status"]["conditions"].append(terminating)
    harness.apply_objects("nodeclaims", terminating_nodeclaim)
    assert harness.notified_nodepools() == {"general"}
    harness.delete_objects("nodeclaims", terminating_nodeclaim)
    assert harness.notified_nodepools() == set(), "the node was not counted before"


def test_deleted_node_releases_headroom(harness: HeadroomHarness) -> None:
    terminating_nodeclaim = claim("a", phase="Initialized", deleting=True)
    harness.apply_objects("nodeclaims", terminating_nodeclaim)
    harness.notified_nodepools()
    harness.delete_objects("nodeclaims", terminating_nodeclaim)
    assert harness.notified_nodepools() == {"general"}


def test_no_nodepool_is_notified_without_a_possible_candidate(harness: HeadroomHarness) -> None:
    harness.apply_objects("pods", pod("on-c", on="node-c"))
    assert harness.flap() == set()
    harness.drifted.add("b")
    assert harness.flap() == {"general"}


def test_nodepools_with_cluster_budgets_are_notified_too(harness: HeadroomHarness) -> None:
    harness.add_node("g", pool="gpu")
    harness.notified_nodepools()
    assert harness.flap() == {"general"}
    harness.rules["gpu"] = LifecycleRules.model_validate({"disruption": {"clusterNodes": "1"}})
    assert harness.flap() == {"general", "gpu"}


def test_initial_objects_release_no_headroom() -> None:
    harness = HeadroomHarness()
    assert harness.headroom_notifier.released("general") == 0


def test_changes_before_the_sync_release_no_headroom(harness: HeadroomHarness) -> None:
    headroom_notifier = BudgetHeadroomNotifier(harness.cache, rules_of=harness.rules.get, is_drifted=lambda one: False)
    headroom_notifier.update(ChangeSet(nodeclaims={"a"}), known=False)
    harness.apply_objects("nodes", node("node-a", of="a", ready=False))
    headroom_notifier.update(harness.cache.drain_changes(), known=True)
    assert headroom_notifier.released("general") == 0
    harness.apply_objects("nodes", node("node-a", of="a"))
    headroom_notifier.update(harness.cache.drain_changes(), known=True)
    assert headroom_notifier.released("general") > 0
