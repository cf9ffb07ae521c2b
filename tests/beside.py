"""All tests, in two rows beside each other: `python -m tests.beside`.

Those that play on the product mostly wait, for nodes to boot and for graces to end. What they leave of the processors
goes to all other tests, which give way to them.
"""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO

from sandbox.launcher import AUTOGROUP

PYTEST = (sys.executable, "-m", "pytest")
PLAYED = ("tests/chaos", "tests/integration", "tests/scenarios")
OTHERS = (("-m", "not sandbox"), ("-m", "sandbox", *(f"--ignore={one}" for one in PLAYED)))
"""One after the other."""
GIVES_WAY = ("nice", "-n", "10", sys.executable, "-m", "tests.beside", "others")
"""While the played ones need the processors the others get a tenth of what they do."""
NONE_WERE_CHOSEN = 5


def main() -> int:
    if sys.argv[1:] == ["others"]:
        with suppress(OSError):
            AUTOGROUP.write_text(str(os.nice(0)))
        return worst([subprocess.call([*PYTEST, *chosen]) for chosen in OTHERS])
    with tempfile.TemporaryFile("w+") as said:
        others = subprocess.Popen(GIVES_WAY, stdout=said, stderr=said, start_new_session=True)
        try:
            codes = [subprocess.call([*PYTEST, "-m", "sandbox", *PLAYED]), others.wait()]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(others.pid, signal.SIGKILL)
            others.wait()
        _show(said)
    return worst(codes)


def worst(codes: list[int]) -> int:
    return max((code for code in codes if code != NONE_WERE_CHOSEN), default=NONE_WERE_CHOSEN)


def _show(said: IO[str]) -> None:
    said.seek(0)
    for line in said:
        sys.stdout.write(line)


if __name__ == "__main__":
    sys.exit(main())
