"""Drain: pods are evicted by group, blockers are named, and the termination grace period is kept."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from temporalio.common import MetricMeter
from temporalio.testing import ActivityEnvironment

from activities.nodeclaim.eviction import EvictionQueue
from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP
from tenure.model.errors import Forbidden, TryLater
from tenure.model.nodeclaim.requests import DrainRequest, DrainResult
from tests.support.fakes.kubernetes import condition_statuses
from tests.unit.activities.builders import REF, FakeCluster, run_activity
from tests.unit.workflows.meters import FakeMeter

REQUEST = DrainRequest(claim=REF)
AT_ONCE = DrainRequest(claim=REF, poll_timeout=0)
PDB = "PodDisruptionBudget web: 0 disruptions allowed"


async def drain(cluster: FakeCluster, request: DrainRequest = REQUEST) -> DrainResult:
    return await run_activity(cluster.draining.drain_node, request)


def delete_nodeclaim(cluster: FakeCluster, *, grace: str | None = None, since: timedelta = timedelta(0)) -> None:
    """Add a NodeClaim that was deleted some time ago."""
    cluster.add_running_node()
    claim = cluster.claims.found["a"]
    claim["metadata"]["deletionTimestamp"] = (datetime.now(UTC) - since).isoformat()
    if grace:
        claim["spec"]["terminationGracePeriod"] = grace


async def test_pods_are_evicted_and_node_is_drained(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "web")
    assert (await drain(cluster)).outcome == "drained"
    assert cluster.pods.evicted == ["web"]
    assert cluster.is_disrupted() and cluster.nodes.found["node-a"].deleting
    assert cluster.claims.condition_text("a", "Drained").startswith("True")
    assert condition_statuses(cluster.nodes.found["node-a"]) == {"DrainInProgress": "False", "Drained": "True"}


async def test_each_group_is_gone_before_next_is_evicted(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    for group, name in enumerate(("web", "daemon", "critical", "critical-daemon")):
        cluster.pods.add("node-a", name, group=group)
    cluster.pods.add("node-a", "second", group=0)
    await drain(cluster)
    assert cluster.pods.evicted == ["web", "second", "daemon", "critical", "critical-daemon"]


async def test_later_groups_stay_while_first_is_blocked(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "web")
    cluster.pods.add("node-a", "daemon", group=1)
    cluster.pods.blocked["web"] = PDB
    result = await drain(cluster)
    assert (result.outcome, result.blockers, result.pods) == ("waiting", f"default/web: {PDB}", 2)
    assert cluster.pods.evicted == []
    assert cluster.claims.condition_text("a", "Drained") == "Unknown Draining"
    assert condition_statuses(cluster.nodes.found["node-a"]) == {"DrainInProgress": "True"}
    assert cluster.events.reasons_for("a") == cluster.events.reasons_for("node-a") == ["FailedDraining"]
    assert all(f"default/web: {PDB}" in message for _, _, message in cluster.events.published)


async def test_activity_waits_while_blockers_are_unchanged(cluster: FakeCluster) -> None:
    """The history of the workflow does not grow, and the pod is evicted as soon as the budget allows it."""
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "web")
    cluster.pods.blocked["web"] = PDB
    known = DrainRequest(claim=REF, known_blockers=f"default/web: {PDB}", poll_timeout=60)
    cluster.pods.after_listing = cluster.pods.blocked.clear
    assert (await drain(cluster, known)).outcome == "drained"


async def test_poll_timeout_ends_activity(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "web")
    cluster.pods.blocked["web"] = PDB
    known = DrainRequest(claim=REF, known_blockers=f"default/web: {PDB}", poll_timeout=0.02)
    assert (await drain(cluster, known)).outcome == "waiting"


async def test_unevictable_pod_is_reported_with_reason(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "job", evictable=False, why_not="annotated do-not-disrupt")
    result = await drain(cluster)
    assert result.blockers == "default/job: annotated do-not-disrupt"


async def test_pods_without_wait_do_not_block_drain(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "mirror", waits=False)
    assert (await drain(cluster)).outcome == "drained"
    assert cluster.pods.evicted == []


async def test_attached_volume_blocks_drain_and_is_named(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.attach(claim="default/data")
    result = await drain(cluster)
    expected = "ebs.csi.aws.com has not detached PersistentVolume pvc-1 of PersistentVolumeClaim default/data"
    assert result.outcome == "waiting"
    assert result.blockers == f"VolumeAttachment csi-1: {expected} from NodeClaim a"
    assert cluster.claims.condition_text("a", "Drained").startswith("True")
    assert cluster.claims.condition_text("a", "VolumesDetached") == "Unknown AwaitingVolumeDetachment"
    assert cluster.events.reasons_for("node-a") == ["AwaitingVolumeDetachment"]


async def test_drain_continues_if_role_may_not_set_node_conditions(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "web")
    cluster.nodes.faults["set_conditions"] = [Forbidden("nodes/status")] * 9
    assert (await drain(cluster)).outcome == "drained"
    assert condition_statuses(cluster.nodes.found["node-a"]) == {}


async def test_missing_node_is_drained(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.nodes.found.clear()
    assert await drain(cluster) == DrainResult(outcome="drained")


async def test_deleted_node_deletes_its_nodeclaim(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await drain(cluster)
    assert "deletionTimestamp" in cluster.claims.found["a"]["metadata"]


async def test_recreated_nodeclaim_is_not_deleted(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.claims.add("a", uid="uid-other")
    assert (await drain(cluster)).outcome == "drained"
    assert "deletionTimestamp" not in cluster.claims.found["a"]["metadata"]


async def test_no_pod_is_forced_without_grace_period(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster, since=timedelta(days=3))
    cluster.pods.add("node-a", "web")
    cluster.pods.blocked["web"] = PDB
    result = await drain(cluster, AT_ONCE)
    assert result.outcome == "waiting" and result.deadline is None and cluster.pods.forced == []


async def test_deadline_is_written_once_and_kept(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster, grace="2h", since=timedelta(minutes=30))
    cluster.pods.add("node-a", "web")
    cluster.pods.blocked["web"] = PDB
    first = await drain(cluster, AT_ONCE)
    written = cluster.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP]
    assert first.deadline == datetime.fromisoformat(written)
    cluster.claims.found["a"]["metadata"]["deletionTimestamp"] = datetime.now(UTC).isoformat()
    second = await drain(cluster, AT_ONCE)
    assert second.deadline == first.deadline
    assert cluster.events.reasons_for("a").count("TerminationGracePeriodExpiring") == 1


@pytest.mark.parametrize(("grace_seconds", "forced"), [(30, []), (90, ["web"])])
async def test_pod_is_forced_only_when_its_grace_period_exceeds_deadline(
    cluster: FakeCluster, grace_seconds: int, forced: list[str]
) -> None:
    """60 s remain: a pod with a grace period of 90 s is deleted now; one with 30 s still has time."""
    delete_nodeclaim(cluster, grace="1h", since=timedelta(minutes=59))
    cluster.pods.add("node-a", "web", grace_seconds=grace_seconds, group=3)
    cluster.pods.blocked["web"] = PDB
    await drain(cluster, AT_ONCE)
    assert [name for name, _ in cluster.pods.forced] == forced
    assert all(50 <= seconds <= 60 for _, seconds in cluster.pods.forced)


async def test_pods_after_deadline_are_forced_with_minimum_grace(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster, grace="1m", since=timedelta(minutes=5))
    cluster.pods.add("node-a", "web")
    cluster.pods.blocked["web"] = PDB
    await drain(cluster)
    assert cluster.pods.forced == [("web", 1)]


async def test_rejected_deletion_of_one_pod_stops_no_other_pod_and_no_deadline(cluster: FakeCluster) -> None:
    """60 s remain. An admission webhook rejects the deletion of `odd`, whose grace period is longer."""
    delete_nodeclaim(cluster, grace="1h", since=timedelta(minutes=59))
    cluster.pods.add("node-a", "odd", grace_seconds=90)
    cluster.pods.add("node-a", "web")
    cluster.pods.faults["force_delete"] = [Forbidden("admission webhook denied the request")] * 99
    result = await drain(cluster, AT_ONCE)
    assert result.outcome == "waiting" and "admission webhook" in result.blockers
    assert cluster.pods.evicted == ["web"]
    assert cluster.events.reasons_for("odd").count("Disrupted") == 1
    delete_nodeclaim(cluster, grace="1m", since=timedelta(minutes=5))
    assert (await drain(cluster)).outcome == "deadline passed"


async def test_volume_after_deadline_is_not_awaited(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster, grace="1m", since=timedelta(minutes=5))
    cluster.pods.attach()
    assert (await drain(cluster)).outcome == "deadline passed"
    assert cluster.claims.condition_text("a", "VolumesDetached") == "False TerminationGracePeriodElapsed"


# --- blocked drains ---


async def blocked_request(
    cluster: FakeCluster, *, progress: timedelta = timedelta(hours=2), **fields: Any
) -> DrainRequest:
    """The request after a drain of a protected pod has published its blocker. The last pod left `progress` ago."""
    delete_nodeclaim(cluster)
    protection = {"evictable": False, "protected": True, "why_not": "annotation do-not-disrupt"}
    cluster.pods.add("node-a", "web", **{**protection, **fields})
    status = (await drain(cluster, AT_ONCE)).status
    assert status is not None
    known = status.model_copy(update={"progress": datetime.now(UTC) - progress})
    return DrainRequest(claim=REF, known=known, known_blockers=known.status_line, poll_timeout=60)


async def test_activity_ends_without_heartbeat_if_only_known_blockers_are_left(cluster: FakeCluster) -> None:
    request = await blocked_request(cluster)
    environment, beats = ActivityEnvironment(), list[object]()
    environment.on_heartbeat = lambda *details: beats.append(details)
    result = await environment.run(cluster.draining.drain_node, request)
    assert (result.outcome, result.is_waiting, result.next_change_at, beats) == ("waiting", True, None, [])


async def test_next_change_is_the_end_of_a_protection(cluster: FakeCluster) -> None:
    ends_at = datetime.now(UTC) + timedelta(hours=2)
    request = await blocked_request(cluster, protected_until=ends_at)
    assert (await drain(cluster, request)).next_change_at == ends_at


@pytest.mark.parametrize(
    ("changes", "progress"),
    [
        pytest.param({}, timedelta(seconds=1), id="a pod just left"),
        pytest.param({"known_blockers": "503"}, timedelta(hours=2), id="a fault replaced the status"),
        pytest.param({"known": None}, timedelta(hours=2), id="nothing is published"),
    ],
)
async def test_activity_polls_while_the_drain_may_continue_soon(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], progress: timedelta
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain.MIN_BLOCKED_SECONDS", 60.0)
    request = (await blocked_request(cluster, progress=progress)).model_copy(update=changes)
    cluster.pods.after_listing = cluster.pods.by_node.clear
    assert (await drain(cluster, request)).outcome == "drained"


async def test_activity_polls_if_the_nodeclaim_is_gone(cluster: FakeCluster) -> None:
    request = await blocked_request(cluster)
    cluster.claims.found.clear()
    cluster.pods.after_listing = cluster.pods.by_node.clear
    assert (await drain(cluster, request)).outcome == "drained"


async def test_activity_polls_while_a_pod_terminates(cluster: FakeCluster) -> None:
    request = await blocked_request(cluster)
    cluster.pods.add("node-a", "leaving", evictable=False, deletion=datetime.now(UTC) + timedelta(seconds=20))
    cluster.pods.after_listing = cluster.pods.by_node.clear
    assert (await drain(cluster, request)).outcome == "drained"


async def test_eviction_requests_are_counted_by_http_status(cluster: FakeCluster) -> None:
    meter = FakeMeter()
    for name in ("refused", "failing", "unanswered", "blocked", "web"):
        cluster.pods.add("node-a", name)
    cluster.pods.blocked["blocked"] = PDB
    no_response = TryLater("timed out", is_unreachable=True)
    cluster.pods.faults["evict"] = [Forbidden("webhook", status=403), TryLater("etcd", status=500), no_response]
    queue = EvictionQueue(cluster.made, REQUEST, "Empty", cast(MetricMeter, meter))
    pods = await cluster.pods.on_node("node-a", now=datetime.now(UTC))
    await queue.evict(pods, deadline=None, known=None, now=datetime.now(UTC))
    name = "karpenter_pods_eviction_requests_total"
    counts = {code: meter.counted[name, ("code", code)] for code in ("200", "403", "429", "500")}
    assert counts == dict.fromkeys(counts, 1) and meter.counted.total() == 5, "with one drained pod"
