"""`tenure validate` lists every problem of the objects in files, for GitOps pipelines."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.capture import CaptureFixture

from tenure.cli.main import main
from tenure.cli.validate import worker_checks
from tenure.cli.validate.findings import Finding
from tests.support.apis.crd_rows import LIFECYCLEPOLICY, NODECLASS, NODEOVERLAY, NODEPOOL, Object, apply_patch
from tests.support.paths import ROOT

Run = Any
UNKNOWN_DAY = {"schedule": "0 0 * * L", "duration": "1h"}
"""The pattern of the CRD accepts it."""


@pytest.fixture
def run(tmp_path: Path, capsys: CaptureFixture[str]) -> Run:
    """Writes the objects to a file, runs the command, and returns its exit code and its JSON."""

    def validate(*objects: Object) -> tuple[int, dict[str, Any]]:
        (tmp_path / "file.yaml").write_text(yaml.safe_dump_all(objects))
        code = main(["validate", str(tmp_path / "file.yaml"), "-o", "json"])
        return code, json.loads(capsys.readouterr().out)

    return validate


def test_valid_objects_exit_with_0(run: Run) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    assert run(NODEPOOL, NODECLASS, NODEOVERLAY, LIFECYCLEPOLICY, service) == (
        0,
        {"valid": True, "checked": 4, "skipped": {"Service": 1}, "findings": []},
    )


def test_finding_has_file_object_field_value_and_remedy(run: Run, tmp_path: Path) -> None:
    code, found = run(apply_patch(NODEPOOL, {"weight": 101}), NODECLASS)
    assert (code, found["valid"]) == (1, False)
    assert found["findings"] == [
        {
            "file": str(tmp_path / "file.yaml"),
            "object": "NodePool table",
            "field": "spec.weight",
            "value": 101,
            "problem": "too large",
            "remedy": "expected at most 100",
        }
    ]


@pytest.mark.parametrize("value", [["a"], "a", 5, True])
@pytest.mark.parametrize("field", ["metadata.annotations", "metadata.labels", "metadata"])
def test_metadata_of_wrong_type_is_a_finding_and_other_objects_are_checked(run: Run, field: str, value: object) -> None:
    metadata = value if field == "metadata" else {"name": "odd", field.removeprefix("metadata."): value}
    code, found = run({**NODEPOOL, "metadata": metadata}, apply_patch(NODEPOOL, {"weight": 101}))
    assert (code, found["checked"]) == (1, 2)
    assert [(one["field"], one["value"]) for one in found["findings"]] == [(field, value), ("spec.weight", 101)]
    name = "(no name)" if field == "metadata" else "odd"
    assert found["findings"][0]["object"] == f"NodePool {name}"
    assert (found["findings"][0]["problem"], found["findings"][0]["remedy"]) == ("wrong type", "expected an object")


def test_lists_of_kubectl_are_validated(run: Run) -> None:
    metadata = {"name": "a", "uid": "1", "resourceVersion": "1", "generation": 1, "managedFields": []}
    stored = {**NODEPOOL, "metadata": metadata}
    code, found = run({"apiVersion": "v1", "kind": "List", "items": [{**stored, "status": {"nodes": 3}}]})
    assert (code, found["checked"]) == (0, 1)


@pytest.mark.parametrize(
    ("base", "patch", "field"),
    [
        (
            NODEPOOL,
            {"disruption": {"consolidateAfter": "1m", "budgets": [{"nodes": "0", **UNKNOWN_DAY}]}},
            "spec.disruption.budgets[0]",
        ),
        (NODEPOOL, {"template.spec.expireAfter": "9" * 400 + "h"}, "spec.template.spec.expireAfter"),
        (
            NODEPOOL,
            {
                "template.spec.requirements": [
                    {"key": "team", "operator": "In", "values": ["a"]},
                    {"key": "team", "operator": "NotIn", "values": ["a"]},
                ]
            },
            "spec.template.spec.requirements",
        ),
        (NODECLASS, {"kubelet": {"evictionSoft": {"memory.available": "5%"}}}, "spec.kubelet"),
        (NODECLASS, {"userData": "kind: NodeConfig\napiVersion: node.eks.aws/v1alpha1\nspec: ["}, "spec.userData"),
        (NODECLASS, {"tags": {f"key-{number}": "a" for number in range(45)}}, "spec.tags"),
        (NODEOVERLAY, {"capacity": {"example.com/fuse": "9000000E"}}, "spec.capacity.example.com/fuse"),
        (
            LIFECYCLEPOLICY,
            {"disruption": {"windows": [UNKNOWN_DAY]}},
            "spec.disruption.windows[0]",
        ),
    ],
    ids=("schedule", "duration", "requirements", "kubelet", "user data", "tags", "overlay", "policy"),
)
def test_checks_of_the_worker_are_included(run: Run, base: Object, patch: Object, field: str) -> None:
    """The API server accepts these objects."""
    code, found = run(apply_patch(base, {path.replace(".", "__"): value for path, value in patch.items()}))
    (finding,) = found["findings"]
    assert code == 1
    assert finding["field"].startswith(field), finding
    assert finding["remedy"]
    assert finding["value"] or base is NODEOVERLAY


def test_table_has_one_line_for_each_problem(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(apply_patch(NODEPOOL, {"weight": 101, "colour": "blue"})))
    assert main(["validate", str(tmp_path / "file.yaml")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'file.yaml'}: NodePool table: spec.colour: 'blue': unknown field; remove it",
        f"{tmp_path / 'file.yaml'}: NodePool table: spec.weight: 101: too large; expected at most 100",
        "1 objects checked, 2 problems found",
    ]


def test_unreadable_file_exits_with_2(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    (tmp_path / "file.yaml").write_text("{")
    assert main(["validate", str(tmp_path / "file.yaml")]) == 2
    assert main(["validate", str(tmp_path / "missing.yaml")]) == 2
    assert main(["validate"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_examples_are_valid(capsys: CaptureFixture[str]) -> None:
    assert main(["validate", *map(str, sorted((ROOT / "examples").glob("*.yaml")))]) == 0
    assert " 0 problems found" in capsys.readouterr().out


def test_object_that_the_worker_cannot_parse_has_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(found: Mapping[str, Any]) -> Iterator[str]:
        Finding.model_validate({"field": "spec", "problem": 1, "remedy": ""})
        yield ""

    monkeypatch.setitem(worker_checks._PROBLEMS, "NodePool", parse)
    (found,) = worker_checks.check_as_worker({"kind": "NodePool", "metadata": {"name": "a"}})
    assert (found.field, found.value) == ("problem", 1) and found.remedy
