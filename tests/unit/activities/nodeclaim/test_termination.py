"""Termination of instance, Node and NodeClaim, in this order; each step can be repeated."""

from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from temporalio.exceptions import ApplicationError

from activities.nodeclaim.instance import MAX_POLL_SECONDS
from tenure.model.errors import NotFound, TryLater
from tenure.model.nodeclaim.requests import InstanceStatus, NodeClaimRef, TerminationRequest
from tests.unit.activities.builders import PROVIDER, REF, FakeCluster, run_activity

REQUEST = TerminationRequest(claim=REF, reason="Deleted")
UNKNOWN = TerminationRequest(claim=NodeClaimRef(name="a", uid="uid-a"), reason="LaunchTimeout")


def add_deleting_nodeclaim(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.claims.set_status("a", deleting=True)


@pytest.mark.usefixtures("plain_log")
@pytest.mark.parametrize(("polls", "request_"), [(0, REQUEST), (3, REQUEST), (0, UNKNOWN)])
async def test_instance_node_and_nodeclaim_are_deleted(
    cluster: FakeCluster, polls: int, request_: TerminationRequest
) -> None:
    """Includes an instance that shuts down slowly, and an instance that only the NodeClaim status names."""
    add_deleting_nodeclaim(cluster)
    cluster.instances.shutting_down_polls = polls
    with capture_logs() as logs:
        await run_activity(cluster.ending.terminate_instance, request_)
    assert [(one["event"], one["Node"], one["provider-id"]) for one in logs] == [
        ("deleted node", {"name": "node-a"}, PROVIDER)
    ]
    assert cluster.instances.terminated == ["i-0000"] and cluster.instances.shutting_down_polls == 0
    assert cluster.nodes.found == {} and cluster.claims.found == {}


async def test_finalizers_stay_until_ec2_no_longer_lists_instance(cluster: FakeCluster) -> None:
    add_deleting_nodeclaim(cluster)
    cluster.instances.shutting_down_polls = 3
    cluster.instances.faults["get"] = [TryLater("503")]
    with pytest.raises(ApplicationError):
        await run_activity(cluster.ending.terminate_instance, REQUEST)
    assert "a" in cluster.claims.found and "node-a" in cluster.nodes.found
    assert cluster.claims.condition_text("a", "InstanceTerminating").startswith("True")
    await run_activity(cluster.ending.terminate_instance, REQUEST)
    assert cluster.claims.found == {} and cluster.instances.terminated == ["i-0000"]


async def test_poll_interval_grows_up_to_a_limit(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("activities.nodeclaim.instance.FIRST_POLL_SECONDS", 1.0)
    monkeypatch.setattr("activities.nodeclaim.instance.asyncio", SimpleNamespace(sleep=sleep))
    add_deleting_nodeclaim(cluster)
    cluster.instances.shutting_down_polls = 8
    await run_activity(cluster.ending.terminate_instance, REQUEST)
    assert pauses[0] == 1.0 and pauses[-2:] == [MAX_POLL_SECONDS, MAX_POLL_SECONDS]
    assert pauses == sorted(pauses) and len(pauses) == 8


async def test_missing_instance_is_no_error(cluster: FakeCluster) -> None:
    add_deleting_nodeclaim(cluster)
    cluster.instances.running.clear()
    await run_activity(cluster.ending.terminate_instance, REQUEST)
    assert cluster.claims.found == {} and cluster.nodes.found == {}


async def test_nodeclaim_without_instance_is_released(cluster: FakeCluster) -> None:
    cluster.claims.add("a")
    cluster.claims.set_status("a", deleting=True)
    await run_activity(cluster.ending.terminate_instance, UNKNOWN)
    assert cluster.claims.found == {} and cluster.instances.terminated == []


async def test_instance_of_recreated_nodeclaim_is_kept(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.claims.found["a"]["metadata"]["uid"] = "uid-other"
    await run_activity(cluster.ending.terminate_instance, UNKNOWN)
    assert cluster.instances.terminated == [] and "a" in cluster.claims.found


async def test_node_with_reused_name_is_kept(cluster: FakeCluster) -> None:
    add_deleting_nodeclaim(cluster)
    cluster.nodes.update_node("node-a", provider_id="aws:///us-west-2a/i-9999")
    await run_activity(cluster.ending.terminate_instance, REQUEST)
    assert "node-a" in cluster.nodes.found and cluster.claims.found == {}


async def test_node_removed_meanwhile_is_no_error(cluster: FakeCluster) -> None:
    add_deleting_nodeclaim(cluster)
    cluster.nodes.faults["release"] = [NotFound("node-a")]
    await run_activity(cluster.ending.terminate_instance, REQUEST)
    assert cluster.claims.found == {}


@pytest.mark.parametrize("call", ["delete", "release"])
async def test_interrupted_termination_can_be_repeated(cluster: FakeCluster, call: str) -> None:
    add_deleting_nodeclaim(cluster)
    cluster.nodes.faults[call] = [TryLater("503")]
    with pytest.raises(ApplicationError):
        await run_activity(cluster.ending.terminate_instance, REQUEST)
    await run_activity(cluster.ending.terminate_instance, REQUEST)
    assert cluster.instances.terminated == ["i-0000"] and cluster.claims.found == {}


async def test_instance_status_is_read_from_ec2(cluster: FakeCluster) -> None:
    add_deleting_nodeclaim(cluster)
    ref = NodeClaimRef(name="a", uid="uid-a", provider_id=PROVIDER)
    assert await run_activity(cluster.ending.read_instance_status, ref) == InstanceStatus(state="running")
    reason = "Client.UserInitiatedShutdown: User initiated shutdown"
    stopped = {"state": "stopped", "state_reason": reason}
    cluster.instances.running["i-0000"] = cluster.instances.running["i-0000"].model_copy(update=stopped)
    assert await run_activity(cluster.ending.read_instance_status, ref) == InstanceStatus(
        state="stopped", reason=reason
    )
    cluster.instances.running.clear()
    assert await run_activity(cluster.ending.read_instance_status, ref) == InstanceStatus()
