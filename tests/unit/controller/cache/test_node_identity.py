"""Each state of a NodeClaim's Node, as each consumer sees it: cache, nominations, metrics, digest, budgets, plan,
drift, repair, drain, activities that read live Nodes, the decision of the workflow, and the verdict of commands."""

import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.controller.cache.expected_pods import ExpectedPods
from tenure.controller.cache.nominations import Nominations
from tenure.controller.cache.pod_verdicts import PodVerdicts
from tenure.controller.disruption.cached_budgets import NodePoolBudgets
from tenure.controller.signals.digests import NodeClaimView, nodeclaim_digest
from tenure.controller.signals.drain_changes import DrainChanges
from tenure.kube.facts.objects import node_fact
from tenure.model.blockers import INSTANCE_STOPPED, NODE_NOT_FOUND, NOMINATED, NOT_BOUND
from tenure.model.disruption.permits import AllowedDisruptionsRequest
from tenure.model.facts import NodeCondition
from tenure.model.node_health import RepairRequest
from tenure.model.nodeclaim.node_identity import NodeStatus
from tenure.model.nodeclaim.requests import InstanceStatus
from tenure.model.nodeclaim.state import Deadlines
from tenure.model.observations import ObservedNodeClaim
from tenure.policy.lifecycle.missing_nodes import blocker_of
from tenure.policy.lifecycle.ready import decide_ready
from tenure.policy.lifecycle.verdict import verdict_of
from tenure.scheduling.disruption.eligibility import lifecycle_exclusions
from tenure.scheduling.existing_nodes import build_existing_nodes
from tenure.scheduling.snapshot import ClusterFacts
from tests.support.controller.builders import CacheHarness, Json, at, claim, node, not_ready_tracker, pod, pool, stamp
from tests.unit.activities.builders import FakeCluster, run_activity
from tests.unit.policy.builders import node as ready_node

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
    pod_code: str = NOMINATED
    """Within the grace period, of a pod that is nominated to it."""
    exclusions: tuple[str, ...] = ()
    """What blocks its disruption, such as drift."""
    unhealthy: tuple[str, ...] = ()
    """Conditions that repair counts."""
    decision: tuple[str, str] = ("wait", "")
    """Of the workflow in the phase Ready."""
    instance: str = "running"
    verdict: str = ""
    """The code that `tenure get`, `why` and `stuck` show."""


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
SECOND["status"]["conditions"].append({"type": "KernelReady", "status": "False", "lastTransitionTime": stamp()})
REBOOTED = copy.deepcopy(OWN)
REBOOTED["status"]["nodeInfo"] = {"bootID": "boot-2"}
UNHEALTHY = (NodeCondition(type="KernelReady", status="False"),)
REPAIR = RepairRequest(
    name="sick",
    uid="uid-sick",
    pool="general",
    node_name="sick",
    provider_id="aws:///us-west-2a/i-sick",
    step="reboot",
    condition="KernelReady=False",
    conditions=(("Ready", "False"), ("KernelReady", "False")),
    max_unhealthy="0",
)
GONE: dict[str, Any] = {"is_not_ready": True, "allowed": 0, "room_after": 0}
CASES: dict[str, tuple[str, list[Json], Expected]] = {
    "starting": ("Launched", [], Expected(NodeStatus.STARTING, exclusions=("NoNode",))),
    "joined": ("Launched", [SECOND], Expected(NodeStatus.PRESENT, ("n0",), "n0", exclusions=("NotInitialized",))),
    "present": ("Initialized", [OWN], Expected(NodeStatus.PRESENT, ("n1",), "n1", pod_code=NOT_BOUND)),
    "not ready": (
        "Initialized",
        [NOT_READY],
        Expected(
            NodeStatus.NOT_READY,
            ("n1",),
            "n1",
            unhealthy=("Ready",),
            **GONE,
        ),
    ),
    "instance stopped": (
        "Initialized",
        [NOT_READY],
        Expected(
            NodeStatus.NOT_READY,
            ("n1",),
            "n1",
            unhealthy=("Ready",),
            instance="stopped",
            verdict=INSTANCE_STOPPED,
            **GONE,
        ),
    ),
    "missing": (
        "Initialized",
        [],
        Expected(
            NodeStatus.MISSING,
            exclusions=("NoNode",),
            decision=("look", "NodeNotFound"),
            verdict=NODE_NOT_FOUND,
            **GONE,
        ),
    ),
    "created again": (
        "Initialized",
        [CREATED_AGAIN],
        Expected(
            NodeStatus.PRESENT,
            ("n1",),
            "n1",
            is_not_ready=True,
            has_gaps=True,
            decision=("register", "Unregistered"),
        ),
    ),
    "rebooted": (
        "Initialized",
        [REBOOTED],
        Expected(NodeStatus.PRESENT, ("n1",), "n1", pod_code=NOT_BOUND, decision=("initialize", "Rebooted")),
    ),
    "with a second Node": (
        "Initialized",
        [OWN, SECOND],
        Expected(NodeStatus.PRESENT, ("n1",), "n1", pod_code=NOT_BOUND),
    ),
    "not ready, with a second Node": (
        "Initialized",
        [NOT_READY, SECOND],
        Expected(NodeStatus.NOT_READY, ("n1",), "n1", unhealthy=("Ready",), **GONE),
    ),
    "created again with another name": (
        "Initialized",
        [SECOND],
        Expected(
            NodeStatus.PRESENT,
            ("n0",),
            "n0",
            has_gaps=True,
            pod_code=NOT_BOUND,
            unhealthy=("KernelReady",),
            decision=("register", "Unregistered"),
        ),
    ),
}

INITIALIZED = [name for name, (phase, _, _) in CASES.items() if phase == "Initialized"]


@pytest.fixture(params=CASES)
def case(request: Any) -> tuple[CacheHarness, Expected]:
    """The Node is lost at 0. The budget of the pool is one node."""
    raw, nodes, expected = objects_of(request.param)
    harness = CacheHarness()
    harness.apply_objects("nodepools", pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}))
    harness.now = at(0)
    harness.apply_objects("nodes", *nodes)
    harness.apply_objects("nodeclaims", raw)
    return harness, expected


def objects_of(case: str) -> tuple[Json, list[Json], Expected]:
    phase, nodes, expected = CASES[case]
    raw = claim("c1", phase=phase)
    raw["status"] |= {"nodeName": "n1"} if phase == "Initialized" else {}
    for one in (nodes := copy.deepcopy(nodes)):
        one["status"]["conditions"][0]["lastTransitionTime"] = at(0).isoformat()
    return raw, nodes, expected


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


@pytest.mark.parametrize("name", INITIALIZED)
async def test_live_budget_and_repair_count_the_node(name: str) -> None:
    """All Nodes have the label of the NodePool, which selects them."""
    raw, nodes, expected = objects_of(name)
    cluster = FakeCluster()
    cluster.pools.add("general", disruption={"budgets": [{"nodes": "1"}]})
    cluster.claims.found["c1"] = raw
    for one in nodes:
        one["metadata"].setdefault("labels", {})[labels.NODEPOOL] = "general"
        cluster.nodes.found[one["metadata"]["name"]] = node_fact(one)
    budget = AllowedDisruptionsRequest(name="general", reason="Drifted")
    found = await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, budget)
    assert found.allowed == expected.allowed
    cluster.nodes.join("sick", "aws:///us-west-2a/i-sick", labels=REGISTERED, conditions=UNHEALTHY)
    cluster.claims.add("sick", labels={labels.NODEPOOL: "general"})
    is_missing = expected.status is NodeStatus.MISSING
    unhealthy = 1 + (is_missing or bool(expected.unhealthy))
    total = 1 + (is_missing or bool(expected.nodes))
    repaired = await run_activity(cluster.repairing.repair_node, REPAIR)
    counted = f"{unhealthy} of {total} nodes of NodePool general are unhealthy"
    assert repaired.why == f"{counted}, and maxUnhealthy 0 allows 0"


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


def test_drain_follows_pods_of_the_node(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    one = harness.cache.nodeclaims["c1"].model_copy(update={"drain_waits": True})

    def digest() -> str:
        return DrainChanges(harness.cache).digest_of(one, harness.cache.nodes_of(one), WITHIN)[0]

    for name in ("n0", "n1"):
        before = digest()
        harness.apply_objects("pods", pod(f"on-{name}", on=name))
        assert (digest() != before) is (name in expected.nodes), name


def observe(harness: CacheHarness) -> ObservedNodeClaim:
    """With repair, within the grace period."""
    one = harness.cache.nodeclaims["c1"]
    grace = not_ready_tracker(harness, GRACE).grace_for(one)
    view = NodeClaimView(
        one, harness.cache.nodes_of(one), consolidation="WhenEmpty/Never", not_ready=grace, repair_mode="legacy"
    )
    return nodeclaim_digest(view, WITHIN).observed


def test_nominated_pod_and_its_metric_wait_for_the_node(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    nominations, tracker = Nominations(), not_ready_tracker(harness, GRACE)
    expected_pods = ExpectedPods(harness.cache, nominations, tracker)
    harness.apply_objects("pods", pod("p"))
    nominations.nominate({"uid-p": "c1"}, at(0))
    verdicts = PodVerdicts(harness.cache, nominations, tracker, expected_pods, lambda name: Deadlines())
    assert verdicts.verdict_of(harness.cache.pending["uid-p"], WITHIN).code == expected.pod_code
    assert expected_pods.count_not_bound(WITHIN).total() == (expected.pod_code == NOT_BOUND)


def test_only_a_node_that_exists_and_is_initialized_drifts(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    facts = ClusterFacts()
    for change in harness.cache.drain_planner_changes():
        facts.apply(change)
    one = facts.nodeclaims["c1"]
    exclusions = lifecycle_exclusions(one, facts.node_of(one), busy=False)
    assert tuple(found.cause for found in exclusions) == expected.exclusions


def test_repair_counts_conditions_of_the_node_alone(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    assert tuple(one.type for one in observe(harness).unhealthy) == expected.unhealthy


@pytest.mark.parametrize("case", INITIALIZED, indirect=True)
def test_workflow_and_commands_follow_the_node(case: tuple[CacheHarness, Expected]) -> None:
    harness, expected = case
    status, observed = InstanceStatus(state=expected.instance), observe(harness).model_copy(update={"number": 1})
    unready_since = None if observed.node_ready or not observed.node_name else at(0)
    state = ready_node(created=at(-100), boot_id="boot-n1", unready_since=unready_since, instance_status=status)
    state = state.model_copy(update={"observed": observed})
    decision = decide_ready(state, at(10))
    assert (decision.do, decision.why) == expected.decision
    blocked_by = decision.blocked_by or (blocker_of(status) if decision.do == "look" else "")
    state = state.model_copy(update={"blocked_by": blocked_by, "blocked_code": decision.blocked_code})
    assert getattr(verdict_of(state), "code", "") == expected.verdict
