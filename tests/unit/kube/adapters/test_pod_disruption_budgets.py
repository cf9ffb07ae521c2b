"""Conversion of PodDisruptionBudgets and Deployments."""

from typing import Any

import pytest

from tenure.kube.adapters.workloads import rollout_of_deployment
from tenure.kube.facts.objects import pod_budget_fact
from tenure.model.facts import Expression
from tenure.policy.drain.decision import creates_pod_first

Json = dict[str, Any]


def meta(**more: Any) -> Json:
    return {"namespace": "default", "name": "web", "uid": "u", "generation": 2, **more}


def test_budget_is_read_with_its_counts() -> None:
    status = {"observedGeneration": 2, "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 2}
    found = pod_budget_fact(
        {
            "metadata": meta(),
            "spec": {
                "minAvailable": "50%",
                "selector": {"matchLabels": {"app": "web"}},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
            "status": {**status, "disruptionsAllowed": 0},
        }
    )
    assert (found.min_available, found.max_unavailable, found.counted) == ("50%", "", True)
    assert (found.expected, found.desired, found.current, found.allowed) == (3, 2, 2, 0)
    assert found.selector == (Expression(key="app", operator="In", values=("web",)),) and found.always_allow_unhealthy


def test_budget_with_outdated_status_or_failed_sync_is_not_counted() -> None:
    failed = [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}]
    found = pod_budget_fact(
        {"metadata": meta(), "spec": {"maxUnavailable": 0}, "status": {"observedGeneration": 1, "conditions": failed}}
    )
    assert (found.max_unavailable, found.counted, found.sync_failed) == ("0", False, "no scale")
    assert found.selector is None
    assert not pod_budget_fact({"metadata": meta()}).counted


@pytest.mark.parametrize(
    ("spec", "status", "allowed", "never"),
    [
        ({"maxUnavailable": 1}, {"observedGeneration": 2, "disruptionsAllowed": 1}, 1, False),
        ({"maxUnavailable": 1}, {"observedGeneration": 1, "disruptionsAllowed": 1}, 0, False),
        ({"maxUnavailable": 0}, {"observedGeneration": 2}, 0, True),
        ({"maxUnavailable": "0%"}, {"observedGeneration": 2}, 0, True),
        ({"minAvailable": "100%"}, {"observedGeneration": 2}, 0, True),
        ({"minAvailable": 0}, {"observedGeneration": 2, "disruptionsAllowed": 3}, 3, False),
    ],
)
def test_disruptions_allowed_by_budget(spec: Json, status: Json, allowed: int, never: bool) -> None:
    found = pod_budget_fact({"metadata": meta(), "spec": spec, "status": status})
    assert (found.key, found.disruptions_allowed, found.never) == ("default/web", allowed, never)


@pytest.mark.parametrize(
    ("status", "needs_all"),
    [
        ({"expectedPods": 3, "desiredHealthy": 3, "currentHealthy": 2}, True),
        ({"expectedPods": 1, "desiredHealthy": 2}, True),
        ({"expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 2}, False),
        ({"expectedPods": 0, "desiredHealthy": 0}, False),
        ({"expectedPods": 3, "desiredHealthy": 3, "observedGeneration": 1}, False),
    ],
)
def test_budget_needs_all_pods_if_none_may_be_missing(status: Json, needs_all: bool) -> None:
    status = {"observedGeneration": 2, **status}
    found = pod_budget_fact({"metadata": meta(), "spec": {"minAvailable": 3}, "status": status})
    assert found.needs_all is needs_all and not found.never


@pytest.mark.parametrize(
    ("spec", "surges"),
    [
        ({}, True),
        ({"strategy": {"type": "Recreate"}}, False),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}, False),
        ({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}, True),
        ({"strategy": {"rollingUpdate": {"maxSurge": "1%", "maxUnavailable": "99%"}}}, True),
        ({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "100%"}}}, False),
        ({"paused": True}, False),
    ],
)
def test_rollout_creates_the_new_pod_first_if_it_surges(spec: Json, surges: bool) -> None:
    """For a single replica, a percentage of maxSurge rounds up and one of maxUnavailable rounds down."""
    found = rollout_of_deployment({"metadata": meta(), "spec": {"replicas": 1, "template": {}, **spec}})
    assert creates_pod_first(found) is surges and found.min_ready_seconds == 0


def test_rollout_has_the_minimum_time_that_pods_are_ready() -> None:
    spec = {"replicas": 1, "template": {}, "minReadySeconds": 30}
    assert rollout_of_deployment({"metadata": meta(), "spec": spec}).min_ready_seconds == 30
