"""Ports for the parts of sandboxes, without collisions between concurrent sandboxes.

A file lock of the process reserves a port. Ports are below the range that the kernel uses for outgoing connections. The
lock folder does not depend on TMPDIR, because ports belong to the machine.
"""

import fcntl
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from tenure.sandbox.errors import NoPort

FIRST, LAST = 20000, 32000
LOCKS = Path("/tmp")


class Ports:
    """Reservations of one process. `close` releases them, or the kernel when the process ends."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or LOCKS / f"tenure-ports-{os.getuid()}"
        self._lock_handles: dict[int, int] = {}

    def reserve(self, preferred: int | None = None, *, strict: bool = False) -> int:
        """A free port: the preferred one if it is free, else another (`strict`: raises `NoPort`)."""
        if preferred and self._reserve(preferred):
            return preferred
        if preferred and strict:
            raise NoPort(f"port {preferred} is in use")
        for port in _candidates():
            if self._reserve(port):
                return port
        raise NoPort(f"no free port between {FIRST} and {LAST}")

    def close(self) -> None:
        while self._lock_handles:
            _, handle = self._lock_handles.popitem()
            os.close(handle)

    def _reserve(self, port: int) -> bool:
        if port in self._lock_handles:
            return False
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._folder / f"{port}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if _lock(handle) and _is_free(port):
            self._lock_handles[port] = handle
            return True
        os.close(handle)
        return False


def _candidates() -> Iterator[int]:
    start = random.randrange(FIRST, LAST)
    yield from range(start, LAST)
    yield from range(FIRST, start)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # A listener that was just closed leaves connections in TIME_WAIT, which do not block the next listener.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
