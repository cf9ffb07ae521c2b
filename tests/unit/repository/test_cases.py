"""tests/cases/cases.yaml names the test of each case from bug reports and reviews."""

import ast
from pathlib import Path

import pytest
import yaml

from tests.support.paths import ROOT

CASES = ROOT / "tests" / "cases"
LISTED = yaml.safe_load((CASES / "cases.yaml").read_text())["cases"]
SHARED_INPUTS = {"pods", "pool", "types"}
"""Inputs of several cases."""
VARIANTS = {
    "reserved-zone-spread": "reserved-zone-term",
    "runtimeclass-name-only": "runtimeclass",
    "simulate-alias-bomb": "simulate-yaml",
    "simulate-list-as-kind": "simulate-yaml",
    "types-reserved": "reserved-zone-term",
}


@pytest.mark.parametrize("case", sorted(LISTED))
def test_test_of_a_case_exists(case: str) -> None:
    path, _, name = LISTED[case]["test"].partition("::")
    tree = ast.parse((ROOT / Path(path)).read_text())
    assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_input_belongs_to_a_case() -> None:
    inputs = {path.name.partition(".")[0] for path in CASES.glob("*/*")} - SHARED_INPUTS
    assert {VARIANTS.get(one, one) for one in inputs} <= LISTED.keys()
