"""Rules of LifecyclePolicies for AWS events, with Karpenter's actions as defaults (karpenter-aws 5.3)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from tenure.apis.durations import parse_duration_or_none
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.apis.lifecyclepolicy_disruption import Window
from tenure.apis.lifecyclepolicy_events import (
    Action,
    EventRules,
    InterruptionRules,
    ScheduledRules,
    StoppingRules,
    TimedRules,
    Timing,
    WorkloadRules,
)
from tenure.model.base import Value
from tenure.model.interruption.messages import EventKind
from tenure.policy.disruption.budgets import check_schedule, is_open, next_scheduled_time

DEFAULTS: Final[Mapping[EventKind, Action]] = {
    "spotInterruption": "drain",
    "capacityReservationInterruption": "drain",
    "rebalanceRecommendation": "notify",
    "scheduledChange": "drain",
    "instanceStopping": "drain",
    "instanceTerminating": "drain",
    "instanceStatus": "terminate",
    "systemStatus": "terminate",
}
DEFERRABLE_KINDS: Final[frozenset[EventKind]] = frozenset(
    {"rebalanceRecommendation", "scheduledChange", "instanceStatus", "systemStatus"}
)
"""Kinds whose action can be deferred. The others are handled immediately, or ignored."""
RECLAIM_KINDS: Final[frozenset[EventKind]] = frozenset({"spotInterruption", "capacityReservationInterruption"})
"""Kinds with which AWS reclaims capacity. Karpenter marks the capacity pool as unavailable then (reference 5.3)."""
LEAD: Final = timedelta(minutes=10)
DEFAULT_MAX_DOWNTIME: Final = timedelta(minutes=15)
"""For an instance that Tenure stops and starts."""
_UNBUDGETED_ACTIONS: Final = ("terminate", "stopStart")
"""Actions that ignore budgets. A validation rule of the CRD does not allow `voluntary` for them."""


class EventTiming(Value):
    lead: timedelta = LEAD
    windows: tuple[Window, ...] = ()
    deadline: timedelta | None = None
    notify_only: bool = False
    """Without an approval or an open window, the event is left to AWS."""


class EventPolicy(Value):
    action: Action
    times: EventTiming = EventTiming()
    do_not_disrupt: Literal["honour", "override"] | None = None
    voluntary: bool = False
    max_downtime: timedelta | None = None


def resolve_event_policy(rules: LifecycleRules | None, kind: EventKind) -> EventPolicy:
    """An invalid field has its default value."""
    one = event_rules_of((rules.interruption if rules else None) or InterruptionRules(), kind)
    if one is None:
        return EventPolicy(action=DEFAULTS[kind])
    voluntary = isinstance(one, TimedRules | ScheduledRules) and one.voluntary is True
    return EventPolicy(
        action=_restrict_action(
            one.action or DEFAULTS[kind], honour=one.do_not_disrupt == "honour", voluntary=voluntary
        ),
        times=resolve_timing(one) if isinstance(one, Timing) else EventTiming(),
        do_not_disrupt=one.do_not_disrupt,
        voluntary=voluntary,
        max_downtime=parse_duration_or_none(one.away) if isinstance(one, StoppingRules | ScheduledRules) else None,
    )


def _restrict_action(action: Action, *, honour: bool, voluntary: bool) -> Action:
    """Only a drain can honour do-not-disrupt and use budgets. The CRD cannot validate fields of different policies
    together."""
    if action == "terminate" and (honour or voluntary):
        return "drain"
    return "drain" if action == "stopStart" and voluntary else action


def ignored_by_all(rules: Iterable[LifecycleRules | None]) -> frozenset[EventKind]:
    """Kinds that all NodePools ignore, without waiting for a stopped instance. `rules`: of each NodePool."""
    everyone = tuple(rules)
    return frozenset(kind for kind in DEFAULTS if everyone and all(_is_ignored(one, kind) for one in everyone))


def _is_ignored(rules: LifecycleRules | None, kind: EventKind) -> bool:
    policy = resolve_event_policy(rules, kind)
    return policy.action == "ignore" and policy.max_downtime is None


def event_rules_of(
    rules: InterruptionRules, kind: EventKind
) -> EventRules | StoppingRules | TimedRules | ScheduledRules | None:
    found: Mapping[EventKind, EventRules | StoppingRules | TimedRules | ScheduledRules | None] = {
        "spotInterruption": rules.spot_interruption,
        "capacityReservationInterruption": rules.capacity_reservation_interruption,
        "rebalanceRecommendation": rules.rebalance_recommendation,
        "scheduledChange": rules.scheduled_change,
        "instanceStopping": rules.instance_stopping,
        "instanceTerminating": rules.instance_terminating,
        "instanceStatus": rules.instance_status,
        "systemStatus": rules.system_status,
    }
    return found[kind]


def workloads_of(rules: LifecycleRules | None) -> tuple[WorkloadRules, ...]:
    interruption = rules.interruption if rules else None
    return (interruption.workloads if interruption else None) or ()


def resolve_timing(timing: Timing) -> EventTiming:
    lead = parse_duration_or_none(timing.lead)
    return EventTiming(
        lead=LEAD if lead is None else lead,
        windows=timing.windows or (),
        deadline=parse_duration_or_none(timing.deadline),
        notify_only=timing.fallback == "notify",
    )


def next_window_opening(windows: Sequence[Window], now: datetime) -> datetime | None:
    """When the first window opens; `now` if one is open, None if none ever opens."""
    found = []
    for one in windows:
        try:
            if is_open(one.schedule, one.duration, now, one.time_zone or ""):
                return now
            found.append(next_scheduled_time(one.schedule, now, one.time_zone or ""))
        except ValueError:
            continue
    # In UTC: a repeated local hour never compares equal to a time in another time zone.
    return min((hit.astimezone(UTC) for hit in found if hit), default=None)


def problems_of(rules: InterruptionRules, field: str = "interruption") -> Iterator[str]:
    """Problems that the API server cannot check: field, value and expected form."""
    named: tuple[tuple[str, Timing | None], ...] = (
        ("rebalanceRecommendation", rules.rebalance_recommendation),
        ("scheduledChange", rules.scheduled_change),
        ("instanceStatus", rules.instance_status),
        ("systemStatus", rules.system_status),
        *((f"workloads[{number}]", one) for number, one in enumerate(rules.workloads or ())),
    )
    for name, timing in named:
        if timing is not None:
            yield from _timing_problems(timing, f"{field}.{name}")
        if (
            isinstance(timing, TimedRules | ScheduledRules)
            and timing.voluntary
            and timing.action in _UNBUDGETED_ACTIONS
        ):
            yield (
                f"{field}.{name}.voluntary: action {timing.action} ignores budgets; set action: drain, or remove "
                "voluntary"
            )
    yield from _workload_problems(rules.workloads or (), f"{field}.workloads")


def _timing_problems(timing: Timing, field: str) -> Iterator[str]:
    for number, window in enumerate(timing.windows or ()):
        if problem := _window_problem(window):
            yield f"{field}.windows[{number}].{problem}"
    for name, text in (("lead", timing.lead), ("deadline", timing.deadline)):
        if text is not None and parse_duration_or_none(text) is None:
            yield f"{field}.{name}: {text!r}: invalid duration, expected e.g. 30m"
    if timing.deadline is not None and parse_duration_or_none(timing.deadline) == timedelta(0):
        yield f"{field}.deadline: {timing.deadline!r}: invalid duration, expected e.g. 24h"


def _window_problem(window: Window) -> str:
    if not parse_duration_or_none(window.duration):
        return f"duration: {window.duration!r}: invalid duration, expected e.g. 2h"
    try:
        check_schedule(window.schedule, window.time_zone or "")
    except ValueError as error:
        return f"{error}"
    return ""


def _workload_problems(workloads: Sequence[WorkloadRules], field: str) -> Iterator[str]:
    """A rule never applies if an earlier rule matches all of its pods."""
    for number, one in enumerate(workloads):
        for before, other in enumerate(workloads[:number]):
            if other.match_labels.items() <= one.match_labels.items():
                yield (
                    f"{field}[{number}].matchLabels: every pod with "
                    f"{_format_labels(one.match_labels)} also matches {field}[{before}], which applies first; "
                    "put the more specific entry first"
                )


def _format_labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())
