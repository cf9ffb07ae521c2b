"""Libraries that a process imports at its start. The limit keeps the memory of a worker small."""

import subprocess
import sys

from tests.support.paths import ROOT

PACKAGES = ("activities", "tenure", "workflows")
HEAVY = {"numpy", "highspy", "cryptography", "cel_expr_python", "moto", "typer", "opentelemetry"}
PROGRAM = f"""
import sys
import worker
print(*sorted({HEAVY} & sys.modules.keys()))
import tenure.controller.planning.planner_child
print(*sorted({HEAVY} & sys.modules.keys()))
"""


def test_only_the_planner_imports_numpy_and_highspy() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, check=True, capture_output=True, text=True)
    worker, planner = result.stdout.splitlines()
    assert worker == ""
    assert {"numpy", "highspy"} <= set(planner.split())


def test_product_does_not_call_wait_for() -> None:
    """With Python 3.11, it swallows a cancellation that arrives as its wait ends: use `wait_until_set` or a timeout."""
    files = (path for name in (*PACKAGES, "worker.py") for path in (ROOT / name, *(ROOT / name).rglob("*.py")))
    assert [path for path in files if path.is_file() and "asyncio.wait_for" in path.read_text()] == []
