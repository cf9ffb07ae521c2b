"""Blocked drains: status with numbers, escalation, cancellation, unresponsive kubelets and surge restarts."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.nodeclaim.drain import DrainActivities, is_status_due
from tenure.apis.labels import NODECLAIM_TERMINATION_TIMESTAMP
from tenure.apis.lifecyclepolicy import DrainRules
from tenure.model.disruption.drain import DrainStatus, EvictionBlocker, Prospect
from tenure.model.errors import BadInput, Forbidden, Throttled, TryLater
from tenure.model.nodeclaim.requests import CancelDrainRequest, DrainRequest, DrainResult
from tests.support.fakes.kubernetes import condition_statuses
from tests.unit.activities.builders import REF, FakeCluster, run_activity
from tests.unit.activities.nodeclaim.test_drain import AT_ONCE, delete_nodeclaim

BEGAN = datetime.now(UTC) - timedelta(seconds=1)
BUDGET_MESSAGE = "the disruption budget web needs 2 healthy pods"
SURGE = DrainRules.model_validate({"surgeSingleReplicas": True})


def add_blocked_node(cluster: FakeCluster) -> None:
    """Add a node that is not deleted, with a pod that a budget blocks."""
    cluster.add_running_node()
    cluster.pods.add("node-a", "web")
    cluster.pods.blocked["web"] = BUDGET_MESSAGE


async def drain(cluster: FakeCluster, known: DrainStatus | None = None, **fields: Any) -> DrainResult:
    blockers = {"known_blockers": known.status_line} if known else {}
    request = DrainRequest(claim=REF, began=BEGAN, known=known, **{**blockers, **fields})
    return await run_activity(cluster.draining.drain_node, request)


def add_blocked_pods(cluster: FakeCluster, *names: str, **fields: Any) -> None:
    """Add pods behind a PodDisruptionBudget without allowed disruptions."""
    delete_nodeclaim(cluster)
    cluster.budgets.add("web", min_available="2", expected=2, desired=2, current=2)
    for name in names or ("web",):
        cluster.pods.add("node-a", name, labels={"app": "web"}, owner_kind="ReplicaSet", owner_name="web-5", **fields)
        cluster.pods.blocked[name] = BUDGET_MESSAGE


async def drain_status(cluster: FakeCluster, **fields: Any) -> tuple[DrainResult, DrainStatus]:
    result = await drain(cluster, **fields)
    assert result.outcome == "waiting" and result.status is not None
    return result, result.status


async def test_status_names_pod_owner_budget_counts_and_remedy(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    result, found = await drain_status(cluster)
    (blocker,) = found.eviction_blockers
    assert blocker.owner == "ReplicaSet web-5" and blocker.passes == "never"
    assert "default/web: minAvailable 2, 2 of 2 pods healthy, 2 needed, 0 disruptions allowed" in blocker.what
    assert "will not clear on its own: it needs all 2 pods" in cluster.claims.condition_message("a", "Drained")
    assert result.blockers == blocker.summary and cluster.events.reasons_for("a") == ["FailedDraining"]


async def test_drain_that_waits_for_nothing_publishes_no_event(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last pod left soon after the taint. It waits for no volume."""
    monkeypatch.setattr("activities.nodeclaim.drain_pass.MIN_DRAIN", 60.0)
    cluster.add_running_node()
    _, found = await drain_status(cluster, known=status_with("a budget"), poll_timeout=0)
    assert found.pods == 0 and found.eviction_blockers == () and cluster.events.reasons_for("a") == []


def status_with(what: str, passes: Prospect = "can") -> DrainStatus:
    return DrainStatus(
        eviction_blockers=(EvictionBlocker(subject="default/web", cause="budget", what=what, passes=passes),)
    )


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        pytest.param(None, 3, id="first blocker"),
        pytest.param(status_with("1 of 2 pods healthy"), 6, id="another code"),
        pytest.param(status_with("1 of 2 pods healthy", "never"), 30, id="another message"),
    ],
)
def test_blocker_is_reported_after_its_minimum_duration(
    known: DrainStatus | None, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain.MIN_BLOCKED_SECONDS", 3.0)
    request, status = DrainRequest(claim=REF, began=BEGAN, known=known), status_with("2 of 2 pods healthy", "never")
    assert not is_status_due(request, status, seconds - 1, timeout=300)
    assert is_status_due(request, status, seconds, timeout=300)


async def test_blocked_since_survives_activity(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    _, first = await drain_status(cluster)
    await asyncio.sleep(0.01)
    _, second = await drain_status(cluster, known=first, poll_timeout=0)
    assert (
        second.eviction_blockers[0].since == first.eviction_blockers[0].since
        and second.blocked_since == first.blocked_since
    )


async def test_one_rejection_counts_for_all_pods_of_budget(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster, *(f"web-{number}" for number in range(7)))
    tried: list[str] = []
    evict = cluster.pods.evict

    async def recording_evict(pod: Any) -> Any:
        tried.append(pod.name)
        return await evict(pod)

    cluster.pods.evict = recording_evict  # type: ignore[method-assign]
    _, found = await drain_status(cluster)
    assert tried == ["web-0"] and (len(found.eviction_blockers), found.unnamed_blockers, found.pods) == (5, 2, 7)


async def test_unreadable_budgets_keep_api_server_message(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    cluster.budgets.faults["in_namespace"] = [Forbidden("no") for _ in range(9)]
    result, _ = await drain_status(cluster)
    assert BUDGET_MESSAGE in result.blockers


async def test_rejected_eviction_does_not_affect_other_pods(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "odd")
    cluster.pods.add("node-a", "web")
    cluster.pods.faults["evict"] = [BadInput("denied by webhook x")]
    result, found = await drain_status(cluster, poll_timeout=0)
    assert "denied by webhook x" in result.blockers and found.eviction_blockers[0].cause == "refused"
    assert cluster.pods.evicted == ["web"]


async def test_throttled_eviction_ends_pass(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    cluster.pods.add("node-a", "web")
    cluster.pods.faults["evict"] = [Throttled("slow down")]
    with pytest.raises(Exception, match="slow down"):
        await drain(cluster)


async def test_status_replaces_fault(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    _, found = await drain_status(cluster)
    result, _ = await drain_status(cluster, known=found, known_blockers="503", poll_timeout=60)
    assert result.blockers == found.status_line


async def test_pod_events_distinguish_eviction_and_forced_deletion(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster, grace="1h", since=timedelta(minutes=59))
    cluster.claims.set_status("a")
    cluster.pods.add("node-a", "web")
    cluster.pods.add("node-a", "slow", grace_seconds=600)
    await drain(cluster)
    assert cluster.events.reasons_for("web") == ["Evicted"] and cluster.events.reasons_for("slow") == ["Disrupted"]
    assert ("web", "Evicted", "Evicted pod: Forceful Termination") in cluster.events.published


async def test_fault_during_pass_keeps_events_of_evicted_pods(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    for name in ("web", "api"):
        cluster.pods.add("node-a", name)
    cluster.pods.faults["evict"] = [None, Throttled("slow down")]
    with pytest.raises(Exception, match="slow down"):
        await drain(cluster)
    (evicted,) = cluster.pods.evicted
    assert cluster.events.reasons_for(evicted) == ["Evicted"]


async def test_earlier_deadline_during_drain_applies(cluster: FakeCluster) -> None:
    """Repair or a person writes the annotation while the activity polls the node."""
    add_blocked_pods(cluster)
    stamp = datetime.now(UTC).isoformat()
    annotations = cluster.claims.found["a"]["metadata"]["annotations"]
    _, known = await drain_status(cluster)
    cluster.pods.after_listing = lambda: annotations.update({NODECLAIM_TERMINATION_TIMESTAMP: stamp})
    result = await drain(cluster, known=known, poll_timeout=60)
    assert result.outcome in ("drained", "deadline passed") and cluster.pods.forced == [("web", 1)]


async def test_deadline_is_published_once_with_cached_nodeclaim(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain_pass.REFRESH", 60.0)
    cluster.add_running_node()
    cluster.claims.found["a"]["spec"]["terminationGracePeriod"] = "1h"
    cluster.pods.add("node-a", "web")
    cluster.pods.blocked["web"] = BUDGET_MESSAGE
    await cluster.nodes.delete("node-a", "uid-node-a")
    monkeypatch.setattr("activities.nodeclaim.drain.MIN_BLOCKED_SECONDS", 0.05)
    await drain_status(cluster)
    assert cluster.events.reasons_for("a").count("TerminationGracePeriodExpiring") == 1


async def test_later_deadline_is_ignored(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    annotations = cluster.claims.found["a"]["metadata"]["annotations"]
    soon, later = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 5))
    annotations[NODECLAIM_TERMINATION_TIMESTAMP] = soon.isoformat()
    _, known = await drain_status(cluster)
    annotations[NODECLAIM_TERMINATION_TIMESTAMP] = later.isoformat()
    result, _ = await drain_status(cluster, known=known, poll_timeout=0)
    assert result.deadline == soon


@pytest.mark.parametrize("text", ["soon", "2026-01-01T00:00:00"])
async def test_invalid_deadline_is_reported_and_forces_nothing(cluster: FakeCluster, text: str) -> None:
    add_blocked_pods(cluster)
    cluster.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP] = text
    result, _ = await drain_status(cluster)
    assert result.deadline is None and cluster.pods.forced == []
    assert any("invalid time" in message and text in message for _, _, message in cluster.events.published)


async def test_escalation_deletes_pods_with_their_own_grace_period(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster, grace_seconds=2)
    cluster.pods.add("node-a", "later", grace_seconds=60, group=2)
    began = datetime.now(UTC)
    result, found = await drain_status(cluster, escalate=True, poll_timeout=0)
    assert found.deadline is not None
    assert (found.deadline - began).total_seconds() > 58 and (found.deadline - datetime.now(UTC)).total_seconds() <= 60
    written = cluster.claims.found["a"]["metadata"]["annotations"][NODECLAIM_TERMINATION_TIMESTAMP]
    assert datetime.fromisoformat(written) == found.deadline
    second, _ = await drain_status(cluster, escalate=True, known=found, known_blockers=result.blockers, poll_timeout=0)
    assert second.deadline == found.deadline
    least = 58 - (datetime.now(UTC) - began).total_seconds()
    assert all(name == "later" and least <= grace <= 60 for name, grace in cluster.pods.forced)


async def test_volume_is_not_awaited_after_escalation(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.policy.drain.decision.ESCALATION_AT_LEAST", timedelta(0))
    delete_nodeclaim(cluster)
    cluster.pods.attach()
    rules = DrainRules.model_validate({"whenBlocked": "escalate", "blockedFor": "1m"})
    result, found = await drain_status(cluster, rules=rules, poll_timeout=0)
    assert found.blocked_since is not None and result.deadline is None
    assert "the instance terminates with its volumes attached" in cluster.claims.condition_message(
        "a", "VolumesDetached"
    )
    assert (await drain(cluster, escalate=True, known=found, poll_timeout=60)).outcome == "deadline passed"
    assert cluster.claims.condition_text("a", "VolumesDetached") == "False TerminationGracePeriodElapsed"


async def test_drain_waits_some_seconds_after_taint(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that has not seen the taint may still bind a pod, which is evicted too."""
    monkeypatch.setattr("activities.nodeclaim.drain_pass.MIN_DRAIN", 1.0)
    delete_nodeclaim(cluster)
    cluster.pods.after_listing = lambda: cluster.pods.add("node-a", "late")
    began = datetime.now(UTC)
    assert (await drain(cluster)).outcome == "drained"
    assert cluster.pods.evicted == ["late"] and datetime.now(UTC) - began >= timedelta(seconds=1)


# --- kubelet and instance ---


async def test_pods_of_unresponsive_kubelet_are_awaited_for_limited_time(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    cluster.nodes.update_node("node-a", ready=False)
    _, found = await drain_status(cluster)
    assert found.not_ready_since and found.not_ready_until == found.not_ready_since + timedelta(minutes=5)
    assert "the node has been NotReady since" in found.status_line
    rules = DrainRules.model_validate({"nodeNotReady": "100ms"})
    result = await drain(cluster, known=found, rules=rules, poll_timeout=60)
    assert result.outcome == "not ready" and not cluster.pods.evicted and not cluster.pods.forced
    assert cluster.claims.condition_text("a", "VolumesDetached") == "False NodeNotReady"


async def test_not_ready_node_is_reported_with_known_blockers(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    _, known = await drain_status(cluster)
    cluster.nodes.update_node("node-a", ready=False)
    result, _ = await drain_status(cluster, known=known, poll_timeout=60)
    assert result.blockers.startswith("the node has been NotReady since") and known.status_line in result.blockers


async def test_recovered_kubelet_resets_not_ready_time(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    cluster.nodes.update_node("node-a", ready=False)
    _, found = await drain_status(cluster)
    cluster.nodes.update_node("node-a", ready=True)
    _, well = await drain_status(cluster, known=found, poll_timeout=0)
    assert well.not_ready_since is None and well.blocked_since == found.blocked_since


@pytest.mark.parametrize("missing", ["the instance", "the Node"])
async def test_missing_node_or_instance_ends_drain_at_once(cluster: FakeCluster, missing: str) -> None:
    add_blocked_pods(cluster)
    _, known = await drain_status(cluster)

    def vanish() -> None:
        if missing == "the Node":
            cluster.nodes.found.clear()
        else:
            cluster.instances.running.clear()
            cluster.nodes.update_node("node-a", ready=False)

    cluster.pods.after_listing = vanish
    result = await drain(cluster, known=known, poll_timeout=60)
    assert (
        result == DrainResult(outcome="drained", evicted_pods=("default/web",), rescheduled_pods=1)
        and cluster.pods.evicted == []
    )


async def test_missing_nodeclaim_does_not_stop_drain(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    _, known = await drain_status(cluster)

    def vanish() -> None:
        cluster.claims.found.clear()
        cluster.pods.blocked.clear()

    cluster.pods.after_listing = vanish
    result = await drain(cluster, known=known, poll_timeout=60)
    assert result.outcome == "drained" and cluster.pods.evicted == ["web"]


# --- drains that can be cancelled ---


async def test_deferred_deletion_happens_after_pods_are_gone(cluster: FakeCluster) -> None:
    add_blocked_node(cluster)
    result, _ = await drain_status(cluster, defers_deletion=True)
    claim = cluster.claims.found["a"]["metadata"]
    assert result.defers_deletion and cluster.is_disrupted()
    assert "deletionTimestamp" not in claim and not cluster.nodes.found["node-a"].deleting
    cluster.pods.blocked.clear()
    assert (await drain(cluster, defers_deletion=True)).outcome == "drained"
    assert "deletionTimestamp" in claim and cluster.nodes.found["node-a"].deleting


@pytest.mark.parametrize("deleted", ["NodeClaim", "Node"])
async def test_manual_deletion_ends_deferral(cluster: FakeCluster, deleted: str) -> None:
    add_blocked_node(cluster)
    rules = DrainRules.model_validate({"whenBlocked": "giveUp", "blockedFor": "2h"})
    _, known = await drain_status(cluster, defers_deletion=True, rules=rules)
    assert "is cancelled at" in known.follows
    await (
        cluster.claims.delete("a", "uid-a") if deleted == "NodeClaim" else cluster.nodes.delete("node-a", "uid-node-a")
    )
    result, found = await drain_status(cluster, defers_deletion=True, rules=rules, known=known, poll_timeout=0)
    assert not result.defers_deletion and "can no longer be cancelled" in found.follows
    assert "deletionTimestamp" in cluster.claims.found["a"]["metadata"] and cluster.nodes.found["node-a"].deleting
    assert not await run_activity(cluster.draining.uncordon_node, CancelDrainRequest(claim=REF, why="held"))


async def test_cancelled_drain_restores_node_and_keeps_reason(cluster: FakeCluster) -> None:
    """The next drain has its own deadline."""
    add_blocked_node(cluster)
    await drain_status(cluster, defers_deletion=True, escalate=True)
    assert NODECLAIM_TERMINATION_TIMESTAMP in cluster.claims.found["a"]["metadata"]["annotations"]
    assert await run_activity(
        cluster.draining.uncordon_node, CancelDrainRequest(claim=REF, why="default/web: a budget")
    )
    assert not cluster.is_disrupted() and cluster.claims.condition_text("a", "Drained") == "False GaveUp"
    assert cluster.claims.condition_message("a", "Drained") == "default/web: a budget"
    assert NODECLAIM_TERMINATION_TIMESTAMP not in cluster.claims.found["a"]["metadata"]["annotations"]
    assert condition_statuses(cluster.nodes.found["node-a"]) == {}
    assert "DrainGivenUp" in cluster.events.reasons_for("a")


# --- single replicas ---


def add_single_replica(cluster: FakeCluster, **rollout: Any) -> None:
    delete_nodeclaim(cluster)
    add_replica(cluster)
    cluster.rollouts.add("web", **rollout)


def add_replica(cluster: FakeCluster, **fields: Any) -> None:
    cluster.pods.add("node-a", "web", owner_kind="ReplicaSet", owner_name="web-5", **fields)


async def test_single_replica_is_restarted_once_instead_of_evicted(cluster: FakeCluster) -> None:
    add_single_replica(cluster)
    result, known = await drain_status(cluster, rules=SURGE)
    assert "is evicted when the new pod of Deployment web" in result.blockers and known.blocked_since is None
    _, known = await drain_status(cluster, rules=SURGE, known=known, poll_timeout=0)
    assert cluster.rollouts.restarts == [BEGAN.isoformat().replace("+00:00", "Z")] and cluster.pods.evicted == []
    cluster.pods.after_listing = cluster.pods.by_node.clear
    assert (await drain(cluster, rules=SURGE, known=known, poll_timeout=60)).outcome == "drained"
    assert cluster.pods.evicted == [] and "SurgeStarted" in cluster.events.reasons_for("web")


async def test_slow_surge_ends_with_eviction(cluster: FakeCluster) -> None:
    add_single_replica(cluster)
    _, known = await drain_status(cluster, rules=SURGE)
    old = known.eviction_blockers[0].model_copy(update={"since": datetime.now(UTC) - timedelta(minutes=10)})
    known = known.model_copy(update={"eviction_blockers": (old,)})
    assert (await drain(cluster, rules=SURGE, known=known)).outcome == "drained"
    assert cluster.pods.evicted == ["web"] and len(cluster.rollouts.restarts) == 1


async def test_surge_of_a_pod_that_must_stay_ready_takes_longer(cluster: FakeCluster) -> None:
    add_single_replica(cluster, min_ready_seconds=600)
    _, known = await drain_status(cluster, rules=SURGE)
    since = datetime.now(UTC) - timedelta(minutes=19)
    old = known.eviction_blockers[0].model_copy(update={"since": since})
    known = known.model_copy(update={"eviction_blockers": (old,)})
    result, known = await drain_status(cluster, rules=SURGE, known=known, poll_timeout=0)
    assert result.outcome == "waiting" and cluster.pods.evicted == []
    assert known.eviction_blockers[0].passes_at == since + timedelta(minutes=20)


@pytest.mark.parametrize(
    ("rollout", "rules"), [({}, None), ({}, DrainRules()), ({"replicas": 2}, SURGE), ({"surges": False}, SURGE)]
)
async def test_other_pods_are_evicted_without_restart(
    cluster: FakeCluster, rollout: dict[str, Any], rules: DrainRules | None
) -> None:
    add_single_replica(cluster, **rollout)
    assert (await drain(cluster, rules=rules)).outcome == "drained"
    assert cluster.pods.evicted == ["web"] and cluster.rollouts.restarts == []


async def test_no_deployment_is_read_while_surges_are_disabled(cluster: FakeCluster) -> None:
    add_single_replica(cluster)
    cluster.rollouts.faults["find_for_pod"] = [Forbidden("deployments.apps is forbidden")]
    cluster.draining = DrainActivities(cluster.build_ports(cluster.workflows, surges=False))
    assert (await drain(cluster, rules=SURGE)).outcome == "drained"
    assert cluster.events.reasons_for("web") == ["Evicted"]


async def test_unready_pod_causes_no_restart(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    add_replica(cluster, ready=False)
    cluster.rollouts.add("web")
    await drain(cluster, rules=SURGE)
    assert cluster.pods.evicted == ["web"] and cluster.rollouts.restarts == []


async def test_pod_not_ready_because_of_node_is_restarted_when_ready(cluster: FakeCluster) -> None:
    delete_nodeclaim(cluster)
    add_replica(cluster, ready=False, controller_set_not_ready=True)
    cluster.rollouts.add("web")
    result, known = await drain_status(cluster, rules=SURGE)
    assert "is evicted when the new pod of Deployment web" in result.blockers
    assert cluster.pods.evicted == [] and cluster.rollouts.restarts == []
    cluster.pods.by_node.clear()
    add_replica(cluster)
    await drain_status(cluster, rules=SURGE, known=known, poll_timeout=0)
    assert cluster.pods.evicted == [] and len(cluster.rollouts.restarts) == 1


async def test_failed_restart_is_reported_and_pod_evicted(cluster: FakeCluster) -> None:
    add_single_replica(cluster)
    cluster.rollouts.faults["restart_deployment"] = [Forbidden("deployments.apps is forbidden")]
    assert (await drain(cluster, rules=SURGE)).outcome == "drained"
    assert cluster.pods.evicted == ["web"] and cluster.events.reasons_for("web") == ["SurgeFailed", "Evicted"]


async def test_failed_passes_leave_status_to_next_attempt(cluster: FakeCluster) -> None:
    add_blocked_pods(cluster)
    cluster.pods.faults["on_node"] = [TryLater("503")]
    with pytest.raises(Exception, match="503"):
        await run_activity(cluster.draining.drain_node, AT_ONCE)
    await drain_status(cluster)
