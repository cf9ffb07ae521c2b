"""Runs in a child before it becomes a part: the kernel kills it when its parent dies, and limits its CPU share to the
niceness of the parent.

`processes.py` starts it as a script, so it only imports the standard library. A `preexec_fn` would run Python code in a
fork of a process with threads.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import sys

PR_SET_PDEATHSIG = 1
AUTOGROUP = pathlib.Path("/proc/self/autogroup")
"""With autogroups, Linux divides CPU time by session. Niceness only counts within a session, and a new one has none."""


def give_way() -> None:
    """Set the niceness of this process's session to that of the process."""
    with contextlib.suppress(OSError):
        AUTOGROUP.write_text(str(os.nice(0)))


def main(parent: int, command: list[str]) -> None:
    """Never returns: the process is replaced, or exits if its parent is already dead."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        give_way()
    if os.getppid() != parent:
        sys.exit("the parent exited before the part started")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
