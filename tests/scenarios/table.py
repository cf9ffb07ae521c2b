"""Runs the scenarios and prints each row with its verdict: `python -m tests.scenarios.table`.

Rows that do not restart the worker are run once more with the worker killed at a random moment; `--kill-seed N` repeats
such a run. `--row 001-b --times 20` runs each test of a row 20 times. Other arguments go to pytest. The exit code is 1
if a row is broken; a row without a test is no failure.
"""

import argparse
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
WORKERS = "8"
"""Concurrent processes that run scenarios, which mostly wait."""
RESULTS = {"kept": "green", "broken": "red", "no test yet": "yellow"}


@dataclass(frozen=True)
class Row:
    number: str
    situation: str
    then: str
    kind: str


@dataclass(frozen=True)
class Promise:
    text: str
    rows: tuple[Row, ...]


def read_promises() -> tuple[Promise, ...]:
    """The promises of rows.yaml, in its order."""
    found = yaml.safe_load((HERE / "rows.yaml").read_text())
    return tuple(
        Promise(item["promise"], tuple(Row(number, **row) for number, row in item["rows"].items())) for item in found
    )


@dataclass
class Outcomes:
    """A pytest plugin that collects the results of each row's tests."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = {str(value) for name, value in report.user_properties if name == "row"}
        if report.failed:
            self.failed |= rows
        elif report.when == "call" and report.passed:
            self.passed |= rows

    def result(self, number: str) -> str:
        """Kept if at least one test of the row passed and none failed."""
        if number in self.failed:
            return "broken"
        return "kept" if number in self.passed else "no test yet"


def unknown_rows(outcomes: Outcomes) -> list[str]:
    """Rows that tests name but rows.yaml lacks."""
    known = {row.number for promise in read_promises() for row in promise.rows}
    return sorted((outcomes.passed | outcomes.failed) - known)


def print_table(outcomes: Outcomes, killed: Outcomes, only: str, console: Console) -> None:
    table = Table("row", "given", "must happen", "verdict", "worker killed", title="The promises")
    for promise in read_promises():
        table.add_section()
        table.add_row("", f"[bold]{promise.text}[/bold]", "", "", "")
        for row in promise.rows:
            if only not in ("", row.number):
                continue
            killed_result = (
                _color_result(killed.result(row.number)) if row.number in killed.passed | killed.failed else ""
            )
            table.add_row(
                row.number, row.situation, row.then, _color_result(outcomes.result(row.number)), killed_result
            )
    console.print(table)
    rows = [row.number for promise in read_promises() for row in promise.rows]
    results = [outcomes.result(row) for row in rows if only in ("", row)]
    console.print(", ".join(f"{results.count(name)} {name}" for name in RESULTS))


def _color_result(result: str) -> str:
    colour = RESULTS[result]
    return f"[{colour}]{result}[/{colour}]"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.table", add_help=False)
    parser.add_argument("--kill-seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--row", default="")
    parser.add_argument("--times", type=int, default=1)
    options, rest = parser.parse_known_args(arguments)
    if options.row and options.row not in {row.number for promise in read_promises() for row in promise.rows}:
        parser.error(f"--row {options.row}: unknown row, expected a row of rows.yaml")
    repetition = [f"--times={options.times}", f"--timeout={300 * options.times}"] if options.times > 1 else []
    outcomes, killed = Outcomes(), Outcomes()
    repetition += [f"--row={options.row}"] if options.row else []
    codes = [
        _run_tests(outcomes, "row", *repetition, *rest),
        _run_tests(killed, "row and killable", f"--kill-seed={options.kill_seed}", *repetition, *rest),
    ]
    print_table(outcomes, killed, options.row, Console())
    print(f"the worker was killed by --kill-seed={options.kill_seed}")
    if unknown := unknown_rows(outcomes):
        print(f"tests name rows that do not exist: {', '.join(unknown)}", file=sys.stderr)
        return 1
    return 0 if set(codes) <= {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} else 1


def _run_tests(outcomes: Outcomes, marker_expression: str, *arguments: str) -> int | pytest.ExitCode:
    parallel = ("-n", WORKERS, "--dist", "loadgroup")
    return pytest.main(["-q", *parallel, "-m", marker_expression, *arguments, str(HERE)], plugins=[outcomes])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
