"""Objects that change or exclude pods: LimitRanges, RuntimeClasses and DeviceClasses in the cluster cache."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from tenure.kube.facts.device_classes import DeviceClasses
from tenure.model.facts import PodFact
from tests.support.controller.builders import CacheHarness, Json, pod

LIMIT_RANGE: Json = {
    "metadata": {"name": "defaults", "namespace": "kube-system", "uid": "uid-lr"},
    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]},
}
RUNTIME_CLASS: Json = {
    "metadata": {"name": "kata", "uid": "uid-rc"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "2"}},
}
GPU: Json = {"metadata": {"name": "gpu", "uid": "uid-dc"}, "spec": {"extendedResourceName": "example.com/gpu"}}
GPU_REASON = (
    "spec.containers[].resources.requests[example.com/gpu]: DeviceClass gpu provides this resource by Dynamic Resource "
    "Allocation, which is not supported"
)


def daemonset(name: str, namespace: str = "kube-system", **spec: Any) -> Json:
    template = {"spec": {"containers": [{"name": "main", "image": "none"}], **spec}}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T12:00:00Z"}
    return {"metadata": metadata, "spec": {"template": template}}


@pytest.fixture
def harness() -> CacheHarness:
    harness = CacheHarness()
    harness.apply_objects("daemonsets", daemonset("agent"), daemonset("isolated", "apps", runtimeClassName="kata"))
    harness.cache.drain_planner_changes()
    return harness


def requested_cpu(harness: CacheHarness) -> dict[str, int]:
    return {one.name: one.pod.requests.get("cpu", 0) for one in harness.cache.daemonsets.values()}


def planner_keys(harness: CacheHarness) -> list[str]:
    return [one.key for one in harness.cache.drain_planner_changes()]


def test_error_of_one_daemonset_does_not_affect_others_with_its_runtime_class(harness: CacheHarness) -> None:
    selecting = {"runtimeClassName": "kata", "nodeSelector": {"zone": "a"}}
    harness.apply_objects("daemonsets", daemonset("selecting", "apps", **selecting))
    harness.apply_objects("runtimeclasses", RUNTIME_CLASS | {"scheduling": {"nodeSelector": {"zone": None}}})
    assert requested_cpu(harness) == {"agent": 0, "isolated": 0, "selecting": 2000}
    assert [(key.kind, key.name) for key in harness.cache.invalid_objects.items()] == [("DaemonSet", "apps/isolated")]
    harness.apply_objects("runtimeclasses", RUNTIME_CLASS)
    assert requested_cpu(harness)["isolated"] == 2000 and not harness.cache.invalid_objects.items()


def test_limit_range_changes_daemonsets_of_its_namespace(harness: CacheHarness) -> None:
    assert requested_cpu(harness) == {"agent": 0, "isolated": 0}
    harness.apply_objects("limitranges", LIMIT_RANGE)
    assert requested_cpu(harness) == {"agent": 1000, "isolated": 0} and planner_keys(harness) == ["uid-agent"]
    harness.apply_objects("daemonsets", daemonset("second"))
    assert requested_cpu(harness)["second"] == 1000
    harness.delete_objects("daemonsets", daemonset("second"))
    harness.delete_objects("limitranges", {"metadata": LIMIT_RANGE["metadata"]})
    assert requested_cpu(harness) == {"agent": 0, "isolated": 0}


def test_daemonset_whose_pods_a_limit_range_forbids_does_not_count(harness: CacheHarness) -> None:
    small = {"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}}
    harness.apply_objects("limitranges", {**LIMIT_RANGE, "spec": {"limits": [small]}})
    assert requested_cpu(harness) == {"isolated": 0} and planner_keys(harness) == ["uid-agent"]
    harness.apply_objects("daemonsets", daemonset("second"))
    assert requested_cpu(harness) == {"isolated": 0}
    harness.apply_objects("limitranges", LIMIT_RANGE)
    assert requested_cpu(harness) == {"agent": 1000, "second": 1000, "isolated": 0}


def test_runtime_class_changes_daemonsets_that_name_it(harness: CacheHarness) -> None:
    harness.apply_objects("runtimeclasses", RUNTIME_CLASS)
    assert requested_cpu(harness) == {"agent": 0, "isolated": 2000} and planner_keys(harness) == ["uid-isolated"]
    harness.delete_objects("runtimeclasses", {"metadata": RUNTIME_CLASS["metadata"]})
    assert requested_cpu(harness) == {"agent": 0, "isolated": 0}


@pytest.mark.parametrize("limits", ["none", [1], [{"type": "Container", "defaultRequest": {"cpu": "much"}}]])
def test_unreadable_limit_range_is_reported_and_changes_nothing(harness: CacheHarness, limits: object) -> None:
    harness.apply_objects("limitranges", {**LIMIT_RANGE, "spec": {"limits": limits}}, LIMIT_RANGE)
    assert requested_cpu(harness)["agent"] == 1000
    broken = {**LIMIT_RANGE, "metadata": {**LIMIT_RANGE["metadata"], "name": "broken", "uid": "uid-broken"}}
    harness.apply_objects("limitranges", {**broken, "spec": {"limits": limits}})
    assert requested_cpu(harness)["agent"] == 1000
    assert {key.kind for key in harness.cache.invalid_objects.items()} == {"LimitRange"}


def gpu_pod(name: str, resource: str = "example.com/gpu", **more: Any) -> Json:
    requests = {"cpu": "1", resource: "1"}
    return pod(name, containers=[{"name": "main", "image": "none", "resources": {"requests": requests}}], **more)


def test_pods_that_request_a_resource_of_a_device_class_are_unplannable(harness: CacheHarness) -> None:
    harness.apply_objects("pods", gpu_pod("old", on="n1"), gpu_pod("other", "example.com/fpga"), pod("plain"))
    harness.cache.drain_changes(), harness.cache.drain_planner_changes()
    harness.apply_objects("deviceclasses", GPU, {"metadata": {"name": "plain", "uid": "uid-p"}, "spec": {}})
    harness.apply_objects("pods", gpu_pod("new"))
    assert {uid: one.unplannable for uid, one in harness.cache.pods.items() if one.unplannable} == {
        "uid-old": GPU_REASON,
        "uid-new": GPU_REASON,
    }
    assert set(planner_keys(harness)) == {"uid-old", "uid-new"} and harness.cache.drain_changes().pods
    assert harness.cache.pending["uid-new"].unplannable == GPU_REASON


def test_another_reason_with_the_same_end_stays() -> None:
    end = "DeviceClass gpu provides this resource by Dynamic Resource Allocation, which is not supported"
    created = datetime(2026, 1, 1, tzinfo=UTC)
    other = PodFact(uid="u", namespace="n", name="p", created=created, requests={}, unplannable=f"x: {end}")
    assert DeviceClasses().check_pod(other) == other


def test_deleted_device_class_is_forgotten() -> None:
    """Its pods are plannable again."""
    classes, created = DeviceClasses(), datetime(2026, 1, 1, tzinfo=UTC)
    one = PodFact(uid="u", namespace="n", name="p", created=created, requests={"example.com/gpu": 1})
    classes.update(GPU)
    unplannable = classes.check_pod(one)
    classes.update(GPU, is_deleted=True)
    assert unplannable.unplannable == GPU_REASON and classes.check_pod(unplannable) == one
    assert pickle.dumps(classes) == pickle.dumps(DeviceClasses())


def test_daemonset_counts_without_a_resource_of_a_device_class(harness: CacheHarness) -> None:
    requests = {"cpu": "1", "example.com/gpu": "1"}
    containers = [{"name": "main", "image": "none", "resources": {"requests": requests}}]
    harness.apply_objects("daemonsets", daemonset("monitor", containers=containers))
    assert harness.cache.daemonsets["uid-monitor"].pod.requests == {"cpu": 1000, "example.com/gpu": 1, "pods": 1}
    harness.cache.drain_planner_changes()
    harness.apply_objects("deviceclasses", GPU)
    assert harness.cache.daemonsets["uid-monitor"].pod.requests == {"cpu": 1000, "pods": 1}
    assert planner_keys(harness) == ["uid-monitor"]
    harness.apply_objects("daemonsets", daemonset("late", containers=containers))
    assert harness.cache.daemonsets["uid-late"].pod.requests == {"cpu": 1000, "pods": 1}
    harness.delete_objects("deviceclasses", {"metadata": GPU["metadata"]})
    assert "example.com/gpu" in harness.cache.daemonsets["uid-monitor"].pod.requests


def test_pods_are_planned_again_without_the_device_class(harness: CacheHarness) -> None:
    harness.apply_objects("deviceclasses", GPU)
    harness.apply_objects("pods", gpu_pod("p"), gpu_pod("claiming", resourceClaims=[{"name": "gpu"}]))
    harness.apply_objects("deviceclasses", {**GPU, "spec": {"extendedResourceName": "example.com/fpga"}})
    found = {uid: one.unplannable for uid, one in harness.cache.pods.items()}
    assert found["uid-p"] == "" and found["uid-claiming"].startswith("spec.resourceClaims: ")
    harness.apply_objects("deviceclasses", GPU)
    assert harness.cache.pods["uid-p"].unplannable == GPU_REASON
    harness.delete_objects("deviceclasses", {"metadata": GPU["metadata"]})
    assert harness.cache.pods["uid-p"].unplannable == ""
