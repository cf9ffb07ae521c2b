"""The offline check accepts and rejects as the tables of the adapter tests say, which a real API server confirms."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from tenure.cli.validate.crd import custom_resource, custom_resource_of
from tenure.cli.validate.findings import Finding, from_message
from tenure.cli.validate.openapi_schema import EXPECTED_FORMS, RULES, compile_rule
from tests.support.apis.crd_rows import (
    BASES,
    NODEPOOL,
    Object,
    Row,
    apply_patch,
    load_table,
    rows_of,
)
from tests.support.paths import ROOT

ROWS = ROOT / "tests" / "adapters" / "apis" / "rows"
BASE_BY_KIND = {one["kind"]: one for one in BASES}
BATCH = 25
"""Rows of one test, which keeps it below a second."""


def list_batches() -> list[object]:
    batches: dict[str, list[tuple[str, list[Row]]]] = defaultdict(list)
    for kind in BASE_BY_KIND:
        rows = rows_of(load_table(ROWS / f"{kind.lower()}.yaml"))
        batches[kind] = [(kind, rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]
    return [pytest.param(kind, rows, id=f"{kind} {rows[0]}") for every in batches.values() for kind, rows in every]


def find_problems(found: Object) -> list[Finding]:
    resource = custom_resource_of(found)
    assert resource is not None
    return resource.validate(found)[1]


@pytest.mark.parametrize(("kind", "rows"), list_batches())
def test_rows_are_accepted_or_rejected(kind: str, rows: list[Row]) -> None:
    unexpected = {}
    for row in rows:
        findings = find_problems(apply_patch(BASE_BY_KIND[kind], row.patch))
        if bool(findings) != bool(row.rejection):
            unexpected[str(row)] = [str(one) for one in findings]
        assert all(one.field and one.problem and one.remedy for one in findings), (str(row), findings)
    assert unexpected == {}


def schemas_of(kind: str) -> list[Mapping[str, Any]]:
    resource = custom_resource(kind)
    assert resource is not None
    return resource.schemas()


def collect(part: object, keyword: str) -> list[Any]:
    if isinstance(part, dict):
        own = [part[keyword]] if keyword in part and not isinstance(part[keyword], dict) else []
        return [*own, *(one for value in part.values() for one in collect(value, keyword))]
    return [one for value in part for one in collect(value, keyword)] if isinstance(part, list) else []


@pytest.mark.parametrize("kind", sorted(BASE_BY_KIND))
def test_every_rule_compiles(kind: str) -> None:
    """Functions that only Kubernetes has would have to be added."""
    rules = {one["rule"] for rules in collect(schemas_of(kind), RULES) for one in rules}
    assert rules
    for rule in rules:
        compile_rule(rule)


def test_expected_forms_are_those_of_shipped_patterns() -> None:
    patterns = {one for kind in BASE_BY_KIND for one in collect(schemas_of(kind), "pattern")}
    assert EXPECTED_FORMS.keys() <= patterns


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({}, "metadata.name"),
        ({"name": "Web"}, "metadata.name"),
        ({"name": "web", "labels": {"a b": "c"}}, "metadata.labels"),
        ({"name": "web", "labels": {"a": "b c"}}, "metadata.labels.a"),
        ({"name": "web", "labels": {"a": 5}}, "metadata.labels.a"),
        ({"name": "web", "annotations": {"a": True}}, "metadata.annotations.a"),
        ({"name": "web", "label": {}}, "metadata.label"),
    ],
)
def test_metadata_is_validated(metadata: Object, field: str) -> None:
    assert {one.field for one in find_problems({**NODEPOOL, "metadata": metadata})} == {field}


@pytest.mark.parametrize(
    ("schedule", "is_valid"),
    [("0 0 * * *", True), ("0\u00a00\u00a0*\u00a0*\u00a0*", False)],
    ids=("spaces", "no-break spaces"),
)
def test_patterns_have_the_syntax_of_re2(schedule: str, is_valid: bool) -> None:
    """In Python, \\s matches a no-break space."""
    budget = {"nodes": "1", "schedule": schedule, "duration": "1h"}
    found = apply_patch(NODEPOOL, {"disruption": {"consolidateAfter": "1m", "budgets": [budget]}})
    assert (find_problems(found) == []) is is_valid


def test_numbers_have_the_range_of_the_api_server() -> None:
    assert find_problems(apply_patch(NODEPOOL, {"weight": 5.0})) == []
    for weight in (5.5, True, 2**70, "5"):
        assert {one.field for one in find_problems(apply_patch(NODEPOOL, {"weight": weight}))} == {"spec.weight"}


def test_status_is_ignored_and_defaults_are_set() -> None:
    resource = custom_resource_of(NODEPOOL)
    assert resource is not None
    stored, findings = resource.validate({**NODEPOOL, "status": {"nodes": "many"}})
    assert findings == []
    assert stored["spec"]["disruption"]["budgets"] == [{"nodes": "10%"}]


def test_kind_of_another_api_group_is_not_ours() -> None:
    assert custom_resource_of({**NODEPOOL, "apiVersion": "container.example.com/v1"}) is None
    assert [one.field for one in find_problems({**NODEPOOL, "apiVersion": "karpenter.sh/v1beta1"})] == ["apiVersion"]


@pytest.mark.parametrize(
    ("message", "problem", "remedy"),
    [
        ("role cannot be empty: expected the name of a role", "role cannot be empty", "expected the name of a role"),
        ("is too long; write less", "is too long", "write less"),
        ("a query must have either 'below' or 'above'",) * 3,
    ],
)
def test_message_is_split_into_problem_and_remedy(message: str, problem: str, remedy: str) -> None:
    found = from_message("spec", None, message)
    assert (found.problem, found.remedy) == (problem, remedy)
