"""All tests, in two runs beside each other: `python -m tests.beside`.

Those on the real parts mostly wait, for nodes to boot and for graces to end. What they leave of the processors goes to
all other tests, which give way to them.
"""

import subprocess
import sys
import tempfile
from typing import IO

PYTEST = (sys.executable, "-m", "pytest")
GIVES_WAY = ("nice", "-n", "15")
"""While the real parts need the processors the others get next to nothing."""
NONE_WERE_CHOSEN = 5


def main() -> int:
    with tempfile.TemporaryFile("w+") as said:
        others = subprocess.Popen([*GIVES_WAY, *PYTEST, "-m", "not sandbox"], stdout=said, stderr=said)
        try:
            codes = [subprocess.call([*PYTEST, "-m", "sandbox"]), others.wait()]
        finally:
            others.kill()
            others.wait()
        _show(said)
    return max((code for code in codes if code != NONE_WERE_CHOSEN), default=NONE_WERE_CHOSEN)


def _show(said: IO[str]) -> None:
    said.seek(0)
    for line in said:
        sys.stdout.write(line)


if __name__ == "__main__":
    sys.exit(main())
