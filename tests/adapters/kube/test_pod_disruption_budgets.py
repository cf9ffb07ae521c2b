"""PodDisruptionBudgets and Deployments on a real API server: reads, and a restart that happens once."""

import asyncio
from collections.abc import Callable

import pytest

from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.workloads import RESTARTED_AT
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import POD_DISRUPTION_BUDGETS, WORKLOADS
from tenure.model.errors import Forbidden
from tenure.model.provider_results import DrainPod
from tenure.policy.drain.decision import creates_pod_first
from tests.support.product.eventually import TIMEOUT_SECONDS

Unique = Callable[[str], str]


async def test_budgets_are_read_live_by_namespace(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> None:
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


async def test_deployment_is_found_by_its_pod_and_restarted_once_per_timestamp(
    kube: KubeAdapters, kube_with_optional_rights: KubeAdapters, admin: KubeClient, unique: Unique
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
    found = await kube.rollouts.find_for_pod(pod)
    assert found is not None and found.name == name and creates_pod_first(found) and found.restarted_at == ""
    with pytest.raises(Forbidden, match="deployments"):
        await kube.rollouts.restart_deployment(found, "2026-06-01T12:00:00Z")
    for _ in range(2):
        assert await kube_with_optional_rights.rollouts.restart_deployment(found, "2026-06-01T12:00:00Z")
    after = await admin.request("GET", path)
    assert after["spec"]["template"]["metadata"]["annotations"] == {RESTARTED_AT: "2026-06-01T12:00:00Z"}
    assert after["metadata"]["generation"] == 2
    repeated = await kube.rollouts.find_for_pod(pod)
    assert repeated is not None and repeated.restarted_at == "2026-06-01T12:00:00Z"
    await admin.request("DELETE", path, params={"propagationPolicy": "Foreground"})
    assert await kube.rollouts.find_for_pod(pod.model_copy(update={"owner_kind": "StatefulSet"})) is None
    assert await kube.rollouts.find_for_pod(pod.model_copy(update={"owner_name": "gone"})) is None


async def pod_of(admin: KubeClient, name: str) -> DrainPod:
    """A pod of the Deployment's ReplicaSet, once the ReplicaSet exists."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
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
