"""A command that is left running: its answer comes back, and it lives on until it is told to end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

STAYS = """
import os, signal, sys, time
from pathlib import Path
from tenure.cli.sandbox.background import detach_from_parent
log = Path(sys.argv[1])
print("told to the terminal", flush=True)
stayed = detach_from_parent(int(sys.argv[2].removeprefix("--tell=")), 7, log)
print("told to the log", os.getpid(), stayed, flush=True)
time.sleep(60)
"""
ENDS = "import sys; sys.exit(3)"
PARENT = """
import sys
from tenure.cli.sandbox.background import run_in_background
sys.exit(run_in_background(sys.argv[1:]))
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    parent = [sys.executable, "-c", PARENT, sys.executable, "-c", *command]
    return subprocess.run(parent, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)


def test_the_answer_comes_back_while_the_command_goes_on_into_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ended = run(STAYS, str(log))
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "told to the terminal\n", "")
    while not (log_text := log.read_text()).endswith("\n"):
        continue
    fields = log_text.split()
    assert fields[-1] == "True"
    # Raises when the process has ended with its parent.
    os.kill(int(fields[-2]), signal.SIGKILL)


def test_a_command_that_ends_before_it_has_an_answer_gives_its_own_exit_code() -> None:
    assert run(ENDS).returncode == 3
