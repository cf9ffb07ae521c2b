"""The record of a sandbox in its directory, for `tenure sandbox status|down` and for reopening.

The file has the process, the ports and the addresses of the parts. A lock on a second file shows whether the process
runs.
"""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from tenure.sandbox.errors import DirectoryInUse

FILE = "sandbox.json"
LOCK = "sandbox.lock"


class Record(BaseModel):
    """Written when all parts are healthy. Ports are by the names of the parts."""

    model_config = ConfigDict(frozen=True)

    pid: int
    parts: tuple[str, ...]
    ports: Mapping[str, int]
    environment: Mapping[str, str]
    reach: Mapping[str, str]
    processes: Mapping[str, int] = {}
    retain_data: bool = False

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """None if no sandbox ever became healthy there."""
        file = directory / FILE
        return cls.model_validate_json(file.read_text()) if file.exists() else None

    def write(self, directory: Path) -> None:
        made = directory / f".{FILE}"
        made.write_text(self.model_dump_json(indent=2))
        made.replace(directory / FILE)


class DirectoryLock:
    """Held while a sandbox runs. The kernel releases it when the process ends."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._handle = os.open(directory / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if not _try_lock(self._handle):
            os.close(self._handle)
            raise DirectoryInUse(f"a sandbox is running in {directory}")
        os.truncate(self._handle, 0)
        os.pwrite(self._handle, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._handle)


def _try_lock(handle: int) -> bool:
    """Retry briefly, because another process may be checking the owner."""
    for _ in range(10):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False


def is_running(directory: Path) -> bool:
    """Whether a process runs a sandbox in this directory."""
    return owner_of(directory) is not None


def owner_of(directory: Path) -> int | None:
    """PID of the process that starts, runs or stops a sandbox in this directory, if any."""
    file = directory / LOCK
    if not file.exists():
        return None
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return int(opened.read() or 0) or None
    return None
