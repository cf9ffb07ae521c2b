"""All tests, in three rows beside each other: `python -m tests.beside`.

Those that play on the product mostly wait, for nodes to boot and for graces to end; they play in two worlds. What these
leave of the processors goes to all other tests, which give way to them.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from sandbox.launcher import give_way

PYTEST = (sys.executable, "-m", "pytest")
SANDBOX = (*PYTEST, "-m", "sandbox")
PLAYED = (("tests/integration",), ("tests/chaos", "tests/scenarios"))
"""In a world each. Scenarios of one folder may play together, so that no folder is divided."""
OTHERS = ((*PYTEST, "-m", "not sandbox"), (*SANDBOX, *(f"--ignore={one}" for row in PLAYED for one in row)))
"""One after the other."""
GIVES_WAY = ("nice", "-n", "10", sys.executable, "-m", "tests.beside", "others")
"""While the played ones need the processors the others get a tenth of what they do."""
NONE_WERE_CHOSEN = 5


def main() -> int:
    if sys.argv[1:] == ["others"]:
        give_way()
        return worst([subprocess.call(chosen) for chosen in OTHERS])
    first, *more = ((*SANDBOX, *row) for row in PLAYED)
    with ExitStack() as stack:
        rows = [stack.enter_context(beside(row)) for row in (*more, GIVES_WAY)]
        return worst([subprocess.call(first), *(row.wait() for row in rows)])


@contextmanager
def beside(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """What it says is shown at the end."""
    with tempfile.TemporaryFile("w+") as said:
        row = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True, text=True)
        try:
            yield row
        finally:
            with suppress(ProcessLookupError):
                os.killpg(row.pid, signal.SIGKILL)
            row.wait()
            said.seek(0)
            sys.stdout.writelines(said)


def worst(codes: Sequence[int]) -> int:
    return max((code for code in codes if code != NONE_WERE_CHOSEN), default=NONE_WERE_CHOSEN)


if __name__ == "__main__":
    sys.exit(main())
