"""`tenure doctor` on real adapters: all checks run, and an unreachable service is a finding instead of an exception."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tenure.cli.console import format_findings, summarize_findings
from tenure.kube.doctor import rights_of
from tenure.model.errors import Finding, Subject
from tests.support.cli.remedies import find_faulty_remedies


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "admin")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def test_roles_for_operators_are_not_worker_permissions() -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    operator_labels = {"labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}
    documents: list[dict[str, Any]] = [
        {"kind": "ClusterRole", "metadata": {"name": "a"}, "rules": [rule]},
        {"kind": "ClusterRole", "metadata": {"name": "b", **operator_labels}, "rules": [rule]},
        {"kind": "Role", "metadata": {"name": "c", "namespace": "n"}, "rules": [{**rule, "resourceNames": ["x"]}]},
        {"kind": "ServiceAccount", "metadata": {"name": "d"}},
    ]
    found = rights_of(documents)
    assert [(one.verb, one.namespace, one.name) for one in found] == [
        ("get", "", ""),
        ("list", "", ""),
        ("get", "n", "x"),
        ("list", "n", "x"),
    ]


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ((), "nothing was checked"),
        ((Subject("a", "b").problem("c", "d"), Subject("a", "b").ok("c")), "1 ok, 1 problem"),
    ],
)
def test_summary_counts_findings_by_level(findings: Sequence[Finding], expected: str) -> None:
    assert summarize_findings(findings) == expected


def test_each_remedy_is_one_line_below_the_table_with_the_worst_one_last() -> None:
    command = f"aws iam attach-role-policy --role-name {'r' * 60} --policy-arn {'p' * 300}"
    advice, problem = Subject("a", "queue").advice("m", "kubectl edit x"), Subject("b", "role").problem("m", command)
    table, *rest = format_findings([problem, advice, Subject("c", "region").ok("fine")])
    assert "fine" in str(table) and "kubectl" not in str(table)
    lines = ["", "TO DO", "queue (advice):", "  kubectl edit x", "role (problem):", f"  {command}", ""]
    assert rest == [*lines, "1 ok, 1 advice, 1 problem"]
    assert len(format_findings([Subject("c", "region").ok("fine")])) == 2


def test_unreachable_services_set_exit_code_and_json_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    arguments = ["doctor", "-o", "json", "--kubeconfig", "/no/such", "--temporal-address", "127.0.0.1:1"]
    assert cli_main.main([*arguments, "--aws-endpoint-url", "http://127.0.0.1:1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {one["level"] for one in found} == {"problem"}
    assert find_faulty_remedies([Finding.model_validate(one) for one in found]) == []
