"""PodDisruptionBudgets and Deployments on a real API server: what is read of them, and a restart that is done once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kube.adapters import KubeAdapters
from kube.budgets import budget_fact, pod_budget_fact
from kube.client import KubeClient
from kube.resources import POD_DISRUPTION_BUDGETS, WORKLOADS
from kube.rollouts import RESTARTED_AT, rollout
from model.facts import Expression
from model.outcomes import DrainPod
from policy.drain import surged
from tests.integration.eventually import PATIENCE

Unique = Callable[[str], str]
Json = dict[str, Any]


def meta(**more: Any) -> Json:
    return {"namespace": "default", "name": "web", "uid": "u", "generation": 2, **more}


def test_a_budget_is_read_with_all_its_arithmetic() -> None:
    status = {"observedGeneration": 2, "expectedPods": 3, "desiredHealthy": 2, "currentHealthy": 2}
    found = budget_fact(
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
    assert found.selector == (Expression(key="app", operator="In", values=("web",)),) and found.always_unhealthy


def test_a_budget_that_was_not_counted_or_cannot_be_is_read_so() -> None:
    failed = [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}]
    found = budget_fact(
        {"metadata": meta(), "spec": {"maxUnavailable": 0}, "status": {"observedGeneration": 1, "conditions": failed}}
    )
    assert (found.max_unavailable, found.counted, found.sync_failed) == ("0", False, "no scale")
    assert found.selector is None
    assert not budget_fact({"metadata": meta()}).counted


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
def test_what_a_budget_lets_go_voluntarily(spec: Json, status: Json, allowed: int, never: bool) -> None:
    found = pod_budget_fact({"metadata": meta(), "spec": spec, "status": status})
    assert (found.key, found.disruptions_allowed, found.never) == ("default/web", allowed, never)


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
def test_whether_a_rollout_makes_the_new_pod_first(spec: Json, surges: bool) -> None:
    """For a single replica, percentages of surge round up and those of unavailability down."""
    found = rollout({"metadata": meta(), "spec": {"replicas": 1, "template": {}, **spec}})
    assert surged(found) is surges


async def test_budgets_are_read_live_and_by_namespace(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> None:
    name = unique("budget")
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": "10%", "selector": {"matchLabels": {"app": name}}},
    }
    await admin.request("POST", POD_DISRUPTION_BUDGETS.path(namespace="default"), body=body)
    (found,) = [one for one in await kube.budgets.in_namespace("default") if one.name == name]
    assert found.max_unavailable == "10%" and await kube.budgets.in_namespace("kube-public") == []
    await admin.request("DELETE", POD_DISRUPTION_BUDGETS.path(name, namespace="default"))


async def test_a_rollout_is_found_by_its_pod_and_restarted_once_for_a_stamp(
    kube: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    name = unique("web")
    path = WORKLOADS["Deployment"].path(name, namespace="default")
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"nodeSelector": {"nowhere": "at-all"}, "containers": [{"name": "main", "image": "none"}]},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template},
    }
    await admin.request("POST", WORKLOADS["Deployment"].path(namespace="default"), body=body)
    pod = await pod_of(admin, name)
    found = await kube.rollouts.of(pod)
    assert found is not None and found.name == name and surged(found) and found.restarted_at == ""
    for _ in range(2):
        assert await kube.rollouts.restart(found, "2026-06-01T12:00:00Z")
    after = await admin.request("GET", path)
    assert after["spec"]["template"]["metadata"]["annotations"] == {RESTARTED_AT: "2026-06-01T12:00:00Z"}
    assert after["metadata"]["generation"] == 2
    again = await kube.rollouts.of(pod)
    assert again is not None and again.restarted_at == "2026-06-01T12:00:00Z"
    await admin.request("DELETE", path, params={"propagationPolicy": "Foreground"})
    assert await kube.rollouts.of(pod.model_copy(update={"owner_kind": "StatefulSet"})) is None
    assert await kube.rollouts.of(pod.model_copy(update={"owner_name": "gone"})) is None


async def pod_of(admin: KubeClient, name: str) -> DrainPod:
    """A pod of the Deployment's ReplicaSet, once that is there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            sets = await admin.request(
                "GET", WORKLOADS["ReplicaSet"].path(namespace="default"), params={"labelSelector": f"app={name}"}
            )
            if sets["items"]:
                owner = sets["items"][0]["metadata"]["name"]
                return DrainPod(
                    uid="u",
                    namespace="default",
                    name="p",
                    waits=True,
                    evictable=True,
                    group=0,
                    reschedulable=True,
                    owner_kind="ReplicaSet",
                    owner_name=owner,
                )
            await asyncio.sleep(0.1)
