"""Pods on a real API server: eviction under a budget, nomination, deletion costs, forced deletion, attached volumes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.apis.labels import OWN_DELETION_COST, POD_DELETION_COST
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.pods import KubePods
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    VOLUME_ATTACHMENTS,
    WORKLOADS,
)
from tenure.kube.facts.pods import pod_fact
from tenure.model.errors import Forbidden
from tenure.model.provider_results import AttachedVolume, DrainPod
from tests.support.kube.builders import node_json, persistent_volume_json, pod_json, volume_attachment_json
from tests.support.product.eventually import TIMEOUT_SECONDS, wait_until

Unique = Callable[[str], str]
RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DRIVER = "test"


@pytest.fixture
async def node(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> AsyncIterator[str]:
    name = unique("node")
    created = await admin.request("POST", NODES.path(), body=node_json(name))
    yield name
    for pod in await kube.pods.on_node(name, now=datetime.now(UTC)):
        await kube.pods.force_delete(pod, grace_seconds=0)
    await kube.nodes.delete(name, created["metadata"]["uid"])


async def run_pod(kube: KubeAdapters, admin: KubeClient, name: str, node: str, **more: Any) -> DrainPod:
    body = pod_json(name, node=node, terminationGracePeriodSeconds=0, **more)
    await admin.request("POST", PODS.path(namespace="default"), body=body)
    return await find_pod(kube, node, name)


async def find_pod(kube: KubeAdapters, node: str, name: str) -> DrainPod:
    return next(pod for pod in await kube.pods.on_node(node, now=datetime.now(UTC)) if pod.name == name)


async def test_eviction_of_a_deleted_pod_is_accepted(kube: KubeAdapters, admin: KubeClient, node: str) -> None:
    pod = await run_pod(kube, admin, "leaves", node)
    assert pod.waits and pod.evictable and pod.reschedulable
    assert (await kube.pods.evict(pod)).accepted
    assert (await kube.pods.evict(pod)).accepted
    assert not await kube.pods.force_delete(pod, grace_seconds=0)


async def test_nomination_is_written_next_to_the_scheduler_condition(
    kube: KubeAdapters, kube_with_optional_rights: KubeAdapters, admin: KubeClient, unique: Unique
) -> None:
    pods = kube_with_optional_rights.pods
    path = PODS.path(unique("expected"), namespace="default")
    body = pod_json(path.rpartition("/")[2], schedulerName="nobody", terminationGracePeriodSeconds=0)
    created = pod_fact(await admin.request("POST", PODS.path(namespace="default"), body=body))
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    await admin.merge(f"{path}/status", {"status": {"conditions": [unscheduled]}})
    with pytest.raises(Forbidden, match="pods/status"):
        await kube.pods.nominate(created, "some-node", now=datetime.now(UTC))
    assert await pods.nominate(created, "some-node", now=datetime.now(UTC))

    found = pod_fact(await admin.request("GET", path))
    assert (found.expected_on, found.nominated_node, found.unschedulable) == ("some-node", "", True)
    other = created.model_copy(update={"uid": "00000000-0000-0000-0000-000000000009"})
    assert not await pods.nominate(other, "another", now=datetime.now(UTC))
    await admin.request("DELETE", path)
    assert not await pods.nominate(created, "another", now=datetime.now(UTC))


async def test_pod_with_another_uid_is_not_deleted(kube: KubeAdapters, admin: KubeClient, node: str) -> None:
    pod = await run_pod(kube, admin, "twin", node)
    other = pod.model_copy(update={"uid": "00000000-0000-0000-0000-000000000009"})
    assert not await kube.pods.force_delete(other, grace_seconds=0)
    assert (await find_pod(kube, node, "twin")).uid == pod.uid
    assert await kube.pods.force_delete(pod, grace_seconds=0)


async def test_blocked_eviction_has_the_message_of_the_api_server(
    kube: KubeAdapters, admin: KubeClient, node: str, unique: Unique
) -> None:
    app = unique("app")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    }
    await admin.request("POST", BUDGETS, body=budget)
    pod = await run_pod(kube, admin, app, node, metadata={"labels": {"app": app}})
    await admin.merge(PODS.path(app, namespace="default", sub="status"), {"status": RUNNING})
    await wait_until_budget_counted(kube, admin, app)
    eviction = await kube.pods.evict(pod)
    assert not eviction.accepted
    assert eviction.pod == f"default/{app}"
    assert app in eviction.blocked_by and "needs 1 healthy pods" in eviction.blocked_by
    await admin.request("DELETE", f"{BUDGETS}/{app}")
    assert (await kube.pods.evict(pod)).accepted


async def test_attached_volumes_are_those_of_evictable_pods(
    kube: KubeAdapters, admin: KubeClient, node: str, unique: Unique
) -> None:
    evicted, staying, released, missing = (unique("pv") for _ in range(4))
    await run_pod(kube, admin, unique("db"), node, volumes=[volume_of_claim(evicted)])
    await run_pod(
        kube, admin, unique("agent"), node, volumes=[volume_of_claim(staying)], tolerations=[{"operator": "Exists"}]
    )
    for volume in (evicted, staying):
        await admin.request(
            "POST", PERSISTENT_VOLUME_CLAIMS.path(namespace="default"), body=persistent_volume_claim(volume)
        )
    for volume in (evicted, staying, released):
        claim = {"namespace": "default", "name": volume, "uid": "deleted" if volume == released else None}
        body = persistent_volume_json(volume, driver=DRIVER, claimRef=claim, storageClassName="none")
        await admin.request("POST", PERSISTENT_VOLUMES.path(), body=body)
    for volume in (evicted, staying, released, missing):
        body = volume_attachment_json(volume, node, driver=DRIVER, finalizers=["external-attacher/test"])
        await admin.request("POST", VOLUME_ATTACHMENTS.path(), body=body)
    await admin.merge(PERSISTENT_VOLUMES.path(released, sub="status"), {"status": {"phase": "Released"}})
    await admin.request("DELETE", VOLUME_ATTACHMENTS.path(evicted))
    failed = {"status": {"attached": True, "detachError": {"message": "denied"}}}
    await admin.merge(VOLUME_ATTACHMENTS.path(evicted, sub="status"), failed)
    assert await kube.pods.attached_volumes(node) == [
        AttachedVolume(
            attachment=evicted,
            driver=DRIVER,
            volume=evicted,
            claim=f"default/{evicted}",
            detaching=True,
            error="denied",
        )
    ]
    await admin.merge(VOLUME_ATTACHMENTS.path(evicted), {"metadata": {"finalizers": None}})
    for volume in (staying, released, missing):
        await admin.request("DELETE", VOLUME_ATTACHMENTS.path(volume))
        await admin.merge(VOLUME_ATTACHMENTS.path(volume), {"metadata": {"finalizers": None}})
    for volume in (evicted, staying):
        await admin.request("DELETE", PERSISTENT_VOLUME_CLAIMS.path(volume, namespace="default"))
    for volume in (evicted, staying, released):
        await admin.request("DELETE", PERSISTENT_VOLUMES.path(volume))
    assert await kube.pods.attached_volumes(node) == ()


async def wait_until_budget_counted(kube: KubeAdapters, admin: KubeClient, budget: str) -> None:
    """Wait until the disruption controller has counted the healthy pod."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            found = await admin.request("GET", f"{BUDGETS}/{budget}")
            if found.get("status", {}).get("currentHealthy") == 1:
                return
            await asyncio.sleep(0.1)


def volume_of_claim(name: str) -> dict[str, Any]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def persistent_volume_claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


@asynccontextmanager
async def replica_set(
    kube: KubeAdapters, admin: KubeClient, node: str, name: str, replicas: int
) -> AsyncIterator[list[str]]:
    """A ReplicaSet whose pods are on the node. Yields the names of its pods."""
    pod = pod_json("", node=node, terminationGracePeriodSeconds=0)
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    path = WORKLOADS["ReplicaSet"].path(namespace="default")
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    await admin.request("POST", path, body={**kind, "metadata": {"name": name}, "spec": spec})
    try:
        yield await wait_until(lambda: assert_listed(kube.pods, node, replicas))
    finally:
        await admin.request("DELETE", f"{path}/{name}", body={"propagationPolicy": "Foreground"})
        await wait_until(lambda: assert_gone(admin, f"{path}/{name}"))


async def assert_listed(pods: KubePods, node: str, count: int) -> list[str]:
    found = [one.name for one in await pods.list_costed(node)]
    assert len(found) == count, found
    return found


async def assert_gone(admin: KubeClient, path: str) -> None:
    assert await admin.get(path) is None


async def assert_costs(pods: KubePods, node: str, expected: dict[str, int | None]) -> None:
    assert {one.name: one.cost for one in await pods.list_costed(node)} == expected


async def read_annotations(admin: KubeClient, name: str) -> dict[str, str]:
    found: dict[str, str] = (await admin.request("GET", PODS.path(name, namespace="default")))["metadata"].get(
        "annotations", {}
    )
    return found


async def test_deletion_cost_needs_its_right_and_keeps_costs_of_users(
    kube: KubeAdapters, kube_with_optional_rights: KubeAdapters, admin: KubeClient, node: str, unique: Unique
) -> None:
    pods = kube_with_optional_rights.pods
    await run_pod(kube, admin, unique("bare"), node)
    async with replica_set(kube, admin, node, unique("web"), 2) as (plain, users):
        await admin.merge(
            PODS.path(users, namespace="default"), {"metadata": {"annotations": {POD_DELETION_COST: "7"}}}
        )
        await wait_until(lambda: assert_costs(pods, node, {plain: None}))
        (found,) = await pods.list_costed(node)
        with pytest.raises(Forbidden, match="pods"):
            await kube.pods.write_deletion_cost(found, -5)

        assert await pods.write_deletion_cost(found, -5) == "updated"
        assert await read_annotations(admin, plain) == {POD_DELETION_COST: "-5", OWN_DELETION_COST: "-5"}
        assert await read_annotations(admin, users) == {POD_DELETION_COST: "7"}
        assert await pods.write_deletion_cost(found, -6) == "skipped_conflict", "the pod has changed since it was read"
        await wait_until(lambda: assert_costs(pods, node, {plain: -5}))
        (found,) = await pods.list_costed(node)
        assert await pods.write_deletion_cost(found, -5) == "skipped_unchanged"
        assert await pods.write_deletion_cost(found, None) == "updated"
        assert await read_annotations(admin, plain) == {}
        await admin.request("DELETE", PODS.path(plain, namespace="default"), body={"gracePeriodSeconds": 0})
        assert await pods.write_deletion_cost(found, -6) == "skipped_notfound"


async def test_deletion_cost_that_a_user_changes_belongs_to_the_user(
    kube: KubeAdapters, kube_with_optional_rights: KubeAdapters, admin: KubeClient, node: str, unique: Unique
) -> None:
    pods = kube_with_optional_rights.pods
    async with replica_set(kube, admin, node, unique("web"), 1) as (name,):
        (found,) = await pods.list_costed(node)
        assert await pods.write_deletion_cost(found, -5) == "updated"
        await wait_until(lambda: assert_costs(pods, node, {name: -5}))
        (found,) = await pods.list_costed(node)
        path, users = PODS.path(name, namespace="default"), {"annotations": {POD_DELETION_COST: "9"}}
        await admin.merge(path, {"metadata": users})
        assert await pods.write_deletion_cost(found, -6) == "skipped_conflict"
        await wait_until(lambda: assert_costs(pods, node, {}))
