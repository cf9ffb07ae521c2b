"""CapacityBuffers on a real API server: their status, and their virtual pods."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.apis.capacitybuffer import CapacityBuffer
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import CAPACITY_BUFFERS, WORKLOADS
from tenure.kube.facts.pods import virtual_pod_fact
from tenure.policy.capacity_buffer import Unresolved, decide_conditions
from tests.support.apis.crd_rows import CAPACITYBUFFER

Unique = Callable[[str], str]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "nodeSelector": {"team": "a"},
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"cpu": "1"}}}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    },
}


async def test_status_is_written_once_per_change(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> None:
    name = unique("buffer")
    path = CAPACITY_BUFFERS.path(name, namespace="default")
    body = CAPACITYBUFFER | {"metadata": {"name": name}}
    created = await admin.request("POST", CAPACITY_BUFFERS.path(namespace="default"), body=body)
    uid = created["metadata"]["uid"]
    missing = decide_conditions(Unresolved("PodTemplateNotFound", "make it"), 0, 0)
    status = {"replicas": 0, "provisioningStrategy": "buffer.x-k8s.io/active-capacity", "podTemplateRef": None}
    assert await kube.buffers.patch_status("default", name, uid, status=status, conditions=missing, now=NOW)
    first = CapacityBuffer.from_object(await admin.request("GET", path))
    assert [(one.type, one.status) for one in first.conditions] == [
        ("ReadyForProvisioning", "False"),
        ("Provisioning", "False"),
    ]
    later = NOW + timedelta(hours=1)
    assert await kube.buffers.patch_status("default", name, uid, status=status, conditions=missing, now=later)
    reread = CapacityBuffer.from_object(await admin.request("GET", path))
    assert reread.metadata.resource_version == first.metadata.resource_version

    found = status | {"replicas": 3, "podTemplateRef": {"name": "web"}, "podTemplateGeneration": 2}
    partly = decide_conditions(None, 3, 1)
    assert await kube.buffers.patch_status("default", name, uid, status=found, conditions=partly, now=later)
    third = CapacityBuffer.from_object(await admin.request("GET", path))
    assert third.status.replicas == 3 and third.status.pod_template_generation == 2
    ready, provisioning = third.conditions
    assert ready.is_true and ready.last_transition_time == later and ready.observed_generation == 1
    assert provisioning.reason == "RequiresNewCapacity" and provisioning.last_transition_time == NOW
    await admin.request("DELETE", path)
    assert not await kube.buffers.patch_status("default", name, uid, status=status, conditions=missing, now=later)


async def test_workload_is_read_or_none(kube: KubeAdapters, admin: KubeClient, unique: Unique) -> None:
    name = unique("web")
    template = TEMPLATE | {"spec": {**TEMPLATE["spec"], "volumes": []}}
    body = {
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    path = WORKLOADS["Deployment"].path(namespace="default")
    await admin.request("POST", path, body=body)
    found = await kube.buffers.get_workload("default", "Deployment", name)
    assert found is not None and found["spec"]["replicas"] == 0
    await admin.request("DELETE", f"{path}/{name}")
    assert await kube.buffers.get_workload("default", "StatefulSet", name) is None


def test_virtual_pod_equals_its_template_without_volumes() -> None:
    metadata = {"uid": "u", "namespace": "shop", "name": "spare", "creationTimestamp": "2026-01-01T00:00:00Z"}
    fact = virtual_pod_fact({"metadata": metadata}, TEMPLATE)
    assert fact.requests == {"cpu": 1000, "pods": 1}
    assert (fact.namespace, fact.labels, fact.node_selector) == ("shop", {"app": "web"}, {"team": "a"})
    assert fact.volumes == ()
