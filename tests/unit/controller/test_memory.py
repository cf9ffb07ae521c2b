"""What was freed goes back to the machine."""

import asyncio
import ctypes
import resource
from pathlib import Path

import pytest

from tenure.controller import process
from tests.support.product.eventually import wait_until

BLOCK, BLOCKS = 8_000, 8_000
"""64 MB in blocks that glibc keeps: each is smaller than what it maps by itself."""


def resident_bytes() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the allocator is not glibc's")
async def test_what_was_freed_below_what_is_kept_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [bytes(BLOCK) for _ in range(BLOCKS)]
    retained = [bytes(BLOCK) for _ in range(10)]
    blocks.clear()
    before = resident_bytes()
    monkeypatch.setattr(process, "TRIM_INTERVAL_SECONDS", 0.01)

    async def most_is_trimmed() -> None:
        assert before - resident_bytes() > BLOCK * BLOCKS / 2

    trimming = asyncio.create_task(process.trim_memory())
    await wait_until(most_is_trimmed, seconds=60, poll_interval=0.01)
    trimming.cancel()
    assert len(retained) == 10
