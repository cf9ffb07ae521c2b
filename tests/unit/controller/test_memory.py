"""What was freed goes back to the machine."""

import asyncio
import ctypes
import resource
from pathlib import Path

import pytest

from tenure.controller import process
from tests.support.product.eventually import eventually

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
    monkeypatch.setattr(process, "EVERY", 0.01)

    async def most_is_given_back() -> None:
        assert before - resident() > BLOCK * BLOCKS / 2

    giving = asyncio.create_task(process.give_back())
    await eventually(most_is_given_back, seconds=60, every=0.01)
    giving.cancel()
    assert len(kept) == 10
