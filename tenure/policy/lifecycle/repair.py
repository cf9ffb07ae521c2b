"""When and how an unhealthy node is repaired, and when too many nodes are unhealthy for any repair.

Karpenter's rules are the defaults (`repair_policies.py`). The workflow stores `Health` and carries out the decision.
The activity checks again and counts the NodePool's nodes.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from tenure.apis.durations import parse_duration, parse_duration_or_none
from tenure.apis.labels import DO_NOT_REPAIR
from tenure.apis.lifecyclepolicy import LifecycleRules, RepairRules
from tenure.model.base import Value
from tenure.model.facts import NodeFact
from tenure.model.node_health import (
    ConditionInterval,
    Health,
    Reboot,
    RepairDue,
    RepairMode,
    RepairStep,
    UnhealthyCondition,
)
from tenure.model.nodeclaim.state import NodeClaimState, Phase
from tenure.policy.disruption.budgets import share_of
from tenure.policy.interruption.decision import maintenance_until
from tenure.policy.lifecycle.deadlines import deadlines_of
from tenure.policy.lifecycle.pauses import describe_pause, is_pause_active, recheck_at
from tenure.policy.lifecycle.repair_policies import (
    NOT_READY_PAIRS,
    PolicyMatch,
    choose_match,
    matching_conditions,
    repair_conditions,
    repair_order_at,
    shortest_grace,
    unhealthy_pairs,
)

REBOOT_FOR: Final = timedelta(minutes=10)
DRAIN_FOR: Final = timedelta(minutes=30)
MAX_UNHEALTHY: Final = "20%"
VOLUNTARY_REBOOT_FOR: Final = timedelta(minutes=20)
"""Unless the mode is `legacy` (reference 1.15, section 3.7)."""
REBOOT_WINDOW: Final = timedelta(days=1)
"""FORGET_AFTER for the two reboots of repair without `steps`."""
FORGET_AFTER: Final = timedelta(hours=1)
"""A node that was healthy for this long (or the rules' `within`, if longer) is repaired from the first step again."""
BREAKER_CHECK_INTERVAL: Final = timedelta(minutes=5)
"""Interval between checks while too many nodes are unhealthy (`MAX_UNHEALTHY`)."""
RECHECK_AFTER: Final = timedelta(seconds=30)
"""Delay before the next check if the live Node is healthy although the cache shows it unhealthy."""
DO_NOT_REPAIR_MESSAGE: Final = f"the Node has the annotation {DO_NOT_REPAIR}: true"
_NONE: Final = timedelta(0)
_MAX_INTERVALS: Final = 100


class Repair(Value):
    """`reboot`: begin or continue a reboot. `observe`: it has another boot ID. `fail`: it did not help in time.
    `cancel`: it is not necessary any more. `recovered`: the last step has helped. `withdraw`: the requested
    replacement is not due any more. `report`: the Node must not be repaired."""

    do: Literal["wait", "reboot", "observe", "fail", "cancel", "replace", "recovered", "withdraw", "report"] = "wait"
    until: datetime | None = None
    condition: str = ""
    rung: int = 0
    blocked_by: str = ""
    due: RepairDue | None = None
    """The replacement that is due, unless the mode is `legacy`. A disruption command carries it out."""
    grace: timedelta | None = None
    """Of a reboot that begins."""


def repair_rules_of(rules: LifecycleRules | None) -> RepairRules:
    return (rules.repair if rules else None) or RepairRules()


def decide_repair(state: NodeClaimState, now: datetime) -> Repair:
    """The next repair step; `wait` without an unhealthy condition that a rule counts, or while another controller
    maintains the node."""
    decided, requested = _decide_step(state, now), state.health.requested
    if requested is None or decided.do == "recovered":
        return decided
    if decided.due is None:
        return Repair(do="withdraw", condition=requested.condition)
    if decided.do == "replace" and decided.due == requested:
        why = f"unhealthy, {decided.condition}: waits for its replacement"
        until = _next_match_due_at(state, now)
        return Repair(until=until, condition=decided.condition, blocked_by=why, due=requested)
    return decided


def _next_match_due_at(state: NodeClaimState, now: datetime) -> datetime | None:
    """When another condition becomes due, which may change the requested replacement; None without one."""
    matches = _match_intervals(state, repair_rules_of(state.observed.rules))
    return min((one.due for one in matches if one.due > now), default=None)


def _decide_step(state: NodeClaimState, now: datetime) -> Repair:
    health, rules, reboot = state.health, repair_rules_of(state.observed.rules), state.health.reboot
    if reboot is not None and not reboot.issued:
        return _decide_pending_reboot(state, reboot, now)
    if reboot is None and state.observed.maintenance:
        return Repair()
    matches = _match_intervals(state, rules)
    if health.step_at is not None:
        if reboot is not None and not reboot.observed and _has_rebooted(state):
            return Repair(do="observe", condition=health.condition)
        end = health.step_at + (_NONE if health.step_failed else reboot_for(state.observed.rules, health.mode))
        if _is_well(state) and (_has_rebooted(state) or now >= end):
            return Repair(do="recovered", condition=health.condition)
        if now < end:
            return Repair(until=end, condition=health.condition, blocked_by=f"rebooted for {health.condition}")
        if reboot is not None:
            return Repair(do="fail", condition=health.condition)
        steps = rules.steps or _default_steps(health.mode, "reboot")
        due, condition, taken = end, health.condition, health.steps_taken if rules.steps else len(steps) - 1
    else:
        found = choose_match(matches, now)
        if found is None:
            return Repair()
        due, condition = found.due, found.condition
        steps = rules.steps or _default_steps(health.mode, found.policy.action)
        taken = 0 if _is_forgotten(health, rules, found.since) else health.steps_taken
        if not rules.steps and health.mode != "legacy":
            taken = min(taken, len(steps) - 1)
    if taken >= len(steps):
        return Repair(condition=condition, blocked_by=f"unhealthy, {condition}: {', '.join(steps)} did not help")
    if now < due:
        message = f"unhealthy, {condition}: {steps[taken]} at {due.isoformat(timespec='seconds')}"
        return Repair(until=due, condition=condition, blocked_by=message)
    if state.observed.do_not_repair:
        message = f"unhealthy, {condition}: {DO_NOT_REPAIR_MESSAGE}"
        is_reported = health.blocked_by == message
        return Repair(do="wait" if is_reported else "report", condition=condition, blocked_by=message)
    is_requested = steps[taken] == "replace" and health.mode != "legacy"
    request = _build_request(state, matches, condition, due, now) if is_requested else None
    if health.blocked_until and now < health.blocked_until:
        return Repair(until=health.blocked_until, condition=condition, blocked_by=health.blocked_by, due=request)
    if steps[taken] == "reboot" and state.phase is not Phase.READY and state.pause and _is_paused(state, now):
        why = f"the node {describe_pause(state.pause)}"
        return Repair(until=recheck_at(state.pause), condition=condition, blocked_by=why)
    grace = _reboot_grace(state, matches, now) if steps[taken] == "reboot" else None
    return Repair(do=steps[taken], condition=condition, rung=taken, due=request, grace=grace)


def _decide_pending_reboot(state: NodeClaimState, reboot: Reboot, now: datetime) -> Repair:
    """Of a reboot that EC2 has not accepted. One whose first step did not succeed is undone and decided again. A drain
    without a bound fails at the deadline of drains."""
    if not reboot.begun or _is_well(state) or state.observed.do_not_repair or _is_prevented(state, now):
        return Repair(do="cancel", condition=reboot.condition, rung=reboot.rung)
    is_overdue = reboot.drain_until is None and not reboot.drained and now >= drain_ends_at(state, reboot)
    return Repair(do="fail" if is_overdue else "reboot", condition=reboot.condition, rung=reboot.rung)


def drain_ends_at(state: NodeClaimState, reboot: Reboot) -> datetime:
    """The bound of the drain before a reboot; without one, the deadline of drains."""
    return reboot.drain_until or reboot.requested_at + deadlines_of(state.observed.rules, state.deadlines).drain


def _is_prevented(state: NodeClaimState, now: datetime) -> bool:
    """Whether a pause, another controller or AWS prevents the reboot. As before the reboot, maintenance by AWS and a
    revoked permit count in Ready only."""
    is_revoked = state.health.mode != "legacy" and bool(state.revocation)
    is_prevented_in_ready = is_revoked or maintenance_until(state) is not None
    is_ready_phase = state.phase is Phase.READY
    return bool(state.observed.maintenance) or _is_paused(state, now) or (is_ready_phase and is_prevented_in_ready)


def _is_paused(state: NodeClaimState, now: datetime) -> bool:
    """Pauses block reboots, except in the legacy mode. In Ready the permit of the next reboot waits for their end."""
    return state.health.mode != "legacy" and is_pause_active(state.pause, now)


def _reboot_grace(state: NodeClaimState, matches: Sequence[PolicyMatch], now: datetime) -> timedelta | None:
    """How long pods are evicted before a reboot: the shortest bound that is set (reference 1.15, section 3.7)."""
    return _legacy_bound(state) if state.health.mode == "legacy" else _shorter(shortest_grace(matches, now), state)


def repair_bound(state: NodeClaimState) -> timedelta | None:
    """How long pods are evicted before the node is replaced; None without a bound."""
    if state.health.mode == "legacy":
        return _legacy_bound(state)
    return _shorter(state.health.requested.grace if state.health.requested else None, state)


def _legacy_bound(state: NodeClaimState) -> timedelta | None:
    """`drain: graceful` evicts pods while the kubelet responds."""
    written = drain_grace(state.observed.rules) if state.observed.node_ready else None
    return _shorter(written or _NONE, state)


def _shorter(grace: timedelta | None, state: NodeClaimState) -> timedelta | None:
    """The shorter of `grace` and the termination grace period of the NodeClaim."""
    own = parse_duration_or_none(state.identity.termination_grace_period)
    return min((one for one in (grace, own) if one is not None), default=None)


def _build_request(
    state: NodeClaimState, matches: Sequence[PolicyMatch], condition: str, due: datetime, now: datetime
) -> RepairDue:
    """After a reboot that did not help, a NotReady Node is unhealthy, whatever conditions count."""
    conditions = repair_conditions(state.observed.rules, state.health.mode)
    pairs = unhealthy_pairs(conditions)
    if state.health.step_at is not None:
        pairs = tuple(dict.fromkeys((*pairs, *NOT_READY_PAIRS)))
    return RepairDue(
        condition=condition,
        order_at=repair_order_at(matches, conditions, now) or due,
        grace=shortest_grace(matches, now),
        conditions=pairs,
        max_unhealthy=repair_rules_of(state.observed.rules).max_unhealthy or MAX_UNHEALTHY,
    )


def record_conditions(
    state: NodeClaimState,
    unhealthy: Sequence[UnhealthyCondition],
    rules: LifecycleRules | None,
    now: datetime,
    mode: RepairMode = "legacy",
) -> Health:
    """`mode` counts only with unhealthy conditions."""
    health = state.health
    if not unhealthy and not health.intervals:
        return health
    if unhealthy:
        health = health.model_copy(update={"mode": mode})
    present = {one.type: one for one in unhealthy}
    intervals = [_continue_interval(one, present.get(one.type), now) for one in health.intervals]
    known = {one.type for one in intervals if one.until is None}
    intervals += [
        ConditionInterval(type=one.type, status=one.status, reason=one.reason, since=one.since)
        for one in unhealthy
        if one.type not in known
    ]
    within = _memory_window(repair_rules_of(rules))
    retained = [one for one in intervals if one.until is None or (within and one.until > now - within)]
    return health.model_copy(update={"intervals": tuple(retained[-_MAX_INTERVALS:])})


def after_step(health: Health, repair: Repair, *, boot_id: str, now: datetime) -> Health:
    return Health(
        mode=health.mode,
        requested=health.requested,
        intervals=health.intervals,
        steps_taken=repair.rung + 1,
        condition=repair.condition,
        step_at=now,
        boot_id=boot_id,
        reboot=health.reboot.model_copy(update={"issued": True}) if health.reboot else None,
    )


def after_failure(health: Health, repair: Repair, *, boot_id: str, now: datetime) -> Health:
    return after_step(health, repair, boot_id=boot_id, now=now).model_copy(update={"step_failed": True})


def begin_reboot(repair: Repair, *, boot_id: str, now: datetime) -> Reboot:
    return Reboot(
        requested_at=now,
        condition=repair.condition,
        rung=repair.rung,
        boot_id=boot_id,
        grace=repair.grace,
        drained=repair.grace == _NONE,
    )


def with_reboot(health: Health, reboot: Reboot | None, **fields: object) -> Health:
    """The health with this reboot, changed in `fields`; None: it has ended."""
    return health.model_copy(update={"reboot": reboot.model_copy(update=fields) if reboot else None})


def with_request(health: Health, due: RepairDue | None) -> Health:
    """None: it is withdrawn."""
    return health.model_copy(update={"requested": due})


def with_condition(health: Health, repair: Repair) -> Health:
    """The condition for which the node is replaced."""
    return health.model_copy(update={"condition": repair.condition})


def block_repair(health: Health, why: str, until: datetime | None = None) -> Health:
    """`until`: None if the blocker is in the observation."""
    return health.model_copy(update={"blocked_until": until, "blocked_by": why})


def after_recovery(health: Health, now: datetime) -> Health:
    ended = {"intervals": (), "step_at": None, "boot_id": "", "reboot": None}
    return health.model_copy(update={**ended, "recovered_at": now})


def drain_grace(rules: LifecycleRules | None) -> timedelta | None:
    """None: do not wait for pods."""
    found = repair_rules_of(rules)
    return (parse_duration_or_none(found.drain_for) or DRAIN_FOR) if found.drain == "graceful" else None


def reboot_for(rules: LifecycleRules | None, mode: RepairMode = "legacy") -> timedelta:
    default = REBOOT_FOR if mode == "legacy" else VOLUNTARY_REBOOT_FOR
    return parse_duration_or_none(repair_rules_of(rules).reboot_for) or default


def decide_breaker(unhealthy: int, total: int, limit: str, *, where: str) -> str:
    """Why no node may be repaired now; empty if repairs are allowed. Percentages round up (reference 3.11)."""
    allowed = share_of(limit, total)
    if unhealthy <= allowed:
        return ""
    return f"{unhealthy} of {total} nodes {where} are unhealthy, and maxUnhealthy {limit} allows {allowed}"


def is_unhealthy(node: NodeFact, counting: Collection[tuple[str, str]]) -> bool:
    return any((one.type, one.status) in counting for one in node.conditions)


def _default_steps(mode: RepairMode, action: RepairStep | None) -> tuple[RepairStep, ...]:
    """At most two reboots within REBOOT_WINDOW (reference 1.15, section 3.7)."""
    return ("reboot", "reboot", "replace") if mode != "legacy" and action == "reboot" else ("replace",)


def _match_intervals(state: NodeClaimState, rules: RepairRules) -> list[PolicyMatch]:
    """The current unhealthy conditions that a rule counts, with the ends of their tolerations."""
    conditions = repair_conditions(state.observed.rules, state.health.mode)
    intervals, within, found = state.health.intervals, _memory_window(rules), []
    for one in intervals:
        if one.until is not None:
            continue
        for policy in matching_conditions(conditions, one.type, one.status, one.reason):
            toleration = parse_duration(policy.toleration) or _NONE
            earlier = [past for past in intervals if past.type == one.type and past.until] if within else []
            due = _due_at(one.since, earlier, toleration, max(within or toleration, toleration))
            found.append(PolicyMatch(policy=policy, since=one.since, due=due))
    return found


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
        return interval.model_copy(update={"reason": present.reason})
    return interval.model_copy(update={"until": max(interval.since, present.since)})


def _is_well(state: NodeClaimState) -> bool:
    return state.observed.node_ready and not state.observed.unhealthy


def _has_rebooted(state: NodeClaimState) -> bool:
    return bool(state.observed.boot_id) and state.observed.boot_id != state.health.boot_id


def _is_forgotten(health: Health, rules: RepairRules, began: datetime) -> bool:
    default = FORGET_AFTER if health.mode == "legacy" or rules.steps else REBOOT_WINDOW
    memory = max(default, _memory_window(rules) or default)
    return health.recovered_at is not None and began - health.recovered_at >= memory


def _memory_window(rules: RepairRules) -> timedelta | None:
    return parse_duration_or_none(rules.within)
