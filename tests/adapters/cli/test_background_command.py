"""A command in the background: it reports to the terminal, then continues after its parent has parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

DETACHING = """
import os, signal, sys, time
from pathlib import Path
from tenure.cli.sandbox.background import detach_from_parent
log = Path(sys.argv[1])
print("told to the terminal", flush=True)
stayed = detach_from_parent(int(sys.argv[2].removeprefix("--tell=")), 7, log)
print("told to the log", os.getpid(), stayed, flush=True)
time.sleep(60)
"""
FAILING = "import sys; sys.exit(3)"
PARENT = """
import sys
from tenure.cli.sandbox.background import run_in_background
sys.exit(run_in_background(sys.argv[1:]))
"""


def run_in_background_parent(*command: str) -> subprocess.CompletedProcess[str]:
    parent = [sys.executable, "-c", PARENT, sys.executable, "-c", *command]
    return subprocess.run(parent, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)


def test_background_command_continues_after_its_parent_returns(tmp_path: Path) -> None:
    log = tmp_path / "log"
    parent = run_in_background_parent(DETACHING, str(log))
    assert (parent.returncode, parent.stdout, parent.stderr) == (7, "told to the terminal\n", "")
    while not (log_text := log.read_text()).endswith("\n"):
        continue
    fields = log_text.split()
    assert fields[-1] == "True"
    # Raises if the process parent together with its parent.
    os.kill(int(fields[-2]), signal.SIGKILL)


def test_command_that_ends_early_returns_its_exit_code() -> None:
    assert run_in_background_parent(FAILING).returncode == 3
