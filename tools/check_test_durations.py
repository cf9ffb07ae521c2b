"""Fail when a unit test takes over a second and `tests/unit/slow_tests.toml` does not list it with a reason.

    python tools/check_test_durations.py [REPORT ...]

A report is pytest's JUnit XML. Tests that run in parallel slow each other down, so the slow ones run again alone, up to
`ATTEMPTS` times. The limit is for a processor that runs `reference_loop` in `REFERENCE_SECONDS`; it is higher on a
slower one.
"""

import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parent.parent
REPORTS = ("build/unit.xml", "build/test.xml")
LIST = "tests/unit/slow_tests.toml"
LIMIT_SECONDS = 1.0
ATTEMPTS = 3
REFERENCE_SECONDS = 0.06


def read_durations(report: Path) -> dict[str, float]:
    """Seconds by node ID of the unit tests in a JUnit report."""
    cases = ElementTree.parse(report).iter("testcase")
    return {
        f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].split('@')[0]}": float(
            case.attrib["time"]
        )
        for case in cases
        if case.attrib["classname"].startswith("tests.unit.")
    }


def reference_loop() -> int:
    return sum(number * number for number in range(1_000_000))


def measure_slowness() -> float:
    """Duration of `reference_loop` divided by `REFERENCE_SECONDS`; at least 1."""
    started = time.perf_counter()
    for _ in range(10):
        reference_loop()
    return max(1.0, (time.perf_counter() - started) / 10 / REFERENCE_SECONDS)


def rerun_in_isolation(tests: list[str]) -> dict[str, float]:
    """Seconds of each test when no other test runs."""
    with tempfile.TemporaryDirectory() as directory:
        report, arguments = Path(directory) / "report.xml", Path(directory) / "tests"
        arguments.write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--junitxml={report}", f"@{arguments}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return read_durations(report)


def find_slow_tests(tests: list[str]) -> dict[str, float]:
    """Seconds of those that exceed the limit at every attempt."""
    durations: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        before = measure_slowness()
        measured = rerun_in_isolation(tests)
        limit = LIMIT_SECONDS * max(before, measure_slowness())
        durations = {test: seconds for test, seconds in measured.items() if seconds > limit}
        if not durations:
            break
        tests = list(durations)
    return durations


def is_defined(function: str) -> bool:
    """Whether the file defines the function, `FILE::NAME`. A report may be older than the rename of a test."""
    file, _, name = function.partition("::")
    path = ROOT / file
    return path.exists() and f"def {name}(" in path.read_text()


def main(reports: list[str]) -> int:
    reasons: dict[str, str] = tomllib.loads((ROOT / LIST).read_text())["slow"]
    problems = [f"{LIST}: {test} does not exist; remove it" for test in reasons if not is_defined(test)]
    paths = [path for path in (ROOT / report for report in reports or REPORTS) if path.exists()]
    if not paths:
        print("no report of unit tests in build/: run `make unit` to measure durations")
    newest = max(paths, key=lambda path: path.stat().st_mtime, default=None)
    measured = read_durations(newest) if newest else {}
    slow = list(dict.fromkeys(test.split("[")[0] for test, seconds in measured.items() if seconds > LIMIT_SECONDS))
    if unlisted := [test for test in slow if test not in reasons and is_defined(test)]:
        durations = find_slow_tests(unlisted)
        for test, seconds in sorted(durations.items(), key=lambda item: -item[1]):
            problems.append(f"{test} takes {seconds:.1f} s: make it faster, or list it in {LIST} with the reason")
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
