"""Commands that continue in the background: a child process does the work, and reports the exit code when it is ready.

The parent waits, forwards interrupts and exits with the child's exit code. The child keeps the sandbox running until a
signal.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tenure.cli.exit_codes import end_like_ctrl_c

ROOT = Path(__file__).parents[3]


def tenure_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tenure", *arguments]


def run_in_background(command: Sequence[str]) -> int:
    """Run `command --tell=FD` in a process that may outlive this one. Returns its reported or final exit code."""
    reading, writing = os.pipe()
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    child = subprocess.Popen(
        [*command, f"--tell={writing}"],
        env=os.environ | {"PYTHONPATH": path},
        pass_fds=[writing],
        start_new_session=True,
    )
    os.close(writing)
    end_like_ctrl_c()
    with os.fdopen(reading) as pipe:
        try:
            exit_code = pipe.read()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            exit_code = ""
    return int(exit_code) if exit_code else child.wait()


def detach_from_parent(exit_code_fd: int, code: int, log: Path) -> bool:
    """In the child: report the exit code and continue with the output in a log. False if the parent has exited."""
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("ab") as file, Path(os.devnull).open("rb") as nothing:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        os.dup2(nothing.fileno(), 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(exit_code_fd, str(code).encode())
        os.close(exit_code_fd)
        return True
    return False
