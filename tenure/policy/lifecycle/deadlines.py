"""Deadlines of phases, and the actions after them.

Rules are None without a policy. The settings apply then, and for each missing or invalid value. A phase is slow if it
takes longer than past nodes of the same kind; this is only shown.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, get_args

from tenure.apis.durations import DurationError, parse_duration, parse_duration_or_none
from tenure.apis.lifecyclepolicy import DrainRules, LifecycleRules, Overdue, PhaseRules, RepairRules, TerminationRules
from tenure.model.nodeclaim.state import Deadlines, NodeClaimState, Phase
from tenure.model.plan import PhaseDurations
from tenure.policy.disruption.limits import problems_of
from tenure.policy.hooks import rules as hook_rules
from tenure.policy.interruption import rules as interruption_rules
from tenure.policy.lifecycle.repair_policies import find_invalid_patterns

ACTIONS: Final[Mapping[Phase, Overdue]] = {
    Phase.LAUNCH: "terminate",
    Phase.REGISTRATION: "terminate",
    Phase.INITIALIZATION: "alarm",
    Phase.DRAIN: "alarm",
    Phase.TERMINATION: "alarm",
}
"""Actions after a deadline without a policy. Launch and registration: Karpenter's liveness (reference 3.5)."""
_DURATIONS: Final = frozenset(
    {
        "deadline",
        "blockedFor",
        "nodeNotReady",
        "notReadyGrace",
        "within",
        "drainFor",
        "rebootFor",
        "toleration",
        "terminationGracePeriod",
        "minimumNodeAge",
        "lead",
        "away",
    }
)


def deadlines_of(rules: LifecycleRules | None, defaults: Deadlines) -> Deadlines:
    """The effective deadlines. Registration also counts from the NodeClaim's creation, so launch cannot be longer."""
    if rules is None:
        return defaults
    registration = _deadline_or_default(rules.registration, defaults.registration)
    return Deadlines(
        launch=min(_deadline_or_default(rules.launch, defaults.launch), registration),
        registration=registration,
        initialization=_deadline_or_default(rules.initialization, defaults.initialization),
        drain=_deadline_or_default(rules.drain, defaults.drain),
        termination=_deadline_or_default(rules.termination, defaults.termination),
        not_ready_grace=not_ready_grace_of(rules, defaults.not_ready_grace),
    )


def action_of(rules: LifecycleRules | None, phase: Phase) -> Overdue:
    """The action when a phase passes its deadline; always an alarm for drain and termination."""
    found = _phase_rules(rules, phase) if rules else None
    action = found.when_overdue if found else None
    return action if action is not None and action in get_args(Overdue) else ACTIONS.get(phase, "alarm")


def not_ready_grace_of(rules: LifecycleRules | None, default: timedelta) -> timedelta:
    return _duration_or_default(rules.not_ready_grace if rules else None, default)


def problem_of(rules: LifecycleRules) -> str:
    """The first problem of these rules; empty if they are valid."""
    fields = flatten_rules(rules)
    for field, span in duration_fields(fields):
        if isinstance(span, str):
            return f"{field}: {span}"
        if field.endswith("deadline") and span <= timedelta(0):
            return f"{field}: {fields[field]!r}: invalid duration, expected e.g. 15m"
    times = dict(duration_fields(fields))
    launch, registration = times.get("launch.deadline"), times.get("registration.deadline")
    if isinstance(launch, timedelta) and isinstance(registration, timedelta) and registration < launch:
        return (
            f"registration.deadline: {fields['registration.deadline']!r} is shorter than launch.deadline "
            f"{fields['launch.deadline']!r}, and both count from the NodeClaim's creation; set a longer one"
        )
    blocked = fields.get("drain.whenBlocked", "wait")
    if blocked != "wait" and "drain.blockedFor" not in fields:
        return f"drain.whenBlocked: {blocked!r} requires drain.blockedFor, e.g. blockedFor: 2h"
    disruption_problems = problems_of(rules.disruption, "disruption") if rules.disruption else ()
    events = interruption_rules.problems_of(rules.interruption) if rules.interruption else iter(())
    hooks = hook_rules.problems_of(rules.hooks) if rules.hooks else iter(())
    repair = _repair_problems(rules.repair) if rules.repair else iter(())
    return next(iter((*disruption_problems, *events, *hooks, *repair)), "")


def _repair_problems(rules: RepairRules) -> Iterator[str]:
    for index, one in enumerate(rules.conditions or ()):
        fields = dict(_flatten(one.to_object(), f"repair.conditions[{index}]."))
        yield from (f"{field}: {span}" for field, span in duration_fields(fields) if isinstance(span, str))
    for index, pattern in find_invalid_patterns(rules.conditions or ()):
        field = f"repair.conditions[{index}].reason"
        yield f"{field}: {pattern!r}: invalid regular expression, expected e.g. .*XID(48|63).*"


def flatten_rules(rules: LifecycleRules) -> dict[str, Any]:
    """All set fields by path, such as `launch.deadline`; a list is one field."""
    return dict(_flatten(rules.to_object(), ""))


def is_same_value(field: str, one: Any, other: Any) -> bool:
    """Whether two values of a field are equivalent, such as 60m and 1h."""
    if field.rpartition(".")[2] in _DURATIONS and isinstance(one, str) and isinstance(other, str):
        return _parse_duration(one) == _parse_duration(other)
    return bool(one == other)


def duration_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, timedelta | str]]:
    """Fields that are durations: the value, or the problem as text."""
    for field, value in fields.items():
        if field.rpartition(".")[2] in _DURATIONS:
            yield field, _parse_duration(str(value))


def _phase_rules(rules: LifecycleRules, phase: Phase) -> PhaseRules | None:
    found = {
        Phase.LAUNCH: rules.launch,
        Phase.REGISTRATION: rules.registration,
        Phase.INITIALIZATION: rules.initialization,
    }
    return found.get(phase)


def _deadline_or_default(rules: PhaseRules | DrainRules | TerminationRules | None, default: timedelta) -> timedelta:
    return _duration_or_default(rules.deadline if rules else None, default)


def _flatten(rules: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for key, value in rules.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", value


def _parse_duration(text: str) -> timedelta | str:
    try:
        span = parse_duration(text)
    except DurationError as error:
        return str(error)
    return f"{text!r}: endless duration, expected e.g. 15m" if span is None else span


def _duration_or_default(text: str | None, default: timedelta) -> timedelta:
    span = parse_duration_or_none(text)
    return default if span is None else span


def slow_at(state: NodeClaimState) -> datetime | None:
    """When the phase becomes slow compared with similar nodes; None without an expected duration, or if it is already
    slow or overdue."""
    if state.slow or state.overdue or state.since is None or state.initialized:
        return None
    span = _expected_duration(state)
    if span is None:
        return None
    at = (state.identity.created if state.phase is Phase.LAUNCH else state.since) + span
    return at if state.deadline is None or at < state.deadline else None


def _expected_duration(state: NodeClaimState) -> timedelta | None:
    if state.expected is None:
        return None
    kind = state.launched.instance_type if state.launched else ""
    times = state.expected.by_type.get(kind, PhaseDurations())
    others = state.expected.default
    durations = {
        Phase.LAUNCH: times.launch or others.launch,
        Phase.REGISTRATION: times.registration or others.registration,
        Phase.INITIALIZATION: times.initialization or others.initialization,
    }
    return durations.get(state.phase)
