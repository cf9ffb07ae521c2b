"""What was freed goes back to the machine."""

import asyncio
import contextlib
import ctypes
import resource
from pathlib import Path

import pytest

from controller import memory

BLOCK, BLOCKS = 8_000, 8_000
"""64 MB in blocks that glibc keeps: each is smaller than what it maps by itself."""


def resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the allocator is not glibc's")
async def test_what_was_freed_below_what_is_kept_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [bytes(BLOCK) for _ in range(BLOCKS)]
    kept = [bytes(BLOCK) for _ in range(10)]
    blocks.clear()
    before = resident()
    monkeypatch.setattr(memory, "EVERY", 0.01)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(memory.give_back(), 0.5)
    assert before - resident() > BLOCK * BLOCKS / 2
    assert len(kept) == 10
