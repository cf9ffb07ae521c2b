"""What a node's life makes of what AWS says: it goes, waits, asks, or stays, and says so."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tenure.apis import labels
from tenure.apis.labels import INTERRUPTIONS, NODECLAIM_TERMINATION_TIMESTAMP
from tenure.model.interruption.notices import EventKind, Notice
from tenure.model.nodeclaim_state import Phase
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import (
    Handle,
    blocked,
    eventually,
    has_come,
    in_phase,
    in_time,
    scheduled,
    state_of,
)
from tests.support.workflows.lives import BUSY, joined, launched, pause_for, pool
from tests.support.workflows.noticed import notice, ready_under, rules, tell
from workflows.nodeclaim import NodeClaimWorkflow

DEFER = {"action": "deferUntilEventStart", "lead": "1h"}
IN_TWO_DAYS = timedelta(hours=48)


def annotation(fake: World) -> str:
    return str(fake.claims.found["a"]["metadata"]["annotations"].get(INTERRUPTIONS, ""))


async def annotated(fake: World) -> bool:
    return bool(annotation(fake))


async def said(fake: World, reason: str, name: str = "a") -> bool:
    return reason in fake.events.reasons(name)


@pytest.mark.parametrize(
    ("kind", "word", "reason"),
    [
        ("spotInterruption", "spot_interrupted", "SpotInterrupted"),
        (
            "capacityReservationInterruption",
            "capacity_reservation_interrupted",
            "CapacityReservationInstanceInterrupted",
        ),
        ("scheduledChange", "scheduled_change", "InstanceUnhealthy"),
        ("instanceStopping", "instance_stopped", "InstanceStopping"),
        ("instanceTerminating", "instance_terminated", "InstanceTerminating"),
    ],
)
async def test_without_a_policy_a_node_is_drained(
    fake: World, skipping: WorkflowEnvironment, kind: EventKind, word: str, reason: str
) -> None:
    handle = await ready_under(fake, skipping)
    await notice(fake, skipping, handle, kind)
    assert (await handle.result()).reason == word
    assert fake.pods.evicted == ["web"] and fake.pods.forced == []
    for name in ("a", "node-a"):
        assert [one for one in fake.events.reasons(name) if one in (reason, "TerminatingOnInterruption")] == [
            reason,
            "TerminatingOnInterruption",
        ]


async def test_pods_that_were_told_to_go_before_are_part_of_its_story(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping)
    spot = Notice(kind="spotInterruption", id="terminate", at=await skipping.get_current_time())
    await tell(fake, handle, spot, left=("default/gone", "default/web"))
    assert (await handle.result()).left == ("default/gone", "default/web")


@pytest.mark.parametrize("kind", ["instanceStatus", "systemStatus"])
async def test_a_node_whose_checks_fail_is_terminated_by_force(
    fake: World, skipping: WorkflowEnvironment, kind: EventKind
) -> None:
    handle = await ready_under(fake, skipping)
    fake.pods.place("node-a", "kept", evictable=False, protected=True, why_not="annotation")
    fake.pods.blocked["web"] = "a budget"
    written: list[str] = []
    deleted = fake.claims.delete

    async def delete(name: str, uid: str) -> bool:
        written.append(fake.claims.found[name]["metadata"]["annotations"].get(NODECLAIM_TERMINATION_TIMESTAMP, ""))
        return await deleted(name, uid)

    fake.claims.delete = delete  # type: ignore[method-assign]
    await notice(fake, skipping, handle, kind, source="status")
    await handle.result()
    assert sorted(name for name, _ in fake.pods.forced) == ["kept", "web"]
    assert written[0], "the end of its grace period is written before it is deleted"


async def test_a_failing_check_that_is_only_told_leaves_the_node_alone(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping, instanceStatus={"action": "notify"})
    await notice(fake, skipping, handle, "instanceStatus", source="status")
    await eventually(lambda: said(fake, "InstanceUnhealthy"))
    await skipping.sleep(timedelta(hours=1))
    assert await has_come(handle, Phase.READY)


async def test_a_rebalance_recommendation_is_said_and_no_more(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping)
    await notice(fake, skipping, handle, "rebalanceRecommendation")
    await eventually(lambda: said(fake, "SpotRebalanceRecommendation", "node-a"))
    await skipping.sleep(timedelta(hours=1))
    assert await has_come(handle, Phase.READY) and not await blocked(handle, "rebalance")


async def test_of_what_a_policy_ignores_nothing_is_said(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping, spotInterruption={"action": "ignore"})
    await notice(fake, skipping, handle, "spotInterruption")
    await skipping.sleep(timedelta(minutes=5))
    assert await has_come(handle, Phase.READY) and "SpotInterrupted" not in fake.events.reasons("a")


async def test_what_is_said_of_another_instance_is_nobody_s(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping)
    fake.claims.found["a"]["status"]["providerID"], mine = (
        "aws:///x/i-other",
        fake.claims.found["a"]["status"]["providerID"],
    )
    await notice(fake, skipping, handle, "spotInterruption")
    fake.claims.found["a"]["status"]["providerID"] = mine
    await skipping.sleep(timedelta(minutes=1))
    assert await has_come(handle, Phase.READY) and (await state_of(handle)).notices == ()


async def test_the_same_word_each_minute_is_one_action_and_one_event(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping, scheduledChange={"action": "notify"})
    now = await skipping.get_current_time()
    first = await notice(fake, skipping, handle, starts=now + IN_TWO_DAYS, source="status")
    await eventually(lambda: said(fake, "InstanceUnhealthy"))
    for _ in range(20):
        await tell(fake, handle, first)
        await skipping.sleep(timedelta(minutes=1))
    await notice(fake, skipping, handle, id="health", starts=now + IN_TWO_DAYS)
    await skipping.sleep(timedelta(minutes=1))
    assert fake.events.reasons("a").count("InstanceUnhealthy") == 1
    assert await scheduled(handle, "tell_notices") <= 2


@pytest.mark.parametrize("come", [launched, joined])
async def test_a_node_that_starts_goes_too(fake: World, skipping: WorkflowEnvironment, come: Any) -> None:
    handle = await come(fake, skipping)
    await notice(fake, skipping, handle, "spotInterruption")
    assert (await handle.result()).reason == "spot_interrupted"
    assert len(fake.instances.terminated) == 1 and fake.claims.found == {}


@pytest.mark.parametrize("come", [launched, joined])
async def test_a_node_that_starts_goes_when_its_time_comes(
    fake: World, skipping: WorkflowEnvironment, come: Any
) -> None:
    handle = await come(fake, skipping)
    began = await skipping.get_current_time()
    seen = {} if come is launched else {"node_name": "node-a", "node_count": 1}
    await fake.see(handle, **seen, **rules(scheduledChange={**DEFER, "lead": "1m"}))
    await notice(fake, skipping, handle, starts=began + timedelta(minutes=6))
    outcome = await handle.result()
    assert outcome.reason == "scheduled_change"
    left = next(step.at for step in outcome.story if step.phase in (Phase.DRAIN, Phase.TERMINATION))
    assert timedelta(minutes=5) <= left - began < timedelta(minutes=5, seconds=30)


async def test_a_pause_holds_what_is_voluntary_and_nothing_else(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping)
    await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(skipping, hours=5))
    await notice(fake, skipping, handle, "spotInterruption")
    assert (await handle.result()).reason == "spot_interrupted"


async def deferred(fake: World, skipping: WorkflowEnvironment) -> Handle:
    handle = await ready_under(fake, skipping, scheduledChange=DEFER)
    starts = (await skipping.get_current_time()) + IN_TWO_DAYS
    await notice(fake, skipping, handle, starts=starts, code="instance-stop")
    await eventually(lambda: blocked(handle, "deferred until"))
    state = await state_of(handle)
    assert state.waits_until == starts - timedelta(hours=1)
    await eventually(lambda: annotated(fake))
    return handle


async def test_a_deferred_event_is_shown_and_drains_its_lead_before_aws_acts(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await deferred(fake, skipping)
    began = await skipping.get_current_time()
    outcome = await handle.result()
    (drained,) = (step for step in outcome.story if step.phase is Phase.DRAIN)
    assert timedelta(hours=46, minutes=55) < drained.at - began <= timedelta(hours=47, seconds=10)
    assert drained.cause.startswith("scheduled_change: scheduledChange instance-stop at ")


async def test_an_event_that_aws_withdraws_is_dropped_and_said(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await deferred(fake, skipping)
    await notice(fake, skipping, handle, status="withdrawn")
    await eventually(lambda: said(fake, "InterruptionWithdrawn"))
    await skipping.sleep(IN_TWO_DAYS)
    state = await state_of(handle)
    assert state.phase is Phase.READY and state.blocked_by == "" and state.waits_until is None
    assert annotation(fake) == ""


async def test_an_event_that_aws_moves_is_timed_anew(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await deferred(fake, skipping)
    later = (await skipping.get_current_time()) + timedelta(hours=100)
    await notice(fake, skipping, handle, starts=later, code="instance-stop")
    await skipping.sleep(timedelta(hours=90))
    assert await has_come(handle, Phase.READY)
    outcome = await handle.result()
    (drained,) = (step.at for step in outcome.story if step.phase is Phase.DRAIN)
    assert abs(drained - (later - timedelta(hours=1))) < timedelta(minutes=1)
    assert any("moved from" in message for _, _, message in fake.events.said)


async def test_rules_that_change_count_for_what_is_known(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await deferred(fake, skipping)
    await fake.see(handle, **BUSY, **rules(scheduledChange={"action": "notify"}))
    await in_time(skipping, lambda: not_blocked(handle), seconds=1)
    await fake.see(handle, **BUSY)
    assert (await handle.result()).reason == "scheduled_change"


async def not_blocked(handle: Handle) -> bool:
    return (await state_of(handle)).blocked_by == ""


async def test_a_workflow_that_is_rebuilt_knows_what_was_deferred(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await deferred(fake, skipping)
    before = await state_of(handle)
    await skipping.sleep(timedelta(hours=3))
    await handle.terminate("the store was lost")
    claim = await fake.claims.get("a")
    assert claim is not None
    fake.claims.found["a"]["status"]["nodeName"] = "node-a"
    again = await fake.start(claim, **BUSY, **rules(scheduledChange=DEFER))
    await in_phase(again, Phase.READY)
    await eventually(lambda: blocked(again, "deferred until"))
    after = await state_of(again)
    assert (after.waits_until, after.notices) == (before.waits_until, before.notices)
    assert (await again.result()).reason == "scheduled_change"


# --- approvals ---

APPROVAL = {"action": "waitForApproval", "deadline": "24h", "lead": "1h"}


async def waiting(fake: World, skipping: WorkflowEnvironment, **more: Any) -> Handle:
    handle = await ready_under(fake, skipping, scheduledChange={**APPROVAL, **more})
    await notice(fake, skipping, handle, starts=(await skipping.get_current_time()) + IN_TWO_DAYS)
    await eventually(lambda: blocked(handle, "waits for approval until"))
    return handle


async def answer(handle: Handle, verb: str, **fields: str) -> Any:
    return await handle.execute_update(verb, {"by": "ann", "reason": "agreed", **fields})


async def test_a_node_goes_when_a_person_approves(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await waiting(fake, skipping)
    await skipping.sleep(timedelta(hours=5))
    verdict = await answer(handle, "approve_event")
    assert verdict["accepted"] and "approved by ann" in verdict["message"]
    await handle.result()
    assert "InterruptionApproved" in fake.events.reasons("a")


async def test_nobody_approves_and_the_deadline_decides(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await waiting(fake, skipping)
    began = await skipping.get_current_time()
    outcome = await handle.result()
    (drained,) = (step.at for step in outcome.story if step.phase is Phase.DRAIN)
    assert timedelta(hours=23, minutes=55) < drained - began < timedelta(hours=24, minutes=1)


async def test_a_node_that_a_person_keeps_goes_before_aws_acts_all_the_same(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await waiting(fake, skipping)
    verdict = await answer(handle, "reject_event")
    assert "before AWS acts" in verdict["message"]
    await in_time(skipping, lambda: blocked(handle, "rejected by ann: agreed"), seconds=1)
    await eventually(lambda: said(fake, "InterruptionRejected"))
    await skipping.sleep(timedelta(hours=40))
    assert await has_come(handle, Phase.READY)
    await handle.result()


async def test_a_node_that_a_person_keeps_stays_where_its_policy_leaves_it_to_aws(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await waiting(fake, skipping, fallback="notify")
    await answer(handle, "reject_event")
    await skipping.sleep(timedelta(hours=60))
    assert await has_come(handle, Phase.READY)


async def test_an_approval_outlives_its_workflow(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await waiting(fake, skipping, fallback="notify")
    await answer(handle, "reject_event")
    await eventually(lambda: said(fake, "InterruptionRejected"))
    assert '"by":"ann"' in annotation(fake)


@pytest.mark.parametrize(
    ("fields", "words"), [({"by": " "}, "write who says so"), ({"reason": "x" * 301}, "write at most 300")]
)
async def test_an_answer_that_makes_no_sense_is_refused(
    fake: World, skipping: WorkflowEnvironment, fields: dict[str, str], words: str
) -> None:
    handle = await waiting(fake, skipping)
    with pytest.raises(Exception, match="failed") as refused:
        await answer(handle, "approve_event", **fields)
    assert words in str(refused.value.__cause__)


async def test_nobody_is_asked_where_no_policy_says_so(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await deferred(fake, skipping)
    with pytest.raises(Exception, match="failed") as refused:
        await answer(handle, "approve_event")
    assert "no event that waits for approval" in str(refused.value.__cause__)


# --- permits ---


async def test_what_a_policy_calls_voluntary_asks_the_node_pool(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping, rebalanceRecommendation={"action": "drain", "voluntary": True})
    await pool(fake, budgets=[{"nodes": "0"}])
    await notice(fake, skipping, handle, "rebalanceRecommendation")
    await in_time(skipping, lambda: blocked(handle, "rebalanceRecommendation; NodePool default: budget 0"), seconds=10)
    await notice(fake, skipping, handle, "spotInterruption")
    assert (await handle.result()).reason == "spot_interrupted"


async def test_a_node_goes_with_its_permit(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping, rebalanceRecommendation={"action": "drain", "voluntary": True})
    await pool(fake, budgets=[{"nodes": "1"}])
    await notice(fake, skipping, handle, "rebalanceRecommendation")
    assert (await handle.result()).reason == "rebalance_recommendation"
    assert fake.pods.evicted == ["web"]


# --- drains ---

STATEFUL = {"matchLabels": {"state": "kept"}, "action": "waitForApproval"}


async def test_pods_of_a_class_wait_while_the_others_leave(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping, workloads=[STATEFUL])
    fake.pods.place("node-a", "db", labels={"state": "kept"})
    await notice(fake, skipping, handle, starts=(await skipping.get_current_time()) + IN_TWO_DAYS)
    await eventually(lambda: blocked(handle, "default/db: scheduledChange"))
    assert await blocked(handle, "interruption.workloads[0] waits for approval until")
    assert fake.pods.evicted == ["web"]
    assert "deletionTimestamp" not in fake.claims.found["a"]["metadata"]
    await answer(handle, "approve_event")
    await handle.result()
    assert fake.pods.evicted == ["web", "db"]


async def test_a_drain_whose_event_aws_takes_back_is_given_up(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready_under(fake, skipping, workloads=[STATEFUL])
    fake.pods.place("node-a", "db", labels={"state": "kept"})
    await notice(fake, skipping, handle, starts=(await skipping.get_current_time()) + IN_TWO_DAYS)
    await eventually(lambda: blocked(handle, "default/db"))
    await notice(fake, skipping, handle, status="withdrawn")
    await in_phase(handle, Phase.READY)
    assert labels.DISRUPTED_TAINT_KEY not in {key for key, _, _ in fake.nodes.found["node-a"].taints}
    assert (await state_of(handle)).interrupted == "" and fake.pods.evicted == ["web"]


async def test_a_do_not_disrupt_pod_holds_unless_the_policy_overrides_it(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping)
    fake.pods.place("node-a", "kept", evictable=False, protected=True, why_not="annotation karpenter.sh/do-not-disrupt")
    await notice(fake, skipping, handle)
    await eventually(lambda: blocked(handle, "default/kept"))
    assert fake.pods.evicted == ["web"]
    await fake.see(handle, **BUSY, deleting=True, **rules(scheduledChange={"doNotDisrupt": "override"}))
    await handle.result()
    assert fake.pods.evicted == ["web", "kept"]


# --- instances that come back ---

AWAY: dict[str, Any] = {**BUSY, "node_ready": False, "away_for": "NotReady"}


async def test_a_stopped_instance_is_waited_for_and_its_node_initialized_again(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping, instanceStopping={"action": "ignore", "away": "30m"})
    held = rules(instanceStopping={"action": "ignore", "away": "30m"})
    await notice(fake, skipping, handle, "instanceStopping")
    await eventually(lambda: blocked(handle, "its instance is away, the node is kept until"))
    await eventually(lambda: annotated(fake))
    marks = fake.claims.found["a"]["metadata"]["annotations"]
    assert labels.EXPECTED_BACK in marks
    fake.nodes.change("node-a", ready=False)
    await fake.see(handle, **AWAY, away_since=await skipping.get_current_time(), **held)
    await skipping.sleep(timedelta(minutes=20))
    assert await has_come(handle, Phase.READY) and fake.pods.evicted == []
    fake.nodes.change("node-a", ready=True, boot_id="boot-2")
    back = {**BUSY, "boot_id": "boot-2", "ready_since": await skipping.get_current_time()}
    await fake.see(handle, **back, **held)
    await eventually(lambda: again(handle))
    await in_phase(handle, Phase.READY)
    await skipping.sleep(timedelta(hours=2))
    state = await state_of(handle)
    assert (state.phase, state.blocked_by, state.waits_until) == (Phase.READY, "", None)
    await fake.see(handle, **{**AWAY, "boot_id": "boot-2"}, **held)
    await skipping.sleep(timedelta(minutes=1))
    assert await has_come(handle, Phase.READY), "another time away is another matter"
    assert not {labels.EXPECTED_BACK, INTERRUPTIONS} & fake.claims.found["a"]["metadata"]["annotations"].keys()
    await fake.see(handle, **back)
    await skipping.sleep(timedelta(minutes=1))
    assert await has_come(handle, Phase.READY), "it runs again, whatever the policy says now"


async def again(handle: Handle) -> bool:
    return (await state_of(handle)).reboots == 1


async def test_a_stopped_instance_that_does_not_come_back_is_drained(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready_under(fake, skipping, instanceStopping={"action": "ignore", "away": "30m"})
    await notice(fake, skipping, handle, "instanceStopping")
    began = await skipping.get_current_time()
    outcome = await handle.result()
    (drained,) = (step.at for step in outcome.story if step.phase is Phase.DRAIN)
    assert outcome.reason == "instance_stopped" and drained - began >= timedelta(minutes=29)
