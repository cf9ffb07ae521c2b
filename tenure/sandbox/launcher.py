"""Runs in the child just before it becomes a part: asks the kernel to kill it when its parent dies, and to take no more
of the processors than its parent does.

Started by `processes.py` as a script of its own, so it imports nothing but the standard library. Doing the same in a
`preexec_fn` would run Python code in a fork of a process that has threads.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import sys

PR_SET_PDEATHSIG = 1
AUTOGROUP = pathlib.Path("/proc/self/autogroup")
"""Where Linux shares the processors out by session, niceness counts within one only, and a new one has none."""


def give_way() -> None:
    """Of this process's session: no more of the processors than its niceness says."""
    with contextlib.suppress(OSError):
        AUTOGROUP.write_text(str(os.nice(0)))


def main(parent: int, command: list[str]) -> None:
    """Never returns: the process is replaced, or ends when its parent is already gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        give_way()
    if os.getppid() != parent:
        sys.exit("the parent ended before the part began")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
