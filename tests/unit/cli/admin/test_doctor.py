"""`tenure doctor` on the real parts: all sides are looked at, and what does not answer is a finding, not a crash."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tenure.cli.console import summarize_findings
from tenure.kube.doctor import rights_of
from tenure.model.errors import Finding, ok_finding, problem_finding


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "admin")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def test_the_roles_for_people_are_not_the_workers_to_have() -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    people = {"labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}
    documents: list[dict[str, Any]] = [
        {"kind": "ClusterRole", "metadata": {"name": "a"}, "rules": [rule]},
        {"kind": "ClusterRole", "metadata": {"name": "b", **people}, "rules": [rule]},
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
        ((), "nothing was looked at"),
        ((problem_finding("a", "b", "c", "d"), ok_finding("a", "b", "c")), "1 ok, 1 problem"),
    ],
)
def test_the_summary_counts_from_good_to_bad(findings: Sequence[Finding], expected: str) -> None:
    assert summarize_findings(findings) == expected


def test_the_exit_code_and_the_json_tell_a_script(monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]) -> None:
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    arguments = ["doctor", "-o", "json", "--kubeconfig", "/no/such", "--temporal-address", "127.0.0.1:1"]
    assert cli_main.main([*arguments, "--aws-endpoint-url", "http://127.0.0.1:1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {one["level"] for one in found} == {"problem"} and all(one["todo"] for one in found)


@pytest.mark.parametrize("options", [["-o", "xml"], ["--aws-regions", "x"]])
def test_a_wrong_option_is_one_line(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLUSTER_NAME", "demo")
    assert cli_main.main(["doctor", *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
