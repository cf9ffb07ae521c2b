"""Bytecode for the image. The image is read-only, so each start would compile the modules again.

python:slim ships its standard library without bytecode. The Dockerfile runs this and copies the folder that
`PYTHONPYCACHEPREFIX` names. Files in an image do not change, so Python does not check the sources again.
"""

import sys
import sysconfig
from compileall import compile_dir
from pathlib import Path
from py_compile import PycInvalidationMode
from re import compile as pattern
from typing import Final

TESTS: Final = r"/(test|tests|idle_test)/"
"""Excluded: some are invalid on purpose, and nothing imports them."""


def write(environment: Path, goal: Path) -> bool:
    """Compile an environment and the standard library of this interpreter into `goal`. False if a module fails."""
    sys.pycache_prefix = str(goal)
    library = sysconfig.get_path("stdlib")
    return _compile_folder(environment, TESTS) and _compile_folder(Path(library), f"{TESTS}|/site-packages/")


def _compile_folder(folder: Path, excluded: str) -> bool:
    mode = PycInvalidationMode.UNCHECKED_HASH
    return bool(compile_dir(folder, quiet=1, force=True, rx=pattern(excluded), invalidation_mode=mode))


if __name__ == "__main__":
    sys.exit(not write(Path(sys.argv[1]), Path(sys.argv[2])))
