"""When and how an unhealthy node is repaired, and when too many nodes are unhealthy for any repair.

Karpenter's rules are the defaults (reference 3.11; the conditions are its AWS provider's). The workflow stores `Health`
and carries out the decision; the activity checks again and counts the NodePool's nodes.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.durations import parse_duration, parse_duration_or_none
from tenure.apis.lifecyclepolicy import LifecycleRules, RepairCondition, RepairRules
from tenure.model.base import Value
from tenure.model.facts import NodeFact
from tenure.model.node_health import ConditionInterval, Health, RepairStep, UnhealthyCondition
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.disruption.budgets import share_of

REBOOT_FOR: Final = timedelta(minutes=10)
DRAIN_FOR: Final = timedelta(minutes=30)
MAX_UNHEALTHY: Final = "20%"
FORGET_AFTER: Final = timedelta(hours=1)
"""A node that was healthy for this long (or the rules' `within`, if longer) is repaired from the first step again."""
BREAKER_CHECK_INTERVAL: Final = timedelta(minutes=5)
"""Interval between checks while too many nodes are unhealthy (`MAX_UNHEALTHY`)."""
RECHECK_AFTER: Final = timedelta(seconds=30)
"""Delay before the next check if the live Node is healthy although the cache shows it unhealthy."""
_NONE: Final = timedelta(0)
_MAX_INTERVALS: Final = 100


KARPENTERS: Final = tuple(
    RepairCondition(type=type_, status=status, toleration=toleration)
    for type_, status, toleration in (
        ("Ready", "False", "30m"),
        ("Ready", "Unknown", "30m"),
        ("AcceleratedHardwareReady", "False", "10m"),
        ("StorageReady", "False", "30m"),
        ("NetworkingReady", "False", "30m"),
        ("KernelReady", "False", "30m"),
        ("ContainerRuntimeReady", "False", "30m"),
    )
)


class Repair(Value):
    """`recovered`: the last step has helped."""

    do: Literal["wait", "reboot", "replace", "recovered"] = "wait"
    until: datetime | None = None
    condition: str = ""
    rung: int = 0
    blocked_by: str = ""


def repair_rules_of(rules: LifecycleRules | None) -> RepairRules:
    return (rules.repair if rules else None) or RepairRules()


def repair_conditions(rules: LifecycleRules | None) -> tuple[RepairCondition, ...]:
    found = repair_rules_of(rules).conditions
    return KARPENTERS if found is None else found


def decide_repair(state: NodeClaimState, now: datetime) -> Repair:
    """The next repair step; `wait` without an unhealthy condition that a rule counts."""
    health, rules = state.health, repair_rules_of(state.observed.rules)
    steps = _repair_steps(rules)
    if health.step_at is not None:
        end = health.step_at + (_NONE if health.step_failed else reboot_for(state.observed.rules))
        if _is_well(state) and (_has_rebooted(state) or now >= end):
            return Repair(do="recovered", condition=health.condition)
        if now < end:
            return Repair(until=end, condition=health.condition, blocked_by=f"rebooted for {health.condition}")
        due, condition, taken = end, health.condition, health.steps_taken
    else:
        found = _earliest_due(state, rules)
        if found is None:
            return Repair()
        due, condition, began = found
        taken = 0 if _is_forgotten(health, rules, began) else health.steps_taken
    if taken >= len(steps):
        return Repair(condition=condition, blocked_by=f"unhealthy, {condition}: {', '.join(steps)} did not help")
    if now < due:
        message = f"unhealthy, {condition}: {steps[taken]} at {due.isoformat(timespec='seconds')}"
        return Repair(until=due, condition=condition, blocked_by=message)
    if health.blocked_until and now < health.blocked_until:
        return Repair(until=health.blocked_until, condition=condition, blocked_by=health.blocked_by)
    return Repair(do=steps[taken], condition=condition, rung=taken)


def record_conditions(
    state: NodeClaimState, unhealthy: Sequence[UnhealthyCondition], rules: LifecycleRules | None, now: datetime
) -> Health:
    health = state.health
    if not unhealthy and not health.intervals:
        return health
    present = {one.type: one for one in unhealthy}
    intervals = [_continue_interval(one, present.get(one.type), now) for one in health.intervals]
    known = {one.type for one in intervals if one.until is None}
    intervals += [
        ConditionInterval(type=one.type, status=one.status, since=one.since)
        for one in unhealthy
        if one.type not in known
    ]
    within = _memory_window(repair_rules_of(rules))
    retained = [one for one in intervals if one.until is None or (within and one.until > now - within)]
    return health.model_copy(update={"intervals": tuple(retained[-_MAX_INTERVALS:])})


def after_step(health: Health, repair: Repair, *, boot_id: str, now: datetime) -> Health:
    return Health(
        intervals=health.intervals,
        steps_taken=repair.rung + 1,
        condition=repair.condition,
        step_at=now,
        boot_id=boot_id,
    )


def after_failure(health: Health, repair: Repair, *, boot_id: str, now: datetime) -> Health:
    return after_step(health, repair, boot_id=boot_id, now=now).model_copy(update={"step_failed": True})


def block_repair(health: Health, why: str, until: datetime) -> Health:
    return health.model_copy(update={"blocked_until": until, "blocked_by": why})


def after_recovery(health: Health, now: datetime) -> Health:
    return health.model_copy(update={"intervals": (), "step_at": None, "recovered_at": now, "boot_id": ""})


def drain_grace(rules: LifecycleRules | None) -> timedelta | None:
    """None: do not wait for pods."""
    found = repair_rules_of(rules)
    return (parse_duration_or_none(found.drain_for) or DRAIN_FOR) if found.drain == "graceful" else None


def reboot_for(rules: LifecycleRules | None) -> timedelta:
    return parse_duration_or_none(repair_rules_of(rules).reboot_for) or REBOOT_FOR


def decide_breaker(unhealthy: int, total: int, limit: str, *, where: str) -> str:
    """Why no node may be repaired now; empty if repairs are allowed. Percentages round up (reference 3.11)."""
    allowed = share_of(limit, total)
    if unhealthy <= allowed:
        return ""
    return f"{unhealthy} of {total} nodes {where} are unhealthy, and maxUnhealthy {limit} allows {allowed}"


def is_unhealthy(node: NodeFact, counting: Collection[tuple[str, str]]) -> bool:
    return any((one.type, one.status) in counting for one in node.conditions)


def _repair_steps(rules: RepairRules) -> tuple[RepairStep, ...]:
    return rules.steps or ("replace",)


def _earliest_due(state: NodeClaimState, rules: RepairRules) -> tuple[datetime, str, datetime] | None:
    """When the first toleration of a current unhealthy condition ends, the condition, and its start time."""
    counting: dict[tuple[str, str], str] = {
        (one.type, one.status): one.toleration for one in repair_conditions(state.observed.rules)
    }
    intervals, within, found = state.health.intervals, _memory_window(rules), []
    for one in intervals:
        written = counting.get((one.type, one.status)) if one.until is None else None
        if written is None:
            continue
        toleration = parse_duration(written) or _NONE
        earlier = [past for past in intervals if past.type == one.type and past.until] if within else []
        due = _due_at(one.since, earlier, toleration, max(within or toleration, toleration))
        found.append((due, f"{one.type}={one.status}", one.since))
    return min(found, default=None)


def _due_at(since: datetime, earlier: Sequence[ConditionInterval], toleration: timedelta, span: timedelta) -> datetime:
    """When the unhealthy time within the sliding `span` reaches the toleration. While an earlier interval leaves the
    span, the sum does not grow."""
    expiring = [(one.since + span, one.until + span) for one in earlier if one.until and one.until + span > since]
    lasted = sum((end - max(begin, since) for begin, end in expiring), _NONE)
    at = since
    for edge in sorted({edge for pair in expiring for edge in pair if edge > since}):
        grows = not any(begin <= at < end for begin, end in expiring)
        if lasted >= toleration or (grows and at + toleration - lasted <= edge):
            break
        lasted += edge - at if grows else _NONE
        at = edge
    return at + max(toleration - lasted, _NONE)


def _continue_interval(
    interval: ConditionInterval, present: UnhealthyCondition | None, now: datetime
) -> ConditionInterval:
    if interval.until is not None:
        return interval
    if present is None:
        return interval.model_copy(update={"until": now})
    if (present.status, present.since) == (interval.status, interval.since):
        return interval
    return interval.model_copy(update={"until": max(interval.since, present.since)})


def _is_well(state: NodeClaimState) -> bool:
    return state.observed.node_ready and not state.observed.unhealthy


def _has_rebooted(state: NodeClaimState) -> bool:
    return bool(state.observed.boot_id) and state.observed.boot_id != state.health.boot_id


def _is_forgotten(health: Health, rules: RepairRules, began: datetime) -> bool:
    memory = max(FORGET_AFTER, _memory_window(rules) or FORGET_AFTER)
    return health.recovered_at is not None and began - health.recovered_at >= memory


def _memory_window(rules: RepairRules) -> timedelta | None:
    return parse_duration_or_none(rules.within)
