"""Which hook of a node comes next, how long it has, and what follows where it failed. Pure.

`workflows/phases/hooks.py` performs it, `activities/nodeclaim/hooks.py` makes the calls and the Jobs. AWS waits for
nobody: where
it takes the instance, hooks before the drain have half of the time that is left, and those after it what remains.
"""

from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.lifecyclepolicy_events import Hook
from tenure.model.base import Value
from tenure.model.hooks import HookAnswer, HookRun, Hooks, Point
from tenure.model.interruption.records import Event
from tenure.model.nodeclaim_state import ClaimState
from tenure.policy.hooks.messages import words
from tenure.policy.hooks.rules import hooks_of, timeout_of
from tenure.policy.interruption.decision import live
from tenure.policy.interruption.rules import TAKES
from tenure.policy.interruption.timing import moment

AT_LEAST: Final = timedelta(seconds=10)
"""That the hooks of a point have together, however late it is: a call is made at least once."""
NOTICE: Final = timedelta(minutes=2)
"""From EC2's warning until it takes the instance, where the warning does not say when."""
AGAIN_FIRST: Final = timedelta(minutes=1)
AGAIN_SLOWEST: Final = timedelta(minutes=10)
WORDS: Final = 200
"""Characters of why one failed."""
_GOING: Final = ("instanceStopping", "instanceTerminating")
_WHAT: Final[dict[Point, str]] = {
    "beforeDrain": "the drain",
    "afterDrain": "the termination",
    "beforeTerminate": "the termination",
}


class HookStep(Value):
    """What is to be done at a point. `done`: it is passed."""

    do: Literal["run", "wait", "give up", "done"]
    hook: Hook | None = None
    number: int = 1
    """Of the run."""
    until: datetime | None = None
    """For `wait`."""
    why: str = ""


def decide_hooks(state: ClaimState, point: Point, now: datetime, *, keepable: bool) -> HookStep:
    """In the policy's order, each to its end. `keepable`: the drain can still be given up."""
    if point in state.hooks.passed:
        return HookStep(do="done")
    for hook in hooks_of(state.seen.rules, point):
        run = run_of(state.hooks, point, hook.name)
        if run is None or run.past:
            return HookStep(do="run", hook=hook, number=run.number + 1 if run else 1)
        if run.outcome is None:
            return HookStep(do="run", hook=hook, number=run.number)
        if run.outcome not in ("failed", "timed out"):
            continue
        if hook.on_failure == "giveUp" and keepable:
            return HookStep(do="give up", hook=hook, why=words(run))
        if hook.on_failure == "wait" and not _is_over(state, point, now):
            return _again(state, point, hook, run, now)
    return HookStep(do="done")


def _again(state: ClaimState, point: Point, hook: Hook, run: HookRun, now: datetime) -> HookStep:
    again = (run.ended or now) + pause_after(run.number)
    if now >= again:
        return HookStep(do="run", hook=hook, number=run.number + 1)
    ends = bound(state, point)
    until = min(again, ends) if ends else again
    why = words(run, f"is tried again at {moment(again)}")
    return HookStep(do="wait", hook=hook, number=run.number, until=until, why=why)


def pause_after(number: int) -> timedelta:
    """Before a hook that failed for this many times is tried again."""
    doublings: int = 2 ** min(max(0, number - 1), 8)
    return min(AGAIN_SLOWEST, AGAIN_FIRST * doublings)


def _is_over(state: ClaimState, point: Point, now: datetime) -> bool:
    ends = bound(state, point)
    return ends is not None and now >= ends


def follows(state: ClaimState, point: Point, hook: Hook, now: datetime, *, keepable: bool) -> str:
    """What comes of a failure, in words."""
    goes_on = f"{_WHAT[point]} goes on"
    match hook.on_failure:
        case "giveUp":
            return "the drain is given up" if keepable else f"the node cannot be kept any more, {goes_on}"
        case "wait" if _is_over(state, point, now):
            return f"nobody waits any longer, {goes_on}"
        case "wait":
            return f"{_WHAT[point]} waits until it succeeds"
        case _:
            return goes_on


# --- time ---


def bound(state: ClaimState, point: Point) -> datetime | None:
    """When the hooks of a point have to be over for AWS's sake, or that of the termination grace period; None where
    neither ends."""
    since = state.hooks.since if state.hooks.point == point else None
    ends = min((one for one in (state.hooks.grace_ends, taken_at(state)) if one), default=None)
    return within(point, since, ends) if since and ends else None


def within(point: Point, since: datetime, ends: datetime) -> datetime:
    """Of the time until `ends` hooks before the drain leave half to the drain."""
    last = since + (ends - since) / 2 if point == "beforeDrain" else ends
    return max(last, since + AT_LEAST)


def taken_at(state: ClaimState) -> datetime | None:
    """When AWS takes the instance from under the node, by what it has said so far."""
    return min((at for at in map(_taken_at, live(state)) if at), default=None)


def _taken_at(event: Event) -> datetime | None:
    if event.kind in TAKES:
        return event.starts or event.heard + NOTICE
    if event.kind in _GOING:
        return event.heard
    return event.starts if event.kind == "scheduledChange" else None


def time_left(state: ClaimState, point: Point, hook: Hook, now: datetime) -> timedelta:
    """That a hook which has begun still has."""
    run = run_of(state.hooks, point, hook.name)
    own = (run.since if run else now) + timeout_of(hook)
    ends = bound(state, point)
    return max(timedelta(0), (min(own, ends) if ends else own) - now)


# --- what is remembered ---


def run_of(hooks: Hooks, point: Point, name: str) -> HookRun | None:
    return next((one for one in hooks.runs if (one.point, one.name) == (point, name)), None)


def begun(hooks: Hooks, point: Point, hook: Hook, number: int, now: datetime) -> Hooks:
    """The memory with a run that begins; one that goes on stays as it is."""
    if hooks.point != point:
        hooks = hooks.model_copy(update={"point": point, "since": now})
    found = run_of(hooks, point, hook.name)
    if found is not None and found.number == number and not found.past:
        return hooks
    return _with(hooks, HookRun(point=point, name=hook.name, number=number, since=now))


def stopped(hooks: Hooks, point: Point, name: str, answer: HookAnswer) -> Hooks:
    """The memory with how far it came until it was to be told anew."""
    run = run_of(hooks, point, name)
    assert run is not None
    return _with(hooks, run.model_copy(update={"begun": answer.begun}))


def ended(hooks: Hooks, point: Point, name: str, answer: HookAnswer, now: datetime) -> Hooks:
    """The memory with its outcome."""
    run = run_of(hooks, point, name)
    assert run is not None
    told = {"outcome": answer.outcome, "why": answer.why[:WORDS], "ended": now}
    hooks = _with(hooks, run.model_copy(update=told))
    grace = answer.grace_ends
    return hooks.model_copy(update={"grace_ends": grace}) if grace else hooks


def _with(hooks: Hooks, run: HookRun) -> Hooks:
    others = tuple(one for one in hooks.runs if (one.point, one.name) != (run.point, run.name))
    return hooks.model_copy(update={"runs": (*others, run)})


def passed(hooks: Hooks, point: Point) -> Hooks:
    return hooks if point in hooks.passed else hooks.model_copy(update={"passed": (*hooks.passed, point)})


def given_up(hooks: Hooks) -> Hooks:
    """The node is kept: another drain begins from the start, and each hook under a key of its own."""
    return Hooks(runs=tuple(one.model_copy(update={"past": True}) for one in hooks.runs))
