"""Drains under a LifecyclePolicy: escalation, cancellation, unresponsive kubelets and changed rules."""

from datetime import timedelta
from typing import Any

import pytest

import workflows.activity_options
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.nodeclaim.state import Phase
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    MAX_ATTEMPTS,
    Handle,
    has_continued_as_new,
    is_blocked_by,
    latest_run,
    query_state,
    wait_until,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    delete_nodeclaim,
    is_in_service,
    observe_empty,
    ready_nodeclaim,
    start_nodepool,
)
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

PDB = "PodDisruptionBudget web: 0 disruptions allowed"


def drain_rules(**drain: Any) -> dict[str, Any]:
    """Observation fields with these drain rules."""
    return {"rules": LifecycleRules.model_validate({"drain": drain, "expiry": {"underBudget": True}}).to_object()}


def add_blocked_pod(fake: WorkerHarness, name: str = "web", **fields: Any) -> None:
    fake.pods.add("node-a", name, **fields)
    fake.pods.blocked[name] = PDB


@pytest.fixture
def short_escalation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are deleted half a second after the escalation."""
    monkeypatch.setattr("tenure.policy.drain.decision.ESCALATION_AT_LEAST", timedelta(seconds=0.5))


async def test_drain_status_is_in_workflow_state(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    fake.budgets.add("web", min_available="1", expected=1, desired=1, current=1)
    add_blocked_pod(fake)
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, "1 of 1 pods healthy"))
    drain = (await query_state(handle)).drain
    assert drain is not None and drain.status is not None
    assert drain.status.eviction_blockers[0].passes == "never" and drain.status.blocked_since is not None
    fake.pods.blocked.clear()
    await handle.result()


async def test_changed_drain_rules_apply_at_once(fake: WorkerHarness, short_escalation: None) -> None:
    """Without the change, the activity would wait for minutes."""
    handle = await ready_nodeclaim(fake)
    add_blocked_pod(fake, grace_seconds=0)
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, PDB))
    await fake.signal_observed(handle, **BUSY, deleting=True, **drain_rules(whenBlocked="escalate", blockedFor="200ms"))
    await handle.result()
    assert [name for name, _ in fake.pods.forced] == ["web"] and fake.pods.evicted == []
    assert "TerminationGracePeriodExpiring" in fake.events.reasons_for("a")


async def test_blocked_time_continues_in_new_run(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain.MIN_CHANGED_SECONDS", 0.0)
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 60)
    handle = await ready_nodeclaim(fake)
    add_blocked_pod(fake)
    await delete_nodeclaim(fake, handle, **drain_rules(whenBlocked="escalate", blockedFor="1h"))
    await wait_until(lambda: is_blocked_by(handle, PDB))
    since = (await query_state(handle)).drain
    for number in range(MAX_ATTEMPTS):
        fake.pods.blocked["web"] = f"budget {number}"
        if await has_continued_as_new(fake.client, handle):
            break
        rules = drain_rules(whenBlocked="escalate", blockedFor="1h")
        await fake.signal_observed(handle, **BUSY, deleting=True, drain=f"digest {number}", **rules)
        await fake.sleep(seconds=1)
    assert await has_continued_as_new(fake.client, handle)
    now = (await query_state(latest_run(fake.client, handle))).drain
    assert since and since.status and now and now.status
    assert now.status.blocked_since == since.status.blocked_since
    fake.pods.blocked.clear()
    await latest_run(fake.client, handle).result()
    assert fake.pods.evicted == ["web"]


async def test_blocked_voluntary_drain_is_cancelled_and_permit_released(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    pools = await start_nodepool(fake)
    add_blocked_pod(fake, reschedulable=False)
    await observe_empty(fake, handle, "WhenEmpty/0s", **drain_rules(whenBlocked="giveUp", blockedFor="9h"))
    await wait_until(lambda: is_blocked_by(handle, PDB))
    assert not is_in_service(fake)
    await observe_empty(fake, handle, "WhenEmpty/0s", **drain_rules(whenBlocked="giveUp", blockedFor="200ms"))
    await wait_until(lambda: drain_was_cancelled(handle))
    assert is_in_service(fake) and "deletionTimestamp" not in fake.claims.found["a"]["metadata"]
    assert fake.claims.condition_text("a", "Drained") == "False GaveUp"
    assert fake.claims.condition_text("a", "DisruptionReason") == ""
    state = await query_state(handle)
    assert state.disruption == "" and state.permit is None and PDB in state.blocked_by
    assert (await pools.query(NodePoolWorkflow.state)).permits == ()
    fake.pods.blocked.clear()
    outcome = await handle.result()
    assert outcome.reason == "Empty" and fake.pods.evicted == ["web"] and len(fake.instances.terminated) == 1


async def test_deleting_nodeclaim_makes_voluntary_drain_uncancellable(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    await start_nodepool(fake)
    add_blocked_pod(fake, reschedulable=False)
    await observe_empty(fake, handle, "WhenEmpty/0s", **drain_rules(whenBlocked="giveUp", blockedFor="9h"))
    await wait_until(lambda: is_blocked_by(handle, PDB))
    await delete_nodeclaim(fake, handle, **drain_rules(whenBlocked="giveUp", blockedFor="2s"))
    await fake.sleep(seconds=4)
    assert (await query_state(handle)).phase is Phase.DRAIN
    fake.pods.blocked.clear()
    await handle.result()
    assert fake.nodes.found == {} and len(fake.instances.terminated) == 1


async def test_expired_node_backs_off_after_cancelled_drain(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="2h")
    await start_nodepool(fake)
    add_blocked_pod(fake)
    await fake.signal_observed(handle, **BUSY, **drain_rules(whenBlocked="giveUp", blockedFor="200ms"))
    await wait_until_skipping_time(fake, lambda: drain_was_cancelled(handle), minutes=5)
    assert is_in_service(fake) and fake.pods.forced == []
    fake.pods.blocked.clear()
    outcome = await handle.result()
    assert outcome.reason == "Expired" and fake.pods.evicted == ["web"]
    assert outcome.evicted_pods == ("default/web",)


async def test_instance_gone_during_blocked_drain_is_cleaned_up(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    add_blocked_pod(fake)
    await delete_nodeclaim(fake, handle)
    await wait_until(lambda: is_blocked_by(handle, PDB))
    fake.instances.running.clear()
    fake.nodes.update_node("node-a", ready=False)
    await handle.result()
    assert fake.claims.found == {} and fake.nodes.found == {}


async def drain_was_cancelled(handle: Handle) -> bool:
    state = await handle.query(NodeClaimWorkflow.state)
    return state.phase is Phase.READY and state.cancelled_drain is not None
