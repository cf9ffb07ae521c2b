"""Files of a simulation as they are in a repository or in a cluster: other kinds, owned objects, admission, classes."""

import json
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli.main import main
from tests.unit.cli.simulate.builders import Files, Json, deployment, instance_type, pod, pool


def planned(found: Json) -> list[str]:
    return sorted(name for node in found["nodes"] for name in node["pods"])


def owned(one: Json, kind: str, name: str) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": True}
    return {**one, "metadata": {**one["metadata"], "ownerReferences": [owner]}}


def daemonset(one: Json) -> Json:
    """A DaemonSet of pods like this one."""
    return {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"template": {"spec": one["spec"]}}}


def limit_range(namespace: str = "default", **item: Json) -> Json:
    metadata = {"name": "defaults", "namespace": namespace}
    return {"kind": "LimitRange", "metadata": metadata, "spec": {"limits": [{"type": "Container", **item}]}}


def runtime_class(**scheduling: Any) -> Json:
    overhead = {"podFixed": {"cpu": "6"}}
    return {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "overhead": overhead, "scheduling": scheduling}


def with_spec(one: Json, **spec: Any) -> Json:
    return {**one, "spec": {**one["spec"], **spec}}


def test_one_file_serves_several_options(files: Files) -> None:
    """As with the output of `helm template`."""
    files.write("pools.yaml", pool(), deployment(1))
    files.write("pods.yaml", pod("one", cpu="1"), pool(name="second"))
    assert planned(files.run()) == ["one", "web-0"]
    assert planned(files.run("--nodepools", str(files.folder / "pods.yaml"))) == ["one"]


def test_kind_of_another_api_group_is_skipped(files: Files, capsys: CaptureFixture[str]) -> None:
    files.write("pods.yaml", pod("one", cpu="1"), {**pod("other"), "apiVersion": "example.com/v1"})
    assert main(files.arguments("-o", "json")) == 0
    captured = capsys.readouterr()
    assert planned(json.loads(captured.out)) == ["one"]
    assert captured.err == "skipped kinds that do not affect the plan: 1 Pod\n"


def test_workload_with_its_pods_in_the_file_has_no_other_pods(files: Files) -> None:
    """As with the output of `kubectl get all -o yaml`."""
    replica_set = owned({**deployment(2), "kind": "ReplicaSet", "metadata": {"name": "web-1"}}, "Deployment", "web")
    pods = [owned(pod(f"web-1-{name}", cpu="1"), "ReplicaSet", "web-1") for name in "ab"]
    files.write("pods.yaml", deployment(2), replica_set, *pods)
    assert planned(files.run()) == ["web-1-a", "web-1-b"]


def test_daemonset_in_pods_file_counts_on_new_nodes(files: Files) -> None:
    daemons = daemonset(pod("x", cpu="1"))
    files.write("pods.yaml", pod("one", cpu="1"), daemons)
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.2xlarge"


def test_limit_range_sets_requests_of_its_namespace(files: Files) -> None:
    item: Json = {"defaultRequest": {"cpu": "3"}}
    files.write("pods.yaml", limit_range(**item), pod("one"))
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.2xlarge"
    files.write("pods.yaml", limit_range("other", **item), pod("one"))
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.large"


def test_limit_range_keeps_own_requests_and_admitted_pods(files: Files) -> None:
    admitted = {**pod("two"), "status": {"phase": "Pending"}}
    files.write("pods.yaml", limit_range(defaultRequest={"cpu": "3"}), pod("one", cpu="1"), admitted)
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.large"


def test_limit_range_counts_for_daemonsets(files: Files) -> None:
    daemons = daemonset(pod("x"))
    files.write("pods.yaml", limit_range(defaultRequest={"cpu": "1"}), pod("one", cpu="1"), daemons)
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.2xlarge"


def test_pod_that_a_limit_range_forbids_is_unschedulable_with_error_of_api_server(files: Files) -> None:
    files.write("pods.yaml", limit_range(min={"cpu": "2"}), deployment(2), pod("one", cpu="2"))
    found = files.run()
    error = 'pods "{}" is forbidden: minimum cpu usage per Container is 2, but request is 1'
    assert planned(found) == ["one"]
    assert found["unschedulable"] == {name: error.format(name) for name in ("web-0", "web-1")}


def test_daemonset_whose_pods_a_limit_range_forbids_does_not_count(files: Files) -> None:
    daemons = daemonset(pod("x", cpu="3"))
    files.write("pods.yaml", limit_range(max={"cpu": "2"}), pod("one", cpu="1"), daemons)
    found = files.run()
    assert found["nodes"][0]["instanceTypes"][0] == "m5.large"
    assert found["rejectedDaemonSets"] == {
        "agent": 'Pod "agent" is invalid: spec.containers[0].resources.requests: Invalid value: "3": must be less than '
        "or equal to cpu limit of 2"
    }


def test_limit_range_counts_for_capacity_buffers(files: Files) -> None:
    shape = {"kind": "PodTemplate", "metadata": {"name": "web"}, "template": {"spec": pod("x")["spec"]}}
    buffer = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "spare"},
        "spec": {"podTemplateRef": {"name": "web"}, "replicas": 1},
    }
    files.write("pods.yaml", limit_range(defaultRequest={"cpu": "3"}), shape, buffer)
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.2xlarge"


def test_pod_that_requests_a_resource_of_a_device_class_is_unschedulable(files: Files) -> None:
    metadata, spec = {"name": "gpu"}, {"extendedResourceName": "example.com/gpu"}
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": spec}
    requesting = pod("two", cpu="1")
    requesting["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    files.write("pods.yaml", device_class, pod("one", cpu="1"), requesting)
    found = files.run()
    assert planned(found) == ["one"]
    assert "DeviceClass gpu provides this resource by Dynamic Resource" in found["unschedulable"]["two"]


def test_daemonset_that_requests_a_resource_of_a_device_class_counts_on_new_nodes(files: Files) -> None:
    template = pod("x", cpu="1")
    template["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    daemons = daemonset(template)
    files.write("pods.yaml", pod("one", cpu="1"), daemons)
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.large"
    metadata, spec = {"name": "gpu"}, {"extendedResourceName": "example.com/gpu"}
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": spec}
    files.write("pods.yaml", device_class, pod("one", cpu="1"), daemons)
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.2xlarge"


def test_runtime_class_tolerations_apply(files: Files) -> None:
    tainted = pool()
    tainted["spec"]["template"]["spec"]["taints"] = [{"key": "runtime", "effect": "NoSchedule"}]
    files.write("pools.yaml", tainted)
    isolated = with_spec(pod("one", cpu="1"), runtimeClassName="kata")
    files.write("pods.yaml", runtime_class(tolerations=[{"key": "runtime", "operator": "Exists"}]), isolated)
    assert files.run()["nodes"][0]["instanceTypes"][0] == "m5.2xlarge"
    files.write("pods.yaml", runtime_class(), isolated)
    assert list(files.run()["unschedulable"]) == ["one"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {"runtime": "runc"}}, "spec.nodeSelector.runtime: 'runc': RuntimeClass kata requires 'kata'"),
        ({"overhead": {"cpu": "1"}}, "spec.overhead: {'cpu': '1'}: differs from RuntimeClass kata"),
    ],
)
def test_pod_that_contradicts_its_runtime_class_is_rejected(files: Files, spec: Json, expected: str) -> None:
    isolated = with_spec(pod("one", cpu="1"), runtimeClassName="kata", **spec)
    files.write("pods.yaml", runtime_class(nodeSelector={"runtime": "kata"}), isolated)
    assert f"pods.yaml: Pod one: {expected}" in files.usage_error()


def test_unknown_runtime_class_rejects_only_its_pod(files: Files) -> None:
    isolated = with_spec(pod("isolated", cpu="1"), runtimeClassName="kata")
    files.write("pods.yaml", isolated, pod("one", cpu="1"))
    found = files.run()
    assert planned(found) == ["one"] and list(found["unschedulable"]) == ["isolated"]
    files.write("daemons.yaml", daemonset(isolated))
    line = files.usage_error("--daemonsets", str(files.folder / "daemons.yaml"))
    assert "DaemonSet agent: spec.template.spec.runtimeClassName: 'kata'" in line


def test_pool_without_instance_types_is_reported_and_others_are_planned(files: Files) -> None:
    windows = {"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}
    files.write("pools.yaml", pool(), pool(windows, name="windows"))
    found = files.run()
    assert planned(found) == ["one"]
    assert list(found["unsatisfiableNodePools"]) == ["windows"]
    assert "kubernetes.io/os In [windows]" in found["unsatisfiableNodePools"]["windows"]
    assert "NodePool windows launches no nodes" in files.table()


def test_pod_disruption_budgets_are_read(files: Files) -> None:
    budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": {"maxUnavailable": 0, "selector": {}}}
    files.write("pods.yaml", pod("one", cpu="1"), {**budget, "apiVersion": "policy/v1"})
    assert planned(files.run()) == ["one"]
    files.write("pods.yaml", pod("one", cpu="1"), {**budget, "spec": "all"})
    assert "PodDisruptionBudget web" in files.usage_error()


def test_invalid_nodeclass_stops_the_simulation(files: Files) -> None:
    kind = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}}
    files.write("pools.yaml", pool(), {**kind, "spec": {"role": "nodes"}})
    assert "EC2NodeClass default: spec.amiSelectorTerms: required field is missing" in files.usage_error()


def test_many_problems_are_abbreviated(files: Files) -> None:
    (files.folder / "types.json").write_text(json.dumps([instance_type("m5.large", 2)]))
    made = pool()
    made["spec"]["disruption"] = {"consolidateAfter": "1m", "budgets": [{"nodes": f"{n}x"} for n in range(4)]}
    files.write("pools.yaml", made)
    line = files.usage_error()
    assert "budgets[2].nodes: '2x'" in line and "`tenure validate` lists all 4 problems" in line and "'3x'" not in line
