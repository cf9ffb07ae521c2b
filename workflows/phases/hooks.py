"""Hooks: what LifecyclePolicies have done before a drain, after it, and before the termination. Beside these phases.

`tenure/policy/hooks/decision.py` decides which is next, and what follows a failure. A node without hooks has no
event of this. What
came of one is in the life's state before anything follows from it, and is told in an event of Kubernetes.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.disruption import DisruptionActivities
from activities.nodeclaim.hooks import HookActivities
from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.base import Value
from tenure.model.hooks import HookAnswer, HookAsked, HookRun, Point
from tenure.model.nodeclaim_requests import Report
from tenure.policy.hooks.decision import (
    HookStep,
    begun,
    bound,
    decide_hooks,
    ended,
    follows,
    passed,
    run_of,
    stopped,
    time_left,
)
from tenure.policy.hooks.messages import is_at_one, job_name, key_of, subject, title, words
from tenure.policy.hooks.rules import hooks_of
from workflows import metrics
from workflows.activity_options import HOOK, PATCH, answered, leaving, named
from workflows.nodeclaim_context import Life
from workflows.phases.failure import ref
from workflows.phases.interruption import forced

SAID_IN = timedelta(seconds=30)
"""An event that cannot be written holds up nothing."""
_BEYOND = timedelta(minutes=2)
"""For what an activity does beside the hook itself."""
Stops = Callable[[Life], str]


class _Basis(Value):
    """What a hook that is under way goes by: told anew where it changes."""

    hook: Hook | None
    bound: str
    keep: bool


def _nothing(_: Life) -> str:
    return ""


async def run_hooks(life: Life, point: Point, stops: Stops = _nothing) -> str:
    """Why the drain is to be given up: by a hook, or by what `stops` says; empty where the life goes on."""
    while True:
        step = decide_hooks(life.state, point, life.now, keepable=_keepable(life))
        if step.do == "done" or step.hook is None:
            _pass(life, point)
            return ""
        if why := stops(life):
            return why
        if step.do == "give up":
            return step.why
        life.roll_if_due()
        if step.do == "wait":
            await _wait(life, point, step, step.hook, stops)
        else:
            await _run(life, point, step, step.hook, stops)


def _pass(life: Life, point: Point) -> None:
    life.change(hooks=passed(life.state.hooks, point))
    if is_at_one(life.state):
        life.block("")


def _keepable(life: Life) -> bool:
    """A drain whose NodeClaim stands can be given up. AWS does not wait: what it drains for is not."""
    return _stands(life) and not forced(life)


def _stands(life: Life) -> bool:
    """The NodeClaim is not deleted before the end of the drain."""
    drain = life.state.drain
    return drain is not None and drain.keep and not life.leaving


def _basis(life: Life, point: Point, name: str) -> _Basis:
    found = next((one for one in hooks_of(life.state.seen.rules, point) if one.name == name), None)
    ends = bound(life.state, point)
    return _Basis(hook=found, bound=ends.isoformat() if ends else "", keep=_stands(life))


async def _wait(life: Life, point: Point, step: HookStep, hook: Hook, stops: Stops) -> None:
    """Until it is tried again, or the policy or AWS says otherwise."""
    life.block(step.why)
    known, moments = _basis(life, point, hook.name), (step.until, life.next_mark())
    await life.wait(
        lambda: _basis(life, point, hook.name) != known or bool(stops(life)),
        until=min((one for one in moments if one), default=None),
        summary=f"until hook {point}/{hook.name} is tried again",
    )
    if life.overdue():
        life.mark_overdue()


async def _run(life: Life, point: Point, step: HookStep, hook: Hook, stops: Stops) -> None:
    """To its outcome; without one where the policy or AWS says otherwise meanwhile."""
    life.change(hooks=begun(life.state.hooks, point, hook, step.number, life.now))
    key = key_of(life.uid, point, hook.name, step.number)
    said = title(point, hook, job_name(key, hook.name))
    life.block(f"{said} runs")
    try:
        options = leaving(HOOK, life.state.identity.cluster, said)
        answer = await life.insist(lambda options: _hook(life, point, hook, key, stops, options), options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        answer = HookAnswer(outcome="failed", why=str(error.cause or error))
    if answer is not None and answer.outcome is None:
        life.change(hooks=stopped(life.state.hooks, point, hook.name, answer))
    elif answer is not None:
        await _record(life, point, hook, answer)


async def _hook(life: Life, point: Point, hook: Hook, key: str, stops: Stops, options: Any) -> HookAnswer | None:
    """None where it has to be told anew, or is to be stopped."""
    known, left = _basis(life, point, hook.name), time_left(life.state, point, hook, life.now)
    run = run_of(life.state.hooks, point, hook.name)

    def other() -> bool:
        return _basis(life, point, hook.name) != known or bool(stops(life))

    asked = HookAsked(
        claim=ref(life),
        subject=subject(life.state, point, hook),
        hook=hook,
        key=key,
        job=job_name(key, hook.name) if hook.job else "",
        seconds=left.total_seconds(),
        since=life.state.hooks.since,
        begun=run.begun if run else 0,
        keep=known.keep,
    )
    options = {**options, "start_to_close_timeout": left + _BEYOND}
    answer: HookAnswer | None = await answered(HookActivities.run_hook, asked, options, other)
    return answer


async def _record(life: Life, point: Point, hook: Hook, answer: HookAnswer) -> None:
    """Once, whatever restarts: in the state, in the metrics, and as an event."""
    life.change(hooks=ended(life.state.hooks, point, hook.name, answer, life.now))
    run = run_of(life.state.hooks, point, hook.name)
    assert run is not None
    metrics.count_hook(life.state, run)
    life.show()
    report = Report(
        claim=ref(life), event=_event(run), message=_message(life, point, hook, run), warning=_is_failure(run)
    )
    options = {**named(PATCH, f"say what came of {point}/{hook.name}"), "schedule_to_close_timeout": SAID_IN}
    try:
        await workflow.execute_activity_method(DisruptionActivities.report, report, **options)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise


def _event(run: HookRun) -> str:
    return "HookFailed" if _is_failure(run) else "HookSkipped" if run.outcome == "skipped" else "HookSucceeded"


def _message(life: Life, point: Point, hook: Hook, run: HookRun) -> str:
    if not _is_failure(run):
        return words(run)
    return f"{words(run)}; {follows(life.state, point, hook, life.now, keepable=_keepable(life))}"


def _is_failure(run: HookRun) -> bool:
    return run.outcome in ("failed", "timed out")
