"""Hooks in a node's life: before its drain, after it and before its end; what follows where one fails; restarts."""

from datetime import timedelta
from fnmatch import fnmatch
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
from tenure.apis.labels import DISRUPTED_TAINT_KEY
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.errors import BadInput, TryLater
from tenure.model.hooks import HOOK_NODE, CallResult, HookRun, JobFact
from tenure.model.nodeclaim.state import Phase
from tenure.policy.hooks.messages import job_name
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import (
    Handle,
    count_scheduled,
    has_continued_as_new,
    is_blocked_by,
    is_in_phase,
    is_overdue,
    latest_run,
    query_state,
    wait_until,
    wait_until_phase,
    wait_until_skipping_time,
)
from tests.support.workflows.interruption_messages import send_message
from tests.support.workflows.nodeclaim_workflows import (
    BUSY,
    launched_nodeclaim,
    pause_for,
    ready_nodeclaim,
    start_nodepool,
)
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.nodepool import NodePoolWorkflow

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "snapshot:1"}]}}
JOB: dict[str, Any] = {"name": "snapshot", "job": {"template": TEMPLATE}}
CALL: dict[str, Any] = {"name": "warn", "http": {"url": "https://hooks.example.com/drain"}}
DONE = JobFact(key="", outcome="succeeded")
REJECTED = CallResult(status=409, text="not now")
ALL = ("beforeDrain", "afterDrain", "beforeTerminate")


@pytest.fixture(autouse=True)
def short_hook_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activities.nodeclaim.hooks.FIRST_POLL_SECONDS", 0.02)
    monkeypatch.setattr("activities.nodeclaim.hooks.MAX_POLL_SECONDS", 0.05)
    monkeypatch.setattr("activities.nodeclaim.hooks.FIRST_RETRY_SECONDS", 0.02)


def hook_rules(**hooks: Any) -> dict[str, Any]:
    """What the watch says of a node's rules."""
    return {"rules": LifecycleRules.model_validate({"hooks": hooks}).to_object()}


async def ready_with_hooks(fake: WorkerHarness, **hooks: Any) -> Handle:
    """A node under these rules that runs a pod."""
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    await fake.signal_observed(handle, **BUSY, **hook_rules(**hooks))
    return handle


async def delete_and_observe(fake: WorkerHarness, handle: Handle, **hooks: Any) -> None:
    """As with kubectl."""
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, **BUSY, deleting=True, **hook_rules(**hooks))


async def draining_with_hooks(fake: WorkerHarness, **hooks: Any) -> Handle:
    handle = await ready_with_hooks(fake, **hooks)
    await delete_and_observe(fake, handle, **hooks)
    return handle


async def observe_empty_now(fake: WorkerHarness, handle: Handle, **hooks: Any) -> None:
    fake.pods.by_node.clear()
    now = await fake.now()
    await fake.signal_observed(
        handle, **BUSY, empty=True, empty_since=now, consolidation="WhenEmpty/0s", **hook_rules(**hooks)
    )


def is_in_service(fake: WorkerHarness) -> bool:
    return DISRUPTED_TAINT_KEY not in {key for key, _, _ in fake.nodes.found["node-a"].taints}


def event_messages(fake: WorkerHarness, reason: str) -> list[str]:
    return [message for name, one, message in fake.events.published if (name, one) == ("a", reason)]


async def has_created_jobs(fake: WorkerHarness, number: int = 1) -> bool:
    return len(fake.jobs.created) == number


async def hook_runs(handle: Handle) -> tuple[HookRun, ...]:
    return (await query_state(handle)).hooks.runs


async def test_pods_stay_and_no_new_ones_come_until_the_hook_before_the_drain_is_over(fake: WorkerHarness) -> None:
    handle = await draining_with_hooks(fake, beforeDrain=[JOB])
    await wait_until(lambda: has_created_jobs(fake))
    name = job_name("uid-a-beforeDrain-snapshot", "snapshot")
    assert await is_blocked_by(handle, f"hook beforeDrain/snapshot: Job tenure-hooks/{name} runs")
    assert not is_in_service(fake) and fake.pods.evicted == []
    (job,) = fake.jobs.created
    assert (job.name, job.labels[HOOK_NODE], job.env["TENURE_NODE"], job.retries) == (name, "node-a", "node-a", 6)
    assert 0 < job.seconds <= 300
    fake.jobs.finish_running()
    await handle.result()
    assert fake.pods.evicted == ["web"] and len(fake.jobs.created) == 1
    assert event_messages(fake, "HookSucceeded") == ["hook beforeDrain/snapshot succeeded"]


async def test_each_point_has_its_turn(fake: WorkerHarness) -> None:
    hooks = {point: [CALL, CALL | {"name": "then"}] for point in ALL}
    handle = await draining_with_hooks(fake, **hooks)
    await handle.result()
    expected = [(point, name) for point in ALL for name in ("warn", "then")]
    assert [(body["point"], body["hook"]) for _, _, body in fake.calls.received] == expected
    assert fake.calls.received_keys == [f"uid-a-{point}-{name}" for point, name in expected]
    assert len(event_messages(fake, "HookSucceeded")) == 6 and len(fake.instances.terminated) == 1
    assert fake.calls.received[0][2]["reason"] == "Deleted" and fake.calls.received[0][2]["node"] == "node-a"


async def test_a_rejected_address_names_the_policy_the_field_and_the_remedy(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    problem = (
        "'hooks.example.com' is at ::1, a loopback address; write another address, or set HOOK_LOCAL_ADDRESSES=true"
    )
    fake.calls.faults["post"] = [BadInput(problem)]
    rules = hook_rules(afterDrain=[JOB, CALL]) | {"hook_policies": {"afterDrain": "web"}}
    fake.jobs.next_outcome = DONE
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, **BUSY, deleting=True, **rules)
    await handle.result()
    (message,) = event_messages(fake, "HookFailed")
    assert f"LifecyclePolicy web: spec.hooks.afterDrain[1].http.url: {problem}" in message


async def test_a_worker_that_comes_back_finds_the_job_and_calls_under_the_same_key(
    skipping: WorkflowEnvironment,
) -> None:
    fake, hooks = WorkerHarness.on(skipping, max_cached_workflows=0), {"beforeDrain": [JOB, CALL]}
    async with fake.running_worker():
        handle = await ready_with_hooks(fake, **hooks)
        await delete_and_observe(fake, handle, **hooks)
        await wait_until(lambda: has_created_jobs(fake))
    fake.jobs.finish_running()
    fake.calls.responding.clear()
    async with fake.running_worker():
        await wait_until(lambda: len(fake.calls.received) == 1)
        assert [(one.name, one.outcome) for one in await hook_runs(handle)] == [
            ("snapshot", "succeeded"),
            ("warn", None),
        ]
    fake.calls.responding.set()
    async with fake.running_worker():
        await handle.result()
    assert len(fake.jobs.created) == 1 and set(fake.calls.received_keys) == {"uid-a-beforeDrain-warn"}
    assert len(event_messages(fake, "HookSucceeded")) == 2 and fake.pods.evicted == ["web"]


async def test_a_job_that_was_made_and_is_gone_is_not_made_again(fake: WorkerHarness) -> None:
    handle = await draining_with_hooks(fake, beforeDrain=[JOB])
    await wait_until(lambda: has_created_jobs(fake))
    fake.jobs.found.clear()
    await handle.result()
    assert (
        len(fake.jobs.created) == 1 and "is gone, and nobody saw how it ended" in event_messages(fake, "HookFailed")[0]
    )


UNAVAILABLE = CallResult(status=503)
STILL_RUNNING = CallResult(status=202, retry_after=0.01)
LATE = {"timeout": "1s"}


@pytest.mark.parametrize(
    ("hook", "responses", "calls", "message"),
    [
        (CALL, [REJECTED], 1, "hook beforeDrain/warn failed: answers 409 not now; the drain goes on"),
        (CALL | {"attempts": 2}, [STILL_RUNNING, *[UNAVAILABLE] * 5], 3, "*503, after 2 attempts; the drain goes on*"),
        (CALL | LATE, [UNAVAILABLE] * 100, None, "*hook beforeDrain/warn took too long*"),
        (JOB | LATE, [], 0, "*hook beforeDrain/snapshot took too long*"),
        (CALL | {"onFailure": "giveUp"}, [REJECTED], 1, "*the node can no longer be kept, the drain goes on*"),
    ],
    ids=["rejected", "attempts used up", "late call", "late job", "drain of a deleted NodeClaim"],
)
async def test_a_failed_hook_is_reported_and_the_drain_goes_on(
    fake: WorkerHarness, hook: dict[str, Any], responses: list[CallResult], calls: int | None, message: str
) -> None:
    """A call that is still running uses up no attempt."""
    fake.calls.responses = responses
    await (await draining_with_hooks(fake, beforeDrain=[hook])).result()
    (found,) = event_messages(fake, "HookFailed")
    assert fnmatch(found, message) and fake.pods.evicted == ["web"]
    assert calls is None or len(fake.calls.received) == calls


async def test_a_job_that_the_api_server_refuses_has_failed(fake: WorkerHarness) -> None:
    fake.jobs.faults["create"] = [BadInput("spec.template.spec.containers[0].image: Required value")]
    await (await draining_with_hooks(fake, beforeDrain=[JOB])).result()
    assert "image: Required value" in event_messages(fake, "HookFailed")[0]


async def test_a_job_of_somebody_else_with_that_name_is_left_alone(fake: WorkerHarness) -> None:
    name = job_name("uid-a-beforeDrain-snapshot", "snapshot")
    fake.jobs.found[f"tenure-hooks/{name}"] = JobFact(key="", outcome="succeeded")
    await (await draining_with_hooks(fake, beforeDrain=[JOB])).result()
    assert "belongs to somebody else" in event_messages(fake, "HookFailed")[0]


async def test_what_may_pass_is_tried_again_under_one_key(fake: WorkerHarness) -> None:
    fake.calls.responses = [CallResult(status=503), CallResult(status=202, retry_after=0.01), CallResult(status=204)]
    fake.calls.faults["post"] = [TryLater("no answer: refused")]
    handle = await draining_with_hooks(fake, beforeDrain=[CALL])
    await handle.result()
    assert (
        fake.calls.received_keys == ["uid-a-beforeDrain-warn"] * 3 and len(event_messages(fake, "HookSucceeded")) == 1
    )


async def test_a_node_that_waits_tries_again_until_it_succeeds(fake: WorkerHarness) -> None:
    hook = JOB | {"onFailure": "wait"}
    fake.jobs.next_outcome = JobFact(key="", outcome="failed", why="BackoffLimitExceeded: it failed")
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: is_blocked_by(handle, "hook beforeDrain/snapshot failed, is tried again at"))
    assert len(fake.jobs.created) == 1 and fake.pods.evicted == []
    fake.jobs.next_outcome = DONE
    await fake.sleep(minutes=2)
    await handle.result()
    assert [one.key for one in fake.jobs.created] == ["uid-a-beforeDrain-snapshot", "uid-a-beforeDrain-snapshot-2"]
    assert len({one.name for one in fake.jobs.created}) == 2 and fake.pods.evicted == ["web"]
    assert "the drain waits until it succeeds" in event_messages(fake, "HookFailed")[0]


async def test_waiting_becomes_overdue_and_ends_when_the_policy_says_otherwise(fake: WorkerHarness) -> None:
    hook = CALL | {"onFailure": "wait"}
    fake.calls.responses = [REJECTED] * 100
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: is_blocked_by(handle, "hook beforeDrain/warn failed, is tried again at"))
    await wait_until_skipping_time(fake, lambda: is_overdue(handle), minutes=10)
    assert 5 <= len(fake.calls.received) <= 12 and len(set(fake.calls.received_keys)) == len(fake.calls.received)
    await fake.signal_observed(handle, **BUSY, deleting=True, **hook_rules(beforeDrain=[CALL]))
    await handle.result()
    assert fake.pods.evicted == ["web"]


async def test_waiting_for_weeks_does_not_fill_a_history(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 100)
    hook = CALL | {"onFailure": "wait"}
    fake.calls.responses = [REJECTED] * 100
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until_skipping_time(fake, lambda: has_continued_as_new(fake.client, handle), minutes=10)
    follower = latest_run(fake.client, handle)
    (run,) = await hook_runs(follower)
    assert run.number > 1 and run.outcome == "failed"
    fake.calls.responses.clear()
    await fake.sleep(minutes=11)
    await follower.result()
    assert fake.pods.evicted == ["web"]


async def test_a_voluntary_drain_is_given_up_and_the_next_one_runs_the_hook_anew(fake: WorkerHarness) -> None:
    hook = CALL | {"onFailure": "giveUp"}
    fake.calls.responses = [REJECTED]
    handle = await ready_with_hooks(fake, beforeDrain=[hook])
    pools = await start_nodepool(fake)
    await observe_empty_now(fake, handle, beforeDrain=[hook])
    await wait_until(lambda: _drain_was_cancelled(handle))
    assert is_in_service(fake) and not fake.claims.found["a"]["metadata"].get("deletionTimestamp")
    assert "the drain is cancelled" in event_messages(fake, "HookFailed")[0]
    assert "hook beforeDrain/warn failed: answers 409" in event_messages(fake, "DrainGivenUp")[0]
    assert (await pools.query(NodePoolWorkflow.state)).permits == ()
    await fake.sleep(minutes=11)
    await handle.result()
    assert fake.calls.received_keys == ["uid-a-beforeDrain-warn", "uid-a-beforeDrain-warn-2"]


async def _drain_was_cancelled(handle: Handle) -> bool:
    state = await query_state(handle)
    return state.phase is Phase.READY and state.cancelled_drain is not None


async def test_a_person_who_deletes_the_claim_under_a_hook_ends_the_chance_to_keep_it(fake: WorkerHarness) -> None:
    hook = JOB | {"onFailure": "giveUp"}
    handle = await ready_with_hooks(fake, beforeDrain=[hook])
    await start_nodepool(fake)
    await observe_empty_now(fake, handle, beforeDrain=[hook])
    await wait_until(lambda: has_created_jobs(fake))
    assert not fake.claims.found["a"]["metadata"].get("deletionTimestamp")
    await delete_and_observe(fake, handle, beforeDrain=[hook])
    await wait_until(lambda: hook_was_restarted(handle))
    fake.jobs.finish_running("failed", "BackoffLimitExceeded")
    await handle.result()
    assert "the node can no longer be kept" in event_messages(fake, "HookFailed")[0] and len(fake.jobs.created) == 1


async def test_calls_count_on_where_the_hook_is_told_anew(fake: WorkerHarness) -> None:
    hook = CALL | {"attempts": 3}
    fake.calls.responses = [CallResult(status=503, retry_after=0.01), CallResult(status=503, retry_after=3600)]
    fake.calls.responses += [CallResult(status=503, retry_after=0.01)] * 5
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: len(fake.calls.received) == 2)
    await fake.signal_observed(handle, **BUSY, deleting=True, **hook_rules(beforeDrain=[hook | {"timeout": "9m"}]))
    await handle.result()
    assert len(fake.calls.received) == 3 and "after 3 attempts" in event_messages(fake, "HookFailed")[0]


async def hook_was_restarted(handle: Handle) -> bool:
    """The hook's activity was cancelled and asked for again. The test server hangs for good where one ends just when it
    is to be cancelled, which Temporal does not."""
    return await count_scheduled(handle, "run_hook") == 2


async def test_a_pause_ends_a_hook_of_a_drain_that_can_be_given_up(fake: WorkerHarness) -> None:
    hook = JOB | {"onFailure": "giveUp"}
    handle = await ready_with_hooks(fake, beforeDrain=[hook])
    await start_nodepool(fake)
    await observe_empty_now(fake, handle, beforeDrain=[hook])
    await wait_until(lambda: has_created_jobs(fake))
    await handle.signal(NodeClaimWorkflow.pause_disruption, await pause_for(fake, hours=1))
    await wait_until(lambda: _drain_was_cancelled(handle))
    assert is_in_service(fake) and (await hook_runs(handle))[0].past
    fake.jobs.next_outcome = DONE
    await fake.sleep(hours=2)
    await handle.result()
    assert len(fake.jobs.created) == 2


async def test_a_hook_that_leaves_the_policy_is_waited_for_no_more(fake: WorkerHarness) -> None:
    handle = await draining_with_hooks(fake, beforeDrain=[JOB])
    await wait_until(lambda: has_created_jobs(fake))
    await fake.signal_observed(handle, **BUSY, deleting=True)
    await handle.result()
    assert (
        fake.pods.evicted == ["web"]
        and not event_messages(fake, "HookSucceeded")
        and not event_messages(fake, "HookFailed")
    )


async def test_aws_is_faster_than_a_hook(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that is under way has less time from the moment at which AWS says that it takes the instance."""
    monkeypatch.setattr("tenure.policy.hooks.decision.MIN_HOOKS_TIME", timedelta(seconds=1))
    hook = JOB | {"timeout": "1h", "onFailure": "wait"}
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: has_created_jobs(fake))
    await send_message(fake, handle, "instanceTerminating")
    await handle.result()
    assert len(fake.jobs.created) == 1 and fake.pods.evicted == ["web"]
    assert "took too long" in event_messages(fake, "HookFailed")[0]


async def test_an_event_of_aws_is_told_to_the_hook_and_its_claim_is_deleted_at_once(fake: WorkerHarness) -> None:
    """So that its replacement is bought while the hook runs."""
    fake.calls.responding.clear()
    handle = await ready_with_hooks(fake, beforeDrain=[CALL])
    await send_message(fake, handle, "spotInterruption", code="terminate")
    await wait_until(lambda: len(fake.calls.received) == 1)
    assert fake.calls.received[0][2]["event"] == {"kind": "spotInterruption", "code": "terminate"}
    assert fake.calls.received[0][2]["reason"] == "spot_interrupted"
    assert fake.claims.found["a"]["metadata"].get("deletionTimestamp") and fake.pods.evicted == []
    fake.calls.responding.set()
    await handle.result()


async def test_a_node_that_was_never_drained_has_the_hook_before_its_end(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    hooks = {point: [CALL] for point in ALL}
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, deleting=True, **hook_rules(**hooks))
    await handle.result()
    assert fake.calls.received_keys == ["uid-a-beforeTerminate-warn"] and len(fake.instances.terminated) == 1


async def test_the_hook_before_the_end_is_skipped_for_an_instance_that_is_gone(fake: WorkerHarness) -> None:
    handle = await ready_with_hooks(fake, beforeTerminate=[CALL])
    fake.instances.running.clear()
    await delete_and_observe(fake, handle, beforeTerminate=[CALL])
    await handle.result()
    assert fake.calls.received == []
    assert event_messages(fake, "HookSkipped") == [
        "hook beforeTerminate/warn was skipped: its instance is gone already"
    ]


async def test_the_instance_stays_until_the_hook_before_its_end_is_over(fake: WorkerHarness) -> None:
    handle = await draining_with_hooks(fake, beforeTerminate=[JOB])
    await wait_until_phase(handle, Phase.TERMINATION)
    await wait_until(lambda: has_created_jobs(fake))
    assert fake.instances.terminated == [] and await is_blocked_by(handle, "hook beforeTerminate/snapshot")
    fake.jobs.finish_running()
    await handle.result()
    assert len(fake.instances.terminated) == 1


async def test_what_came_of_a_hook_is_in_the_state(fake: WorkerHarness) -> None:
    handle = await draining_with_hooks(fake, beforeDrain=[CALL], afterDrain=[JOB])
    await wait_until(lambda: has_created_jobs(fake))
    assert await is_in_phase(handle, Phase.DRAIN) and await is_blocked_by(handle, "hook afterDrain/snapshot")
    assert [(one.point, one.outcome) for one in await hook_runs(handle)] == [
        ("beforeDrain", "succeeded"),
        ("afterDrain", None),
    ]
    fake.jobs.finish_running()
    await handle.result()
