"""One token bucket per API, so that a burst of nodes waits here and not in EC2's answers.

The rates are below what AWS grants an account by default for the same calls, leaving room for others in it.
"""

import asyncio
import time
from typing import Final, NamedTuple


class Rate(NamedTuple):
    per_second: float
    burst: float


READS: Final = Rate(20, 100)
WRITES: Final = Rate(5, 50)
_RATES: Final[dict[str, Rate]] = {
    "create_fleet": Rate(10, 50),
    "terminate_instances": Rate(5, 100),
    "create_tags": Rate(1, 10),
    "get_parameter": Rate(20, 40),
    "get_products": Rate(10, 20),
}


def rate_of(operation: str) -> Rate:
    """By the name of the boto3 method."""
    reads = operation.startswith(("describe_", "get_", "list_"))
    return _RATES.get(operation, READS if reads else WRITES)


class TokenBucket:
    """`take` waits until a call may go out; calls go in the order in which they asked."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._tokens = rate.burst
        self._filled = time.monotonic()
        self._turn = asyncio.Lock()

    async def take(self) -> None:
        async with self._turn:
            self._fill()
            if self._tokens < 1:
                await asyncio.sleep((1 - self._tokens) / self._rate.per_second)
                self._fill()
            self._tokens -= 1

    def drain(self) -> None:
        """AWS said that it was too much: what is left of the burst is not ours."""
        self._fill()
        self._tokens = min(self._tokens, 0.0)

    def _fill(self) -> None:
        now = time.monotonic()
        self._tokens = min(self._rate.burst, self._tokens + (now - self._filled) * self._rate.per_second)
        self._filled = now
