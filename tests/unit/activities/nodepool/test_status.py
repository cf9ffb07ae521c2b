"""NodePool status from live objects, and the nodes that budgets count."""

from typing import Any

import pytest

from tenure.apis.labels import NODEPOOL
from tenure.model.disruption.permits import AllowedDisruptionsRequest
from tenure.model.nodeclaim.requests import NodePoolRequest
from tests.unit.activities.builders import FakeCluster, run_activity

STATUS_REQUEST = NodePoolRequest(name="default")
BUDGET_REQUEST = AllowedDisruptionsRequest(name="default")


def add_nodeclaim(
    cluster: FakeCluster, name: str, *, ready: bool = True, deleting: bool = False, **conditions: str
) -> None:
    provider = f"aws:///us-west-2a/i-{name}"
    cluster.claims.add(name)
    cluster.claims.set_status(name, provider_id=provider, deleting=deleting, **{"Initialized": "True", **conditions})
    cluster.claims.found[name]["status"]["capacity"] = {"cpu": "2", "memory": "8Gi"}
    cluster.nodes.join(f"node-{name}", provider, ready=ready, labels={NODEPOOL: "default"})


async def test_status_sums_capacity_of_nodeclaims(cluster: FakeCluster) -> None:
    cluster.pools.add("default")
    add_nodeclaim(cluster, "a")
    add_nodeclaim(cluster, "b")
    cluster.claims.add("c")
    assert (await run_activity(cluster.pool_status.update_nodepool_status, STATUS_REQUEST)).exists
    status = cluster.pools.statuses["default"]
    assert status["nodes"] == 2
    assert status["resources"] == {"cpu": "4", "memory": "16Gi", "pods": "0", "ephemeral-storage": "0", "nodes": "2"}


@pytest.mark.parametrize("of_another_pool", [False, True])
async def test_nodepool_without_nodes_has_zero_resources(cluster: FakeCluster, of_another_pool: bool) -> None:
    cluster.pools.add("default")
    if of_another_pool:
        cluster.claims.add("other", labels={NODEPOOL: "other"})
        cluster.claims.set_status("other", provider_id="aws:///us-west-2a/i-other")
    await run_activity(cluster.pool_status.update_nodepool_status, STATUS_REQUEST)
    resources: Any = cluster.pools.statuses["default"]["resources"]
    assert set(resources.values()) == {"0"} and cluster.pools.statuses["default"]["nodes"] == 0


@pytest.mark.parametrize(
    ("ready", "expected"),
    [("True", "True"), ("False", "False Ready"), ("Unknown", "Unknown NodeClassReadinessUnknown")],
)
async def test_nodeclass_readiness_is_copied(cluster: FakeCluster, ready: str, expected: str) -> None:
    cluster.pools.add("default")
    cluster.node_classes.add("default", ready=ready)
    await run_activity(cluster.pool_status.update_nodepool_status, STATUS_REQUEST)
    assert cluster.pools.statuses["default"]["NodeClassReady"] == expected


async def test_invalid_nodepool_is_reported(cluster: FakeCluster) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "missing"}
    cluster.pools.add("default", template={"spec": {"nodeClassRef": reference, "taints": [taint, taint]}})
    await run_activity(cluster.pool_status.update_nodepool_status, STATUS_REQUEST)
    assert cluster.pools.statuses["default"]["ValidationSucceeded"] == "False NodePoolValidationFailed"
    assert cluster.pools.statuses["default"]["NodeClassReady"] == "False NodeClassNotFound"


@pytest.mark.parametrize("field", ["expireAfter", "terminationGracePeriod"])
async def test_duration_that_only_the_crd_accepts_is_reported(cluster: FakeCluster, field: str) -> None:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    cluster.pools.add("default", template={"spec": {"nodeClassRef": reference, field: f"{'9' * 60}h"}})
    assert (await run_activity(cluster.pool_status.update_nodepool_status, STATUS_REQUEST)).exists
    assert cluster.pools.statuses["default"]["ValidationSucceeded"] == "False NodePoolValidationFailed"


async def test_missing_nodepool_has_no_status_and_no_permits(cluster: FakeCluster) -> None:
    add_nodeclaim(cluster, "a")
    assert (await run_activity(cluster.pool_status.update_nodepool_status, STATUS_REQUEST)).exists is False
    result = await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, BUDGET_REQUEST)
    assert result.allowed == 0 and "is gone" in result.why


async def test_budget_counts_initialized_nodes_minus_not_ready_and_deleting(cluster: FakeCluster) -> None:
    cluster.pools.add("default", disruption={"budgets": [{"nodes": "3"}]})
    for name in "abcd":
        add_nodeclaim(cluster, name)
    add_nodeclaim(cluster, "unready", ready=False)
    add_nodeclaim(cluster, "going", deleting=True)
    add_nodeclaim(cluster, "ended", deleting=True, InstanceTerminating="True")
    cluster.claims.add("starting")
    result = await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, BUDGET_REQUEST)
    assert result.allowed == 1
    assert result.count.total == 6 and result.count.consuming == ("uid-going", "uid-unready")
    assert cluster.events.published == []


async def test_node_drained_before_deletion_uses_budget(cluster: FakeCluster) -> None:
    cluster.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    add_nodeclaim(cluster, "a")
    add_nodeclaim(cluster, "b")
    assert (await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, BUDGET_REQUEST)).allowed == 1
    await cluster.nodes.mark_disrupted("node-a")
    result = await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, BUDGET_REQUEST)
    assert result.allowed == 0 and result.count.consuming == ("uid-a",)


async def test_zero_budget_is_published_on_nodepool(cluster: FakeCluster) -> None:
    cluster.pools.add("default", disruption={"budgets": [{"nodes": "0"}]})
    add_nodeclaim(cluster, "a")
    await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, BUDGET_REQUEST)
    budget = "budget 0 of 1 nodes allows 0, 0 in use (NotReady or terminating)"
    message = f"No allowed disruptions for disruption reason {BUDGET_REQUEST.reason}: {budget}"
    assert cluster.events.published == [("default", "DisruptionBlocked", message)]


@pytest.mark.parametrize(("off", "expected"), [(False, "True"), (True, "False NodePoolValidationFailed")])
async def test_static_nodepool_is_invalid_while_gate_is_disabled(
    cluster: FakeCluster, off: bool, expected: str
) -> None:
    cluster.pools.add("default", replicas=2)
    await run_activity(cluster.pool_status.update_nodepool_status, NodePoolRequest(name="default", gate_off=off))
    assert cluster.pools.statuses["default"]["ValidationSucceeded"] == expected


async def test_empty_node_of_static_nodepool_gets_no_permit(cluster: FakeCluster) -> None:
    cluster.pools.add("default", replicas=1, disruption={"budgets": [{"nodes": "100%"}]})
    add_nodeclaim(cluster, "a")
    result = await run_activity(cluster.allowed_disruptions.read_allowed_disruptions, BUDGET_REQUEST)
    assert (result.allowed, result.why) == (0, "NodePool default is static: its nodes are not consolidated")
