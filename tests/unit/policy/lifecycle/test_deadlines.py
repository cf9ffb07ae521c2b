"""Deadlines and their actions by policies and settings; slow and overdue phases, and their blockers."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.launch import LaunchedInstance
from tenure.model.nodeclaim.state import Deadlines, Phase
from tenure.model.plan import ExpectedDurations, PhaseDurations
from tenure.policy.lifecycle.deadlines import (
    action_of,
    deadlines_of,
    not_ready_grace_of,
    problem_of,
    slow_at,
)
from tenure.policy.lifecycle.transitions import deadline_of
from tenure.policy.lifecycle.verdict import describe_blocker
from tests.unit.policy.builders import NOW, after, before, node

DEFAULTS = Deadlines()
LONG = "9" * 30 + "h"
"""A duration that the CRD accepts."""
KERNEL = {"type": "KernelReady", "status": "False", "toleration": "30m"}


def rules(**fields: Any) -> LifecycleRules:
    return LifecycleRules.model_validate(fields)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def test_settings_apply_without_a_policy() -> None:
    assert deadlines_of(None, DEFAULTS) == DEFAULTS == deadlines_of(rules(), DEFAULTS)


@pytest.mark.parametrize("phase", ["registration", "initialization", "drain", "termination"])
def test_policy_overrides_each_deadline(phase: str) -> None:
    found = deadlines_of(rules(**{phase: {"deadline": "90m"}}), DEFAULTS)
    assert getattr(found, phase) == minutes(90)
    assert found.model_copy(update={phase: getattr(DEFAULTS, phase)}) == DEFAULTS


def test_launch_deadline_is_at_most_that_of_registration() -> None:
    assert deadlines_of(rules(launch={"deadline": "10m"}), DEFAULTS).launch == minutes(10)
    assert deadlines_of(rules(launch={"deadline": "20m"}), DEFAULTS).launch == minutes(15)
    assert deadlines_of(rules(registration={"deadline": "3m"}), DEFAULTS).launch == minutes(3)


def test_unreadable_deadline_keeps_the_setting() -> None:
    assert deadlines_of(rules(drain={"deadline": "soon"}), DEFAULTS) == DEFAULTS
    assert deadlines_of(rules(drain={"deadline": "Never"}), DEFAULTS) == DEFAULTS


def test_policy_overrides_the_not_ready_grace() -> None:
    assert not_ready_grace_of(rules(notReadyGrace="12m"), minutes(5)) == minutes(12)
    assert not_ready_grace_of(rules(), minutes(5)) == not_ready_grace_of(None, minutes(5)) == minutes(5)


@pytest.mark.parametrize(
    ("phase", "default"),
    [
        (Phase.LAUNCH, "terminate"),
        (Phase.REGISTRATION, "terminate"),
        (Phase.INITIALIZATION, "alarm"),
        (Phase.DRAIN, "alarm"),
        (Phase.TERMINATION, "alarm"),
    ],
)
def test_default_action_when_overdue(phase: Phase, default: str) -> None:
    assert action_of(None, phase) == action_of(rules(), phase) == default


@pytest.mark.parametrize("phase", [Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION])
def test_policy_overrides_the_action_when_overdue(phase: Phase) -> None:
    for action in ("alarm", "replace", "terminate"):
        assert action_of(rules(**{phase.value.lower(): {"whenOverdue": action}}), phase) == action
    assert action_of(rules(**{phase.value.lower(): {"deadline": "1h"}}), phase) == action_of(None, phase)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"launch": {"deadline": "0s"}}, "launch.deadline: '0s': invalid duration, expected"),
        ({"drain": {"deadline": "2d"}}, "drain.deadline: '2d': invalid duration, days are not a unit, expected '48h'"),
        ({"notReadyGrace": "Never"}, "notReadyGrace: 'Never': endless duration"),
        (
            {"launch": {"deadline": "10m"}, "registration": {"deadline": "9m59s"}},
            "registration.deadline: '9m59s' is shorter than launch.deadline '10m'",
        ),
        ({"drain": {"whenBlocked": "escalate"}}, "drain.whenBlocked: 'escalate' requires drain.blockedFor"),
        ({"repair": {"within": "x"}}, "repair.within: 'x': invalid duration"),
        ({"repair": {"rebootFor": LONG}}, f"repair.rebootFor: '{LONG}' is too long for a duration"),
        *(
            (
                {"repair": {"conditions": [KERNEL, {**KERNEL, field: LONG}]}},
                f"repair.conditions[1].{field}: '{LONG}' is too long for a duration",
            )
            for field in ("toleration", "terminationGracePeriod")
        ),
    ],
)
def test_invalid_rules_are_reported_with_the_expected_form(fields: dict[str, Any], problem: str) -> None:
    assert problem_of(rules(**fields)).startswith(problem)


def test_valid_rules_have_no_problem() -> None:
    assert not problem_of(rules())
    assert not problem_of(rules(launch={"deadline": "10m"}, registration={"deadline": "10m"}, notReadyGrace="0s"))
    assert not problem_of(rules(drain={"whenBlocked": "escalate", "blockedFor": "2h"}))


def test_deadline_of_a_phase_follows_the_observed_rules() -> None:
    state = node({"rules": rules(initialization={"deadline": "7m"}, drain={"deadline": "9m"})}, phase=Phase.DRAIN)
    assert deadline_of(state, Phase.INITIALIZATION, NOW) == NOW + minutes(7)
    assert deadline_of(state, Phase.DRAIN, NOW) == NOW + minutes(9)
    assert deadline_of(state, Phase.TERMINATION, NOW) == NOW + DEFAULTS.termination


MINUTE = timedelta(minutes=1)
KNOWN = ExpectedDurations(
    by_type={"m5.large": PhaseDurations(registration=3 * MINUTE)},
    default=PhaseDurations(launch=MINUTE, registration=2 * MINUTE, initialization=4 * MINUTE),
)
INSTANCE = LaunchedInstance(
    claim_uid="uid-a",
    provider_id="aws:///us-west-2a/i-0a",
    instance_type="m5.large",
    zone="us-west-2a",
    capacity_type="spot",
    image_id="ami-1",
)


def starting(phase: Phase, **more: Any) -> Any:
    return node(created=before(minutes=1), phase=phase, since=NOW, deadline=after(minutes=10), expected=KNOWN, **more)


def test_phase_is_slow_after_its_expected_duration() -> None:
    assert slow_at(starting(Phase.LAUNCH)) == NOW, "launch counts from creation"
    assert slow_at(starting(Phase.REGISTRATION)) == after(minutes=2)
    assert slow_at(starting(Phase.REGISTRATION, launched=INSTANCE)) == after(minutes=3)
    assert slow_at(starting(Phase.INITIALIZATION, launched=INSTANCE)) == after(minutes=4), (
        "the duration of the type is unknown"
    )


def test_slow_time_is_unset_for_slow_overdue_recovering_or_unknown_phases() -> None:
    for more in ({"slow": True}, {"overdue": True}, {"initialized": True}, {"expected": None}):
        state = starting(Phase.INITIALIZATION).model_copy(update=more)
        assert slow_at(state) is None
    assert slow_at(starting(Phase.INITIALIZATION).model_copy(update={"deadline": after(minutes=3)})) is None
    assert slow_at(starting(Phase.DRAIN)) is slow_at(starting(Phase.READY)) is None


def test_slow_phase_is_described_with_its_cause() -> None:
    state = starting(Phase.INITIALIZATION, slow=True, blocked_by="NodeNotReady: the kubelet")
    assert describe_blocker(state) == "slow: NodeNotReady: the kubelet"
    assert describe_blocker(state.model_copy(update={"overdue": True})).startswith("needs attention: ")
