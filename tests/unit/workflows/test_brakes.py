"""The brake: pauses are written down and read back, end by themselves, and stop what is under way."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from tenure.apis.labels import PAUSE
from tenure.model.disruption.commands import DisruptionState
from tenure.model.errors import BadInput, TryLater
from tenure.model.nodeclaim_state import Phase
from tenure.model.observations import PoolSeen
from tenure.model.operator_requests import PauseSeen
from tenure.model.signals import Pause, PermitAsked, PermitWithdrawn, Resume, Verdict
from tenure.model.workflow_states import PoolState
from tenure.policy.lifecycle.pauses import NEVER, tidied, write_pause
from tests.support.fakes.asker import AskerWorkflow
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import Handle, blocked, eventually, in_phase, in_time, scheduled, state_of
from tests.support.workflows.lives import BUSY, emptied, pause_for, pool, ready
from tests.unit.workflows.test_nodeclaim_drain import PDB, empty, hold, in_service, rules
from tests.unit.workflows.test_nodepool import Asker, ask, granted, refused, standing, told
from workflows import ids
from workflows.disruption.cluster import ClusterWorkflow
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow


async def pool_state(handle: Any) -> PoolState:
    state: PoolState = await handle.query(NodePoolWorkflow.state)
    return state


async def pool_sees(handle: Any, number: int, **seen: Any) -> None:
    await handle.signal(NodePoolWorkflow.seen, PoolSeen(number=number, generation=1, **seen))


def on_pool(fake: World) -> str:
    return fake.pools.found["default"].metadata.annotations.get(PAUSE, "")


def on_claim(fake: World) -> str:
    return str(fake.claims.found["a"]["metadata"]["annotations"].get(PAUSE, ""))


async def wrote(fake: World, text: str) -> bool:
    return on_pool(fake) == text


async def said(fake: World, name: str, *reasons: str) -> bool:
    return [one for one in fake.events.reasons(name) if one.startswith("Disruption")] == list(reasons)


async def recalls(fake: World, name: str) -> list[str]:
    handle: Asker = fake.client.get_workflow_handle_for(AskerWorkflow.run, name)
    return [one.why for one in await handle.query(AskerWorkflow.recalls)]


async def text_for(skipping: WorkflowEnvironment, **lasting: float) -> str:
    return write_pause(tidied(await pause_for(skipping, **lasting)))


async def test_a_pause_is_written_onto_its_pool_and_taken_off_when_it_is_over(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await pool(fake)
    pause = await pause_for(skipping, hours=1)
    verdict = await pools.execute_update(NodePoolWorkflow.pause, pause)
    assert verdict.accepted and "NodePool default is paused until" in verdict.message
    await eventually(lambda: wrote(fake, write_pause(tidied(pause))))
    await eventually(lambda: said(fake, "default", "DisruptionPaused"))
    await skipping.sleep(timedelta(minutes=59))
    assert (await pool_state(pools)).pause == tidied(pause) and on_pool(fake)
    await skipping.sleep(timedelta(minutes=2))
    await eventually(lambda: wrote(fake, ""))
    assert (await pool_state(pools)).pause is None
    await eventually(lambda: said(fake, "default", "DisruptionPaused", "DisruptionResumed"))
    assert "the pause by ops@example.com is over since" in fake.events.said[-1][2]


async def test_an_annotation_pauses_a_pool_and_taking_it_off_resumes_it(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await pool_sees(pools, 2, pause=await text_for(skipping, hours=1))
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    await eventually(lambda: said(fake, "default", "DisruptionPaused"))
    assert on_pool(fake) == ""  # A person wrote it: there is nothing to write.
    await pool_sees(pools, 3)
    await in_time(skipping, lambda: granted(fake, "a"))
    await eventually(lambda: said(fake, "default", "DisruptionPaused", "DisruptionResumed"))


async def test_an_annotation_that_cannot_be_read_holds_says_why_and_is_taken_off_by_resume(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await pool(fake)
    await fake.pools.annotate("default", {PAUSE: "until tomorrow"})
    await pool_sees(pools, 2, pause="until tomorrow")
    await eventually(lambda: said(fake, "default", "DisruptionPaused"))
    assert "'until tomorrow' has no reason; write it last" in fake.events.said[-1][2]
    await skipping.sleep(timedelta(days=30))
    assert (await pool_state(pools)).pause and on_pool(fake) == "until tomorrow"
    await pools.execute_update(NodePoolWorkflow.resume, Resume())
    await eventually(lambda: wrote(fake, ""))
    assert (await pool_state(pools)).pause is None


async def test_what_the_watch_shows_late_of_ones_own_writing_undoes_nothing(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await pool(fake)
    first, second = await pause_for(skipping, hours=1), await pause_for(skipping, hours=2)
    for pause in (first, second):
        await pools.execute_update(NodePoolWorkflow.pause, pause)
        await eventually(partial(wrote, fake, write_pause(tidied(pause))))
    await pool_sees(pools, 2, pause=write_pause(tidied(first)), usage="late")
    assert (await pool_state(pools)).pause == tidied(second)
    await pool_sees(pools, 3, pause=write_pause(tidied(second)))
    assert (await pool_state(pools)).pause == tidied(second)
    await pools.execute_update(NodePoolWorkflow.resume, Resume())
    await eventually(lambda: wrote(fake, ""))
    await pool_sees(pools, 4, pause=write_pause(tidied(second)), usage="later")
    assert (await pool_state(pools)).pause is None
    await pool_sees(pools, 5)
    assert (await pool_state(pools)).pause is None
    by_hand = await text_for(skipping, hours=3)
    await pool_sees(pools, 6, pause=by_hand)
    paused = (await pool_state(pools)).pause
    assert paused is not None and write_pause(paused) == by_hand


async def test_a_pause_that_is_prolonged_by_annotation_at_its_end_is_not_taken_off(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await pool(fake)
    await pools.execute_update(NodePoolWorkflow.pause, await pause_for(skipping, minutes=10))
    await eventually(lambda: said(fake, "default", "DisruptionPaused"))
    longer = await text_for(skipping, hours=5)
    await fake.pools.annotate("default", {PAUSE: longer})
    await skipping.sleep(timedelta(minutes=11))
    await eventually(lambda: said(fake, "default", "DisruptionPaused", "DisruptionResumed"))
    assert on_pool(fake) == longer
    await pool_sees(pools, 2, pause=longer)
    assert (await pool_state(pools)).pause is not None


async def test_a_pause_that_cannot_be_taken_off_at_first_is_taken_off_though_nobody_saw_it_written(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """The watch may be on its way to another process, and tells of neither."""
    pools = await pool(fake)
    pause = await pause_for(skipping, hours=1)
    await pools.signal(NodePoolWorkflow.pause_disruption, pause)
    await eventually(lambda: wrote(fake, write_pause(tidied(pause))))
    fake.pools.faults["annotate"] = [BadInput("denied by a webhook")]
    await pools.signal(NodePoolWorkflow.resume_disruption, Resume())
    await eventually(lambda: fails(pools))
    assert not await wrote(fake, "")
    await in_time(skipping, lambda: wrote(fake, ""), seconds=20)
    await eventually(lambda: said(fake, "default", "DisruptionPaused", "DisruptionResumed"))
    assert (await pool_state(pools)).pause is None


async def test_a_pause_that_cannot_be_written_at_first_is_written_later(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await pool(fake)
    pause = await pause_for(skipping, hours=1)
    fake.pools.faults["annotate"] = [BadInput("denied by a webhook")]
    await pools.signal(NodePoolWorkflow.pause_disruption, pause)
    await in_time(skipping, lambda: wrote(fake, write_pause(tidied(pause))), seconds=20)


async def fails(handle: Any) -> bool:
    events = (await handle.fetch_history()).events
    return any(one.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED for one in events)


async def test_a_pause_calls_permits_back_and_who_had_one_waits_for_its_end(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    await ask(fake, skipping, pools, "a", "b")
    await in_time(skipping, lambda: granted(fake, "a"))
    await pools.signal(NodePoolWorkflow.pause_disruption, await pause_for(skipping, hours=1))
    await eventually(lambda: called_back(fake, "a"))
    assert "NodePool default is paused by ops@example.com" in (await recalls(fake, "a"))[0]
    assert await recalls(fake, "b") == [] and (await pool_state(pools)).permits == ()
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    await skipping.sleep(timedelta(hours=1))
    await in_time(skipping, lambda: granted(fake, "b", "a"), seconds=10)


async def called_back(fake: World, name: str) -> bool:
    return bool(await recalls(fake, name))


async def test_the_clusters_annotation_holds_every_pool_until_it_is_over(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "2"}])
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: granted(fake, "a"))
    await pool_sees(pools, 2, cluster_pause=await text_for(skipping, minutes=10))
    await eventually(lambda: called_back(fake, "a"))
    await ask(fake, skipping, pools, "b")
    await in_time(skipping, lambda: refused(fake, "b"))
    assert on_pool(fake) == "" and (await pool_state(pools)).pause is None
    await skipping.sleep(timedelta(minutes=8))
    assert not await granted(fake, "b")
    await in_time(skipping, lambda: granted(fake, "b"), seconds=10)


async def test_a_holder_that_asks_again_keeps_its_permit_longer_and_nobody_else_gets_one(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b")
    await fake.client.start_workflow(AskerWorkflow.run, id="command", task_queue=ids.task_queue(fake.cluster))
    pools = await pool(fake, budgets=[{"nodes": "1"}])
    now = await skipping.get_current_time()
    wish = PermitAsked(claim_name="a", claim_uid="uid-a", workflow_id="command", reason="Drifted", since=now)
    await pools.signal(NodePoolWorkflow.asked, wish)
    await in_time(skipping, lambda: granted(fake, "command"))
    await ask(fake, skipping, pools, "a")
    await in_time(skipping, lambda: refused(fake, "a"))
    for _ in range(3):
        await skipping.sleep(timedelta(seconds=90))
        await pools.signal(NodePoolWorkflow.asked, wish)
    await eventually(lambda: told(fake, "command", 4))
    state = await pool_state(pools)
    assert [one.workflow_id for one in state.permits] == ["command"] and len(state.asked) == 1
    asker: Asker = fake.client.get_workflow_handle_for(AskerWorkflow.run, "command")
    answers = await asker.query(AskerWorkflow.answers)
    assert [one.granted for one in answers] == [True] * 4 and {one.claim_uid for one in answers} == {"uid-a"}
    assert not await granted(fake, "a")
    await pools.signal(NodePoolWorkflow.withdrawn, PermitWithdrawn(claim_uid="uid-a", workflow_id="command"))
    await in_time(skipping, lambda: granted(fake, "a"))


async def test_a_rate_counts_what_went_and_lets_the_next_go_when_its_time_has_come(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    await standing(fake, "a", "b")
    pools = await pool(fake, budgets=[{"nodes": "100%"}])
    await pool_sees(pools, 2, rules={"rates": [{"nodes": "1", "within": "1h"}]})
    await ask(fake, skipping, pools, "a", "b")
    await in_time(skipping, lambda: granted(fake, "a"))
    fake.claims.give("a", deleting=True)
    await in_time(skipping, lambda: refused(fake, "b"))
    del fake.claims.found["a"]
    await skipping.sleep(timedelta(minutes=5))
    assert len((await pool_state(pools)).past) == 1


async def test_a_paused_node_carries_it_until_it_is_resumed_and_calls_permits_back(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    pools = await pool(fake)
    fake.nodes.change("node-a", annotations={PAUSE: "an older one"})
    pause = await pause_for(skipping, hours=3)
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    await eventually(lambda: said(fake, "a", "DisruptionPaused"))
    assert on_claim(fake) == write_pause(tidied(pause)) and PAUSE not in fake.nodes.found["node-a"].annotations
    now = await skipping.get_current_time()
    await fake.client.start_workflow(AskerWorkflow.run, id="command", task_queue=ids.task_queue(fake.cluster))
    wish = PermitAsked(claim_name="a", claim_uid="uid-a", workflow_id="command", reason="Drifted", since=now)
    fake.claims.give("a", Initialized="True")
    await pools.signal(NodePoolWorkflow.asked, wish)
    await handle.execute_update(NodeClaimWorkflow.resume, Resume())
    await eventually(lambda: said(fake, "a", "DisruptionPaused", "DisruptionResumed"))
    assert on_claim(fake) == ""
    await in_time(skipping, lambda: granted(fake, "command"))
    await handle.execute_update(NodeClaimWorkflow.pause, pause)
    await eventually(lambda: called_back(fake, "command"))


async def test_the_annotation_of_a_node_holds_it(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    await pool(fake)
    now = await skipping.get_current_time()
    text = await text_for(skipping, hours=1)
    await fake.see(handle, **BUSY, empty=True, empty_since=now, policy="WhenEmpty/30s", pause=text)
    await skipping.sleep(timedelta(minutes=50))
    assert await blocked(handle, "the node is paused by ops@example.com until")
    assert (await handle.result()).story[-1].at >= now + timedelta(hours=1)


@pytest.mark.parametrize("whole", [False, True], ids=["of the node", "of its pool"])
async def test_a_pause_gives_up_a_drain_that_can_be_and_its_end_begins_it_again(
    fake: World, skipping: WorkflowEnvironment, whole: bool
) -> None:
    handle = await ready(fake, skipping)
    pools = await pool(fake)
    hold(fake, reschedulable=False)
    await empty(fake, skipping, handle, **rules(whenBlocked="giveUp", blockedFor="9h"))
    await eventually(lambda: blocked(handle, PDB))
    assert not in_service(fake)
    paused: Any = pools if whole else handle
    await paused.signal("pause_disruption", await pause_for(skipping, hours=1))
    await in_phase(handle, Phase.READY)
    assert in_service(fake) and "DrainGivenUp" in fake.events.reasons("a")
    await in_time(skipping, lambda: blocked(handle, "is paused by ops@example.com"))
    fake.pods.blocked.clear()
    await paused.signal("resume_disruption", Resume())
    assert (await handle.result()).reason == "Empty"


async def test_a_deletion_that_is_tried_again_and_again_is_not_tried_while_paused(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await ready(fake, skipping)
    pools = await pool(fake)
    fake.claims.faults["delete"] = [TryLater("etcd is slow")] * 1000
    await emptied(fake, skipping, handle, policy="WhenEmpty/0s")
    await eventually(lambda: asked_to_go(handle))
    await pools.signal(NodePoolWorkflow.pause_disruption, await pause_for(skipping, hours=1))
    await in_time(skipping, lambda: blocked(handle, "NodePool default is paused by ops@example.com"))
    fake.claims.faults.clear()
    await skipping.sleep(timedelta(minutes=50))
    assert (await state_of(handle)).phase is Phase.READY and in_service(fake)
    assert (await handle.result()).reason == "Empty"


async def asked_to_go(handle: Handle) -> bool:
    return await scheduled(handle, "disrupt_claim") > 0


async def test_a_drain_that_cannot_be_undone_says_so(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await ready(fake, skipping)
    hold(fake)
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, **BUSY, deleting=True)
    await in_phase(handle, Phase.DRAIN)
    verdict = await handle.execute_update(NodeClaimWorkflow.pause, await pause_for(skipping, hours=1))
    assert "is being deleted, which cannot be undone" in verdict.message
    fake.pods.blocked.clear()
    assert (await handle.result()).reason == "Deleted"


@pytest.mark.parametrize(
    ("said", "named"),
    [({"by": ""}, "by: '' is no name"), ({"reason": " "}, "reason: ' ' of 1 characters; write why")],
)
async def test_an_update_that_does_not_say_who_or_why_is_refused(
    fake: World, skipping: WorkflowEnvironment, said: dict[str, str], named: str
) -> None:
    pools = await pool(fake)
    wanted = (await pause_for(skipping, hours=1)).model_copy(update=said)
    with pytest.raises(WorkflowUpdateFailedError) as refusal:
        await pools.execute_update(NodePoolWorkflow.pause, wanted)
    assert named in str(refusal.value.__cause__) and (await pool_state(pools)).pause is None


async def test_a_signal_that_does_not_say_who_or_why_holds_all_the_same(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    pools = await pool(fake)
    wanted = Pause(by="", reason="", until=await skipping.get_current_time() + timedelta(hours=1))
    await pools.signal(NodePoolWorkflow.pause_disruption, wanted)
    paused = (await pool_state(pools)).pause
    assert paused is not None and (paused.by, paused.reason) == ("somebody", "no reason given")
    assert paused.until != NEVER


async def test_a_pause_of_the_cluster_stands_on_the_workers_namespace_and_comes_back_from_it(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    cluster = await fake.client.start_workflow(
        ClusterWorkflow.run,
        DisruptionState(cluster=fake.cluster),
        id=ids.cluster(fake.cluster),
        task_queue=ids.task_queue(fake.cluster),
    )
    pause = await pause_for(skipping, hours=1)
    verdict = await cluster.execute_update("pause", pause, result_type=Verdict)
    assert verdict.message.startswith("the cluster is paused until")
    text = write_pause(tidied(pause))
    await eventually(lambda: on_namespace(fake, text))
    await cluster.signal("pause_seen", PauseSeen(number=1, text=text))
    await cluster.signal("pause_seen", PauseSeen(number=2))
    await eventually(lambda: said(fake, "tenure", "DisruptionPaused", "DisruptionResumed"))
    longer = await text_for(skipping, hours=2)
    await cluster.signal("pause_seen", PauseSeen(number=3, text=longer))
    await cluster.signal("pause_seen", PauseSeen(number=2))
    state: DisruptionState = await cluster.query("state", result_type=DisruptionState)
    assert state.pause is not None and write_pause(state.pause) == longer
    await cluster.terminate()


async def on_namespace(fake: World, text: str) -> bool:
    return fake.namespaces.found["tenure"] == {PAUSE: text}
