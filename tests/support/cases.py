"""Inputs from bug reports and reviews, by the ID of the case: `tests/cases/*/ID.*`."""

from pathlib import Path

from tests.support.paths import ROOT

_PATHS = {path.name: path for path in (ROOT / "tests" / "cases").glob("*/*")}


def find_case_file(name: str) -> Path | None:
    return _PATHS.get(name)


def case_file(name: str) -> Path:
    return _PATHS[name]
