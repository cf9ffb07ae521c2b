"""`tenure doctor` on real adapters: all checks run, and an unreachable service is a finding instead of an exception."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tenure.cli.admin.doctor import run_checks
from tenure.cli.console import format_findings, summarize_findings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient, Response
from tenure.kube.doctor import rights_of
from tenure.model.errors import Fault, Finding, Forbidden, NotFound, Subject
from tenure.settings import load
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
    found = run_doctor(capsys, "--aws-endpoint-url", "http://127.0.0.1:1")
    assert {one.level for one in found} == {"problem"}
    assert find_faulty_remedies(found) == []


def run_doctor(capsys: CaptureFixture[str], *flags: str) -> list[Finding]:
    """Without a kubeconfig and Temporal, so that the exit code is 1."""
    unreachable = ["--kubeconfig", "/no/such", "--temporal-address", "127.0.0.1:1"]
    assert cli_main.main(["doctor", "-o", "json", *unreachable, *flags]) == 1
    return [Finding.model_validate(one) for one in json.loads(capsys.readouterr().out)]


def test_rejected_aws_profile_hides_no_other_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "typo")
    found = run_doctor(capsys, "--cluster-name", "demo")
    assert [one.area for one in found] == ["cluster", "account", "temporal"]
    assert "typo" in found[1].message and find_faulty_remedies(found) == []


class ApiServer:
    """Answers access reviews and /version. Other requests fail with `fault`."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.reviews: list[dict[str, Any]] = []

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> dict[str, Any]:
        if body is not None:
            self.reviews.append(body["spec"])
            return {"status": {"allowed": True}}
        if path != "/version":
            raise self.fault
        return {"gitVersion": "v1.34.0"}

    async def send(self, method: str, path: str, **_: Any) -> Response:
        return Response(f"{method} {path}", self.fault.status, b"{}")

    async def close(self) -> None:
        return


async def check_cluster(server: ApiServer, monkeypatch: pytest.MonkeyPatch, *flags: str) -> list[Finding]:
    async def connect_all(_: str) -> KubeAdapters:
        return KubeAdapters(cast(KubeClient, server))

    monkeypatch.setattr("tenure.kube.adapters.build.connect_all", connect_all)
    unreachable = ("--temporal-address=127.0.0.1:1", "--aws-endpoint-url=http://127.0.0.1:1")
    found = await run_checks(load(["--cluster-name=demo", *unreachable, *flags]))
    return [one for one in found if one.area in ("cluster", "rights") and one.level != "ok"]


async def test_missing_kinds_are_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await check_cluster(ApiServer(NotFound("no such path", status=404)), monkeypatch)
    assert {one.todo for one in found if one.level == "problem"} == {"kubectl apply -f deploy/crds"}
    assert not any("KUBECONFIG" in one.todo for one in found)


async def test_kinds_that_may_not_be_listed_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await check_cluster(ApiServer(Forbidden("not allowed", status=403)), monkeypatch)
    assert {one.level for one in found} == {"unknown"}


async def test_permissions_are_checked_in_the_namespace_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ApiServer(NotFound("no such path", status=404))
    await check_cluster(server, monkeypatch, "--system-namespace=platform")
    rights = [one["resourceAttributes"] for one in server.reviews]
    assert {one["user"] for one in server.reviews} == {"system:serviceaccount:platform:tenure"}
    assert {one["namespace"] for one in rights} == {"", "platform", "kube-system", "kube-node-lease", "tenure-hooks"}
    assert [one["name"] for one in rights if (one["resource"], one["verb"]) == ("namespaces", "patch")] == ["platform"]
