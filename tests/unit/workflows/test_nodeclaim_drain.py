"""A drain under a LifecyclePolicy: it escalates, or is given up; dead kubelets; rules that change under way."""

from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.apis.labels import DISRUPTED_TAINT_KEY, NODECLAIM_TERMINATION_TIMESTAMP
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import TRIES, Handle, blocked, eventually, in_time, latest, rolled, state_of
from tests.support.workflows.lives import BUSY, pool, ready
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

PDB = "PodDisruptionBudget web: 0 disruptions allowed"


def rules(**drain: Any) -> dict[str, Any]:
    """What the watch says of a node's rules."""
    return {"rules": LifecycleRules.model_validate({"drain": drain, "expiry": {"underBudget": True}}).to_object()}


def hold(fake: World, name: str = "web", **fields: Any) -> None:
    fake.pods.place("node-a", name, **fields)
    fake.pods.blocked[name] = PDB


async def delete(fake: World, handle: Handle, **seen: Any) -> None:
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, **BUSY, deleting=True, **seen)


async def empty(fake: World, skipping: WorkflowEnvironment, handle: Handle, **seen: Any) -> None:
    now = await skipping.get_current_time()
    await fake.see(handle, **BUSY, empty=True, empty_since=now, policy="WhenEmpty/0s", **seen)


def in_service(fake: World) -> bool:
    return DISRUPTED_TAINT_KEY not in {key for key, _, _ in fake.nodes.found["node-a"].taints}


async def test_the_verdict_is_in_the_state_for_whoever_asks(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    fake.budgets.add("web", min_available="1", expected=1, desired=1, current=1)
    hold(fake)
    await delete(fake, handle)
    await eventually(lambda: blocked(handle, "1 of 1 pods healthy"))
    drain = (await state_of(handle)).drain
    assert drain is not None and drain.verdict is not None
    assert drain.verdict.holds[0].passes == "never" and drain.verdict.blocked_since is not None
    fake.pods.blocked.clear()
    await handle.result()


async def test_a_drain_that_is_held_for_too_long_escalates(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    hold(fake, grace_seconds=1)
    await delete(fake, handle, **rules(whenBlocked="escalate", blockedFor="1s"))
    await handle.result()
    assert [name for name, _ in fake.pods.forced] == ["web"] and fake.pods.evicted == []
    assert "TerminationGracePeriodExpiring" in fake.events.reasons("a")


async def test_a_drain_that_is_held_waits_where_no_rule_says_otherwise(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    hold(fake)
    await delete(fake, handle, **rules(whenBlocked="wait"))
    await eventually(lambda: blocked(handle, PDB))
    await skipping.sleep(2)
    assert (await state_of(handle)).phase is Phase.DRAIN and fake.pods.forced == []
    assert NODECLAIM_TERMINATION_TIMESTAMP not in fake.claims.found["a"]["metadata"]["annotations"]


async def test_rules_that_change_count_at_once(fake: World, skipping: WorkflowEnvironment) -> None:
    """The activity would stay with the node for minutes."""
    handle = await ready(fake, skipping)
    hold(fake, grace_seconds=1)
    await delete(fake, handle)
    await eventually(lambda: blocked(handle, PDB))
    await fake.see(handle, **BUSY, deleting=True, **rules(whenBlocked="escalate", blockedFor="1s"))
    await handle.result()
    assert [name for name, _ in fake.pods.forced] == ["web"]


async def test_time_held_runs_on_when_the_run_is_continued(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.nodeclaim.drain.RESAID", 0.0)
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 60)
    handle = await ready(fake, skipping)
    hold(fake)
    await delete(fake, handle, **rules(whenBlocked="escalate", blockedFor="1h"))
    await eventually(lambda: blocked(handle, PDB))
    since = (await state_of(handle)).drain
    for number in range(TRIES):
        fake.pods.blocked["web"] = f"budget {number}"
        if await rolled(fake.client, handle):
            break
        await skipping.sleep(1)
    assert await rolled(fake.client, handle)
    now = (await state_of(latest(fake.client, handle))).drain
    assert since and since.verdict and now and now.verdict
    assert now.verdict.blocked_since == since.verdict.blocked_since
    fake.pods.blocked.clear()
    await latest(fake.client, handle).result()


async def test_a_voluntary_drain_that_is_held_is_given_up_and_the_permit_handed_back(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    pools = await pool(fake)
    hold(fake, reschedulable=False)
    await empty(fake, skipping, handle, **rules(whenBlocked="giveUp", blockedFor="9h"))
    await eventually(lambda: blocked(handle, PDB))
    assert not in_service(fake)
    await empty(fake, skipping, handle, **rules(whenBlocked="giveUp", blockedFor="1s"))
    await eventually(lambda: given_up(handle))
    assert in_service(fake) and "deletionTimestamp" not in fake.claims.found["a"]["metadata"]
    assert fake.claims.condition("a", "Drained") == "False GaveUp"
    assert fake.claims.condition("a", "DisruptionReason") == ""
    state = await state_of(handle)
    assert state.disruption == "" and state.permit is None and PDB in state.blocked_by
    assert (await pools.query(NodePoolWorkflow.state)).permits == ()
    fake.pods.blocked.clear()
    outcome = await handle.result()
    assert outcome.reason == "Empty" and fake.pods.evicted == ["web"] and len(fake.instances.terminated) == 1


async def test_a_voluntary_drain_that_nothing_holds_ends_as_any_other(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    fake.pods.place("node-a", "agent", reschedulable=False)
    await empty(fake, skipping, handle, **rules(whenBlocked="giveUp", blockedFor="1h"))
    outcome = await handle.result()
    assert outcome.reason == "Empty" and fake.claims.found == {} and fake.nodes.found == {}


async def test_a_person_who_deletes_the_claim_of_a_voluntary_drain_ends_its_being_given_up(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    hold(fake, reschedulable=False)
    await empty(fake, skipping, handle, **rules(whenBlocked="giveUp", blockedFor="9h"))
    await eventually(lambda: blocked(handle, PDB))
    await delete(fake, handle, **rules(whenBlocked="giveUp", blockedFor="2s"))
    await skipping.sleep(4)
    assert (await state_of(handle)).phase is Phase.DRAIN
    fake.pods.blocked.clear()
    await handle.result()
    assert fake.nodes.found == {} and len(fake.instances.terminated) == 1


async def test_an_expired_node_whose_drain_was_given_up_is_left_alone_for_a_while(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping, expireAfter="2h")
    await pool(fake)
    hold(fake)
    await fake.see(handle, **BUSY, **rules(whenBlocked="giveUp", blockedFor="1s"))
    await in_time(skipping, lambda: given_up(handle), minutes=5)
    assert in_service(fake) and fake.pods.forced == []
    fake.pods.blocked.clear()
    outcome = await handle.result()
    assert outcome.reason == "Expired" and fake.pods.evicted == ["web"]
    assert outcome.left == ("default/web",)


async def test_pods_of_a_dead_kubelet_are_not_waited_for(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    hold(fake)
    fake.nodes.change("node-a", ready=False)
    await delete(fake, handle, **rules(nodeNotReady="1s"))
    await handle.result()
    assert not fake.pods.evicted and not fake.pods.forced and len(fake.instances.terminated) == 1


async def test_an_instance_that_ends_under_a_held_drain_is_cleaned_up_after(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    hold(fake)
    await delete(fake, handle)
    await eventually(lambda: blocked(handle, PDB))
    fake.instances.running.clear()
    fake.nodes.change("node-a", ready=False)
    await handle.result()
    assert fake.claims.found == {} and fake.nodes.found == {}


async def given_up(handle: Handle) -> bool:
    state = await handle.query(NodeClaimWorkflow.state)
    return state.phase is Phase.READY and state.gave_up is not None
