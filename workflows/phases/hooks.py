"""Hooks of a LifecyclePolicy before and after a drain, and before termination.

`tenure/policy/hooks/decision.py` decides which hook runs next and how to handle a failure. The outcome of a hook is
recorded in the state before the next step.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.nodeclaim.hooks import HookActivities
from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.base import Value
from tenure.model.blockers import HOOK_FAILED, HOOK_RUNNING
from tenure.model.hooks import HookPoint, HookRequest, HookResult, HookRun
from tenure.policy.hooks.decision import (
    HookDecision,
    decide_hooks,
    describe_failure_outcome,
    find_run,
    hooks_deadline,
    record_outcome,
    record_passed,
    record_progress,
    remaining_time,
    start_run,
)
from tenure.policy.hooks.messages import describe_run, hook_subject, hook_title, is_waiting_for_hook, job_name, run_key
from tenure.policy.hooks.rules import hook_field, hooks_of
from workflows import metrics
from workflows.activity_options import HOOK, drain_queue_options, execute_unless
from workflows.nodeclaim_context import NodeClaimContext
from workflows.phases.interruption import ignores_pauses_and_budgets

_ACTIVITY_OVERHEAD = timedelta(minutes=2)
"""Added to the hook's timeout."""
StopReason = Callable[[NodeClaimContext], str]


class _HookInputs(Value):
    """The activity restarts when one of these changes."""

    hook: Hook | None
    deadline: str
    defers_deletion: bool


def _never_stop(_: NodeClaimContext) -> str:
    return ""


async def run_hooks(context: NodeClaimContext, point: HookPoint, stop_reason: StopReason = _never_stop) -> str:
    """Run all hooks of a point. Returns why a hook or `stop_reason` cancels the drain; empty if the drain continues."""
    while True:
        decision = decide_hooks(context.state, point, context.now, cancellable=_is_cancellable(context))
        if decision.do == "done" or decision.hook is None:
            _mark_passed(context, point)
            return ""
        if why := stop_reason(context):
            return why
        if decision.do == "cancel":
            return decision.why
        context.continue_as_new_if_suggested()
        if decision.do == "wait":
            await _wait_for_retry(context, point, decision, decision.hook, stop_reason)
        else:
            await _run_hook(context, point, decision, decision.hook, stop_reason)


def _mark_passed(context: NodeClaimContext, point: HookPoint) -> None:
    context.update_state(hooks=record_passed(context.state.hooks, point))
    if is_waiting_for_hook(context.state):
        context.set_blocked_by("")


def _is_cancellable(context: NodeClaimContext) -> bool:
    """A drain can be cancelled until its NodeClaim is deleted, unless AWS forces it."""
    return _defers_deletion(context) and not ignores_pauses_and_budgets(context)


def _defers_deletion(context: NodeClaimContext) -> bool:
    drain = context.state.drain
    return drain is not None and drain.defers_deletion and not context.is_deleting


def _hook_inputs(context: NodeClaimContext, point: HookPoint, name: str) -> _HookInputs:
    found = next((one for one in hooks_of(context.state.observed.rules, point) if one.name == name), None)
    deadline = hooks_deadline(context.state, point)
    return _HookInputs(
        hook=found, deadline=deadline.isoformat() if deadline else "", defers_deletion=_defers_deletion(context)
    )


async def _wait_for_retry(
    context: NodeClaimContext, point: HookPoint, decision: HookDecision, hook: Hook, stop_reason: StopReason
) -> None:
    """Wait until the next attempt, or until an input changes."""
    context.set_blocked_by(decision.why, HOOK_FAILED)
    inputs, wakeup_times = _hook_inputs(context, point, hook.name), (decision.until, context.next_slow_or_overdue_at())
    deadline_changed = context.watch_deadline()
    await context.wait(
        lambda: _hook_inputs(context, point, hook.name) != inputs or bool(stop_reason(context)) or deadline_changed(),
        until=min((one for one in wakeup_times if one), default=None),
        summary=f"until hook {point}/{hook.name} is retried",
    )
    if context.is_past_deadline():
        context.mark_overdue()


async def _run_hook(
    context: NodeClaimContext, point: HookPoint, decision: HookDecision, hook: Hook, stop_reason: StopReason
) -> None:
    """Run a hook to its outcome, or until an input changes."""
    context.update_state(hooks=start_run(context.state.hooks, point, hook, decision.number, context.now))
    key = run_key(context.uid, point, hook.name, decision.number)
    description = hook_title(point, hook, job_name(key, hook.name))
    context.set_blocked_by(f"{description} runs", HOOK_RUNNING)
    try:
        options = drain_queue_options(HOOK, context.state, description)
        result = await context.execute_until_done(
            lambda options: _run_hook_activity(context, point, hook, key, stop_reason, options), options
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        result = HookResult(outcome="failed", why=str(error.cause or error))
    if result is not None and result.outcome is None:
        context.update_state(hooks=record_progress(context.state.hooks, point, hook.name, result))
    elif result is not None:
        _record_result(context, point, hook, result)


async def _run_hook_activity(
    context: NodeClaimContext, point: HookPoint, hook: Hook, key: str, stop_reason: StopReason, options: Any
) -> HookResult | None:
    """None if an input changed, so that the activity must run again."""
    inputs, remaining = _hook_inputs(context, point, hook.name), remaining_time(context.state, point, hook, context.now)
    run = find_run(context.state.hooks, point, hook.name)

    def inputs_changed() -> bool:
        return _hook_inputs(context, point, hook.name) != inputs or bool(stop_reason(context))

    request = HookRequest(
        claim=context.nodeclaim_ref,
        subject=hook_subject(context.state, point, hook),
        hook=hook,
        key=key,
        job=job_name(key, hook.name) if hook.job else "",
        policy=context.state.observed.hook_policies.get(point, ""),
        field=hook_field(context.state.observed.rules, point, hook.name),
        seconds=remaining.total_seconds(),
        since=context.state.hooks.since,
        attempts=run.attempts if run else 0,
        defers_deletion=inputs.defers_deletion,
    )
    options = {**options, "start_to_close_timeout": remaining + _ACTIVITY_OVERHEAD}
    result: HookResult | None = await execute_unless(HookActivities.run_hook, request, options, inputs_changed)
    return result


def _record_result(context: NodeClaimContext, point: HookPoint, hook: Hook, result: HookResult) -> None:
    """Record the outcome in the state and in the metrics, and publish an event."""
    context.update_state(hooks=record_outcome(context.state.hooks, point, hook.name, result, context.now))
    run = find_run(context.state.hooks, point, hook.name)
    assert run is not None
    metrics.count_hook(context.state, run)
    context.publish_status()
    context.publish_event(_event_reason(run), _event_message(context, point, hook, run))


def _event_reason(run: HookRun) -> str:
    return "HookFailed" if _is_failure(run) else "HookSkipped" if run.outcome == "skipped" else "HookSucceeded"


def _event_message(context: NodeClaimContext, point: HookPoint, hook: Hook, run: HookRun) -> str:
    if not _is_failure(run):
        return describe_run(run)
    return (
        f"{describe_run(run)}; "
        f"{describe_failure_outcome(context.state, point, hook, context.now, cancellable=_is_cancellable(context))}"
    )


def _is_failure(run: HookRun) -> bool:
    return run.outcome in ("failed", "timed out")
