"""Expiration by rules: jitter, changed rules, and NodePool permits where the policy requires them."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.nodeclaim.state import Phase
from tenure.model.signals import PermitRequest
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    is_blocked_by,
    query_state,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    JOINED,
    pause_for,
    ready_nodeclaim,
    registered_nodeclaim,
    start_nodepool,
)
from tests.unit.workflows.test_nodepool import (
    add_nodeclaims,
    have_permits,
    have_rejections,
    permit_decisions,
    request_permits,
)
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

EXACT: dict[str, Any] = {"expiry": {"jitter": "0%"}}
EXPIRY_RULES: dict[str, Any] = {"expiry": {"jitter": "0%", "underBudget": True}}


async def created_at(handle: Handle) -> datetime:
    return (await query_state(handle)).identity.created


async def age_at_drain(handle: Handle) -> timedelta:
    """Age of the NodeClaim when its drain started."""
    born = await created_at(handle)
    outcome = await handle.result()
    assert outcome.reason == "Expired"
    drained: datetime = next(step.at for step in outcome.history if step.phase is Phase.DRAIN)
    return drained - born


async def test_node_expires_within_jitter_before_expire_after(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="100h")
    assert timedelta(hours=94.9) < await age_at_drain(handle) < timedelta(hours=100)


async def test_changed_rules_move_expiration_of_ready_node(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="100h")
    await fake.sleep(hours=90)
    await fake.signal_observed(handle, **BUSY, rules=EXACT)
    assert timedelta(hours=100) <= await age_at_drain(handle) < timedelta(hours=100.1)


async def test_changed_rules_move_expiration_of_uninitialized_node(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake, expireAfter="100h")
    await fake.sleep(hours=90)
    await fake.signal_observed(handle, **JOINED, rules=EXACT)
    assert timedelta(hours=100) <= await age_at_drain(handle) < timedelta(hours=100.1)


async def test_expired_node_waits_for_budget_and_drains_with_pods(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="2h")
    pools = await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await fake.signal_observed(handle, **BUSY, rules=EXPIRY_RULES)
    await fake.sleep(hours=2)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0 of 1 nodes allows 0"), seconds=10)
    requests = (await pools.query(NodePoolWorkflow.state)).pending_requests
    assert [(one.reason, one.since) for one in requests] == [("Expired", await created_at(handle) + timedelta(hours=2))]
    assert "DisruptionBlocked" in fake.events.reasons_for("a")
    assert all(one["type"] != "Consolidatable" for one in fake.claims.found["a"]["status"]["conditions"])
    fake.pods.add("node-a", "web")
    fake.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    assert (await handle.result()).reason == "Expired"


async def test_pause_keeps_expired_node_only_under_budget(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="2h")
    await start_nodepool(fake)
    await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(fake, hours=5))
    await fake.signal_observed(handle, **BUSY, rules=EXPIRY_RULES)
    await fake.sleep(hours=4)
    assert await is_blocked_by(handle, "paused by ops@example.com")
    assert timedelta(hours=5) <= await age_at_drain(handle)


async def test_rules_without_budget_release_expired_node(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="2h")
    await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await fake.signal_observed(handle, **BUSY, rules=EXPIRY_RULES)
    await fake.sleep(hours=2)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0"), seconds=10)
    await fake.signal_observed(handle, **BUSY, rules=EXACT)
    assert (await handle.result()).reason == "Expired"


async def test_rejected_empty_node_requests_permit_again_on_expiration(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="2h")
    pools = await start_nodepool(fake, budgets=[{"nodes": "0", "reasons": ["Empty"]}])
    now = await fake.now()
    await fake.signal_observed(
        handle, **BUSY, rules=EXPIRY_RULES, empty=True, empty_since=now, consolidation="WhenEmpty/0s"
    )
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0"), seconds=10)
    assert timedelta(hours=2) <= await age_at_drain(handle) < timedelta(hours=2.1)
    assert (await pools.query(NodePoolWorkflow.state)).pending_requests == ()


async def test_uninitialized_node_expires_without_permit(fake: WorkerHarness) -> None:
    handle = await registered_nodeclaim(fake, expireAfter="2h")
    await start_nodepool(fake, budgets=[{"nodes": "0"}])
    await fake.signal_observed(handle, **JOINED, rules=EXPIRY_RULES)
    assert timedelta(hours=2) <= await age_at_drain(handle) < timedelta(hours=2.1)


async def test_rebooting_node_requests_permit_after_it_is_ready(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake, expireAfter="2h")
    await start_nodepool(fake, budgets=[{"nodes": "0"}])
    fake.nodes.update_node("node-a", boot_id="boot-2", ready=False)
    rebooted = {**BUSY, "boot_id": "boot-2", "rules": EXPIRY_RULES}
    await fake.signal_observed(handle, **{**rebooted, "node_ready": False})
    await wait_until_phase(handle, Phase.INITIALIZATION)
    await fake.sleep(hours=3)
    await wait_until_phase(handle, Phase.INITIALIZATION)
    fake.nodes.update_node("node-a", ready=True)
    await fake.signal_observed(handle, **rebooted)
    await wait_until_skipping_time(fake, lambda: is_blocked_by(handle, "budget 0"), seconds=10)


@pytest.mark.parametrize(("expired", "empty"), [("a", "b"), ("b", "a")])
async def test_nodepool_grants_permits_by_budget_of_each_reason(fake: WorkerHarness, expired: str, empty: str) -> None:
    await add_nodeclaims(fake, "a", "b")
    pools = await start_nodepool(fake, budgets=[{"nodes": "2"}, {"nodes": "0", "reasons": ["Empty"]}])
    await request_permits(fake, pools, empty)
    request = PermitRequest(
        claim_name=expired, claim_uid=f"uid-{expired}", workflow_id=expired, reason="Expired", since=await fake.now()
    )
    await pools.signal(NodePoolWorkflow.request_permit, request)
    await wait_until_skipping_time(fake, lambda: have_permits(fake, expired))
    await wait_until_skipping_time(fake, lambda: have_rejections(fake, empty))
    assert [one.granted for one in await permit_decisions(fake, empty)] == [False]


async def test_permits_of_all_reasons_share_one_budget(fake: WorkerHarness) -> None:
    await add_nodeclaims(fake, "a", "b", "c")
    pools = await start_nodepool(fake, budgets=[{"nodes": "2"}])
    await request_permits(fake, pools, "a", "b")
    now = await fake.now()
    request = PermitRequest(claim_name="c", claim_uid="uid-c", workflow_id="c", reason="Expired", since=now)
    await pools.signal(NodePoolWorkflow.request_permit, request)
    await wait_until_skipping_time(fake, lambda: have_permits(fake, "a", "b"))
    assert not await have_permits(fake, "c")
