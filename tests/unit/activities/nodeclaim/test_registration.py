"""Registration and initialization from live objects, written once."""

from datetime import datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tenure.apis.labels import INITIALIZED, REGISTERED, TERMINATION_FINALIZER, UNREGISTERED_TAINT_KEY
from tenure.model.errors import Conflict, TryLater
from tenure.model.facts import Taint
from tenure.model.nodeclaim.requests import RegistrationResult
from tests.support.fakes.kubernetes import BORN
from tests.unit.activities.builders import PROVIDER, REF, FakeCluster, run_activity

STARTUP = [{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}]
CILIUM = Taint(key="node.cilium.io/agent-not-ready", effect="NoExecute")


async def test_joined_node_is_registered(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    result = await run_activity(cluster.joining.register_node, REF)
    lifetime = timedelta(hours=720)
    assert result == RegistrationResult(
        outcome="registered",
        node_name="node-a",
        boot_id="boot-1",
        ready=True,
        expires=BORN + lifetime,
        lifetime=lifetime,
    )
    node = cluster.nodes.found["node-a"]
    assert node.labels[REGISTERED] == "true" and node.finalizers == (TERMINATION_FINALIZER,)
    assert all(one.key != UNREGISTERED_TAINT_KEY for one in node.taints)
    assert cluster.claims.found["a"]["status"]["nodeName"] == "node-a"
    assert cluster.claims.condition_text("a", "Registered").startswith("True")


async def test_registration_writes_initialization_blocker(cluster: FakeCluster) -> None:
    cluster.add_running_node(ready=False)
    result = await run_activity(cluster.joining.register_node, REF)
    assert not result.ready
    assert cluster.claims.condition_text("a", "Initialized") == "Unknown NodeNotReady"


async def test_repeated_registration_changes_nothing(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    first = await run_activity(cluster.joining.register_node, REF)
    known = cluster.nodes.found["node-a"]
    assert await run_activity(cluster.joining.register_node, REF) == first
    assert cluster.nodes.found["node-a"] == known and cluster.events.published == []


async def test_node_without_unregistered_taint_is_reported(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", taints=())
    await run_activity(cluster.joining.register_node, REF)
    assert cluster.events.reasons_for("a") == ["UnregisteredTaintMissing"]


async def test_node_of_another_instance_is_not_registered(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", provider_id="aws:///us-west-2a/i-9999")
    assert (await run_activity(cluster.joining.register_node, REF)).outcome == "no node"
    cluster.nodes.join("node-z", PROVIDER)
    assert (await run_activity(cluster.joining.register_node, REF)).node_name == "node-z"


@pytest.mark.parametrize(("nodes", "outcome"), [(0, "no node"), (1, "registered"), (2, "several nodes")])
async def test_node_is_found_by_provider_id(cluster: FakeCluster, nodes: int, outcome: str) -> None:
    cluster.add_running_node()
    cluster.nodes.found.clear()
    for number in range(nodes):
        cluster.nodes.join(f"other-{number}", PROVIDER)
    assert (await run_activity(cluster.joining.register_node, REF)).outcome == outcome


@pytest.mark.parametrize(("registered", "outcome"), [("", "several nodes"), ("True", "registered")])
async def test_retry_finds_second_node_with_same_provider_id(
    cluster: FakeCluster, registered: str, outcome: str
) -> None:
    """A second Node of a registered NodeClaim is ignored."""
    cluster.add_running_node()
    if registered:
        cluster.claims.set_status("a", Registered=registered)
    cluster.nodes.faults["register"] = [TryLater("503")]
    with pytest.raises(ApplicationError):
        await run_activity(cluster.joining.register_node, REF)
    cluster.nodes.join("node-z", PROVIDER)
    assert (await run_activity(cluster.joining.register_node, REF, attempt=2)).outcome == outcome


async def test_recreated_nodeclaim_is_not_registered_or_initialized(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.claims.add("a", uid="uid-other")
    assert (await run_activity(cluster.joining.register_node, REF)).outcome == "gone"
    assert (await run_activity(cluster.joining.initialize_node, REF)).outcome == "gone"
    assert cluster.nodes.found["node-a"].labels == {}


@pytest.mark.parametrize(("expire_after", "expires"), [("2h", BORN + timedelta(hours=2)), ("Never", None)])
async def test_ready_node_is_initialized_with_expiration(
    cluster: FakeCluster, expire_after: str, expires: datetime | None
) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", taints=())
    cluster.claims.found["a"]["spec"]["expireAfter"] = expire_after
    result = await run_activity(cluster.joining.initialize_node, REF)
    assert result.outcome == "initialized" and result.boot_id == "boot-1" and result.expires == expires
    assert cluster.nodes.found["node-a"].labels[INITIALIZED] == "true"
    assert cluster.claims.condition_text("a", "Initialized").startswith("True")


async def test_initialized_node_waits_again_only_after_reboot(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", taints=())
    await run_activity(cluster.joining.initialize_node, REF)
    cluster.nodes.update_node("node-a", ready=False)
    assert (await run_activity(cluster.joining.initialize_node, REF)).outcome == "initialized"
    assert cluster.claims.condition_text("a", "Initialized").startswith("True")
    rebooted = REF.model_copy(update={"initialized": True})
    assert (await run_activity(cluster.joining.initialize_node, rebooted)).outcome == "waiting"
    assert cluster.claims.condition_text("a", "Initialized").startswith("True"), "it never reverts"


async def test_node_waits_for_dra_drivers_of_its_nodeclaim(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", taints=())
    cluster.claims.found["a"]["metadata"]["annotations"] = {"karpenter.sh/requested-dra-drivers": "a.example,b.example"}
    cluster.nodes.published_drivers["node-a"] = ("a.example",)
    result = await run_activity(cluster.joining.initialize_node, REF)
    assert result.waiting_for == "DRADriverPoolsNotPublished: no complete ResourceSlices of b.example"
    cluster.nodes.published_drivers["node-a"] = ("a.example", "b.example")
    assert (await run_activity(cluster.joining.initialize_node, REF)).outcome == "initialized"


async def test_node_does_not_wait_for_resources_of_device_classes(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", taints=())
    cluster.claims.found["a"]["spec"]["resources"] = {"requests": {"example.com/gpu": "1"}}
    assert (await run_activity(cluster.joining.initialize_node, REF)).outcome == "waiting"
    cluster.nodes.dra_resources = ("example.com/gpu",)
    assert (await run_activity(cluster.joining.initialize_node, REF)).outcome == "initialized"


@pytest.mark.parametrize(("cpu", "expected_status"), [(2000, "True"), (1000, "")])
async def test_initialized_node_is_consistent_only_with_requested_resources(
    cluster: FakeCluster, cpu: int, expected_status: str
) -> None:
    cluster.add_running_node()
    claim = cluster.claims.found["a"]
    claim["spec"]["resources"] = {"requests": {"cpu": "1"}}
    claim["status"]["capacity"] = {"cpu": "2"}
    cluster.nodes.update_node("node-a", taints=(), capacity={"cpu": cpu}, allocatable={"cpu": cpu})
    await run_activity(cluster.joining.initialize_node, REF)
    assert cluster.claims.condition_text("a", "ConsistentStateFound").strip() == expected_status


async def test_remaining_startup_taint_is_named(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.claims.found["a"]["spec"]["startupTaints"] = STARTUP
    cluster.nodes.update_node("node-a", taints=(CILIUM,))
    result = await run_activity(cluster.joining.initialize_node, REF)
    assert result.outcome == "waiting" and result.waiting_for.startswith("StartupTaintsExist: node.cilium.io")
    assert cluster.claims.condition_text("a", "Initialized") == "Unknown StartupTaintsExist"
    assert INITIALIZED not in cluster.nodes.found["node-a"].labels


async def test_undeclared_taint_is_reported(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", taints=(CILIUM,))
    assert (await run_activity(cluster.joining.initialize_node, REF)).outcome == "initialized"
    assert cluster.events.reasons_for("a") == ["UndeclaredTaint"]


async def test_missing_node_is_awaited(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.found.clear()
    result = await run_activity(cluster.joining.initialize_node, REF)
    assert result.waiting_for == "NodeNotFound: node-a left the cluster"


async def test_conflict_is_retried(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.faults["register"] = [Conflict("the object has been modified")]
    with pytest.raises(Exception, match="has been modified"):
        await run_activity(cluster.joining.register_node, REF)
    assert (await run_activity(cluster.joining.register_node, REF)).outcome == "registered"
