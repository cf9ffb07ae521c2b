"""A report can be older than a rename of tests: tests that no longer exist are ignored."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools import check_test_durations

CASE = '<testcase classname="tests.unit.{file}" name="{name}" time="{seconds}"/>'

RunCheck = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCheck:
    """Check a report. Returns the exit code and the tests that ran again, each of which takes 2 seconds, or 0.5 from
    that attempt on."""

    def run(report: str, slowness: float = 1.0, fast_attempt: int = 99) -> tuple[int, list[str]]:
        (tmp_path / "report.xml").write_text(f"<testsuite>{report}</testsuite>")
        rerun: list[str] = []

        def take_two_seconds(tests: list[str]) -> dict[str, float]:
            rerun.extend(tests)
            return dict.fromkeys(tests, 2.0 if len(rerun) < fast_attempt else 0.5)

        monkeypatch.setattr(check_test_durations, "rerun_in_isolation", take_two_seconds)
        monkeypatch.setattr(check_test_durations, "measure_slowness", lambda: slowness)
        return check_test_durations.main(["report.xml"]), rerun

    monkeypatch.setattr(check_test_durations, "ROOT", tmp_path)
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "slow_tests.toml").write_text(
        '[slow]\n"tests/unit/test_a.py::test_listed" = "why"\n'
    )
    (tmp_path / "tests" / "unit" / "test_a.py").write_text("def test_new(): ...\ndef test_listed(): ...\n")
    return run


@pytest.mark.parametrize(("file", "name"), [("test_gone", "test_new"), ("test_a", "test_old"), ("test_a", "test_ne")])
def test_renamed_test_is_not_run_again(run_check: RunCheck, file: str, name: str) -> None:
    assert run_check(CASE.format(file=file, name=name, seconds=3)) == (0, [])


def test_slow_test_is_run_again_with_all_its_parameters(run_check: RunCheck) -> None:
    names = {"test_new[old-parameter]": 3, "test_new[other]": 4, "test_listed": 3}
    cases = "".join(CASE.format(file="test_a", name=name, seconds=seconds) for name, seconds in names.items())
    assert run_check(cases) == (1, ["tests/unit/test_a.py::test_new"] * 3)
    assert run_check(CASE.format(file="test_a", name="test_new", seconds=0.5)) == (0, [])


def test_limit_is_higher_on_a_slower_processor(run_check: RunCheck) -> None:
    report = CASE.format(file="test_a", name="test_new", seconds=3)
    assert run_check(report, 1.9) == (1, ["tests/unit/test_a.py::test_new"] * 3)
    assert run_check(report, 2.1) == (0, ["tests/unit/test_a.py::test_new"])


def test_test_that_is_fast_once_is_not_slow(run_check: RunCheck) -> None:
    report = CASE.format(file="test_a", name="test_new", seconds=3)
    assert run_check(report, fast_attempt=2) == (0, ["tests/unit/test_a.py::test_new"] * 2)
