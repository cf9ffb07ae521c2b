"""Hooks before and after the drain and before termination: failures, retries and restarts."""

from datetime import timedelta
from fnmatch import fnmatch
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

import workflows.activity_options
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
    delete_nodeclaim,
    is_in_service,
    launched_nodeclaim,
    observe_empty,
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
    """Observation fields with these hooks."""
    return {"rules": LifecycleRules.model_validate({"hooks": hooks}).to_object()}


async def ready_with_hooks(fake: WorkerHarness, **hooks: Any) -> Handle:
    """A Ready node with these hooks that runs a pod."""
    handle = await ready_nodeclaim(fake)
    fake.pods.add("node-a", "web")
    await fake.signal_observed(handle, **BUSY, **hook_rules(**hooks))
    return handle


async def draining_with_hooks(fake: WorkerHarness, **hooks: Any) -> Handle:
    handle = await ready_with_hooks(fake, **hooks)
    await delete_nodeclaim(fake, handle, **hook_rules(**hooks))
    return handle


async def observe_empty_now(fake: WorkerHarness, handle: Handle, **hooks: Any) -> None:
    fake.pods.by_node.clear()
    await observe_empty(fake, handle, "WhenEmpty/0s", **hook_rules(**hooks))


def event_messages(fake: WorkerHarness, reason: str) -> list[str]:
    return [message for name, one, message in fake.events.published if (name, one) == ("a", reason)]


async def has_created_jobs(fake: WorkerHarness, number: int = 1) -> bool:
    return len(fake.jobs.created) == number


async def hook_runs(handle: Handle) -> tuple[HookRun, ...]:
    return (await query_state(handle)).hooks.runs


async def test_before_drain_hook_delays_evictions_and_taints_node(fake: WorkerHarness) -> None:
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


async def test_hooks_run_in_order_at_each_point(fake: WorkerHarness) -> None:
    hooks = {point: [CALL, CALL | {"name": "then"}] for point in ALL}
    handle = await draining_with_hooks(fake, **hooks)
    await handle.result()
    expected = [(point, name) for point in ALL for name in ("warn", "then")]
    assert [(body["point"], body["hook"]) for _, _, body in fake.calls.received] == expected
    assert fake.calls.received_keys == [f"uid-a-{point}-{name}" for point, name in expected]
    assert len(event_messages(fake, "HookSucceeded")) == 6 and len(fake.instances.terminated) == 1
    assert fake.calls.received[0][2]["reason"] == "Deleted" and fake.calls.received[0][2]["node"] == "node-a"


async def test_rejected_hook_address_names_policy_field_and_fix(fake: WorkerHarness) -> None:
    handle = await ready_nodeclaim(fake)
    problem = (
        "'hooks.example.com' is at ::1, a loopback address; expected another address, or HOOK_LOCAL_ADDRESSES=true"
    )
    fake.calls.faults["post"] = [BadInput(problem)]
    rules = hook_rules(afterDrain=[JOB, CALL]) | {"hook_policies": {"afterDrain": "web"}}
    fake.jobs.next_outcome = DONE
    await delete_nodeclaim(fake, handle, **rules)
    await handle.result()
    (message,) = event_messages(fake, "HookFailed")
    assert f"LifecyclePolicy web: spec.hooks.afterDrain[1].http.url: {problem}" in message


async def test_restarted_worker_reuses_job_and_call_key(skipping: WorkflowEnvironment) -> None:
    fake, hooks = WorkerHarness.on(skipping, max_cached_workflows=0), {"beforeDrain": [JOB, CALL]}
    async with fake.running_worker():
        handle = await ready_with_hooks(fake, **hooks)
        await delete_nodeclaim(fake, handle, **hook_rules(**hooks))
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


async def test_deleted_job_is_not_created_again(fake: WorkerHarness) -> None:
    handle = await draining_with_hooks(fake, beforeDrain=[JOB])
    await wait_until(lambda: has_created_jobs(fake))
    fake.jobs.found.clear()
    await handle.result()
    assert len(fake.jobs.created) == 1 and "is gone, and its result is unknown" in event_messages(fake, "HookFailed")[0]


UNAVAILABLE = CallResult(status=503)
STILL_RUNNING = CallResult(status=202, retry_after=0.01)
LATE = {"timeout": "200ms"}


@pytest.mark.parametrize(
    ("hook", "responses", "calls", "message"),
    [
        (CALL, [REJECTED], 1, "hook beforeDrain/warn failed: returned 409 not now; the drain continues"),
        (
            CALL | {"attempts": 2},
            [STILL_RUNNING, *[UNAVAILABLE] * 5],
            3,
            "*503, after 2 attempts; the drain continues*",
        ),
        (CALL | LATE, [UNAVAILABLE] * 100, None, "*hook beforeDrain/warn timed out*"),
        (JOB | LATE, [], 0, "*hook beforeDrain/snapshot timed out*"),
        (CALL | {"onFailure": "giveUp"}, [REJECTED], 1, "*the node can no longer be kept, the drain continues*"),
    ],
    ids=["rejected", "attempts used up", "late call", "late job", "drain of a deleted NodeClaim"],
)
async def test_failed_hook_is_reported_and_drain_continues(
    fake: WorkerHarness, hook: dict[str, Any], responses: list[CallResult], calls: int | None, message: str
) -> None:
    """A call that is still running uses up no attempt."""
    fake.calls.responses = responses
    await (await draining_with_hooks(fake, beforeDrain=[hook])).result()
    (found,) = event_messages(fake, "HookFailed")
    assert fnmatch(found, message) and fake.pods.evicted == ["web"]
    assert calls is None or len(fake.calls.received) == calls


async def test_job_rejected_by_api_server_fails_hook(fake: WorkerHarness) -> None:
    fake.jobs.faults["create"] = [BadInput("spec.template.spec.containers[0].image: Required value")]
    await (await draining_with_hooks(fake, beforeDrain=[JOB])).result()
    assert "image: Required value" in event_messages(fake, "HookFailed")[0]


async def test_foreign_job_with_same_name_is_kept(fake: WorkerHarness) -> None:
    name = job_name("uid-a-beforeDrain-snapshot", "snapshot")
    fake.jobs.found[f"tenure-hooks/{name}"] = JobFact(key="", outcome="succeeded")
    await (await draining_with_hooks(fake, beforeDrain=[JOB])).result()
    assert "exists and was not created for this hook" in event_messages(fake, "HookFailed")[0]


async def test_retryable_call_is_repeated_with_same_key(fake: WorkerHarness) -> None:
    fake.calls.responses = [CallResult(status=503), CallResult(status=202, retry_after=0.01), CallResult(status=204)]
    fake.calls.faults["post"] = [TryLater("no response: refused")]
    handle = await draining_with_hooks(fake, beforeDrain=[CALL])
    await handle.result()
    assert (
        fake.calls.received_keys == ["uid-a-beforeDrain-warn"] * 3 and len(event_messages(fake, "HookSucceeded")) == 1
    )


async def test_hook_with_wait_is_retried_until_success(fake: WorkerHarness) -> None:
    hook = JOB | {"onFailure": "wait"}
    fake.jobs.next_outcome = JobFact(key="", outcome="failed", why="BackoffLimitExceeded: it failed")
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: is_blocked_by(handle, "hook beforeDrain/snapshot failed, is retried at"))
    assert len(fake.jobs.created) == 1 and fake.pods.evicted == []
    fake.jobs.next_outcome = DONE
    await fake.sleep(minutes=2)
    await handle.result()
    assert [one.key for one in fake.jobs.created] == ["uid-a-beforeDrain-snapshot", "uid-a-beforeDrain-snapshot-2"]
    assert len({one.name for one in fake.jobs.created}) == 2 and fake.pods.evicted == ["web"]
    assert "the drain waits until it succeeds" in event_messages(fake, "HookFailed")[0]


async def test_waiting_hook_becomes_overdue_and_ends_after_policy_change(fake: WorkerHarness) -> None:
    hook = CALL | {"onFailure": "wait"}
    fake.calls.responses = [REJECTED] * 100
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: is_blocked_by(handle, "hook beforeDrain/warn failed, is retried at"))
    await wait_until_skipping_time(fake, lambda: is_overdue(handle), minutes=10)
    assert 5 <= len(fake.calls.received) <= 12 and len(set(fake.calls.received_keys)) == len(fake.calls.received)
    await fake.signal_observed(handle, **BUSY, deleting=True, **hook_rules(beforeDrain=[CALL]))
    await handle.result()
    assert fake.pods.evicted == ["web"]


async def test_waiting_hook_is_overdue_at_a_shortened_deadline(fake: WorkerHarness) -> None:
    """After twelve minutes, the hook is retried in three minutes."""
    hook = CALL | {"onFailure": "wait"}
    fake.calls.responses = [REJECTED] * 100
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: is_blocked_by(handle, "hook beforeDrain/warn failed, is retried at"))
    await fake.sleep(minutes=12)
    began = await fake.now()
    rules = LifecycleRules.model_validate({"hooks": {"beforeDrain": [hook]}, "drain": {"deadline": "1m"}}).to_object()
    await fake.signal_observed(handle, **BUSY, deleting=True, rules=rules)
    await wait_until_skipping_time(fake, lambda: is_overdue(handle), seconds=5)
    assert await fake.now() - began < timedelta(minutes=1)


async def test_long_hook_wait_continues_as_new(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 100)
    hook = CALL | {"onFailure": "wait"}
    fake.calls.responses = [REJECTED] * 100
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until_skipping_time(fake, lambda: has_continued_as_new(fake.client, handle), minutes=10)
    latest = latest_run(fake.client, handle)
    (run,) = await hook_runs(latest)
    assert run.number > 1 and run.outcome == "failed"
    fake.calls.responses.clear()
    await fake.sleep(minutes=11)
    await latest.result()
    assert fake.pods.evicted == ["web"]


async def test_failed_hook_cancels_voluntary_drain_and_runs_again_in_next_drain(fake: WorkerHarness) -> None:
    hook = CALL | {"onFailure": "giveUp"}
    fake.calls.responses = [REJECTED]
    handle = await ready_with_hooks(fake, beforeDrain=[hook])
    pools = await start_nodepool(fake)
    await observe_empty_now(fake, handle, beforeDrain=[hook])
    await wait_until(lambda: _drain_was_cancelled(handle))
    assert is_in_service(fake) and not fake.claims.found["a"]["metadata"].get("deletionTimestamp")
    assert "the drain is cancelled" in event_messages(fake, "HookFailed")[0]
    assert "hook beforeDrain/warn failed: returned 409" in event_messages(fake, "DrainGivenUp")[0]
    assert (await pools.query(NodePoolWorkflow.state)).permits == ()
    await fake.sleep(minutes=11)
    await handle.result()
    assert fake.calls.received_keys == ["uid-a-beforeDrain-warn", "uid-a-beforeDrain-warn-2"]


async def _drain_was_cancelled(handle: Handle) -> bool:
    state = await query_state(handle)
    return state.phase is Phase.READY and state.cancelled_drain is not None


async def test_deletion_during_hook_makes_drain_uncancellable(fake: WorkerHarness) -> None:
    hook = JOB | {"onFailure": "giveUp"}
    handle = await ready_with_hooks(fake, beforeDrain=[hook])
    await start_nodepool(fake)
    await observe_empty_now(fake, handle, beforeDrain=[hook])
    await wait_until(lambda: has_created_jobs(fake))
    assert not fake.claims.found["a"]["metadata"].get("deletionTimestamp")
    await delete_nodeclaim(fake, handle, **hook_rules(beforeDrain=[hook]))
    await wait_until(lambda: hook_was_restarted(handle))
    fake.jobs.finish_running("failed", "BackoffLimitExceeded")
    await handle.result()
    assert "the node can no longer be kept" in event_messages(fake, "HookFailed")[0] and len(fake.jobs.created) == 1


async def test_call_attempts_are_kept_after_changed_timeout(fake: WorkerHarness) -> None:
    hook = CALL | {"attempts": 3}
    fake.calls.responses = [CallResult(status=503, retry_after=0.01), CallResult(status=503, retry_after=3600)]
    fake.calls.responses += [CallResult(status=503, retry_after=0.01)] * 5
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: len(fake.calls.received) == 2)
    await fake.signal_observed(handle, **BUSY, deleting=True, **hook_rules(beforeDrain=[hook | {"timeout": "9m"}]))
    await handle.result()
    assert len(fake.calls.received) == 3 and "after 3 attempts" in event_messages(fake, "HookFailed")[0]


async def hook_was_restarted(handle: Handle) -> bool:
    """Whether the activity of the hook was cancelled and started again.

    The test server hangs if an activity ends exactly when it is cancelled. Temporal does not.
    """
    return await count_scheduled(handle, "run_hook") == 2


async def test_pause_cancels_hook_of_cancellable_drain(fake: WorkerHarness) -> None:
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


async def test_hook_removed_from_policy_is_not_awaited(fake: WorkerHarness) -> None:
    handle = await draining_with_hooks(fake, beforeDrain=[JOB])
    await wait_until(lambda: has_created_jobs(fake))
    await fake.signal_observed(handle, **BUSY, deleting=True)
    await handle.result()
    assert (
        fake.pods.evicted == ["web"]
        and not event_messages(fake, "HookSucceeded")
        and not event_messages(fake, "HookFailed")
    )


async def test_termination_event_shortens_hook_timeout(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running hook has less time after AWS announces the termination of the instance."""
    monkeypatch.setattr("tenure.policy.hooks.decision.MIN_HOOKS_TIME", timedelta(seconds=1))
    hook = JOB | {"timeout": "1h", "onFailure": "wait"}
    handle = await draining_with_hooks(fake, beforeDrain=[hook])
    await wait_until(lambda: has_created_jobs(fake))
    await send_message(fake, handle, "instanceTerminating")
    await handle.result()
    assert len(fake.jobs.created) == 1 and fake.pods.evicted == ["web"]
    assert "timed out" in event_messages(fake, "HookFailed")[0]


async def test_hook_request_has_interruption_and_nodeclaim_is_deleted_at_once(fake: WorkerHarness) -> None:
    """The early deletion lets the replacement launch while the hook runs."""
    fake.calls.responding.clear()
    handle = await ready_with_hooks(fake, beforeDrain=[CALL])
    await send_message(fake, handle, "spotInterruption", code="terminate")
    await wait_until(lambda: len(fake.calls.received) == 1)
    assert fake.calls.received[0][2]["event"] == {"kind": "spotInterruption", "code": "terminate"}
    assert fake.calls.received[0][2]["reason"] == "spot_interrupted"
    assert fake.claims.found["a"]["metadata"].get("deletionTimestamp") and fake.pods.evicted == []
    fake.calls.responding.set()
    await handle.result()


async def test_undrained_node_runs_only_before_terminate_hook(fake: WorkerHarness) -> None:
    handle = await launched_nodeclaim(fake)
    hooks = {point: [CALL] for point in ALL}
    await fake.claims.delete("a", "uid-a")
    await fake.signal_observed(handle, deleting=True, **hook_rules(**hooks))
    await handle.result()
    assert fake.calls.received_keys == ["uid-a-beforeTerminate-warn"] and len(fake.instances.terminated) == 1


async def test_before_terminate_hook_is_skipped_for_missing_instance(fake: WorkerHarness) -> None:
    handle = await ready_with_hooks(fake, beforeTerminate=[CALL])
    fake.instances.running.clear()
    await delete_nodeclaim(fake, handle, **hook_rules(beforeTerminate=[CALL]))
    await handle.result()
    assert fake.calls.received == []
    assert event_messages(fake, "HookSkipped") == [
        "hook beforeTerminate/warn was skipped: its instance is already gone"
    ]


async def test_before_terminate_hook_delays_instance_termination(fake: WorkerHarness) -> None:
    handle = await draining_with_hooks(fake, beforeTerminate=[JOB])
    await wait_until_phase(handle, Phase.TERMINATION)
    await wait_until(lambda: has_created_jobs(fake))
    assert fake.instances.terminated == [] and await is_blocked_by(handle, "hook beforeTerminate/snapshot")
    fake.jobs.finish_running()
    await handle.result()
    assert len(fake.instances.terminated) == 1
