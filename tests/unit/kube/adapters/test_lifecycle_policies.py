"""Conversion of LifecyclePolicies, including those with invalid fields."""

from typing import Any

import pytest

from tenure.kube.facts.lifecycle_policies import policy_fact

METADATA = {"name": "p", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z"}


def fact(**spec: Any) -> Any:
    return policy_fact({"metadata": METADATA, "spec": spec})


def test_selector_is_read_apart_from_the_rules() -> None:
    found = fact(nodePoolSelector={"names": ["a"]}, drain={"deadline": "1h"})
    assert (found.names, found.match_labels, found.specificity, found.problem) == (("a",), {}, 2, "")
    assert found.rules.to_object() == {"drain": {"deadline": "1h"}}
    assert (fact(nodePoolSelector={"matchLabels": {"a": "b"}}).specificity, fact().specificity) == (1, 0)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"launch": {"whenOverdue": "explode"}}, "spec.launch.whenOverdue: 'explode' cannot be read: Input should be"),
        ({"launch": {"deadline": 5}}, "spec.launch.deadline: 5 cannot be read"),
        ({"nodePoolSelector": {}}, "spec.nodePoolSelector: expected either 'names' or"),
    ],
)
def test_invalid_field_is_reported_as_problem_of_the_policy(spec: dict[str, Any], problem: str) -> None:
    found = fact(**spec)
    assert found.problem.startswith(problem) and found.name == "p"


def test_invalid_spec_keeps_its_selector_and_disruption_windows() -> None:
    windows = {"windows": [{"schedule": "@daily", "duration": "4h"}]}
    found = fact(nodePoolSelector={"names": ["a"]}, launch={"deadline": 5}, disruption=windows, rollout={"waves": 7})
    assert found.names == ("a",) and found.rules.to_object() == {"disruption": windows}
    assert found.unread.rollout.startswith("spec.rollout.waves: 7 cannot be read") and not found.unread.disruption


def test_invalid_interruption_rules_keep_the_valid_kinds() -> None:
    ignore = {"action": "ignore"}
    found = fact(interruption={"scheduledChange": {"action": "pray"}, "spotInterruption": ignore, "workloads": 7})
    assert found.rules.to_object() == {"interruption": {"spotInterruption": ignore}}
    assert found.unread.interruption.startswith("spec.interruption.scheduledChange.action: 'pray' cannot be read")
    sound = fact(interruption={"spotInterruption": ignore}, launch={"deadline": 5})
    assert sound.rules.to_object() == {"interruption": {"spotInterruption": ignore}} and not sound.unread.interruption
    nothing = fact(interruption=7)
    assert nothing.unread.interruption and nothing.rules.to_object() == {"interruption": {}}
