"""What a worker does not load: libraries that few clusters or the planner alone have a use for."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

HEAVY = ("numpy", "highspy", "cryptography", "cel_expr_python", "moto", "typer")


@pytest.mark.parametrize("library", HEAVY)
def test_a_worker_starts_without(library: str) -> None:
    look = f"import sys, worker; assert {library!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", look], cwd=ROOT, check=True)


def test_the_planner_plans_with_them() -> None:
    look = "import sys, controller.planner_child; assert {'numpy', 'highspy'} <= sys.modules.keys()"
    subprocess.run([sys.executable, "-c", look], cwd=ROOT, check=True)
