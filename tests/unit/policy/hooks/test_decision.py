"""The next hook, its remaining time, and the outcome of failed hooks."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.hooks import AwsEvent, CallResult, HookPoint, HookResult, HookRun, Hooks
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.hooks.decision import (
    decide_hooks,
    describe_failure_outcome,
    find_run,
    hooks_deadline,
    pause_after,
    record_outcome,
    record_passed,
    remaining_time,
    reset_for_next_drain,
    start_run,
)
from tenure.policy.hooks.messages import (
    describe_runs,
    evaluate_response,
    hook_subject,
    hook_title,
    job_environment,
    job_name,
    request_body,
    run_key,
    to_label_value,
)
from tenure.policy.lifecycle.verdict import describe_blocker
from tests.unit.policy.builders import NOW, after, before
from tests.unit.policy.interruption_builders import (
    drained_for,
    interruption_message,
    launched,
    node_with_events,
    tracked_interruptions,
)

CALL: dict[str, Any] = {"http": {"url": "https://hooks.example.com/drain?token=t"}}
FAILED = HookResult(outcome="failed", why="returned 400")


def hook(name: str = "snapshot", **fields: Any) -> dict[str, Any]:
    return {"name": name, **CALL, **fields}


def with_hooks(
    *hooks: dict[str, Any], point: HookPoint = "beforeDrain", state: NodeClaimState | None = None
) -> NodeClaimState:
    """A node whose LifecyclePolicy has these hooks."""
    rules = LifecycleRules.model_validate({"hooks": {point: list(hooks)}})
    found = state or node_with_events(launched=launched("on-demand"))
    return found.model_copy(update={"observed": found.observed.model_copy(update={"rules": rules})})


def with_hook_result(
    state: NodeClaimState, result: HookResult, *, number: int = 1, at: datetime = NOW
) -> NodeClaimState:
    """The state after the first beforeDrain hook ran with `result`."""
    (first, *_) = rules_of(state)
    hooks = start_run(state.hooks, "beforeDrain", first, number, at)
    return state.model_copy(update={"hooks": record_outcome(hooks, "beforeDrain", first.name, result, at)})


def rules_of(state: NodeClaimState) -> tuple[Hook, ...]:
    assert state.observed.rules and state.observed.rules.hooks
    return state.observed.rules.hooks.before_drain or ()


def step(state: NodeClaimState, now: datetime = NOW, *, cancellable: bool = False) -> tuple[str, str, int]:
    found = decide_hooks(state, "beforeDrain", now, cancellable=cancellable)
    return found.do, found.hook.name if found.hook else "", found.number


def test_node_without_hooks_passes_each_point() -> None:
    assert step(node_with_events()) == ("done", "", 1)


def test_hooks_run_in_order_of_the_policy() -> None:
    state = with_hooks(hook("one"), hook("two"))
    assert step(state) == ("run", "one", 1)
    running = state.model_copy(update={"hooks": start_run(state.hooks, "beforeDrain", rules_of(state)[0], 1, NOW)})
    assert step(running) == ("run", "one", 1), "a restarted worker continues the run"
    assert step(with_hook_result(state, HookResult(outcome="succeeded"))) == ("run", "two", 1)


def test_passed_point_is_not_repeated() -> None:
    """A policy may add a hook while the node is being drained."""
    state = with_hooks(hook())
    assert step(state.model_copy(update={"hooks": record_passed(state.hooks, "beforeDrain")})) == ("done", "", 1)


@pytest.mark.parametrize(("on_failure", "does"), [(None, "done"), ("proceed", "done"), ("giveUp", "cancel")])
def test_policy_decides_about_a_failed_hook(on_failure: str | None, does: str) -> None:
    fields = {"onFailure": on_failure} if on_failure else {}
    assert step(with_hook_result(with_hooks(hook(**fields)), FAILED), cancellable=True)[0] == does


def test_drain_that_cannot_be_cancelled_continues_with_an_explanation() -> None:
    state = with_hook_result(with_hooks(hook(onFailure="giveUp")), FAILED)
    assert step(state, cancellable=False)[0] == "done"
    outcome = describe_failure_outcome(state, "beforeDrain", rules_of(state)[0], NOW, cancellable=False)
    assert outcome == "the node can no longer be kept, the drain continues"


def test_on_failure_wait_retries_with_growing_intervals() -> None:
    state = with_hook_result(with_hooks(hook(onFailure="wait")), FAILED)
    found = decide_hooks(state, "beforeDrain", NOW, cancellable=False)
    assert (found.do, found.until) == ("wait", after(minutes=1))
    assert found.why == "hook beforeDrain/snapshot failed, is retried at 2026-06-01T12:01:00+00:00: returned 400"
    waiting = state.model_copy(update={"blocked_by": found.why, "blocked_code": "HookFailed"})
    prefix = "needs attention: fix the hook, or remove it from its LifecyclePolicy; hook beforeDrain/snapshot failed"
    assert describe_blocker(waiting).startswith(prefix)
    retrying = waiting.model_copy(update={"blocked_code": "HookRunning"})
    assert not describe_blocker(retrying).startswith("waits")
    assert step(state, after(minutes=1)) == ("run", "snapshot", 2)
    assert [pause_after(number).total_seconds() / 60 for number in (1, 2, 3, 4, 5, 50)] == [1, 2, 4, 8, 10, 10]


def test_changed_policy_ends_the_wait() -> None:
    state = with_hook_result(with_hooks(hook(onFailure="wait")), FAILED)
    assert step(with_hooks(hook(onFailure="proceed"), state=state))[0] == "done"
    assert step(with_hooks(hook("other"), state=state)) == ("run", "other", 1)
    assert step(with_hooks(state=state))[0] == "done"


def test_wait_ends_in_time_for_an_interruption() -> None:
    """A spot instance has two minutes; half of them are left for the drain."""
    warned = drained_for(interruption_message("spotInterruption", at=NOW), launched=launched("spot"))
    warned = warned.model_copy(
        update={"interruptions": tracked_interruptions(interruption_message("spotInterruption", at=NOW), at=NOW)}
    )
    state = with_hook_result(with_hooks(hook(onFailure="wait", timeout="1h"), state=warned), FAILED, at=NOW)
    assert hooks_deadline(state, "beforeDrain") == after(minutes=1)
    assert decide_hooks(state, "beforeDrain", NOW, cancellable=False).until == after(minutes=1)
    assert step(state, after(minutes=1))[0] == "done"
    outcome = describe_failure_outcome(state, "beforeDrain", rules_of(state)[0], after(minutes=1), cancellable=False)
    assert outcome == "the waiting time is over, the drain continues"


@pytest.mark.parametrize(
    ("point", "seconds"), [("beforeDrain", 3600 / 2), ("afterDrain", 3600), ("beforeTerminate", 3600)]
)
def test_hook_timeout_is_limited_by_the_time_of_the_event(point: HookPoint, seconds: float) -> None:
    maintenance = interruption_message("scheduledChange", starts=after(hours=1))
    state = with_hooks(hook(timeout="2h"), point=point, state=drained_for(maintenance))
    assert state.observed.rules is not None
    one = Hook.model_validate(hook(timeout="2h"))
    running = state.model_copy(update={"hooks": start_run(state.hooks, point, one, 1, NOW)})
    assert remaining_time(running, point, one, NOW).total_seconds() == seconds
    short = Hook.model_validate(hook(timeout="3m"))
    assert remaining_time(running, point, short, after(minutes=1)) == timedelta(minutes=2)


def test_late_hook_has_at_least_ten_seconds() -> None:
    terminating = drained_for(interruption_message("instanceTerminating", at=before(minutes=5)))
    state = with_hooks(hook(), state=terminating)
    running = state.model_copy(update={"hooks": start_run(state.hooks, "beforeDrain", rules_of(state)[0], 1, NOW)})
    assert remaining_time(running, "beforeDrain", rules_of(state)[0], NOW) == timedelta(seconds=10)


def test_end_of_the_grace_period_limits_its_point() -> None:
    state = with_hook_result(
        with_hooks(hook(), hook("two")), HookResult(outcome="succeeded", grace_ends=after(minutes=4))
    )
    assert hooks_deadline(state, "beforeDrain") == after(minutes=2)
    assert state.hooks.point == "beforeDrain" and hooks_deadline(state, "afterDrain") is None


def test_hooks_run_again_after_a_cancelled_drain() -> None:
    state = with_hook_result(with_hooks(hook()), HookResult(outcome="succeeded"))
    restarted = state.model_copy(update={"hooks": reset_for_next_drain(record_passed(state.hooks, "beforeDrain"))})
    assert step(restarted) == ("run", "snapshot", 2)
    hooks = start_run(restarted.hooks, "beforeDrain", rules_of(restarted)[0], 2, NOW)
    assert len(hooks.runs) == 1 and hooks.runs[0].outcome is None


def test_runs_are_described_with_their_outcome() -> None:
    state = with_hook_result(with_hooks(hook(), hook("two")), FAILED)
    state = state.model_copy(update={"hooks": start_run(state.hooks, "beforeDrain", rules_of(state)[1], 1, NOW)})
    assert describe_runs(state) == (
        "hook beforeDrain/snapshot failed: returned 400",
        "hook beforeDrain/two has run since 2026-06-01T12:00:00+00:00",
    )


def test_retries_keep_one_recorded_run() -> None:
    state = with_hooks(hook(onFailure="wait"))
    for number in range(1, 50):
        state = with_hook_result(state, FAILED, number=number)
    run = find_run(state.hooks, "beforeDrain", "snapshot")
    assert run is not None and run.number == 49 and len(state.hooks.runs) == 1


def test_long_failure_reason_is_truncated() -> None:
    state = with_hook_result(with_hooks(hook()), HookResult(outcome="failed", why="x" * 5000))
    assert len(state.hooks.runs[0].why) == 500


def test_run_key_is_unique_per_run() -> None:
    keys = {
        run_key("uid-a", "beforeDrain", "one", 1),
        run_key("uid-a", "beforeDrain", "one", 2),
        run_key("uid-a", "afterDrain", "one", 1),
        run_key("uid-b", "beforeDrain", "one", 1),
    }
    assert len(keys) == 4 and "uid-a-beforeDrain-one" in keys
    name = job_name("uid-a-beforeDrain-one", "one")
    assert name == job_name("uid-a-beforeDrain-one", "one") and name.startswith("one-") and len(name) == 14


def test_title_contains_no_query_and_no_password() -> None:
    found = Hook.model_validate(hook(http={"url": "https://me:secret@hooks.example.com:8443/drain?token=t"}))
    assert hook_title("beforeDrain", found, "") == "hook beforeDrain/snapshot: POST hooks.example.com:8443/drain"


def test_request_body_and_job_environment_have_the_same_content() -> None:
    maintenance = interruption_message("scheduledChange", starts=after(hours=1))
    state = with_hooks(hook(), state=drained_for(maintenance, disruption="scheduled_change", node_name="node-a"))
    subject = hook_subject(state, "beforeDrain", rules_of(state)[0])
    assert subject.event == AwsEvent(kind="scheduledChange", code="instance-retirement", starts=after(hours=1))
    assert request_body(subject) == {
        "cluster": "test",
        "nodePool": "default",
        "nodeClaim": "a",
        "node": "node-a",
        "providerID": "aws:///us-west-2a/i-1",
        "instanceID": "i-1",
        "point": "beforeDrain",
        "hook": "snapshot",
        "reason": "scheduled_change",
        "event": {"kind": "scheduledChange", "code": "instance-retirement", "starts": "2026-06-01T13:00:00+00:00"},
    }
    environment = job_environment(subject)
    assert environment["TENURE_INSTANCE_ID"] == "i-1" and environment["TENURE_EVENT_KIND"] == "scheduledChange"
    assert environment["TENURE_NODE_CLAIM"] == "a" and environment["TENURE_PROVIDER_ID"] == "aws:///us-west-2a/i-1"


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        (CallResult(status=200), "succeeded"),
        (CallResult(status=202), "succeeded"),
        (CallResult(status=202, retry_after=5), None),
        (CallResult(status=299), "succeeded"),
        (CallResult(status=300), "failed"),
        (CallResult(status=302), "failed"),
        (CallResult(status=404), "failed"),
        (CallResult(status=408), None),
        (CallResult(status=424), "failed"),
        (CallResult(status=425), None),
        (CallResult(status=429, retry_after=5), None),
        (CallResult(status=503), None),
    ],
)
def test_only_transient_responses_are_retried(response: CallResult, outcome: str | None) -> None:
    assert evaluate_response(response)[0] == outcome


def test_label_value_is_truncated_and_sanitized() -> None:
    assert (
        to_label_value("a" * 80) == "a" * 63
        and to_label_value("x" * 62 + "-y") == "x" * 62
        and to_label_value("a_b c") == "a_b-c"
    )


def test_state_without_hooks_field_is_read() -> None:
    old = node_with_events().model_dump(mode="json")
    del old["hooks"]
    assert NodeClaimState.model_validate(old).hooks == Hooks()
    assert HookRun(point="afterDrain", name="x", since=NOW).number == 1
