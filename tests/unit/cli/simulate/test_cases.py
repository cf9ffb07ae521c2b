"""Inputs from bug reports and reviews, by their ID: `tests/cases/ID.*`."""

import json
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureFixture

from tenure.cli import main as cli_main
from tests.support.paths import ROOT

CASES = ROOT / "tests" / "cases"


def simulate(capsys: CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    exit_code = cli_main.main(
        ["simulate", "--instance-types", str(CASES / "types.json"), *map(str, arguments), "-o", "json"]
    )
    out, err = capsys.readouterr()
    return exit_code, json.loads(out or "{}"), err


def files(case: str) -> list[str | Path]:
    """Options for the files of a case; plain files replace a missing NodePool or pods file."""
    found: list[str | Path] = []
    for option, plain in (("pool", "pool.yaml"), ("pods", "pods.yaml"), ("daemonsets", ""), ("nodes", "")):
        path = CASES / f"{case}.{option}.yaml"
        if path.exists() or plain:
            found += [f"--{option}".replace("pool", "nodepools"), path if path.exists() else CASES / plain]
    return found


@pytest.mark.parametrize(
    ("case", "unschedulable", "planned"),
    (
        (
            "huge-request",
            {"huge": "spec.containers[app].resources.requests.memory: 9e30 is more than any instance type has"},
            ["app"],
        ),
        (
            "huge-daemonset",
            {
                "app": "pool general: DaemonSets leave no memory on any allowed instance type: "
                "kube-system/agent requests 8Pi"
            },
            [],
        ),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_plan(capsys: CaptureFixture[str], case: str, unschedulable: dict[str, str], planned: list[str]) -> None:
    exit_code, found, err = simulate(capsys, *files(case))
    assert (exit_code, err) == (0, "")
    assert found["unschedulable"] == unschedulable
    assert [pod for node in found["nodes"] for pod in node["pods"]] == planned


@pytest.mark.parametrize(
    ("case", "message"),
    (
        ("nodeoverlay-huge-capacity", "NodeOverlay huge: spec.capacity.example.com/device: too large"),
        ("simulate-alias-bomb", "its aliases expand to more than 2,000,000 values"),
        ("simulate-list-as-kind", "kind: ['Node']: invalid kind"),
    ),
)
def test_invalid_input_is_one_line_that_names_file(capsys: CaptureFixture[str], case: str, message: str) -> None:
    exit_code, _, err = simulate(capsys, *files(case))
    assert exit_code == 2
    assert case in err and message in err and err.count("\n") == 1, err
