"""Runs a few rows with the worker killed once at a random moment, for CI: `python -m tests.scenarios.sample`.

`make scenarios` does so for all rows. The seed determines the rows and the moment. It derives from the commit;
`--kill-seed N` repeats a run.
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = 6
MARKER_EXPRESSION = "row and killable"


class Collected:
    """A pytest plugin: the tests that were selected."""

    def __init__(self) -> None:
        self.items: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = [item.nodeid for item in session.items]


def draw_sample(tests: Sequence[str], seed: int, rows: int = ROWS) -> list[str]:
    """A random subset of the tests, in their order; reproducible by its seed."""
    chosen = set(random.Random(seed).sample(sorted(tests), min(rows, len(tests))))
    return [test for test in tests if test in chosen]


def commit_seed(commit: str) -> int:
    """A seed that differs between commits."""
    return int(commit[:8], 16) % 10_000


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.sample")
    parser.add_argument("--kill-seed", type=int)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args(arguments)
    seed = options.kill_seed if options.kill_seed is not None else commit_seed(_head_commit())
    collected = Collected()
    code = pytest.main(["-q", "--collect-only", "-m", MARKER_EXPRESSION, str(HERE)], plugins=[collected])
    if code != pytest.ExitCode.OK:
        return code
    chosen = draw_sample(collected.items, seed, options.rows)
    print(f"the worker is killed by --kill-seed={seed} in:", *chosen, sep="\n  ")
    return subprocess.call(
        [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadgroup", f"--kill-seed={seed}", *chosen],
        cwd=HERE.parents[1],
    )


def _head_commit() -> str:
    command = ["git", "-C", str(HERE), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
