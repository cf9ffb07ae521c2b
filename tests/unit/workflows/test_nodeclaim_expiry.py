"""Expiry by rules: the jitter and its changes, and permits of the NodePool where those are asked for."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.model.nodeclaim_state import Phase
from tenure.model.signals import PermitAsked
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, in_phase, in_time, state_of
from tests.support.workflows.lives import BUSY, JOINED, joined, launched, pause_for, pool, ready
from tests.unit.workflows.test_nodepool import answers, ask, granted, refused, standing
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

EXACT: dict[str, Any] = {"expiry": {"jitter": "0%"}}
ASKS: dict[str, Any] = {"expiry": {"jitter": "0%", "underBudget": True}}


async def born_at(handle: Handle) -> datetime:
    return (await state_of(handle)).identity.created


async def left_at(handle: Handle) -> timedelta:
    """How old it was when it was drained."""
    born = await born_at(handle)
    outcome = await handle.result()
    assert outcome.reason == "Expired"
    drained: datetime = next(step.at for step in outcome.story if step.phase is Phase.DRAIN)
    return drained - born


async def test_a_node_expires_within_the_jitter_before_its_time(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping, expireAfter="100h")
    assert timedelta(hours=94.9) < await left_at(handle) < timedelta(hours=100)


async def test_a_change_of_the_rules_moves_the_expiry_of_a_node_that_runs(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping, expireAfter="100h")
    await skipping.sleep(timedelta(hours=90))
    await fake.see(handle, **BUSY, rules=EXACT)
    assert timedelta(hours=100) <= await left_at(handle) < timedelta(hours=100.1)


async def test_a_change_of_the_rules_moves_the_expiry_of_a_node_that_is_not_up_yet(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await joined(fake, skipping, expireAfter="100h")
    await skipping.sleep(timedelta(hours=90))
    await fake.see(handle, **JOINED, rules=EXACT)
    assert timedelta(hours=100) <= await left_at(handle) < timedelta(hours=100.1)


async def test_an_expired_node_waits_for_its_budget_says_so_and_goes_with_what_runs_there(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping, expireAfter="2h")
    pools = await pool(fake, budgets=[{"nodes": "0"}])
    await fake.see(handle, **BUSY, rules=ASKS)
    await skipping.sleep(timedelta(hours=2))
    await in_time(skipping, lambda: blocked(handle, "budget 0 of 1 nodes allows 0"), seconds=10)
    asked = (await pools.query(NodePoolWorkflow.state)).asked
    assert [(one.reason, one.since) for one in asked] == [("Expired", await born_at(handle) + timedelta(hours=2))]
    assert "DisruptionBlocked" in fake.events.reasons("a")
    assert all(one["type"] != "Consolidatable" for one in fake.claims.found["a"]["status"]["conditions"])
    fake.pods.place("node-a", "web")
    fake.pools.add("default", disruption={"budgets": [{"nodes": "1"}]})
    assert (await handle.result()).reason == "Expired"


async def test_an_expired_node_is_held_by_a_pause_only_where_it_asks(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping, expireAfter="2h")
    await pool(fake)
    await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(skipping, hours=5))
    await fake.see(handle, **BUSY, rules=ASKS)
    await skipping.sleep(timedelta(hours=4))
    assert await blocked(handle, "paused by ops@example.com")
    assert timedelta(hours=5) <= await left_at(handle)


async def test_rules_that_no_longer_ask_let_an_expired_node_go(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping, expireAfter="2h")
    await pool(fake, budgets=[{"nodes": "0"}])
    await fake.see(handle, **BUSY, rules=ASKS)
    await skipping.sleep(timedelta(hours=2))
    await in_time(skipping, lambda: blocked(handle, "budget 0"), seconds=10)
    await fake.see(handle, **BUSY, rules=EXACT)
    assert (await handle.result()).reason == "Expired"


async def test_a_node_that_asked_to_go_empty_asks_anew_when_it_expires(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping, expireAfter="2h")
    pools = await pool(fake, budgets=[{"nodes": "0", "reasons": ["Empty"]}])
    now = await skipping.get_current_time()
    await fake.see(handle, **BUSY, rules=ASKS, empty=True, empty_since=now, policy="WhenEmpty/0s")
    await in_time(skipping, lambda: blocked(handle, "budget 0"), seconds=10)
    assert timedelta(hours=2) <= await left_at(handle) < timedelta(hours=2.1)
    assert (await pools.query(NodePoolWorkflow.state)).asked == ()


async def test_a_node_that_was_never_up_needs_no_permit_to_expire(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await joined(fake, skipping, expireAfter="2h")
    await pool(fake, budgets=[{"nodes": "0"}])
    await fake.see(handle, **JOINED, rules=ASKS)
    assert timedelta(hours=2) <= await left_at(handle) < timedelta(hours=2.1)


async def test_a_rebooting_node_asks_for_its_permit_once_it_is_back(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping, expireAfter="2h")
    await pool(fake, budgets=[{"nodes": "0"}])
    fake.nodes.change("node-a", boot_id="boot-2", ready=False)
    away = {**BUSY, "boot_id": "boot-2", "rules": ASKS}
    await fake.see(handle, **{**away, "node_ready": False})
    await in_phase(handle, Phase.INITIALIZATION)
    await skipping.sleep(timedelta(hours=3))
    await in_phase(handle, Phase.INITIALIZATION)
    fake.nodes.change("node-a", ready=True)
    await fake.see(handle, **away)
    await in_time(skipping, lambda: blocked(handle, "budget 0"), seconds=10)


@pytest.mark.parametrize(("expired", "empty"), [("a", "b"), ("b", "a")])
async def test_a_pool_grants_each_reason_what_its_own_budget_allows(
    fake: World, skipping: WorkflowEnvironment, expired: str, empty: str
) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "2"}, {"nodes": "0", "reasons": ["Empty"]}])
    await ask(fake, skipping, pools, empty)
    wish = PermitAsked(
        claim_name=expired,
        claim_uid=f"uid-{expired}",
        workflow_id=expired,
        reason="Expired",
        since=await skipping.get_current_time(),
    )
    await pools.signal(NodePoolWorkflow.asked, wish)
    await in_time(skipping, lambda: granted(fake, expired))
    await in_time(skipping, lambda: refused(fake, empty))
    assert [one.granted for one in await answers(fake, empty)] == [False]


async def test_all_that_go_share_one_room(fake: World, skipping: WorkflowEnvironment) -> None:
    await standing(fake, "a", "b", "c")
    pools = await pool(fake, budgets=[{"nodes": "2"}])
    await ask(fake, skipping, pools, "a", "b")
    now = await skipping.get_current_time()
    wish = PermitAsked(claim_name="c", claim_uid="uid-c", workflow_id="c", reason="Expired", since=now)
    await pools.signal(NodePoolWorkflow.asked, wish)
    await in_time(skipping, lambda: granted(fake, "a", "b"))
    assert not await granted(fake, "c")


async def test_a_registered_node_that_never_becomes_ready_has_its_lifetime_too(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await launched(fake, skipping, expireAfter="40m")
    fake.nodes.join("node-a", fake.claims.found["a"]["status"]["providerID"], ready=False)
    await fake.see(handle, **JOINED)
    await in_phase(handle, Phase.INITIALIZATION)
    state = await state_of(handle)
    assert state.lifetime == timedelta(minutes=40) and state.expires is not None
