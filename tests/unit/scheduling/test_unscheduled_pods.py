"""Pods on terminating nodes: which of them get a new node before they leave."""

from typing import Any

import pytest

from tenure.apis.labels import DISRUPTED_TAINT_KEY, POD_TEMPLATE_HASH
from tenure.model.facts import NodeFact, PodDisruptionBudgetFact, PodFact
from tenure.model.plan import Plan
from tests.unit.scheduling.builders import Cluster, expressions, node, nodeclaim, pod, pool, toleration

TERMINATING = node("terminating", cpu=2, memory=4, deleting=True)
DATABASE = pod("database", node="terminating", cpu=1.5, labels={"app": "database"}, ready=True)


def budget(name: str = "database", **more: Any) -> PodDisruptionBudgetFact:
    fields = {"namespace": "default", "name": name, "selector": expressions("app In database"), **more}
    return PodDisruptionBudgetFact.model_validate(fields)


def planned_pods(plan: Plan) -> list[str]:
    return sorted(uid for one in plan.claims for uid in one.pods)


def plan_drain(
    *budgets: PodDisruptionBudgetFact, database: PodFact = DATABASE, terminating: NodeFact = TERMINATING
) -> Plan:
    return Cluster(pool(), terminating, database, pod("app"), *budgets).plan()


@pytest.mark.parametrize(
    "budgets",
    [
        pytest.param([budget(max_unavailable="0")], id="pdb-blocked-pod"),
        pytest.param([budget(allowed=1), budget("other", allowed=1)], id="two budgets"),
        pytest.param([budget(expected=1, desired=1)], id="needs all pods"),
        pytest.param([budget(selector=(), max_unavailable="0")], id="selects every pod"),
    ],
)
def test_no_node_is_planned_for_a_pod_that_no_budget_releases(budgets: list[PodDisruptionBudgetFact]) -> None:
    """`pdb-blocked-pod`: its node would stay empty as long as the drain waits."""
    plan = plan_drain(*budgets)
    assert planned_pods(plan) == ["app"] and not plan.unschedulable


@pytest.mark.parametrize(
    "budgets",
    [
        [],
        [budget(allowed=0)],
        [budget(selector=expressions("app In web"), max_unavailable="0")],
        [budget(namespace="other", max_unavailable="0")],
        [budget(selector=None, max_unavailable="0")],
        [budget("one", allowed=0), budget("two", selector=expressions("app In web"))],
    ],
)
def test_pod_is_planned_if_its_budget_may_allow_an_eviction(budgets: list[PodDisruptionBudgetFact]) -> None:
    """A budget without disruptions now may allow one once other pods have moved."""
    assert planned_pods(plan_drain(*budgets)) == ["app", "database"]


@pytest.mark.parametrize(
    "changed",
    [
        {"deleting": True, "owner_kind": "StatefulSet"},
        {"phase": "Pending"},
        {"tolerations": (toleration(DISRUPTED_TAINT_KEY),)},
    ],
)
def test_pod_that_needs_no_permission_of_its_budget_is_planned(changed: dict[str, Any]) -> None:
    database = DATABASE.model_copy(update=changed)
    assert planned_pods(plan_drain(budget(max_unavailable="0"), database=database)) == ["app", "database"]


@pytest.mark.parametrize(
    ("ready", "always_allow", "planned"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_unready_pod_is_planned_if_its_budget_allows_its_eviction(
    ready: bool, always_allow: bool, planned: bool
) -> None:
    database = DATABASE.model_copy(update={"ready": ready})
    plan = plan_drain(budget(max_unavailable="0", always_allow_unhealthy=always_allow), database=database)
    assert ("database" in planned_pods(plan)) is planned


@pytest.mark.parametrize(
    ("blocker", "fields", "planned"),
    [
        ({"max_unavailable": "0"}, {"instance_terminating": True}, True),
        ({"expected": 1, "desired": 1}, {"instance_terminating": True}, True),
        ({"max_unavailable": "0"}, {"deleting": True}, False),
        ({"expected": 1, "desired": 1}, {"deleting": True}, False),
        ({"max_unavailable": "0"}, {"deleting": True, "termination_grace_period": "1h"}, False),
        ({"expected": 1, "desired": 1}, {"deleting": True, "termination_grace_period": "1h"}, True),
    ],
)
def test_pod_leaves_with_its_instance(blocker: dict[str, Any], fields: dict[str, Any], planned: bool) -> None:
    running = TERMINATING.model_copy(update={"deleting": False})
    claim = nodeclaim("claim", on=running, **fields)
    plan = Cluster(pool(), running, claim, DATABASE, budget(**blocker)).plan()
    assert (planned_pods(plan) == ["database"]) is planned


def web(name: str, revision: str, *, age: float, **more: Any) -> PodFact:
    """A pod of a Deployment. `age`: in seconds; `revision`: of its ReplicaSet."""
    labels = {"app": "web", POD_TEMPLATE_HASH: revision}
    owner = {"owner_kind": "ReplicaSet", "owner_uid": revision, "ready": False}
    return pod(name, age=age, **{"labels": labels, **owner, **more})


OLD = web("old", "1", age=100, node="terminating", ready=True)


@pytest.mark.parametrize(
    ("newer", "is_replaced"),
    [
        pytest.param(web("new", "2", age=10), True, id="pending"),
        pytest.param(web("new", "2", age=10, node="other"), True, id="starting"),
        pytest.param(web("new", "2", age=10, node="other", ready=True), False, id="Ready"),
        pytest.param(web("new", "1", age=10), False, id="same ReplicaSet"),
        pytest.param(web("new", "2", age=200), False, id="rolled back"),
        pytest.param(web("new", "2", age=10, namespace="other"), False, id="other namespace"),
        pytest.param(web("new", "2", age=10, labels={"app": "api", POD_TEMPLATE_HASH: "2"}), False, id="other labels"),
        pytest.param(web("new", "2", age=10, labels={"app": "web"}), False, id="no template hash"),
        pytest.param(web("new", "2", age=10, owner_kind="StatefulSet"), False, id="StatefulSet"),
        pytest.param(web("new", "2", age=10, phase="Failed"), False, id="failed"),
    ],
)
def test_pod_that_a_rollout_replaces_needs_no_node(newer: PodFact, is_replaced: bool) -> None:
    plan = Cluster(pool(), TERMINATING, node("other"), OLD, newer).plan()
    assert ("old" in {*planned_pods(plan), *plan.nominations}) is not is_replaced


def test_each_newer_pod_replaces_one_pod() -> None:
    old = [web(f"old-{number}", "1", age=100 - number, node="terminating", ready=True) for number in range(3)]
    plan = Cluster(pool(), TERMINATING, *old, web("new", "2", age=10)).plan()
    assert planned_pods(plan) == ["new", "old-0", "old-1"]


def test_rollout_during_another_rollout_needs_nodes_for_its_own_pods_only() -> None:
    second = web("second", "2", age=50, node="terminating")
    plan = Cluster(pool(), TERMINATING, OLD, second, web("third-0", "3", age=9), web("third-1", "3", age=8)).plan()
    assert planned_pods(plan) == ["third-0", "third-1"]


def test_pod_of_an_ending_instance_needs_a_node_although_a_rollout_replaces_it() -> None:
    running = TERMINATING.model_copy(update={"deleting": False})
    claim = nodeclaim("claim", on=running, instance_terminating=True)
    plan = Cluster(pool(), running, claim, OLD, web("new", "2", age=10)).plan()
    assert planned_pods(plan) == ["new", "old"]
