"""An object that raises an error in planning is reported, and everything else is planned."""

from typing import Any

import pytest

from tenure.model.disruption.decision import DisruptionRequest
from tenure.model.errors import Preempted
from tenure.model.plan import Plan
from tenure.scheduling.disruption.candidates import CandidateEvaluator
from tenure.scheduling.snapshot import Change
from tests.support.injected_errors import fail_for, named
from tests.unit.scheduling.builders import NOW, Cluster, daemonset, node, nodeclaim, overlay, pod, pool


def invalid(cluster: Cluster) -> list[tuple[str, str]]:
    return sorted((key.kind, key.name) for key in cluster.state.guard.invalid_objects.items())


def unschedulable(plan: Plan) -> dict[str, str]:
    return {one.name: one.reason for one in plan.unschedulable}


def test_unreadable_pod_is_unschedulable(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_for(monkeypatch, "tenure.scheduling.packing.pod_requirements.build_pod_shape", named("bad"))
    cluster = Cluster(pool(), pod("bad"), pod("good"))
    plan = cluster.plan()
    assert [one.pods for one in plan.claims] == [("good",)]
    assert unschedulable(plan) == {"bad": "the pod cannot be read for planning"}
    assert invalid(cluster) == [("Pod", "default/bad")]


def test_pod_that_makes_planning_fail_is_excluded_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def is_bad(one: Any) -> bool:
        attempts.append(one)
        return isinstance(one, list) and any(fact.name == "bad" for _, fact in one)

    with monkeypatch.context() as patched:
        fail_for(patched, "tenure.scheduling.cluster_state.plan_pods", is_bad)
        cluster = Cluster(pool(), *(pod(f"good{number}") for number in range(20)), pod("bad"))
        plan = cluster.plan()
        assert sum(len(one.pods) for one in plan.claims) == 20
        assert unschedulable(plan) == {"bad": "planning fails with this pod: ZeroDivisionError: injected"}
        assert invalid(cluster) == [("Pod", "default/bad")]
        attempts.clear()
        assert unschedulable(cluster.plan()) and len(attempts) == 3, "one call with its three arguments"
    cluster.add(pod("bad", cpu=2))
    assert unschedulable(cluster.plan()) == {} and invalid(cluster) == []


def test_failed_plan_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []

    def is_bad(one: Any) -> bool:
        if isinstance(one, list):
            plans.append({fact.name for _, fact in one})
        return isinstance(one, list) and "bad" in plans[-1]

    fail_for(monkeypatch, "tenure.scheduling.cluster_state.plan_pods", is_bad)
    Cluster(pool(), pod("good"), pod("bad")).plan()
    assert plans == [{"good", "bad"}, {"good"}, {"bad"}, {"good"}]


def test_error_of_every_pod_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_for(monkeypatch, "tenure.scheduling.cluster_state.plan_pods", lambda one: isinstance(one, list) and bool(one))
    cluster = Cluster(pool(), pod("a"), pod("b"))
    with pytest.raises(ZeroDivisionError):
        cluster.plan()
    assert invalid(cluster) == []


@pytest.mark.parametrize("step", ("NodePoolTemplate", "Offer"))
def test_nodepool_that_raises_an_error_launches_nothing(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    bad = named("bad")
    fail_for(monkeypatch, f"tenure.scheduling.offerings.{step}", lambda one: bad(one) or bad(getattr(one, "pool", 0)))
    cluster = Cluster(pool("good"), pool("bad", weight=50), pod("p"))
    assert [one.pool for one in cluster.plan().claims] == ["good"]
    assert invalid(cluster) == [("NodePool", "bad")]


@pytest.mark.parametrize("kind", ("Node", "NodeClaim"))
def test_node_that_raises_an_error_takes_no_pod(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    fail_for(monkeypatch, "tenure.scheduling.existing_nodes._build_present_node", named("bad"))
    bad = node("bad", cpu=64, memory=64)
    claims = [nodeclaim("c", on=bad)] if kind == "NodeClaim" else []
    cluster = Cluster(bad, node("good"), *claims, pod("p"))
    assert cluster.plan().nominations == {"p": "good"}
    assert invalid(cluster) == [(kind, "c" if claims else "bad")]


def test_nodeclaim_that_raises_an_error_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_for(monkeypatch, "tenure.scheduling.disruption.eligibility.consolidate_after_exclusions", named("bad"))
    nodes = [node(name) for name in ("good", "bad")]
    cluster = Cluster(pool(), *nodes, *(nodeclaim(one.name, on=one) for one in nodes))
    decision = cluster.state.disrupt(DisruptionRequest(now=NOW))
    assert [one.claim for one in decision.nodes] == ["good"]
    assert invalid(cluster) == [("NodeClaim", "bad")]


def test_daemonset_that_raises_an_error_reserves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_bad(one: Any) -> bool:
        return bool(getattr(one, "node_selector", ()))

    fail_for(monkeypatch, "tenure.scheduling.planner_guard.node_requirement_alternatives", is_bad)
    cluster = Cluster(pool(), daemonset("bad", pod(cpu=4, node_selector={"a": "b"})), pod("p"))
    assert [one.pods for one in cluster.plan().claims] == [("p",)]
    assert invalid(cluster) == [("DaemonSet", "kube-system/bad")]


def test_overlay_that_raises_an_error_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_for(monkeypatch, "tenure.scheduling.nodeoverlays.find_overlay_problem", named("bad"))
    cluster = Cluster(pool(), overlay("good", price="1"), overlay("bad", price="1"))
    assert {name: one.reason for name, one in cluster.state.overlay_validations().items()} == {
        "good": "",
        "bad": "RuntimeValidation",
    }
    assert invalid(cluster) == [("NodeOverlay", "bad")]


def test_deleted_object_is_no_longer_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_for(monkeypatch, "tenure.scheduling.packing.pod_requirements.build_pod_shape", named("bad"))
    cluster = Cluster(pod("bad"))
    assert invalid(cluster)
    cluster.state.apply([Change(kind="pod", key="bad", fact=None)])
    assert not invalid(cluster)


def test_preempted_pass_is_no_fault_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    def preempt(*_: object) -> None:
        raise Preempted

    existing = node("n")
    cluster = Cluster(pool(), existing, nodeclaim("c", on=existing), pod(node="n"))
    monkeypatch.setattr(CandidateEvaluator, "_evaluate", preempt)
    with pytest.raises(Preempted):
        cluster.state.disrupt(DisruptionRequest(now=NOW))
    assert not invalid(cluster)
