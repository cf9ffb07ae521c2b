"""The folder in which commands and the sandbox cache files. Completion imports it, so it imports no heavy module."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`TENURE_CACHE`, else `tenure` in the XDG cache folder."""
    if named := os.environ.get("TENURE_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tenure"
