"""Python's garbage collector in processes that hold the state of a cluster.

A full collection scans every object and stops all threads meanwhile: 0.5 s with 5,000 nodes, and up to 6 s on a busy
machine. Python would run one each second while objects are listed. Almost nothing needs it, since most objects end with
their last reference (docs/decisions/worker-memory.md).
"""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

NEVER: Final = 1_000_000
THRESHOLDS: Final = 10_000, 10, NEVER
"""Python's defaults are 700, 10 and 10. Full collections run only when memory has grown."""
MEMORY_GROWTH: Final = 1.1
"""A full collection is due when memory has grown by this factor since the last one."""
MIN_INTERVAL_SECONDS: Final = 60.0
"""Between full collections, also while memory grows."""
MAX_INTERVAL_SECONDS: Final = 3600.0
"""After this time a full collection runs without growth, so that garbage has a bound."""
_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def tune_gc() -> None:
    """Call it after all imports: imported modules stay alive, so full collections do not need to scan them. Without
    /proc, Python decides when full collections run."""
    gc.freeze()
    gc.set_threshold(*(THRESHOLDS if _STATM.exists() else THRESHOLDS[:2]))


def read_resident_bytes() -> int:
    """Memory of this process; 0 without /proc."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES if _STATM.exists() else 0


class FullCollections:
    """Runs a full collection when memory has grown since the last one. Call `collect_if_grown` regularly."""

    def __init__(self, now: Callable[[], float], read_bytes: Callable[[], int] = read_resident_bytes) -> None:
        """`now`: a monotonic clock, in seconds."""
        self._now, self._read_bytes = now, read_bytes
        self._collected_at, self._least_bytes = now(), read_bytes()

    def collect_if_grown(self) -> bool:
        """Whether a collection ran."""
        elapsed, resident = self._now() - self._collected_at, self._read_bytes()
        self._least_bytes = min(self._least_bytes, resident)
        is_grown = resident >= self._least_bytes * MEMORY_GROWTH and elapsed >= MIN_INTERVAL_SECONDS
        if not is_grown and elapsed < MAX_INTERVAL_SECONDS:
            return False
        gc.collect()
        self._collected_at, self._least_bytes = self._now(), self._read_bytes()
        return True
