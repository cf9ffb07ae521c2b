"""Which hook comes next, how long it has, and what follows where it failed."""

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
from tenure.policy.lifecycle.deadlines import describe_blocker
from tests.unit.policy.builders import NOW, after, before
from tests.unit.policy.interruption_builders import (
    drained_for,
    interruption_message,
    launched,
    node_with_events,
    tracked_interruptions,
)

CALL: dict[str, Any] = {"http": {"url": "https://hooks.example.com/drain?token=t"}}
FAILED = HookResult(outcome="failed", why="answers 400")


def hook(name: str = "snapshot", **fields: Any) -> dict[str, Any]:
    return {"name": name, **CALL, **fields}


def under(
    *hooks: dict[str, Any], point: HookPoint = "beforeDrain", state: NodeClaimState | None = None
) -> NodeClaimState:
    """A node whose policy has these hooks."""
    rules = LifecycleRules.model_validate({"hooks": {point: list(hooks)}})
    found = state or node_with_events(launched=launched("on-demand"))
    return found.model_copy(update={"observed": found.observed.model_copy(update={"rules": rules})})


def with_hook_result(
    state: NodeClaimState, result: HookResult, *, number: int = 1, at: datetime = NOW
) -> NodeClaimState:
    """The first hook before the drain ran, and this came of it."""
    (first, *_) = rules_of(state)
    hooks = start_run(state.hooks, "beforeDrain", first, number, at)
    return state.model_copy(update={"hooks": record_outcome(hooks, "beforeDrain", first.name, result, at)})


def rules_of(state: NodeClaimState) -> tuple[Hook, ...]:
    assert state.observed.rules and state.observed.rules.hooks
    return state.observed.rules.hooks.before_drain or ()


def step(state: NodeClaimState, now: datetime = NOW, *, keepable: bool = False) -> tuple[str, str, int]:
    found = decide_hooks(state, "beforeDrain", now, cancellable=keepable)
    return found.do, found.hook.name if found.hook else "", found.number


def test_a_node_without_hooks_is_done_with_each_point() -> None:
    assert step(node_with_events()) == ("done", "", 1)


def test_hooks_run_in_the_policy_s_order_each_to_its_end() -> None:
    state = under(hook("one"), hook("two"))
    assert step(state) == ("run", "one", 1)
    running = state.model_copy(update={"hooks": start_run(state.hooks, "beforeDrain", rules_of(state)[0], 1, NOW)})
    assert step(running) == ("run", "one", 1), "a worker that comes back goes on with it"
    assert step(with_hook_result(state, HookResult(outcome="succeeded"))) == ("run", "two", 1)


def test_a_point_that_is_passed_is_not_come_back_to() -> None:
    """A policy may get a hook while the node is being drained."""
    state = under(hook())
    assert step(state.model_copy(update={"hooks": record_passed(state.hooks, "beforeDrain")})) == ("done", "", 1)


@pytest.mark.parametrize(("on_failure", "does"), [(None, "done"), ("proceed", "done"), ("giveUp", "cancel")])
def test_what_follows_a_failure_is_the_policy_s(on_failure: str | None, does: str) -> None:
    fields = {"onFailure": on_failure} if on_failure else {}
    assert step(with_hook_result(under(hook(**fields)), FAILED), keepable=True)[0] == does


def test_a_node_that_cannot_be_kept_is_drained_all_the_same_and_that_is_said() -> None:
    state = with_hook_result(under(hook(onFailure="giveUp")), FAILED)
    assert step(state, keepable=False)[0] == "done"
    outcome = describe_failure_outcome(state, "beforeDrain", rules_of(state)[0], NOW, cancellable=False)
    assert outcome == "the node can no longer be kept, the drain goes on"


def test_waiting_is_trying_again_ever_more_slowly_as_another_run() -> None:
    state = with_hook_result(under(hook(onFailure="wait")), FAILED)
    found = decide_hooks(state, "beforeDrain", NOW, cancellable=False)
    assert (found.do, found.until) == ("wait", after(minutes=1))
    assert found.why == "hook beforeDrain/snapshot failed, is tried again at 2026-06-01T12:01:00+00:00: answers 400"
    waiting = state.model_copy(update={"blocked_by": found.why, "blocked_code": "HookFailed"})
    prefix = "needs attention: fix the hook, or remove it from its LifecyclePolicy; hook beforeDrain/snapshot failed"
    assert describe_blocker(waiting).startswith(prefix)
    retrying = waiting.model_copy(update={"blocked_code": "HookRunning"})
    assert not describe_blocker(retrying).startswith("waits")
    assert step(state, after(minutes=1)) == ("run", "snapshot", 2)
    assert [pause_after(number).total_seconds() / 60 for number in (1, 2, 3, 4, 5, 50)] == [1, 2, 4, 8, 10, 10]


def test_a_policy_that_changes_its_mind_ends_the_waiting() -> None:
    state = with_hook_result(under(hook(onFailure="wait")), FAILED)
    assert step(under(hook(onFailure="proceed"), state=state))[0] == "done"
    assert step(under(hook("other"), state=state)) == ("run", "other", 1)
    assert step(under(state=state))[0] == "done"


def test_aws_waits_for_nobody() -> None:
    """A spot instance has two minutes: half of them are the drain's."""
    warned = drained_for(interruption_message("spotInterruption", at=NOW), launched=launched("spot"))
    warned = warned.model_copy(
        update={"interruptions": tracked_interruptions(interruption_message("spotInterruption", at=NOW), at=NOW)}
    )
    state = with_hook_result(under(hook(onFailure="wait", timeout="1h"), state=warned), FAILED, at=NOW)
    assert hooks_deadline(state, "beforeDrain") == after(minutes=1)
    assert decide_hooks(state, "beforeDrain", NOW, cancellable=False).until == after(minutes=1)
    assert step(state, after(minutes=1))[0] == "done"
    outcome = describe_failure_outcome(state, "beforeDrain", rules_of(state)[0], after(minutes=1), cancellable=False)
    assert outcome == "the wait is over, the drain goes on"


@pytest.mark.parametrize(
    ("point", "seconds"), [("beforeDrain", 3600 / 2), ("afterDrain", 3600), ("beforeTerminate", 3600)]
)
def test_a_hook_has_its_own_time_or_what_aws_leaves_of_it(point: HookPoint, seconds: float) -> None:
    maintenance = interruption_message("scheduledChange", starts=after(hours=1))
    state = under(hook(timeout="2h"), point=point, state=drained_for(maintenance))
    assert state.observed.rules is not None
    one = Hook.model_validate(hook(timeout="2h"))
    running = state.model_copy(update={"hooks": start_run(state.hooks, point, one, 1, NOW)})
    assert remaining_time(running, point, one, NOW).total_seconds() == seconds
    short = Hook.model_validate(hook(timeout="3m"))
    assert remaining_time(running, point, short, after(minutes=1)) == timedelta(minutes=2)


def test_what_is_late_has_ten_seconds_all_the_same() -> None:
    terminating = drained_for(interruption_message("instanceTerminating", at=before(minutes=5)))
    state = under(hook(), state=terminating)
    running = state.model_copy(update={"hooks": start_run(state.hooks, "beforeDrain", rules_of(state)[0], 1, NOW)})
    assert remaining_time(running, "beforeDrain", rules_of(state)[0], NOW) == timedelta(seconds=10)


def test_the_end_of_the_grace_period_bounds_a_point_once_it_is_known() -> None:
    state = with_hook_result(under(hook(), hook("two")), HookResult(outcome="succeeded", grace_ends=after(minutes=4)))
    assert hooks_deadline(state, "beforeDrain") == after(minutes=2)
    assert state.hooks.point == "beforeDrain" and hooks_deadline(state, "afterDrain") is None


def test_a_drain_that_is_given_up_runs_its_hooks_anew_the_next_time() -> None:
    state = with_hook_result(under(hook()), HookResult(outcome="succeeded"))
    restarted = state.model_copy(update={"hooks": reset_for_next_drain(record_passed(state.hooks, "beforeDrain"))})
    assert step(restarted) == ("run", "snapshot", 2)
    hooks = start_run(restarted.hooks, "beforeDrain", rules_of(restarted)[0], 2, NOW)
    assert len(hooks.runs) == 1 and hooks.runs[0].outcome is None


def test_a_person_who_asks_is_told_how_each_went() -> None:
    state = with_hook_result(under(hook(), hook("two")), FAILED)
    state = state.model_copy(update={"hooks": start_run(state.hooks, "beforeDrain", rules_of(state)[1], 1, NOW)})
    assert describe_runs(state) == (
        "hook beforeDrain/snapshot failed: answers 400",
        "hook beforeDrain/two runs since 2026-06-01T12:00:00+00:00",
    )


def test_what_is_remembered_does_not_grow_with_tries() -> None:
    state = under(hook(onFailure="wait"))
    for number in range(1, 50):
        state = with_hook_result(state, FAILED, number=number)
    run = find_run(state.hooks, "beforeDrain", "snapshot")
    assert run is not None and run.number == 49 and len(state.hooks.runs) == 1


def test_a_long_reason_is_cut() -> None:
    state = with_hook_result(under(hook()), HookResult(outcome="failed", why="x" * 5000))
    assert len(state.hooks.runs[0].why) == 500


def test_a_key_is_the_same_for_each_try_of_a_run_and_of_no_other() -> None:
    keys = {
        run_key("uid-a", "beforeDrain", "one", 1),
        run_key("uid-a", "beforeDrain", "one", 2),
        run_key("uid-a", "afterDrain", "one", 1),
        run_key("uid-b", "beforeDrain", "one", 1),
    }
    assert len(keys) == 4 and "uid-a-beforeDrain-one" in keys
    name = job_name("uid-a-beforeDrain-one", "one")
    assert name == job_name("uid-a-beforeDrain-one", "one") and name.startswith("one-") and len(name) == 14


def test_a_title_tells_no_query_and_no_password() -> None:
    found = Hook.model_validate(hook(http={"url": "https://me:secret@hooks.example.com:8443/drain?token=t"}))
    assert hook_title("beforeDrain", found, "") == "hook beforeDrain/snapshot: POST hooks.example.com:8443/drain"


def test_a_service_and_a_job_are_told_the_same() -> None:
    maintenance = interruption_message("scheduledChange", starts=after(hours=1))
    state = under(hook(), state=drained_for(maintenance, disruption="scheduled_change", node_name="node-a"))
    about = hook_subject(state, "beforeDrain", rules_of(state)[0])
    assert about.event == AwsEvent(kind="scheduledChange", code="instance-retirement", starts=after(hours=1))
    assert request_body(about) == {
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
    environment = job_environment(about)
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
        (CallResult(status=429, retry_after=5), None),
        (CallResult(status=503), None),
    ],
)
def test_only_what_may_pass_is_asked_again(response: CallResult, outcome: str | None) -> None:
    assert evaluate_response(response)[0] == outcome


def test_a_name_too_long_for_a_label_is_cut() -> None:
    assert (
        to_label_value("a" * 80) == "a" * 63
        and to_label_value("x" * 62 + "-y") == "x" * 62
        and to_label_value("a_b c") == "a_b-c"
    )


def test_a_state_from_before_hooks_reads_as_one_without_any() -> None:
    old = node_with_events().model_dump(mode="json")
    del old["hooks"]
    assert NodeClaimState.model_validate(old).hooks == Hooks()
    assert HookRun(point="afterDrain", name="x", since=NOW).number == 1
