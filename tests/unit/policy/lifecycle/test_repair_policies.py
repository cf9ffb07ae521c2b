"""Repair policies: the table of AWS, patterns of reasons, and the order of causes and nodes."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules, RepairCondition
from tenure.model.node_health import Health, RepairMode, UnhealthyCondition
from tenure.model.nodeclaim.state import NodeClaimState
from tenure.policy.lifecycle.deadlines import problem_of
from tenure.policy.lifecycle.repair import (
    Repair,
    after_recovery,
    after_step,
    block_repair,
    decide_repair,
    record_conditions,
    with_request,
)
from tenure.policy.lifecycle.repair_policies import matching_conditions, repair_conditions
from tests.unit.policy.builders import NOW, after, before, node

GPU = "AcceleratedHardwareReady"


def unhealthy_state(
    *conditions: tuple[str, str], mode: RepairMode = "reboot", since: datetime = NOW, **repair: Any
) -> NodeClaimState:
    """`conditions`: types and reasons, with the status False."""
    rules = LifecycleRules.model_validate({"repair": repair}) if repair else None
    unhealthy = tuple(
        UnhealthyCondition(type=type_, status="False", reason=reason, since=since) for type_, reason in conditions
    )
    state = node({"rules": rules, "unhealthy": unhealthy, "node_ready": True, "boot_id": "boot-1"})
    return state.model_copy(update={"health": record_conditions(state, unhealthy, rules, since, mode)})


def decide(state: NodeClaimState, **time: float) -> Repair:
    return decide_repair(state, NOW + timedelta(**time))


@pytest.mark.parametrize(
    ("reason", "mode", "minutes", "step", "grace"),
    [
        ("NvidiaXID63Error", "reboot", 10, "reboot", 5),
        ("NvidiaXID63Error", "replace", 10, "replace", 5),
        ("NvidiaXID79Error", "reboot", 10, "replace", 5),
        ("NvidiaXID640Error", "reboot", 10, "replace", 5),
        ("NvidiaXID99Error", "reboot", 30, "replace", 10),
        ("", "reboot", 30, "replace", 10),
    ],
)
def test_reason_of_gpu_condition_selects_toleration_action_and_grace(
    reason: str, mode: RepairMode, minutes: int, step: str, grace: int
) -> None:
    state = unhealthy_state((GPU, reason), mode=mode)
    assert decide(state, minutes=minutes - 0.1).until == after(minutes=minutes)
    due = decide(state, minutes=minutes)
    assert due.do == step
    if step == "replace":
        assert due.due and (due.due.grace, due.due.order_at) == (timedelta(minutes=grace), after(minutes=minutes))


@pytest.mark.parametrize(
    ("type_", "status"),
    [
        ("Ready", "False"),
        ("Ready", "Unknown"),
        ("StorageReady", "False"),
        ("NetworkingReady", "False"),
        ("KernelReady", "False"),
        ("ContainerRuntimeReady", "False"),
    ],
)
def test_other_conditions_of_aws_are_replaced_after_30_minutes_for_any_reason(type_: str, status: str) -> None:
    [found] = matching_conditions(repair_conditions(None, "reboot"), type_, status, "AnyReason")
    assert (found.toleration, found.termination_grace_period, found.action) == ("30m", "10m", None)


def test_replacement_takes_precedence_over_reboot_and_the_shortest_grace_applies() -> None:
    both = unhealthy_state((GPU, "XID63"), ("KernelReady", "Deadlock"))
    assert decide(both, minutes=20).do == "reboot"
    late = decide(both, minutes=30)
    assert (late.do, late.condition) == ("replace", "KernelReady=False")
    assert late.due and late.due.grace == timedelta(minutes=5)


def test_priority_names_the_cause_and_counts_as_waiting() -> None:
    entries = [
        {"type": "A", "status": "False", "toleration": "10m"},
        {"type": "B", "status": "False", "toleration": "20m", "priority": 40, "terminationGracePeriod": "1m"},
        {"type": "C", "status": "False", "toleration": "1h", "priority": 90, "terminationGracePeriod": "30s"},
    ]
    state = unhealthy_state(("A", ""), ("B", ""), conditions=entries)
    first, second = decide(state, minutes=15).due, decide(state, minutes=20).due
    assert first and (first.condition, first.grace) == ("A=False", None)
    # One rank above A is worth 30 minutes.
    assert second and (second.condition, second.order_at) == ("B=False", after(minutes=-10))
    assert second.grace == timedelta(minutes=1)


def test_change_of_reason_selects_another_entry_without_a_new_toleration() -> None:
    state = unhealthy_state((GPU, "Unknown"))
    changed = (UnhealthyCondition(type=GPU, status="False", reason="XID79", since=NOW),)
    health = record_conditions(state, changed, None, after(minutes=12), "reboot")
    assert decide(state, minutes=12).do == "wait"
    assert decide(state.model_copy(update={"health": health}), minutes=12).do == "replace"


def test_node_is_replaced_after_two_reboots_within_a_day() -> None:
    state, at, steps = unhealthy_state((GPU, "XID63")), NOW, list[str]()
    for _ in range(3):
        repair = decide_repair(state, at + timedelta(minutes=10))
        steps.append(repair.do)
        health = after_recovery(after_step(state.health, repair, boot_id="boot-1", now=at), at + timedelta(minutes=15))
        at += timedelta(hours=8)
        unhealthy = (UnhealthyCondition(type=GPU, status="False", reason="XID63", since=at),)
        health = record_conditions(state.model_copy(update={"health": health}), unhealthy, None, at, "reboot")
        state = state.model_copy(update={"health": health})
    assert steps == ["reboot", "reboot", "replace"]
    calm = state.health.model_copy(update={"recovered_at": at - timedelta(days=1)})
    assert decide_repair(state.model_copy(update={"health": calm}), at + timedelta(minutes=10)).do == "reboot"


def test_reboot_without_recovery_within_20_minutes_is_followed_by_replacement() -> None:
    state = unhealthy_state((GPU, "XID63"))
    rebooted = after_step(state.health, decide(state, minutes=10), boot_id="boot-1", now=after(minutes=10))
    waiting = state.model_copy(update={"health": rebooted})
    assert decide(waiting, minutes=29).until == after(minutes=30)
    assert decide(waiting, minutes=30).do == "replace"


def test_steps_of_lifecycle_policy_take_precedence_over_actions() -> None:
    state = unhealthy_state(("KernelReady", ""), steps=["reboot", "replace"])
    assert decide(state, minutes=30).do == "reboot"
    assert decide(unhealthy_state((GPU, "XID63"), steps=["replace"]), minutes=10).do == "replace"


def test_do_not_repair_blocks_every_step_once_it_is_due() -> None:
    state = unhealthy_state(("KernelReady", ""))
    state = state.model_copy(update={"observed": state.observed.model_copy(update={"do_not_repair": True})})
    assert "replace at" in decide(state, minutes=29).blocked_by
    reported = decide(state, hours=9)
    assert reported.do == "report"
    health = block_repair(state.health, reported.blocked_by)
    blocked = decide(state.model_copy(update={"health": health}), hours=9)
    assert blocked.do == "wait" and blocked.until is None
    assert blocked.blocked_by == (
        "unhealthy, KernelReady=False: the Node has the annotation karpenter.sh/do-not-repair: true"
    )


def test_legacy_mode_ignores_reasons_and_has_no_bound() -> None:
    assert decide(unhealthy_state((GPU, "XID63"), mode="legacy"), minutes=10) == Repair(
        do="replace", condition=f"{GPU}=False"
    )


def test_invalid_pattern_is_a_problem_of_the_policy_and_matches_nothing() -> None:
    entry = {"type": "A", "status": "False", "toleration": "1m", "reason": "XID(48"}
    problem = problem_of(LifecycleRules.model_validate({"repair": {"conditions": [entry]}}))
    assert problem == (
        "repair.conditions[0].reason: 'XID(48': invalid regular expression, expected e.g. .*XID(48|63).*"
    )
    assert matching_conditions([RepairCondition.model_validate(entry)], "A", "False", "XID(48") == ()


def test_health_of_an_earlier_version_has_the_legacy_mode() -> None:
    assert Health.model_validate({"steps_taken": 1}).mode == "legacy"


def test_requested_replacement_changes_when_another_condition_is_due() -> None:
    """It may have a shorter grace period."""
    state = unhealthy_state(("KernelReady", ""), since=before(minutes=25))
    unhealthy = (
        *state.observed.unhealthy,
        UnhealthyCondition(type=GPU, status="False", reason="NvidiaXID79Error", since=NOW),
    )
    health = record_conditions(state, unhealthy, None, NOW, "reboot")
    state = state.model_copy(update={"health": health})
    due = decide(state, minutes=5).due
    requested = state.model_copy(update={"health": with_request(health, due)})
    assert due and due.grace == timedelta(minutes=10)
    wait = decide(requested, minutes=5)
    assert (wait.do, wait.until) == ("wait", after(minutes=10))
    second = decide(requested, minutes=10)
    assert second.do == "replace" and second.due and second.due.grace == timedelta(minutes=5)
