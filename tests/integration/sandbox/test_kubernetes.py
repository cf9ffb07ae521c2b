"""The sandbox's control plane: the behavior of its nodes and pods."""

import asyncio
from datetime import UTC, datetime

import pytest

from tenure.sandbox.controlplane.commands import KUBELET, RUNS_PODS
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.errors import ApiError
from tenure.sandbox.kube_client import KubeApi, read_kubeconfig
from tests.integration.sandbox.builders import (
    PODS,
    STRATEGIC,
    condition,
    find,
    make_node,
    make_pod,
    set_ready,
    wait_until,
    wait_until_pod,
)

TOLERATES_ALL = [{"operator": "Exists"}]


async def wait_until_label(api: KubeApi, node: str, value: str) -> None:
    async def has_label() -> bool:
        found = await api.request("GET", f"/api/v1/nodes/{node}")
        return bool(found["metadata"].get("labels", {}).get(RUNS_PODS) == value)

    await wait_until(has_label)


async def test_pod_is_scheduled_runs_and_is_deleted(api: KubeApi) -> None:
    await make_node(api, "first", ready=True)
    await make_pod(api, "web")
    await wait_until_pod(api, "web", phase="Running", ready="True")
    pod = await api.request("GET", f"{PODS}/web")
    assert pod["spec"]["nodeName"] == "first"
    assert pod["status"]["hostIP"] == "10.1.2.3"
    await api.request("DELETE", f"{PODS}/web")
    await wait_until_pod(api, "web")


async def test_pod_does_not_start_on_a_notready_node(api: KubeApi) -> None:
    await make_node(api, "booting", ready=False)
    await make_node(api, "other", ready=True)
    await make_pod(api, "early", nodeName="booting", tolerations=TOLERATES_ALL)
    await make_pod(api, "witness", nodeName="other", tolerations=TOLERATES_ALL)
    await wait_until_pod(api, "witness", phase="Running")
    early = await api.request("GET", f"{PODS}/early")
    assert early["status"]["phase"] == "Pending"
    assert "podIP" not in early["status"]
    await set_ready(api, "booting", True)
    await wait_until_pod(api, "early", phase="Running", ready="True")


async def test_kwok_never_writes_the_ready_condition(api: KubeApi) -> None:
    await make_node(api, "flapping", ready=True)
    await wait_until_label(api, "flapping", "true")
    await set_ready(api, "flapping", False)
    await wait_until_label(api, "flapping", "false")
    await make_pod(api, "during", nodeName="flapping", tolerations=TOLERATES_ALL)
    await make_node(api, "other", ready=True)
    await make_pod(api, "witness", nodeName="other")
    await wait_until_pod(api, "witness", phase="Running")
    assert condition(await api.request("GET", "/api/v1/nodes/flapping"), "Ready") == "False"
    assert (await api.request("GET", f"{PODS}/during"))["status"]["phase"] == "Pending"
    await set_ready(api, "flapping", True)
    await wait_until_pod(api, "during", phase="Running")


async def test_pod_becomes_ready_again_with_its_node(api: KubeApi) -> None:
    await make_node(api, "lost", ready=True)
    await make_pod(api, "steady", nodeName="lost", tolerations=TOLERATES_ALL)
    await wait_until_pod(api, "steady", phase="Running", ready="True")
    await set_ready(api, "lost", False)
    await wait_until_label(api, "lost", "false")
    # The node lifecycle controller does this when a kubelet stops renewing its Lease.
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    out = {"status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}]}}
    await api.request("PATCH", f"{PODS}/steady/status", out, STRATEGIC)
    assert condition(await api.request("GET", f"{PODS}/steady"), "Ready") == "False"
    await set_ready(api, "lost", True)
    await wait_until_pod(api, "steady", phase="Running", ready="True")


async def test_node_has_a_lease_unless_its_kubelet_is_stopped(api: KubeApi) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    stopped = {"metadata": {"name": "dead", "labels": {KUBELET: "stopped"}}}
    await api.request("POST", "/api/v1/nodes", stopped)
    await make_node(api, "alive", ready=False)
    await wait_until(lambda: find(api, f"{leases}/alive"))
    assert await find(api, f"{leases}/dead") is None


async def test_pod_does_not_start_on_a_stopped_kubelet(api: KubeApi) -> None:
    for name in ("dead", "alive"):
        await make_node(api, name, ready=True)
        await wait_until_label(api, name, "true")
    stop = {"metadata": {"labels": {KUBELET: "stopped"}}}
    await api.request("PATCH", "/api/v1/nodes/dead", stop, STRATEGIC)
    await make_pod(api, "before", nodeName="alive")
    await wait_until_pod(api, "before", phase="Running")
    await make_pod(api, "late", nodeName="dead")
    await make_pod(api, "after", nodeName="alive")
    await wait_until_pod(api, "after", phase="Running")
    assert (await api.request("GET", f"{PODS}/late"))["status"]["phase"] == "Pending"
    start = {"metadata": {"labels": {KUBELET: None}}}
    await api.request("PATCH", "/api/v1/nodes/dead", start, STRATEGIC)
    await wait_until_pod(api, "late", phase="Running")


async def test_pod_annotations_control_its_behavior(api: KubeApi) -> None:
    await make_node(api, "first", ready=True)
    await make_pod(api, "never", annotations={"sandbox.tenure.sh/starts-after": "never"})
    await make_pod(api, "unready", annotations={"sandbox.tenure.sh/ready": "false"})
    await make_pod(api, "batch", annotations={"sandbox.tenure.sh/runs-for": "100ms"}, restartPolicy="Never")
    await make_pod(api, "stuck", annotations={"sandbox.tenure.sh/stops-after": "never"})
    await wait_until_pod(api, "unready", phase="Running", ready="False")
    await wait_until_pod(api, "batch", phase="Succeeded")
    await wait_until_pod(api, "stuck", phase="Running", ready="True")
    assert (await api.request("GET", f"{PODS}/never"))["status"]["phase"] == "Pending"

    await api.request("DELETE", f"{PODS}/stuck")
    await api.request("DELETE", f"{PODS}/unready")
    await wait_until_pod(api, "unready")
    stuck = await api.request("GET", f"{PODS}/stuck")
    assert "deletionTimestamp" in stuck["metadata"]


async def test_pod_can_use_its_whole_grace_period(api: KubeApi) -> None:
    await make_node(api, "first", ready=True)
    slow = {"sandbox.tenure.sh/stops-after": "grace"}
    await make_pod(api, "slow", annotations=slow, terminationGracePeriodSeconds=20)
    await make_pod(api, "quick", terminationGracePeriodSeconds=10)
    for name in ("slow", "quick"):
        await wait_until_pod(api, name, phase="Running")
    for name in ("quick", "slow"):
        await api.request("DELETE", f"{PODS}/{name}")
    await wait_until_pod(api, "quick")
    assert await find(api, f"{PODS}/slow") is not None
    await wait_until_pod(api, "slow")


async def test_eviction_blocked_by_a_budget_is_rejected(api: KubeApi) -> None:
    await make_node(api, "first", ready=True)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    await api.apply(budget)
    body = {
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    await api.request("POST", PODS, body)
    await wait_until_pod(api, "web", phase="Running", ready="True")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}
    with pytest.raises(ApiError, match="disruption budget") as exc_info:
        await api.request("POST", f"{PODS}/web/eviction", eviction)
    assert exc_info.value.status == 429
    await api.request("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")


async def test_service_account_has_only_its_rbac_permissions(cluster: Sandbox, api: KubeApi) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "kube-system"}}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reads-nodes"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reads-nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-nodes"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "kube-system"}],
    }
    for manifest in (account, role, binding):
        await api.apply(manifest)
    kubeconfig = await asyncio.to_thread(cluster.service_account_kubeconfig, "kube-system", "reader")
    server, token, authority = read_kubeconfig(kubeconfig)
    async with KubeApi(server, token, authority) as reader:
        assert (await reader.request("GET", "/api/v1/nodes"))["kind"] == "NodeList"
        with pytest.raises(ApiError, match="reader"):
            await reader.request("GET", "/api/v1/pods")
