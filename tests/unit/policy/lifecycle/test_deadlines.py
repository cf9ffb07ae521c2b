"""Deadlines and their actions by policies and settings; slow and overdue phases, and their blockers."""

from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.blockers import BLOCKERS, INELIGIBILITIES
from tenure.model.disruption.decision import Cause as IneligibilityCause
from tenure.model.disruption.drain import BlockerCause, DrainStatus, EvictionBlocker
from tenure.model.launch import LaunchedInstance
from tenure.model.nodeclaim.state import Deadlines, Phase
from tenure.model.plan import ExpectedDurations, PhaseDurations
from tenure.policy.lifecycle.deadlines import (
    action_of,
    blocker_code,
    deadlines_of,
    describe_blocker,
    is_alarmed,
    not_ready_grace_of,
    problem_of,
    slow_at,
)
from tenure.policy.lifecycle.transitions import TRANSITIONS, deadline_of
from tests.unit.policy.builders import NOW, after, before, node

DEFAULTS = Deadlines()


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


def test_invalid_disruption_rule_is_reported_with_its_field() -> None:
    message = problem_of(rules(disruption={"windows": [{"schedule": "0 25 * * *", "duration": "1h"}]}))
    assert message.startswith("disruption.windows[0]: schedule '0 25 * * *': hour '25': expected 0 to 23")
    assert problem_of(rules(disruption={"windows": [{"schedule": "@daily", "duration": "4h"}]})) == ""


AT_REST = (Phase.READY, Phase.DELETED)
"""These phases wait for nothing."""
WAITING = tuple(phase for phase in Phase if phase not in AT_REST)
ACTIONS = ("", "alarm", "replace", "terminate")


def when_overdue(phase: Phase, action: str) -> LifecycleRules | None:
    if not action or phase not in (Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION):
        return None
    return LifecycleRules.model_validate({phase.value.lower(): {"whenOverdue": action}})


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("phase", WAITING)
def test_waiting_phase_has_a_deadline_followed_by_its_end_or_an_alarm(phase: Phase, action: str) -> None:
    state = node({"rules": when_overdue(phase, action)}, phase=phase, since=NOW)
    assert deadline_of(state, phase, NOW) is not None
    late = state.model_copy(update={"overdue": True})
    if action_of(late.observed.rules, phase) == "alarm":
        remedy = BLOCKERS[f"{phase.value}Overdue"].remedy
        assert describe_blocker(late) == f"needs attention: {remedy}"
    else:
        ends = {Phase.DRAIN, Phase.TERMINATION} & set(TRANSITIONS[phase])
        assert describe_blocker(late).startswith("waits for its deletion")
        assert ends and not is_alarmed(late), "the workflow ends it; tests/unit/workflows/phases/test_deadlines.py"


STATES = st.fixed_dictionaries(
    {
        "phase": st.sampled_from(Phase),
        "blocked_by": st.sampled_from(["", "NodeNotFound: the Node left", "x" * 300]),
        "blocked_code": st.just("NodeNotFound"),
        "slow": st.booleans(),
        "late": st.sampled_from([0, 1, 10_000]),
    }
)


@given(STATES, st.sampled_from(ACTIONS), st.booleans())
def test_waiting_state_has_a_future_deadline_or_a_blocker(drawn: dict[str, Any], action: str, has_node: bool) -> None:
    """As in the workflow, the deadline counts from the start of the phase, which is overdue afterwards."""
    late = timedelta(minutes=drawn.pop("late"))
    phase = drawn["phase"]
    state = node(
        {"rules": when_overdue(phase, action), "node_name": "node-a" if has_node else ""}, since=NOW - late, **drawn
    )
    deadline = deadline_of(state, phase, NOW - late)
    state = state.model_copy(update={"deadline": deadline, "overdue": deadline is not None and deadline <= NOW})
    text = describe_blocker(state)
    in_time = deadline is not None and deadline > NOW
    lost = phase is Phase.READY and not has_node and bool(drawn["blocked_by"])
    at_rest = phase in AT_REST and not lost
    assert in_time or at_rest or text.startswith(("waits for ", "needs attention: "))
    assert bool(blocker_code(state)) == bool(text)


@pytest.mark.parametrize("phase", AT_REST)
def test_phase_at_rest_has_no_deadline(phase: Phase) -> None:
    assert deadline_of(node(phase=phase), phase, NOW) is None and f"{phase.value}Overdue" not in BLOCKERS


def test_blocker_description_ends_with_the_cause() -> None:
    late = node(phase=Phase.DRAIN, overdue=True, blocked_by="default/web: PodDisruptionBudget web")
    assert describe_blocker(late).endswith("; default/web: PodDisruptionBudget web")


BLOCKED = {"blocked_by": "PodDisruptionBudget web", "blocked_code": "PodDisruptionBudget"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"phase": Phase.READY}, ""),
        ({"phase": Phase.DRAIN, **BLOCKED}, "PodDisruptionBudget"),
        ({"phase": Phase.DRAIN, "overdue": True, **BLOCKED}, "PodDisruptionBudget"),
        ({"phase": Phase.DRAIN, "overdue": True}, "DrainOverdue"),
        ({"phase": Phase.DRAIN, "blocked_code": "PodDisruptionBudget"}, ""),
        ({"phase": Phase.LAUNCH, "slow": True, **BLOCKED}, "Slow"),
        ({"phase": Phase.LAUNCH, "slow": True, "overdue": True}, "LaunchOverdue"),
    ],
)
def test_blocker_code_is_registered(fields: dict[str, Any], code: str) -> None:
    assert blocker_code(node({"node_name": "node-a"}, **fields)) == code
    assert not code or code in BLOCKERS


def test_missing_node_needs_attention() -> None:
    lost = node({"node_name": ""}, blocked_by="NodeNotFound: the Node left", blocked_code="NodeNotFound")
    assert blocker_code(lost) == "NodeNotFound"
    assert describe_blocker(lost) == (
        "needs attention: restart its kubelet, or delete the NodeClaim; NodeNotFound: the Node left"
    )


def test_registries_have_every_cause() -> None:
    assert INELIGIBILITIES.keys() == {*get_args(IneligibilityCause)}
    for cause in get_args(BlockerCause):
        blocker = EvictionBlocker(subject="default/web", cause=cause, what="held")
        assert DrainStatus(eviction_blockers=(blocker,)).blocker_code in BLOCKERS
    assert DrainStatus(not_ready_since=NOW).blocker_code in BLOCKERS


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
