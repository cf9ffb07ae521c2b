"""Hooks in a node's life: before its drain, after it and before its end; what follows where one fails; restarts."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.apis.labels import DISRUPTED_TAINT_KEY
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.errors import BadInput, TryLater
from tenure.model.hooks import HOOK_NODE, CallAnswer, HookRun, JobFact
from tenure.model.nodeclaim_state import Phase
from tenure.policy.hooks.messages import job_name
from tests.support.fakes.worker import World
from tests.support.workflows.eventually import (
    Handle,
    blocked,
    eventually,
    has_come,
    in_phase,
    in_time,
    latest,
    overdue,
    rolled,
    scheduled,
    state_of,
)
from tests.support.workflows.lives import BUSY, launched, pause_for, pool, ready
from tests.support.workflows.noticed import notice
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "snapshot:1"}]}}
JOB: dict[str, Any] = {"name": "snapshot", "job": {"template": TEMPLATE}}
CALL: dict[str, Any] = {"name": "warn", "http": {"url": "https://hooks.example.com/drain"}}
DONE = JobFact(key="", outcome="succeeded")
REFUSED = CallAnswer(status=409, text="not now")
ALL = ("beforeDrain", "afterDrain", "beforeTerminate")


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.nodeclaim.hooks.LOOK_FIRST", 0.02)
    monkeypatch.setattr("activities.nodeclaim.hooks.LOOK_SLOWEST", 0.05)
    monkeypatch.setattr("activities.nodeclaim.hooks.AGAIN_FIRST", 0.02)


def rules(**hooks: Any) -> dict[str, Any]:
    """What the watch says of a node's rules."""
    return {"rules": LifecycleRules.model_validate({"hooks": hooks}).to_object()}


async def under(fake: World, skipping: WorkflowEnvironment, **hooks: Any) -> Handle:
    """A node under these rules that runs a pod."""
    handle = await ready(fake, skipping)
    fake.pods.place("node-a", "web")
    await fake.see(handle, **BUSY, **rules(**hooks))
    return handle


async def delete(fake: World, handle: Handle, **hooks: Any) -> None:
    """As with kubectl."""
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, **BUSY, deleting=True, **rules(**hooks))


async def empty(fake: World, skipping: WorkflowEnvironment, handle: Handle, **hooks: Any) -> None:
    fake.pods.by_node.clear()
    now = await skipping.get_current_time()
    await fake.see(handle, **BUSY, empty=True, empty_since=now, policy="WhenEmpty/0s", **rules(**hooks))


def in_service(fake: World) -> bool:
    return DISRUPTED_TAINT_KEY not in {key for key, _, _ in fake.nodes.found["node-a"].taints}


def said(fake: World, reason: str) -> list[str]:
    return [message for name, one, message in fake.events.said if (name, one) == ("a", reason)]


async def made(fake: World, number: int = 1) -> bool:
    return len(fake.jobs.made) == number


async def called(fake: World, number: int = 1) -> bool:
    return len(fake.calls.came) == number


async def runs(handle: Handle) -> tuple[HookRun, ...]:
    return (await state_of(handle)).hooks.runs


async def test_pods_stay_and_no_new_ones_come_until_the_hook_before_the_drain_is_over(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await under(fake, skipping, beforeDrain=[JOB])
    await delete(fake, handle, beforeDrain=[JOB])
    await eventually(lambda: made(fake))
    name = job_name("uid-a-beforeDrain-snapshot", "snapshot")
    assert await blocked(handle, f"hook beforeDrain/snapshot: Job tenure-hooks/{name} runs")
    assert not in_service(fake) and fake.pods.evicted == []
    (job,) = fake.jobs.made
    assert (job.name, job.labels[HOOK_NODE], job.env["TENURE_NODE"], job.retries) == (name, "node-a", "node-a", 6)
    assert 0 < job.seconds <= 300
    fake.jobs.end()
    await handle.result()
    assert fake.pods.evicted == ["web"] and len(fake.jobs.made) == 1
    assert said(fake, "HookSucceeded") == ["hook beforeDrain/snapshot succeeded"]


async def test_each_point_has_its_turn(fake: World, skipping: WorkflowEnvironment) -> None:
    hooks = {point: [CALL, CALL | {"name": "then"}] for point in ALL}
    handle = await under(fake, skipping, **hooks)
    await delete(fake, handle, **hooks)
    await handle.result()
    wanted = [(point, name) for point in ALL for name in ("warn", "then")]
    assert [(body["point"], body["hook"]) for _, _, body in fake.calls.came] == wanted
    assert fake.calls.keys == [f"uid-a-{point}-{name}" for point, name in wanted]
    assert len(said(fake, "HookSucceeded")) == 6 and len(fake.instances.terminated) == 1
    assert fake.calls.came[0][2]["reason"] == "Deleted" and fake.calls.came[0][2]["node"] == "node-a"


async def test_a_worker_that_comes_back_finds_the_job_and_calls_under_the_same_key(
    skipping: WorkflowEnvironment,
) -> None:
    fake, hooks = World(skipping.client, cached=0), {"beforeDrain": [JOB, CALL]}
    async with fake.working():
        handle = await under(fake, skipping, **hooks)
        await delete(fake, handle, **hooks)
        await eventually(lambda: made(fake))
    fake.jobs.end()
    fake.calls.answering.clear()
    async with fake.working():
        await eventually(lambda: called(fake))
        assert [(one.name, one.outcome) for one in await runs(handle)] == [("snapshot", "succeeded"), ("warn", None)]
    fake.calls.answering.set()
    async with fake.working():
        await handle.result()
    assert len(fake.jobs.made) == 1 and set(fake.calls.keys) == {"uid-a-beforeDrain-warn"}
    assert len(said(fake, "HookSucceeded")) == 2 and fake.pods.evicted == ["web"]


async def test_a_job_that_was_made_and_is_gone_is_not_made_again(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await under(fake, skipping, beforeDrain=[JOB])
    await delete(fake, handle, beforeDrain=[JOB])
    await eventually(lambda: made(fake))
    fake.jobs.found.clear()
    await handle.result()
    assert len(fake.jobs.made) == 1 and "is gone, and nobody saw how it ended" in said(fake, "HookFailed")[0]


async def test_a_job_of_somebody_else_with_that_name_is_left_alone(fake: World, skipping: WorkflowEnvironment) -> None:
    name = job_name("uid-a-beforeDrain-snapshot", "snapshot")
    fake.jobs.found[f"tenure-hooks/{name}"] = JobFact(key="", outcome="succeeded")
    handle = await under(fake, skipping, beforeDrain=[JOB])
    await delete(fake, handle, beforeDrain=[JOB])
    await handle.result()
    assert "belongs to somebody else" in said(fake, "HookFailed")[0]


async def test_a_failure_is_told_and_the_drain_goes_on(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.calls.answers = [REFUSED]
    handle = await under(fake, skipping, beforeDrain=[CALL])
    await delete(fake, handle, beforeDrain=[CALL])
    await handle.result()
    assert said(fake, "HookFailed") == ["hook beforeDrain/warn failed: answers 409 not now; the drain goes on"]
    assert fake.pods.evicted == ["web"] and len(fake.calls.came) == 1


async def test_what_may_pass_is_tried_again_under_one_key(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.calls.answers = [CallAnswer(status=503), CallAnswer(status=202, retry_after=0.01), CallAnswer(status=204)]
    fake.calls.faults["post"] = [TryLater("no answer: refused")]
    handle = await under(fake, skipping, beforeDrain=[CALL])
    await delete(fake, handle, beforeDrain=[CALL])
    await handle.result()
    assert fake.calls.keys == ["uid-a-beforeDrain-warn"] * 3 and len(said(fake, "HookSucceeded")) == 1


async def test_attempts_have_an_end(fake: World, skipping: WorkflowEnvironment) -> None:
    hook = CALL | {"attempts": 2}
    fake.calls.answers = [CallAnswer(status=202, retry_after=0.01), *[CallAnswer(status=503)] * 5]
    handle = await under(fake, skipping, beforeDrain=[hook])
    await delete(fake, handle, beforeDrain=[hook])
    await handle.result()
    assert len(fake.calls.came) == 3, "one that is still at it has used up no attempt"
    assert "answers 503, after 2 attempts; the drain goes on" in said(fake, "HookFailed")[0]


async def test_a_job_that_the_api_server_refuses_has_failed(fake: World, skipping: WorkflowEnvironment) -> None:
    fake.jobs.faults["create"] = [BadInput("spec.template.spec.containers[0].image: Required value")]
    handle = await under(fake, skipping, beforeDrain=[JOB])
    await delete(fake, handle, beforeDrain=[JOB])
    await handle.result()
    assert "image: Required value" in said(fake, "HookFailed")[0]


@pytest.mark.parametrize("hook", [JOB | {"timeout": "1s"}, CALL | {"timeout": "1s"}])
async def test_one_that_takes_too_long_is_not_waited_for(
    fake: World, skipping: WorkflowEnvironment, hook: dict[str, Any]
) -> None:
    fake.calls.answers = [CallAnswer(status=503)] * 100
    handle = await under(fake, skipping, beforeDrain=[hook])
    await delete(fake, handle, beforeDrain=[hook])
    await handle.result()
    assert f"hook beforeDrain/{hook['name']} took too long" in said(fake, "HookFailed")[0]
    assert fake.pods.evicted == ["web"]


async def test_a_node_that_waits_tries_again_until_it_succeeds(fake: World, skipping: WorkflowEnvironment) -> None:
    hook = JOB | {"onFailure": "wait"}
    fake.jobs.ends = JobFact(key="", outcome="failed", why="BackoffLimitExceeded: it failed")
    handle = await under(fake, skipping, beforeDrain=[hook])
    await delete(fake, handle, beforeDrain=[hook])
    await eventually(lambda: blocked(handle, "hook beforeDrain/snapshot failed, is tried again at"))
    assert len(fake.jobs.made) == 1 and fake.pods.evicted == []
    fake.jobs.ends = DONE
    await skipping.sleep(timedelta(minutes=2))
    await handle.result()
    assert [one.key for one in fake.jobs.made] == ["uid-a-beforeDrain-snapshot", "uid-a-beforeDrain-snapshot-2"]
    assert len({one.name for one in fake.jobs.made}) == 2 and fake.pods.evicted == ["web"]
    assert "the drain waits until it succeeds" in said(fake, "HookFailed")[0]


async def test_waiting_becomes_overdue_and_ends_when_the_policy_says_otherwise(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    hook = CALL | {"onFailure": "wait"}
    fake.calls.answers = [REFUSED] * 100
    handle = await under(fake, skipping, beforeDrain=[hook])
    await delete(fake, handle, beforeDrain=[hook])
    await eventually(lambda: blocked(handle, "hook beforeDrain/warn failed, is tried again at"))
    await in_time(skipping, lambda: overdue(handle), minutes=10)
    assert 5 <= len(fake.calls.came) <= 12 and len(set(fake.calls.keys)) == len(fake.calls.came)
    await fake.see(handle, **BUSY, deleting=True, **rules(beforeDrain=[CALL]))
    await handle.result()
    assert fake.pods.evicted == ["web"]


async def test_waiting_for_weeks_does_not_fill_a_history(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.activity_options, "ROLL_AT_EVENTS", 100)
    hook = CALL | {"onFailure": "wait"}
    fake.calls.answers = [REFUSED] * 100
    handle = await under(fake, skipping, beforeDrain=[hook])
    await delete(fake, handle, beforeDrain=[hook])
    await in_time(skipping, lambda: rolled(fake.client, handle), minutes=10)
    follower = latest(fake.client, handle)
    (run,) = await runs(follower)
    assert run.number > 1 and run.outcome == "failed"
    fake.calls.answers.clear()
    await skipping.sleep(timedelta(minutes=11))
    await follower.result()
    assert fake.pods.evicted == ["web"]


async def test_a_voluntary_drain_is_given_up_and_the_next_one_runs_the_hook_anew(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    hook = CALL | {"onFailure": "giveUp"}
    fake.calls.answers = [REFUSED]
    handle = await under(fake, skipping, beforeDrain=[hook])
    pools = await pool(fake)
    await empty(fake, skipping, handle, beforeDrain=[hook])
    await eventually(lambda: _gave_up(handle))
    assert in_service(fake) and not fake.claims.found["a"]["metadata"].get("deletionTimestamp")
    assert "the drain is given up" in said(fake, "HookFailed")[0]
    assert "hook beforeDrain/warn failed: answers 409" in said(fake, "DrainGivenUp")[0]
    assert (await pools.query(NodePoolWorkflow.state)).permits == ()
    await skipping.sleep(timedelta(minutes=11))
    await handle.result()
    assert fake.calls.keys == ["uid-a-beforeDrain-warn", "uid-a-beforeDrain-warn-2"]


async def _gave_up(handle: Handle) -> bool:
    state = await state_of(handle)
    return state.phase is Phase.READY and state.gave_up is not None


async def test_a_node_that_is_being_deleted_cannot_be_kept_which_is_said(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    hook = CALL | {"onFailure": "giveUp"}
    fake.calls.answers = [REFUSED]
    handle = await under(fake, skipping, beforeDrain=[hook])
    await delete(fake, handle, beforeDrain=[hook])
    await handle.result()
    assert "the node cannot be kept any more, the drain goes on" in said(fake, "HookFailed")[0]
    assert fake.pods.evicted == ["web"]


async def test_a_person_who_deletes_the_claim_under_a_hook_ends_the_chance_to_keep_it(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    hook = JOB | {"onFailure": "giveUp"}
    handle = await under(fake, skipping, beforeDrain=[hook])
    await pool(fake)
    await empty(fake, skipping, handle, beforeDrain=[hook])
    await eventually(lambda: made(fake))
    assert not fake.claims.found["a"]["metadata"].get("deletionTimestamp")
    await delete(fake, handle, beforeDrain=[hook])
    await eventually(lambda: told_anew(handle))
    fake.jobs.end("failed", "BackoffLimitExceeded")
    await handle.result()
    assert "the node cannot be kept any more" in said(fake, "HookFailed")[0] and len(fake.jobs.made) == 1


async def test_calls_count_on_where_the_hook_is_told_anew(fake: World, skipping: WorkflowEnvironment) -> None:
    hook = CALL | {"attempts": 3}
    fake.calls.answers = [CallAnswer(status=503, retry_after=0.01), CallAnswer(status=503, retry_after=3600)]
    fake.calls.answers += [CallAnswer(status=503, retry_after=0.01)] * 5
    handle = await under(fake, skipping, beforeDrain=[hook])
    await delete(fake, handle, beforeDrain=[hook])
    await eventually(lambda: called(fake, 2))
    await fake.see(handle, **BUSY, deleting=True, **rules(beforeDrain=[hook | {"timeout": "9m"}]))
    await handle.result()
    assert len(fake.calls.came) == 3 and "after 3 attempts" in said(fake, "HookFailed")[0]


async def told_anew(handle: Handle) -> bool:
    """The hook's activity was cancelled and asked for again. The test server hangs for good where one ends just when it
    is to be cancelled, which Temporal does not."""
    return await scheduled(handle, "run_hook") == 2


async def test_a_pause_ends_a_hook_of_a_drain_that_can_be_given_up(fake: World, skipping: WorkflowEnvironment) -> None:
    hook = JOB | {"onFailure": "giveUp"}
    handle = await under(fake, skipping, beforeDrain=[hook])
    await pool(fake)
    await empty(fake, skipping, handle, beforeDrain=[hook])
    await eventually(lambda: made(fake))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(skipping, hours=1))
    await eventually(lambda: _gave_up(handle))
    assert in_service(fake) and (await runs(handle))[0].past
    fake.jobs.ends = DONE
    await skipping.sleep(timedelta(hours=2))
    await handle.result()
    assert len(fake.jobs.made) == 2


async def test_a_hook_that_leaves_the_policy_is_waited_for_no_more(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await under(fake, skipping, beforeDrain=[JOB])
    await delete(fake, handle, beforeDrain=[JOB])
    await eventually(lambda: made(fake))
    await fake.see(handle, **BUSY, deleting=True)
    await handle.result()
    assert fake.pods.evicted == ["web"] and not said(fake, "HookSucceeded") and not said(fake, "HookFailed")


async def test_aws_is_faster_than_a_hook(
    fake: World, skipping: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that is under way has less time from the moment at which AWS says that it takes the instance."""
    monkeypatch.setattr("tenure.policy.hooks.decision.AT_LEAST", timedelta(seconds=1))
    hook = JOB | {"timeout": "1h", "onFailure": "wait"}
    handle = await under(fake, skipping, beforeDrain=[hook])
    await delete(fake, handle, beforeDrain=[hook])
    await eventually(lambda: made(fake))
    await notice(fake, skipping, handle, "instanceTerminating")
    await handle.result()
    assert len(fake.jobs.made) == 1 and fake.pods.evicted == ["web"]
    assert "took too long" in said(fake, "HookFailed")[0]


async def test_an_event_of_aws_is_told_to_the_hook_and_its_claim_is_deleted_at_once(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    """So that its replacement is bought while the hook runs."""
    fake.calls.answering.clear()
    handle = await under(fake, skipping, beforeDrain=[CALL])
    await notice(fake, skipping, handle, "spotInterruption", code="terminate")
    await eventually(lambda: called(fake))
    assert fake.calls.came[0][2]["event"] == {"kind": "spotInterruption", "code": "terminate"}
    assert fake.calls.came[0][2]["reason"] == "spot_interrupted"
    assert fake.claims.found["a"]["metadata"].get("deletionTimestamp") and fake.pods.evicted == []
    fake.calls.answering.set()
    await handle.result()


async def test_a_node_that_was_never_drained_has_the_hook_before_its_end(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await launched(fake, skipping)
    hooks = {point: [CALL] for point in ALL}
    await fake.claims.delete("a", "uid-a")
    await fake.see(handle, deleting=True, **rules(**hooks))
    await handle.result()
    assert fake.calls.keys == ["uid-a-beforeTerminate-warn"] and len(fake.instances.terminated) == 1


async def test_the_hook_before_the_end_is_skipped_for_an_instance_that_is_gone(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await under(fake, skipping, beforeTerminate=[CALL])
    fake.instances.running.clear()
    await delete(fake, handle, beforeTerminate=[CALL])
    await handle.result()
    assert fake.calls.came == []
    assert said(fake, "HookSkipped") == ["hook beforeTerminate/warn was skipped: its instance is gone already"]


async def test_the_instance_stays_until_the_hook_before_its_end_is_over(
    fake: World, skipping: WorkflowEnvironment
) -> None:
    handle = await under(fake, skipping, beforeTerminate=[JOB])
    await delete(fake, handle, beforeTerminate=[JOB])
    await in_phase(handle, Phase.TERMINATION)
    await eventually(lambda: made(fake))
    assert fake.instances.terminated == [] and await blocked(handle, "hook beforeTerminate/snapshot")
    fake.jobs.end()
    await handle.result()
    assert len(fake.instances.terminated) == 1


async def test_what_came_of_a_hook_is_in_the_state(fake: World, skipping: WorkflowEnvironment) -> None:
    handle = await under(fake, skipping, beforeDrain=[CALL], afterDrain=[JOB])
    await delete(fake, handle, beforeDrain=[CALL], afterDrain=[JOB])
    await eventually(lambda: made(fake))
    assert await has_come(handle, Phase.DRAIN) and await blocked(handle, "hook afterDrain/snapshot")
    assert [(one.point, one.outcome) for one in await runs(handle)] == [
        ("beforeDrain", "succeeded"),
        ("afterDrain", None),
    ]
    fake.jobs.end()
    await handle.result()
