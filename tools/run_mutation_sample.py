"""Run the affected tests on a random sample of mutants, and report the share that they catch by folder.

    python3.11 -m venv build/mutation && build/mutation/bin/pip install --require-hashes -r requirements/mutation.txt
    build/mutation/bin/python tools/run_mutation_sample.py --mutants 200 --seed 1

Mutants are written to a copy of the repository. One run with coverage records which test executes which line.
A second call with the same scratch folder and seed continues the sample.
"""

import argparse
import ast
import contextlib
import difflib
import json
import os
import shutil
import signal
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import coverage
from mutants import Mutant, draw, mutate

ROOT = Path(__file__).parent.parent
FOLDERS = ("tenure/policy", "tenure/scheduling", "workflows", "activities", "tenure/kube", "tenure/aws")
UNIT = ["tests/unit", "tests/replay"]
ADAPTERS = [f"tests/adapters/{folder}" for folder in ("activities", "kube", "aws")]
FIRST_TESTS = 60
"""Number of tests in the first pytest run. Most mutants fail one of these, and the others are not imported."""
START_SECONDS = 60.0
WIDTH = 18
"""Characters of a column of the report."""
CAUGHT = ("killed", "timeout")


@dataclass
class Scratch:
    """A copy of the repository in which tests run."""

    directory: Path
    python: Path

    @property
    def copy(self) -> Path:
        return self.directory / "copy"

    def prepare_copy(self) -> None:
        """Copy the repository once, and make sure that tests import the copy."""
        if not self.copy.exists():
            ignored = shutil.ignore_patterns(".[!cg]*", ".git", "build", "__pycache__")
            shutil.copytree(ROOT, self.copy, ignore=ignored, symlinks=True)
            (self.directory / "lib").mkdir()
            (self.directory / "lib" / "coverage").symlink_to(Path(coverage.__file__).parent)
        _, imported = self.run(["-c", "import tenure, workflows; print(tenure.__file__, workflows.__file__)"])
        assert imported.count(str(self.copy)) == 2, f"the tests would not import the copy: {imported}"

    def run(self, command: list[str], timeout: float | None = None, **environment: str) -> tuple[int | None, str]:
        """The exit code, or None after the timeout, and the output."""
        path = f"{self.copy}:{self.directory / 'lib'}"
        variables = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | environment
        process = subprocess.Popen(
            ["nice", "-n", "19", str(self.python), *command],
            cwd=self.copy,
            env=variables,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            return None, ""
        finally:  # Also ends servers that the tests started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run_pytest(
        self, tests: list[str], *options: str, timeout: float | None = None, **env: str
    ) -> tuple[int | None, str]:
        arguments = self.directory / "arguments"
        arguments.write_text("\n".join(tests))
        common = ["-q", "-p", "no:cacheprovider", f"--basetemp={self.directory / 'tmp'}"]
        return self.run(["-m", "pytest", *common, *options, f"@{arguments}"], timeout, **env)

    def record(self, name: str, paths: list[str]) -> "Tests":
        """Run tests once with coverage, unless it was done before. Tests that fail without a mutant are omitted."""
        directory = self.directory / name
        if not (directory / "durations.json").exists():
            directory.mkdir(exist_ok=True)
            code, output = self.run_pytest(
                paths,
                *("-p", "tools.coverage_by_test"),
                COVERAGE_BY_TEST=str(directory),
                COVERAGE_PACKAGES=",".join(FOLDERS),
                PYTHONDONTWRITEBYTECODE="",
            )
            print(f"recorded {name}: exit code {code}: {output.splitlines()[-1]}", flush=True)
        data = coverage.CoverageData(str(directory / "coverage"))
        data.read()
        return Tests(self.copy, data, json.loads((directory / "durations.json").read_text()))


@dataclass
class Tests:
    """Which test executes which line."""

    copy: Path
    data: coverage.CoverageData
    durations: dict[str, float]

    def find_affected(self, mutant: Mutant) -> list[str]:
        """Tests that execute the line, the fastest first; for a line that runs at import, all tests of the file."""
        contexts = self.data.contexts_by_lineno(str(self.copy / mutant.path))
        lines = [mutant.line]
        if not contexts.get(mutant.line):
            lines = statement_lines(ast.parse((self.copy / mutant.path).read_text()), mutant.line)
        found = {test for line in lines for test in contexts.get(line, ())}
        if "" in found:
            found = {test for tests in contexts.values() for test in tests}
        return sorted(found & self.durations.keys(), key=lambda test: (self.durations[test], test))

    def total_seconds(self, tests: list[str]) -> float:
        return sum(self.durations[test] for test in tests)


def statement_lines(tree: ast.AST, line: int) -> list[int]:
    """Lines of the innermost statement at a line, with its decorators and without the statements inside it."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    found = [one for one in statements if first_line(one) <= line <= (one.end_lineno or 0)]
    inner = max(found, key=lambda one: one.lineno)
    body = getattr(inner, "body", None)
    last = max(inner.lineno, body[0].lineno - 1) if body else inner.end_lineno or inner.lineno
    return list(range(inner.lineno, last + 1))


def first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min(statement.lineno, *(one.lineno for one in decorators)) if decorators else statement.lineno


def run_affected_tests(scratch: Scratch, tests: Tests, mutant: Mutant, budget: float) -> tuple[str, str]:
    """The outcome of the affected tests, and which test failed or how many passed."""
    affected = tests.find_affected(mutant)
    chosen = [test for at, test in enumerate(affected) if at == 0 or tests.total_seconds(affected[: at + 1]) <= budget]
    for batch in (chosen[:FIRST_TESTS], chosen[FIRST_TESTS:]):
        if batch:
            code, output = scratch.run_pytest(
                batch, "-x", "--timeout=60", timeout=START_SECONDS + 4 * tests.total_seconds(batch)
            )
            failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
            if code is None:
                return "timeout", ""
            if code != 0:
                return "killed", failed[0].split(" - ")[0] if failed else f"exit code {code}"
    return ("survived", f"{len(chosen)} of {len(affected)} affected tests passed") if affected else ("not covered", "")


def try_mutant(scratch: Scratch, maps: dict[str, Tests], mutant: Mutant, budget: float) -> dict[str, str]:
    file = scratch.copy / mutant.path
    original, times = file.read_text(), file.stat()
    changed = mutate(original, mutant)
    diff = difflib.unified_diff(original.splitlines(), changed.splitlines(), lineterm="", n=1)
    result = {"diff": "\n".join([*diff][2:])}
    try:
        file.write_text(changed)
        for name, tests in maps.items():
            result[name], result[f"{name} tests"] = run_affected_tests(scratch, tests, mutant, budget)
            if result[name] in CAUGHT:
                break
    finally:
        file.write_text(original)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # The byte code of the original stays valid.
    return result


def report(results: list[dict[str, str]]) -> None:
    titles = ("folder", "mutants", "by unit", "by adapters", "survived", "not covered", "caught")
    print("\n" + "".join(f"{title:>{WIDTH}}" for title in titles))
    for folder in (*FOLDERS, ""):
        found = [one for one in results if one["path"].startswith(folder)]
        caught = [sum(one.get(tier) in CAUGHT for one in found) for tier in ("unit", "adapters")]
        uncovered = sum({one["unit"], one.get("adapters", "not covered")} == {"not covered"} for one in found)
        numbers = (len(found), *caught, len(found) - sum(caught) - uncovered, uncovered)
        share = f"{sum(caught) / len(found):.0%}" if found else "-"
        print("".join(f"{value:>{WIDTH}}" for value in (folder or "all", *numbers, share)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", type=Path, default=ROOT / "build" / "mutation-scratch")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv/bin/python", help="interpreter of the tests")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of tests for each mutant and tier")
    parser.add_argument("--adapters", action="store_true", help="run tests/adapters if the unit tests catch nothing")
    options = parser.parse_args()
    options.scratch.mkdir(parents=True, exist_ok=True)
    scratch = Scratch(options.scratch.resolve(), options.python.absolute())
    scratch.prepare_copy()
    tiers = {"unit": UNIT} | ({"adapters": ADAPTERS} if options.adapters else {})
    maps = {name: scratch.record(name, paths) for name, paths in tiers.items()}
    log = scratch.directory / f"results-{options.seed}.jsonl"
    results = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    for mutant in draw(scratch.copy, FOLDERS, options.mutants, options.seed)[len(results) :]:
        results.append(asdict(mutant) | try_mutant(scratch, maps, mutant, options.budget))
        with log.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
        outcome = {key: value for key, value in results[-1].items() if key.partition(" ")[0] in tiers and value}
        print(
            f"{len(results)} {mutant.path}:{mutant.line} {mutant.operator.removeprefix('core/')} {outcome}", flush=True
        )
        if len(results) % 25 == 0:
            report(results)
    report(results)
    for one in results:
        if not {one["unit"], one.get("adapters")} & {*CAUGHT}:
            tested = ", ".join(f"{tier} tests: {one.get(tier, 'not run')}" for tier in ("unit", "adapters"))
            print(f"\n{one['path']}:{one['line']} {one['operator']}; {tested}\n{one['diff']}")


if __name__ == "__main__":
    main()
