"""Each state of a NodeClaim's Node, as each consumer sees it: cache, digest, budgets and plan."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.controller.disruption.cached_budgets import NodePoolBudgets
from tenure.controller.signals.digests import NodeClaimView, nodeclaim_digest
from tenure.model.nodeclaim.node_identity import NodeStatus
from tenure.scheduling.existing_nodes import build_existing_nodes
from tenure.scheduling.snapshot import ClusterFacts
from tests.support.controller.builders import CacheHarness, Json, at, claim, node, not_ready_tracker, pool

GRACE = 300
WITHIN, AFTER = at(100), at(GRACE + 100)
"""Times within and after the grace period of a Node that was lost at 0."""


@dataclass(frozen=True)
class Expected:
    status: NodeStatus
    nodes: tuple[str, ...] = ()
    observed_node: str = ""
    is_not_ready: bool = False
    allowed: int = 1
    """Disruptions that a budget of one node allows."""
    room_within: int = 1
    """Nodes that a plan uses within the grace period."""
    room_after: int = 1
    has_gaps: bool = False


REGISTERED = {labels.REGISTERED: "true", labels.NODEPOOL: "general"}
OWNED: Json = {
    "labels": REGISTERED,
    "finalizers": [labels.TERMINATION_FINALIZER],
    "ownerReferences": [{"kind": "NodeClaim", "uid": "uid-c1"}],
}
OWN = node("n1", of="c1", **OWNED)
NOT_READY = node("n1", of="c1", ready=False, **OWNED)
CREATED_AGAIN = node("n1", of="c1", taints=[{"key": labels.UNREGISTERED_TAINT_KEY, "effect": labels.NO_EXECUTE}])
SECOND = node("n0", of="c1")
GONE: dict[str, Any] = {"is_not_ready": True, "allowed": 0, "room_after": 0}
CASES: dict[str, tuple[str, list[Json], Expected]] = {
    "starting": ("Launched", [], Expected(NodeStatus.STARTING)),
    "joined": ("Launched", [SECOND], Expected(NodeStatus.PRESENT, ("n0",), "n0")),
    "present": ("Initialized", [OWN], Expected(NodeStatus.PRESENT, ("n1",), "n1")),
    "not ready": ("Initialized", [NOT_READY], Expected(NodeStatus.NOT_READY, ("n1",), "n1", **GONE)),
    "missing": ("Initialized", [], Expected(NodeStatus.MISSING, **GONE)),
    "created again": (
        "Initialized",
        [CREATED_AGAIN],
        Expected(NodeStatus.PRESENT, ("n1",), "n1", is_not_ready=True, has_gaps=True),
    ),
    "with a second Node": ("Initialized", [OWN, SECOND], Expected(NodeStatus.PRESENT, ("n1",), "n1")),
    "created again with another name": (
        "Initialized",
        [SECOND],
        Expected(NodeStatus.PRESENT, ("n0",), "n0", has_gaps=True),
    ),
}


@pytest.fixture(params=CASES)
def case(request: Any) -> tuple[CacheHarness, Expected]:
    """The Node is lost at 0. The budget of the pool is one node."""
    phase, nodes, expected = CASES[request.param]
    harness = CacheHarness()
    harness.apply_objects("nodepools", pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}))
    raw = claim("c1", phase=phase)
    raw["status"] |= {"nodeName": "n1"} if phase == "Initialized" else {}
    harness.now = at(0)
    for one in nodes:
        one["status"]["conditions"][0]["lastTransitionTime"] = at(0).isoformat()
    harness.apply_objects("nodes", *nodes)
    harness.apply_objects("nodeclaims", raw)
    return harness, expected


def test_cache_assigns_the_node(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    one = harness.cache.nodeclaims["c1"]
    assert harness.cache.identify_node(one).status is expected.status
    assert tuple(found.name for found in harness.cache.nodes_of(one)) == expected.nodes
    assert [name for name in harness.cache.nodes if harness.cache.nodeclaim_name_of(name)] == [*expected.nodes]


def test_digest_reports_the_node(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    one = harness.cache.nodeclaims["c1"]
    grace = not_ready_tracker(harness, GRACE).grace_for(one)
    observed = nodeclaim_digest(NodeClaimView(one, harness.cache.nodes_of(one), not_ready=grace), WITHIN).observed
    assert observed.node_name == expected.observed_node
    assert (observed.not_ready_since is not None) is expected.is_not_ready
    assert bool(observed.registration_gaps) is expected.has_gaps


def test_budget_counts_the_node(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    headroom = NodePoolBudgets(harness.cache, lambda _: None).allowed_disruptions((), WITHIN).pools["general"]["Empty"]
    assert headroom.allowed == expected.allowed
    assert headroom.allowed_for(unavailable=True) == 1


def test_plan_counts_the_room(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    facts = ClusterFacts()
    for change in harness.cache.drain_planner_changes():
        if change.kind in ("node", "claim"):
            facts.apply(change)
    for now, room in ((WITHIN, expected.room_within), (AFTER, expected.room_after)):
        grace = timedelta(seconds=GRACE)
        found = build_existing_nodes(facts, facts.nodeclaims.values(), {}, now=now, not_ready_grace=grace)
        assert len(list(found)) == room, now
