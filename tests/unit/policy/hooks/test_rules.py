"""Hooks in LifecyclePolicies: validation, precedence, and the block by unreadable hooks."""

from typing import Any

import pytest

from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.kube.facts.lifecycle_policies import policy_fact
from tenure.model.nodeclaim.state import Deadlines
from tenure.policy.hooks.rules import MAX_TEMPLATE_BYTES, can_hook_cancel_drain
from tenure.policy.lifecycle.deadlines import flatten_rules, problem_of
from tenure.policy.lifecycle_policy import Resolved, resolve_policies

CALL: dict[str, Any] = {"name": "warn", "http": {"url": "https://hooks.example.com/drain"}}
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "snapshot:1"}]}}
JOB: dict[str, Any] = {"name": "snapshot", "job": {"template": TEMPLATE}}


def problem(point: str = "beforeDrain", *hooks: dict[str, Any]) -> str:
    return problem_of(LifecycleRules.model_validate({"hooks": {point: list(hooks)}}))


def test_valid_hooks_have_no_problem() -> None:
    assert problem("beforeDrain", CALL | {"timeout": "10m", "attempts": 3, "onFailure": "giveUp"}, JOB) == ""


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"http": None}, "[0]: hook 'warn': expected exactly one of 'http'"),
        ({"job": {"template": TEMPLATE}}, "[0]: hook 'warn': expected exactly one of 'http' and 'job'"),
        ({"http": {"url": "ftp://example.com"}}, "[0].http.url: 'ftp://example.com': invalid URL, expected e.g."),
        ({"http": {"url": "https://"}}, "[0].http.url: 'https://': invalid URL"),
        ({"http": {"url": "https://a:b"}}, "[0].http.url: 'https://a:b': invalid URL"),
        ({"timeout": "0s"}, "[0].timeout: '0s': invalid duration, expected more than 0s and at most 24h"),
        ({"timeout": "25h"}, "[0].timeout: '25h': invalid duration"),
        ({"timeout": "soon"}, "[0].timeout: 'soon': invalid duration, expected e.g. 5m"),
    ],
)
def test_invalid_call_is_reported(fields: dict[str, Any], expected: str) -> None:
    message = problem("beforeDrain", CALL | fields)
    assert message.startswith("hooks.beforeDrain") and expected in message


def test_password_in_url_is_reported_without_the_password() -> None:
    message = problem("beforeDrain", CALL | {"http": {"url": "https://me:secret@hooks.example.com"}})
    assert message.startswith("hooks.beforeDrain[0].http.url: contains a user name or password")
    assert "secret" not in message


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({}, "spec.containers: missing, expected at least one"),
        ({"spec": {"containers": []}}, "spec.containers: missing, expected at least one"),
        ({"spec": TEMPLATE["spec"] | {"restartPolicy": "Always"}}, "spec.restartPolicy: 'Always': invalid for a Job"),
        (TEMPLATE | {"metadata": {"annotations": {"script": "x" * MAX_TEMPLATE_BYTES}}}, "put scripts into the image"),
    ],
)
def test_invalid_job_template_is_reported(template: dict[str, Any], expected: str) -> None:
    message = problem("afterDrain", {"name": "snapshot", "job": {"template": template}})
    assert message.startswith("hooks.afterDrain[0].job.template") and expected in message


@pytest.mark.parametrize("point", ["afterDrain", "beforeTerminate"])
def test_give_up_is_valid_only_before_the_drain(point: str) -> None:
    message = problem(point, CALL | {"onFailure": "giveUp"})
    assert f"hooks.{point}[0].onFailure: 'giveUp' is only valid for beforeDrain" in message


def test_duplicate_hook_name_is_reported() -> None:
    assert "hooks.beforeDrain[1].name: 'warn': duplicate name" in problem("beforeDrain", CALL, CALL)


def test_give_up_makes_the_drain_cancellable() -> None:
    rules = LifecycleRules.model_validate({"hooks": {"beforeDrain": [CALL | {"onFailure": "giveUp"}]}})
    assert can_hook_cancel_drain(rules) and not can_hook_cancel_drain(None)
    assert not can_hook_cancel_drain(LifecycleRules.model_validate({"hooks": {"beforeDrain": [CALL]}}))


def resolve(*specs: dict[str, Any]) -> Resolved:
    facts = [
        policy_fact(
            {
                "metadata": {"name": f"p{number}", "uid": f"u{number}", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": spec,
            }
        )
        for number, spec in enumerate(specs)
    ]
    return resolve_policies(facts, {"gpu": {}, "cpu": {}}, Deadlines())


def test_hooks_of_a_point_are_merged_as_one_field() -> None:
    base = {"hooks": {"beforeDrain": [JOB], "afterDrain": [CALL]}}
    resolved = resolve(base, {"nodePoolSelector": {"names": ["gpu"]}, "hooks": {"beforeDrain": [CALL]}})
    assert flatten_rules(resolved.rules["gpu"]) == {"hooks.beforeDrain": [CALL], "hooks.afterDrain": [CALL]}
    assert flatten_rules(resolved.rules["cpu"])["hooks.beforeDrain"] == [JOB]


def test_policy_rejected_for_another_field_keeps_its_hooks() -> None:
    """Otherwise nodes would terminate without their snapshot."""
    resolved = resolve({"hooks": {"beforeDrain": [JOB]}, "launch": {"deadline": "0s"}})
    assert flatten_rules(resolved.rules["gpu"]) == {"hooks.beforeDrain": [JOB]}
    assert resolved.validations["p0"].rejected


@pytest.mark.parametrize("hooks", [{"beforeDrain": [CALL | {"timeout": "0s"}]}, {"beforeDrain": "snapshot"}])
def test_unreadable_hooks_block_voluntary_disruption(hooks: dict[str, Any]) -> None:
    resolved = resolve({"hooks": hooks, "nodePoolSelector": {"names": ["gpu"]}})
    why = resolved.unread["gpu"].blocking_message("Empty")
    assert "LifecyclePolicy p0 is invalid, so voluntary disruption is blocked" in why and "beforeDrain" in why
    assert "no voluntary disruption of their nodes until hooks is valid" in resolved.validations["p0"].message
    assert "cpu" not in resolved.unread
