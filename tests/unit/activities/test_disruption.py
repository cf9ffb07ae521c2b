"""Deletion of a NodeClaim after a final check, without partial results."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis.labels import DISRUPTION_REASON, DO_NOT_DISRUPT, NEEDS_ATTENTION, NODECLAIM_TERMINATION_TIMESTAMP
from tenure.model.errors import BadInput, Forbidden, TryLater
from tenure.model.nodeclaim.requests import NodeClaimDisruptionRequest, ReportRequest
from tests.unit.activities.builders import REF, FakeCluster, run_activity

EMPTY = NodeClaimDisruptionRequest(claim=REF, reason="Empty")
EXPIRED = NodeClaimDisruptionRequest(claim=REF, reason="Expired", voluntary=False)


async def test_empty_node_is_tainted_and_its_nodeclaim_deleted(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "deleting"
    assert cluster.is_disrupted()
    assert "deletionTimestamp" in cluster.claims.found["a"]["metadata"]
    assert cluster.claims.condition_text("a", "DisruptionReason") == "True Empty"


@pytest.mark.parametrize("annotated", [False, True], ids=["new pod", "do-not-disrupt"])
async def test_blocked_node_stays_in_service(cluster: FakeCluster, annotated: bool) -> None:
    cluster.add_running_node()
    if annotated:
        cluster.nodes.update_node("node-a", annotations={DO_NOT_DISRUPT: "true"})
    else:
        cluster.pods.add("node-a", "web")
    result = await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)
    why = f"Node node-a is annotated {DO_NOT_DISRUPT}" if annotated else "not empty: default/web"
    assert (result.outcome, result.why) == ("not now", why)
    assert not cluster.is_disrupted() and "deletionTimestamp" not in cluster.claims.found["a"]["metadata"]


async def test_non_reschedulable_pods_do_not_block_deletion(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.pods.add("node-a", "daemon", reschedulable=False)
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "deleting"


@pytest.mark.parametrize(
    ("budgets", "blocker"),
    [
        ([{"allowed": 1}], ""),
        ([{"allowed": 0}], "pod default/daemon: PodDisruptionBudget default/b0 allows no disruption now"),
        ([{"allowed": 0, "always_allow_unhealthy": True}], ""),
        ([{"allowed": 1}, {"allowed": 1}], "more than one PodDisruptionBudget selects pod default/daemon: b0, b1"),
        ([{"allowed": 0, "namespace": "other"}], ""),
    ],
)
async def test_budget_of_a_daemonset_keeps_an_empty_node(
    cluster: FakeCluster, budgets: list[dict[str, Any]], blocker: str
) -> None:
    cluster.add_running_node()
    cluster.pods.add("node-a", "daemon", reschedulable=False, ready=False)
    for number, fields in enumerate(budgets):
        cluster.budgets.add(f"b{number}", **fields)
    result = await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)
    assert (result.outcome, result.why) == (("not now", blocker) if blocker else ("deleting", ""))
    assert cluster.is_disrupted() is (not blocker)


async def test_involuntary_disruption_ignores_pods_and_annotations(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.pods.add("node-a", "web")
    cluster.nodes.update_node("node-a", annotations={DO_NOT_DISRUPT: "true"})
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EXPIRED)).outcome == "deleting"


@pytest.mark.parametrize("disruption_request", [EMPTY, EXPIRED])
async def test_deferred_deletion_taints_node_and_keeps_nodeclaim(
    cluster: FakeCluster, disruption_request: NodeClaimDisruptionRequest
) -> None:
    cluster.add_running_node()
    deferring_request = disruption_request.model_copy(update={"defers_deletion": True})
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, deferring_request)).outcome == "deleting"
    assert cluster.is_disrupted() and "deletionTimestamp" not in cluster.claims.found["a"]["metadata"]
    assert cluster.claims.condition_text("a", "DisruptionReason") == f"True {disruption_request.reason}"


async def test_missing_or_recreated_nodeclaim_is_not_deleted(cluster: FakeCluster) -> None:
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "gone"
    cluster.claims.add("a", uid="uid-other")
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "gone"
    assert "deletionTimestamp" not in cluster.claims.found["a"]["metadata"]


async def test_nodeclaim_without_node_is_deleted(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.found.clear()
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "deleting"


@pytest.mark.parametrize("fault", [TryLater("500"), BadInput("422")])
@pytest.mark.parametrize(("port", "call"), [("claims", "patch"), ("claims", "delete"), ("pods", "on_node")])
async def test_failed_deletion_restores_node_and_removes_reason(
    cluster: FakeCluster, port: str, call: str, fault: TryLater | BadInput
) -> None:
    cluster.add_running_node()
    getattr(cluster, port).faults[call] = [fault]
    with pytest.raises(Exception, match=str(fault)):
        await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)
    assert not cluster.is_disrupted() and cluster.claims.condition_text("a", DISRUPTION_REASON) == ""
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "deleting"


async def test_taint_of_killed_attempt_is_removed_from_kept_node(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await cluster.nodes.mark_disrupted("node-a")
    cluster.claims.set_status("a", DisruptionReason="True")
    cluster.pods.add("node-a", "web")
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "not now"
    assert not cluster.is_disrupted() and cluster.claims.condition_text("a", DISRUPTION_REASON) == ""


@pytest.mark.parametrize(("owner", "stays"), [("", False), ("test/disruption/1", True)])
async def test_restore_keeps_taint_of_command(cluster: FakeCluster, owner: str, stays: bool) -> None:
    cluster.add_running_node()
    await cluster.nodes.mark_disrupted("node-a")
    cluster.claims.set_status("a", DisruptionReason="True")
    cluster.claims.found["a"]["status"]["conditions"][-1]["message"] = owner
    await run_activity(cluster.disruption.restore_schedulable, REF)
    assert cluster.is_disrupted() is stays and bool(cluster.claims.condition_text("a", DISRUPTION_REASON)) is stays


async def test_drain_deadline_does_not_outlive_a_stop_for_maintenance(cluster: FakeCluster) -> None:
    """The drain before the stop may have been escalated."""
    cluster.add_running_node()
    annotations = cluster.claims.found["a"]["metadata"]["annotations"]
    annotations[NODECLAIM_TERMINATION_TIMESTAMP] = datetime.now(UTC).isoformat()
    await run_activity(cluster.disruption.restore_schedulable, REF)
    assert NODECLAIM_TERMINATION_TIMESTAMP not in cluster.claims.found["a"]["metadata"]["annotations"]


async def test_restore_keeps_taint_of_deleting_node(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)
    await run_activity(cluster.disruption.restore_schedulable, REF)
    assert cluster.is_disrupted()


async def test_repeated_deletion_changes_nothing(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)
    cluster.pods.add("node-a", "late")
    assert (await run_activity(cluster.disruption.disrupt_nodeclaim, EMPTY)).outcome == "deleting"


async def test_report_writes_condition_and_event(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    report = ReportRequest(
        claim=REF, condition="Initialized", reason="NodeNotReady", message="no kubelet", event="Overdue"
    )
    await run_activity(cluster.disruption.publish_event, report)
    assert cluster.claims.condition_text("a", "Initialized") == "Unknown NodeNotReady"
    assert cluster.events.published == [("a", "Overdue", "no kubelet")]


async def test_report_on_node_sets_its_condition_and_publishes_its_event(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    report = ReportRequest(
        claim=REF, condition=NEEDS_ATTENTION, status="True", reason="PodDoNotDisrupt", event="E", on_node=True
    )
    await run_activity(cluster.disruption.publish_event, report)
    assert node_conditions(cluster) == {NEEDS_ATTENTION: "True"}
    assert [name for name, *_ in cluster.events.published] == ["a", "node-a"]
    await run_activity(cluster.disruption.publish_event, report.model_copy(update={"status": ""}))
    assert node_conditions(cluster) == {}


async def test_report_on_node_ignores_node_of_another_instance(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.update_node("node-a", provider_id="aws:///us-west-2a/i-other")
    report = ReportRequest(claim=REF, condition=NEEDS_ATTENTION, status="True", event="E", on_node=True)
    await run_activity(cluster.disruption.publish_event, report)
    assert node_conditions(cluster) == {}
    assert [name for name, *_ in cluster.events.published] == ["a"]


async def test_denied_node_condition_does_not_prevent_events(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    cluster.nodes.faults["set_condition"] = [Forbidden("nodes/status")]
    report = ReportRequest(claim=REF, condition=NEEDS_ATTENTION, status="True", event="E", on_node=True)
    await run_activity(cluster.disruption.publish_event, report)
    assert [name for name, *_ in cluster.events.published] == ["a", "node-a"]


def node_conditions(cluster: FakeCluster) -> dict[str, str]:
    return {one.type: one.status for one in cluster.nodes.found["node-a"].conditions}


async def test_report_may_have_condition_or_event_only(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await run_activity(
        cluster.disruption.publish_event, ReportRequest(claim=REF, event="LaunchTimeout", message="late")
    )
    await run_activity(
        cluster.disruption.publish_event, ReportRequest(claim=REF, condition="Initialized", reason="Waiting")
    )
    assert cluster.events.reasons_for("a") == ["LaunchTimeout"]
    assert cluster.claims.condition_text("a", "Initialized") == "Unknown Waiting"


async def test_immediate_disruption_sets_termination_timestamp_before_deletion(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await run_activity(cluster.disruption.disrupt_nodeclaim, EXPIRED.model_copy(update={"at_once": True}))
    metadata = cluster.claims.found["a"]["metadata"]
    stamped = datetime.fromisoformat(metadata["annotations"][NODECLAIM_TERMINATION_TIMESTAMP])
    assert "deletionTimestamp" in metadata and datetime.now(UTC) - stamped < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("written", "sooner"), [("an hour ago", True), ("in an hour", False), ("soon", False), ("2026-01-01T00:00", False)]
)
async def test_earlier_termination_timestamp_is_kept(cluster: FakeCluster, written: str, sooner: bool) -> None:
    """A value that is not a time with a time zone is replaced."""
    cluster.add_running_node()
    hours = {"an hour ago": -1, "in an hour": 1}.get(written)
    written = (datetime.now(UTC) + timedelta(hours=hours)).isoformat() if hours else written
    annotations = cluster.claims.found["a"]["metadata"]["annotations"]
    annotations[NODECLAIM_TERMINATION_TIMESTAMP] = written
    await run_activity(cluster.disruption.disrupt_nodeclaim, EXPIRED.model_copy(update={"at_once": True}))
    assert (annotations[NODECLAIM_TERMINATION_TIMESTAMP] == written) is sooner


async def test_involuntary_disruption_keeps_grace_period(cluster: FakeCluster) -> None:
    cluster.add_running_node()
    await run_activity(cluster.disruption.disrupt_nodeclaim, EXPIRED)
    assert NODECLAIM_TERMINATION_TIMESTAMP not in cluster.claims.found["a"]["metadata"]["annotations"]
