"""The next hook of a node, its deadline, and the action after a failure.

`workflows/phases/hooks.py` runs the hook; `activities/nodeclaim/hooks.py` makes its calls and Jobs. If AWS terminates
the instance at a known time, hooks before the drain get at most half of the remaining time.
"""

from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.base import Value
from tenure.model.hooks import HookPoint, HookResult, HookRun, Hooks
from tenure.model.interruption.records import Event
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.backoff import backoff
from tenure.policy.hooks.messages import describe_run
from tenure.policy.hooks.rules import hooks_of, timeout_of
from tenure.policy.interruption.decision import live_events
from tenure.policy.interruption.due_times import format_timestamp
from tenure.policy.interruption.rules import RECLAIM_KINDS

MIN_HOOKS_TIME: Final = timedelta(seconds=10)
"""Minimum time for all hooks of a point together, even after the deadline, so that each call is made at least once."""
DEFAULT_WARNING_PERIOD: Final = timedelta(minutes=2)
"""From EC2's warning until it reclaims the instance, if the warning does not include a time."""
RETRY_INTERVAL: Final = timedelta(minutes=1)
MAX_RETRY_INTERVAL: Final = timedelta(minutes=10)
MAX_REASON_LENGTH: Final = 500
"""Characters: the message for a rejected address has policy, field, value and remedy."""
_IMMEDIATE_KINDS: Final = ("instanceStopping", "instanceTerminating")
_STEP_NAMES: Final[dict[HookPoint, str]] = {
    "beforeDrain": "the drain",
    "afterDrain": "the termination",
    "beforeTerminate": "the termination",
}


class HookDecision(Value):
    do: Literal["run", "wait", "cancel", "done"]
    hook: Hook | None = None
    number: int = 1
    until: datetime | None = None
    why: str = ""


def decide_hooks(state: NodeClaimState, point: HookPoint, now: datetime, *, cancellable: bool) -> HookDecision:
    """Hooks run one after the other, in the policy's order. `cancellable`: the drain can still be cancelled."""
    if point in state.hooks.passed:
        return HookDecision(do="done")
    for hook in hooks_of(state.observed.rules, point):
        run = find_run(state.hooks, point, hook.name)
        if run is None or run.past:
            return HookDecision(do="run", hook=hook, number=run.number + 1 if run else 1)
        if run.outcome is None:
            return HookDecision(do="run", hook=hook, number=run.number)
        if run.outcome not in ("failed", "timed out"):
            continue
        if hook.on_failure == "giveUp" and cancellable:
            return HookDecision(do="cancel", hook=hook, why=describe_run(run))
        if hook.on_failure == "wait" and not _is_over(state, point, now):
            return _retry_step(state, point, hook, run, now)
    return HookDecision(do="done")


def _retry_step(state: NodeClaimState, point: HookPoint, hook: Hook, run: HookRun, now: datetime) -> HookDecision:
    retry_at = (run.ended or now) + pause_after(run.number)
    if now >= retry_at:
        return HookDecision(do="run", hook=hook, number=run.number + 1)
    ends = hooks_deadline(state, point)
    until = min(retry_at, ends) if ends else retry_at
    why = describe_run(run, f"is retried at {format_timestamp(retry_at)}")
    return HookDecision(do="wait", hook=hook, number=run.number, until=until, why=why)


def pause_after(number: int) -> timedelta:
    return backoff(RETRY_INTERVAL, MAX_RETRY_INTERVAL, number - 1)


def _is_over(state: NodeClaimState, point: HookPoint, now: datetime) -> bool:
    ends = hooks_deadline(state, point)
    return ends is not None and now >= ends


def describe_failure_outcome(
    state: NodeClaimState, point: HookPoint, hook: Hook, now: datetime, *, cancellable: bool
) -> str:
    continues = f"{_STEP_NAMES[point]} continues"
    match hook.on_failure:
        case "giveUp":
            return "the drain is cancelled" if cancellable else f"the node can no longer be kept, {continues}"
        case "wait" if _is_over(state, point, now):
            return f"the waiting time is over, {continues}"
        case "wait":
            return f"{_STEP_NAMES[point]} waits until it succeeds"
        case _:
            return continues


# --- time ---


def hooks_deadline(state: NodeClaimState, point: HookPoint) -> datetime | None:
    """When the hooks of a point must end because of AWS or the termination grace period; None if neither has an end."""
    since = state.hooks.since if state.hooks.point == point else None
    ends = min((one for one in (state.hooks.grace_ends, reclaimed_at(state)) if one), default=None)
    return limit_deadline(point, since, ends) if since and ends else None


def limit_deadline(point: HookPoint, since: datetime, ends: datetime) -> datetime:
    """Hooks before the drain leave half of the time until `ends` to the drain."""
    last = since + (ends - since) / 2 if point == "beforeDrain" else ends
    return max(last, since + MIN_HOOKS_TIME)


def reclaimed_at(state: NodeClaimState) -> datetime | None:
    return min((at for at in map(_event_reclaims_at, live_events(state)) if at), default=None)


def _event_reclaims_at(event: Event) -> datetime | None:
    if event.kind in RECLAIM_KINDS:
        return event.starts or event.received_at + DEFAULT_WARNING_PERIOD
    if event.kind in _IMMEDIATE_KINDS:
        return event.received_at
    return event.starts if event.kind == "scheduledChange" else None


def remaining_time(state: NodeClaimState, point: HookPoint, hook: Hook, now: datetime) -> timedelta:
    run = find_run(state.hooks, point, hook.name)
    own = (run.since if run else now) + timeout_of(hook)
    ends = hooks_deadline(state, point)
    return max(timedelta(0), (min(own, ends) if ends else own) - now)


# --- records ---


def find_run(hooks: Hooks, point: HookPoint, name: str) -> HookRun | None:
    return next((one for one in hooks.runs if (one.point, one.name) == (point, name)), None)


def start_run(hooks: Hooks, point: HookPoint, hook: Hook, number: int, now: datetime) -> Hooks:
    if hooks.point != point:
        hooks = hooks.model_copy(update={"point": point, "since": now})
    found = find_run(hooks, point, hook.name)
    if found is not None and found.number == number and not found.past:
        return hooks
    return _with_run(hooks, HookRun(point=point, name=hook.name, number=number, since=now))


def record_progress(hooks: Hooks, point: HookPoint, name: str, result: HookResult) -> Hooks:
    run = find_run(hooks, point, name)
    assert run is not None
    return _with_run(hooks, run.model_copy(update={"attempts": result.attempts}))


def record_outcome(hooks: Hooks, point: HookPoint, name: str, result: HookResult, now: datetime) -> Hooks:
    run = find_run(hooks, point, name)
    assert run is not None
    changes = {"outcome": result.outcome, "why": result.why[:MAX_REASON_LENGTH], "ended": now}
    hooks = _with_run(hooks, run.model_copy(update=changes))
    grace = result.grace_ends
    return hooks.model_copy(update={"grace_ends": grace}) if grace else hooks


def _with_run(hooks: Hooks, run: HookRun) -> Hooks:
    others = tuple(one for one in hooks.runs if (one.point, one.name) != (run.point, run.name))
    return hooks.model_copy(update={"runs": (*others, run)})


def record_passed(hooks: Hooks, point: HookPoint) -> Hooks:
    return hooks if point in hooks.passed else hooks.model_copy(update={"passed": (*hooks.passed, point)})


def reset_for_next_drain(hooks: Hooks) -> Hooks:
    """After a cancelled drain: the next drain runs all hooks again, each under a new key."""
    return Hooks(runs=tuple(one.model_copy(update={"past": True}) for one in hooks.runs))
