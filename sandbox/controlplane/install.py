"""Puts a binary into the cache whole or not at all."""

import os
import tempfile
from pathlib import Path


def install(content: bytes, path: Path) -> None:
    """Write beside the target, then rename: a reader sees the whole file or none."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    _settle(Path(name), path)


def install_file(built: Path, path: Path) -> None:
    """Move a file that stands in the same cache."""
    _settle(built, path)


def _settle(made: Path, path: Path) -> None:
    made.chmod(0o755)
    made.replace(path)
