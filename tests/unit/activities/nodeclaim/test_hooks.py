"""The hook activity: the time that a grace period leaves, and the progress of a killed worker."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.nodeclaim.hooks import HookActivities, grace_end
from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP, TERMINATION_FINALIZER
from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.hooks import CallResult, HookRequest, HookResult, HookSubject
from tests.unit.activities.builders import REF, FakeCluster

CALL: dict[str, Any] = {"name": "warn", "http": {"url": "https://hooks.example.com"}}
JOB: dict[str, Any] = {"name": "snapshot", "job": {"template": {"spec": {"containers": [{"name": "main"}]}}}}


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    found.claims.add("a", terminationGracePeriod="1h")
    found.claims.found["a"]["metadata"]["finalizers"] = [TERMINATION_FINALIZER]
    return found


async def run_hook(cluster: FakeCluster, *, begun: int = 0, earlier_starts: int = 0, **fields: Any) -> HookResult:
    """Run a hook after `begun` calls of a killed worker and `earlier_starts` starts of an earlier request."""
    hook = Hook.model_validate(fields.pop("hook", JOB))
    defaults: dict[str, Any] = {
        "claim": REF,
        "subject": HookSubject(cluster="test", claim="a", point="beforeDrain", hook=hook.name),
        "hook": hook,
        "key": "key",
        "job": "snapshot-1" if hook.job else "",
        "seconds": 0.2,
        "attempts": earlier_starts,
    }
    activities = HookActivities(cluster.made)
    environment = ActivityEnvironment()
    heartbeat_details = [begun] if begun else []
    environment.info = replace(environment.info, heartbeat_details=heartbeat_details, attempt=2 if begun else 1)
    result: HookResult = await environment.run(activities.run_hook, HookRequest.model_validate({**defaults, **fields}))
    return result


async def test_lost_job_is_not_created_again_by_new_worker(cluster: FakeCluster) -> None:
    """Its time to live expired, or it was deleted, before a worker continued."""
    result = await run_hook(cluster, begun=1)
    assert result.outcome == "failed" and cluster.jobs.created == []


async def test_lost_job_is_not_created_again_after_changed_hook(cluster: FakeCluster) -> None:
    result = await run_hook(cluster, earlier_starts=1)
    assert "its result is unknown" in result.why and cluster.jobs.created == []


async def test_calls_of_killed_worker_count_as_attempts(cluster: FakeCluster) -> None:
    cluster.calls.responses = [CallResult(status=503)] * 9
    result = await run_hook(cluster, begun=2, hook=CALL | {"attempts": 3}, seconds=60)
    assert result.outcome == "failed" and "after 3 attempts" in result.why and len(cluster.calls.received) == 1


async def test_call_without_remaining_time_is_made_once(cluster: FakeCluster) -> None:
    cluster.calls.responses = [CallResult(status=503)] * 9
    result = await run_hook(cluster, hook=CALL, seconds=-100)
    assert result.outcome == "timed out" and len(cluster.calls.received) == 1


async def test_hook_leaves_half_of_grace_period_to_drain(cluster: FakeCluster) -> None:
    ends = datetime.now(UTC) + timedelta(minutes=10)
    cluster.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP] = ends.isoformat()
    running = await run_hook(cluster, seconds=0.1)
    assert running == HookResult(outcome="timed out", why="it is not over", grace_ends=ends)
    ends = datetime.now(UTC) + timedelta(seconds=-1)
    cluster.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP] = ends.isoformat()
    late = await run_hook(cluster, seconds=3600, since=datetime.now(UTC) - timedelta(minutes=1))
    assert late.outcome == "timed out" and late.grace_ends == ends


async def test_deferred_deletion_only_taints_node(cluster: FakeCluster) -> None:
    cluster.nodes.join("node-a", REF.provider_id)
    assert (await run_hook(cluster, hook=CALL, defers_deletion=True)).outcome == "succeeded"
    assert not cluster.claims.found["a"]["metadata"].get("deletionTimestamp")
    assert cluster.nodes.found["node-a"].being_disrupted


async def test_node_of_another_instance_is_not_tainted(cluster: FakeCluster) -> None:
    cluster.nodes.join("node-a", "aws:///us-west-2a/i-another")
    await run_hook(cluster, hook=CALL)
    assert not cluster.nodes.found["node-a"].being_disrupted


def test_grace_end_counts_from_deletion_unless_annotated(cluster: FakeCluster) -> None:
    claim = cluster.claims.add("b", terminationGracePeriod="1h")
    assert grace_end(claim) is None
    cluster.claims.set_status("b", deleting=True)
    deleting = cluster.claims._read("b")
    assert deleting.metadata.deletion_timestamp is not None
    assert grace_end(deleting) == deleting.metadata.deletion_timestamp + timedelta(hours=1)
