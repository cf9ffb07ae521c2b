"""Deadlines and what follows them: what policies say, what the settings say, and what makes no sense."""

from datetime import timedelta
from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.nodeclaim.state import Deadlines, Phase
from tenure.policy.lifecycle.deadlines import action_of, deadlines_of, not_ready_grace_of, problem_of
from tenure.policy.lifecycle.transitions import deadline_of
from tests.unit.policy.builders import NOW, node

DEFAULTS = Deadlines()


def rules(**fields: Any) -> LifecycleRules:
    return LifecycleRules.model_validate(fields)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def test_where_no_policy_says_anything_the_settings_hold() -> None:
    assert deadlines_of(None, DEFAULTS) == DEFAULTS == deadlines_of(rules(), DEFAULTS)


@pytest.mark.parametrize("phase", ["registration", "initialization", "drain", "termination"])
def test_each_deadline_is_the_policy_s_where_it_says_one(phase: str) -> None:
    found = deadlines_of(rules(**{phase: {"deadline": "90m"}}), DEFAULTS)
    assert getattr(found, phase) == minutes(90)
    assert found.model_copy(update={phase: getattr(DEFAULTS, phase)}) == DEFAULTS


def test_launch_has_no_longer_than_registration_since_both_count_from_birth() -> None:
    assert deadlines_of(rules(launch={"deadline": "10m"}), DEFAULTS).launch == minutes(10)
    assert deadlines_of(rules(launch={"deadline": "20m"}), DEFAULTS).launch == minutes(15)
    assert deadlines_of(rules(registration={"deadline": "3m"}), DEFAULTS).launch == minutes(3)


def test_a_value_that_cannot_be_read_leaves_the_setting() -> None:
    assert deadlines_of(rules(drain={"deadline": "soon"}), DEFAULTS) == DEFAULTS
    assert deadlines_of(rules(drain={"deadline": "Never"}), DEFAULTS) == DEFAULTS


def test_the_grace_is_the_policy_s() -> None:
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
def test_what_follows_a_deadline_by_default_is_what_karpenter_does_or_an_alarm(phase: Phase, default: str) -> None:
    assert action_of(None, phase) == action_of(rules(), phase) == default


@pytest.mark.parametrize("phase", [Phase.LAUNCH, Phase.REGISTRATION, Phase.INITIALIZATION])
def test_what_follows_a_deadline_is_the_policy_s_where_it_says(phase: Phase) -> None:
    for action in ("alarm", "replace", "terminate"):
        assert action_of(rules(**{phase.value.lower(): {"whenOverdue": action}}), phase) == action
    assert action_of(rules(**{phase.value.lower(): {"deadline": "1h"}}), phase) == action_of(None, phase)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"launch": {"deadline": "0s"}}, "launch.deadline: '0s' is no time at all; write a duration"),
        ({"drain": {"deadline": "2d"}}, "drain.deadline: '2d' is not a duration, days are not a unit: write '48h'"),
        ({"notReadyGrace": "Never"}, "notReadyGrace: 'Never' has no end"),
        (
            {"launch": {"deadline": "10m"}, "registration": {"deadline": "9m59s"}},
            "registration.deadline: '9m59s' is shorter than launch.deadline '10m'",
        ),
        ({"drain": {"whenBlocked": "escalate"}}, "drain.whenBlocked: 'escalate' needs a time; write drain.blockedFor"),
        ({"repair": {"within": "x"}}, "repair.within: 'x' is not a duration"),
    ],
)
def test_rules_that_make_no_sense_are_named_with_what_to_write(fields: dict[str, Any], problem: str) -> None:
    assert problem_of(rules(**fields)).startswith(problem)


def test_rules_that_make_sense_have_no_problem() -> None:
    assert not problem_of(rules())
    assert not problem_of(rules(launch={"deadline": "10m"}, registration={"deadline": "10m"}, notReadyGrace="0s"))
    assert not problem_of(rules(drain={"whenBlocked": "escalate", "blockedFor": "2h"}))


def test_a_phase_s_deadline_follows_the_rules_that_its_workflow_was_told() -> None:
    state = node({"rules": rules(initialization={"deadline": "7m"}, drain={"deadline": "9m"})}, phase=Phase.DRAIN)
    assert deadline_of(state, Phase.INITIALIZATION, NOW) == NOW + minutes(7)
    assert deadline_of(state, Phase.DRAIN, NOW) == NOW + minutes(9)
    assert deadline_of(state, Phase.TERMINATION, NOW) == NOW + DEFAULTS.termination


def test_a_rule_of_disruption_that_cannot_be_read_is_named_with_its_field() -> None:
    message = problem_of(rules(disruption={"windows": [{"schedule": "0 25 * * *", "duration": "1h"}]}))
    assert message.startswith("disruption.windows[0]: schedule '0 25 * * *': hour '25': expected 0 to 23")
    assert problem_of(rules(disruption={"windows": [{"schedule": "@daily", "duration": "4h"}]})) == ""
