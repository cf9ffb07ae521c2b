"""Interruption rules of LifecyclePolicies that the API server cannot validate."""

from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.model.interruption.messages import EventKind
from tenure.policy.interruption.rules import ignored_by_all, resolve_event_policy
from tenure.policy.lifecycle.deadlines import flatten_rules, is_same_value, problem_of
from tests.unit.policy.interruption_builders import STATEFUL, SUNDAYS

WINDOW_PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"schedule": "99 2 * * 0"}, "schedule '99 2 * * 0'"),
    ({"schedule": "0 0 30 2 *"}, "schedule '0 0 30 2 *' never fires"),
    ({"timeZone": "Europe/Atlantis"}, "timeZone 'Europe/Atlantis': unknown, expected a name of the IANA database"),
    ({"duration": "0h"}, "duration: '0h': invalid duration, expected e.g. 2h"),
]


def problem(**interruption: Any) -> str:
    return problem_of(LifecycleRules.model_validate({"interruption": interruption}))


def test_valid_rules_have_no_problem() -> None:
    assert problem(scheduledChange={"action": "window", "windows": [SUNDAYS]}, workloads=[STATEFUL]) == ""


@pytest.mark.parametrize(("fields", "expected"), WINDOW_PROBLEMS)
@pytest.mark.parametrize("kind", ["scheduledChange", "rebalanceRecommendation", "instanceStatus", "systemStatus"])
def test_invalid_window_is_reported(kind: str, fields: dict[str, Any], expected: str) -> None:
    message = problem(**{kind: {"action": "window", "windows": [SUNDAYS, SUNDAYS | fields]}})
    assert message.startswith(f"interruption.{kind}.windows[1].") and expected in message


@pytest.mark.parametrize(("fields", "expected"), WINDOW_PROBLEMS)
def test_invalid_window_of_workloads_is_reported(fields: dict[str, Any], expected: str) -> None:
    message = problem(workloads=[STATEFUL | {"action": "window", "windows": [SUNDAYS | fields]}])
    assert message.startswith("interruption.workloads[0].windows[0].") and expected in message


def test_zero_approval_deadline_is_reported() -> None:
    assert "invalid duration" in problem(scheduledChange={"action": "waitForApproval", "deadline": "0s"})
    assert "invalid duration" in problem(workloads=[STATEFUL | {"deadline": "0s"}])


@pytest.mark.parametrize("action", ["terminate", "stopStart"])
def test_action_without_budget_cannot_be_voluntary(action: str) -> None:
    """Such objects may exist from before the API server validated this."""
    assert problem(scheduledChange={"action": action, "voluntary": True}) == (
        f"interruption.scheduledChange.voluntary: action {action} ignores budgets; set action: drain, or remove "
        "voluntary"
    )
    assert problem(scheduledChange={"action": action, "voluntary": False}) == ""


@pytest.mark.parametrize(
    ("kind", "fields", "action"),
    [
        ("scheduledChange", {"action": "stopStart"}, "stopStart"),
        ("scheduledChange", {"action": "stopStart", "voluntary": True}, "drain"),
        ("systemStatus", {"action": "terminate", "voluntary": True}, "drain"),
        ("instanceStatus", {"voluntary": True}, "drain"),
        ("instanceStatus", {"voluntary": False}, "terminate"),
        ("scheduledChange", {"action": "window", "voluntary": True}, "window"),
    ],
)
def test_voluntary_overrides_an_action_without_budget(kind: EventKind, fields: dict[str, Any], action: str) -> None:
    """Each policy alone is valid. Otherwise a whole NodePool could be disrupted at once."""
    policy = resolve_event_policy(LifecycleRules.model_validate({"interruption": {kind: fields}}), kind)
    assert (policy.action, policy.voluntary) == (action, fields.get("voluntary", False))


def test_unreachable_workload_class_is_reported() -> None:
    precise = {**STATEFUL, "matchLabels": {**STATEFUL["matchLabels"], "app": "db"}}
    message = problem(workloads=[STATEFUL, precise])
    assert "interruption.workloads[1].matchLabels" in message and "put the more specific entry first" in message
    assert problem(workloads=[precise, STATEFUL]) == ""


def test_interruption_rules_are_merged_by_field() -> None:
    base = LifecycleRules.model_validate(
        {"interruption": {"scheduledChange": {"action": "waitForApproval", "lead": "1h"}, "workloads": [STATEFUL]}}
    )
    override = LifecycleRules.model_validate(
        {"interruption": {"scheduledChange": {"action": "drain"}, "workloads": []}}
    )
    merged = override.merged_over(base).interruption
    assert merged is not None and merged.scheduled_change is not None
    assert (merged.scheduled_change.action, merged.scheduled_change.lead, merged.workloads) == ("drain", "1h", ())
    assert is_same_value(
        "interruption.scheduledChange.lead", "60m", flatten_rules(base)["interruption.scheduledChange.lead"]
    )


def test_kind_is_ignored_by_all_only_if_each_nodepool_ignores_it_without_away() -> None:
    ignores = LifecycleRules.model_validate(
        {"interruption": {"spotInterruption": {"action": "ignore"}, "instanceStopping": {"action": "ignore"}}}
    )
    waits = LifecycleRules.model_validate(
        {
            "interruption": {
                "spotInterruption": {"action": "ignore"},
                "instanceStopping": {"action": "ignore", "away": "30m"},
            }
        }
    )
    assert ignored_by_all([ignores]) == {"spotInterruption", "instanceStopping"}
    assert ignored_by_all([ignores, waits]) == {"spotInterruption"}
    assert ignored_by_all([ignores, None]) == frozenset()
    assert ignored_by_all([]) == frozenset(), "without NodePools every kind is wanted"
