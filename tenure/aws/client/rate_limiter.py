"""One token bucket per API, with AWS's default rates for an account and region, shared by the replicas.

If EC2 throttles earlier, the rate drops, and recovers while nothing is throttled (docs/decisions/aws-call-rates.md).
aiolimiter does not fit: rate and level of its AsyncLimiter cannot be changed, and tokens cannot be returned.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple


class Rate(NamedTuple):
    per_second: float
    burst: float
    """Size of the bucket. Lower than AWS's limit, to leave calls to others in the account."""
    is_shared: bool = True
    """False for calls that only one replica makes at a time: garbage collection, or the host of the watch."""


READS: Final = Rate(20, 20)
WRITES: Final = Rate(5, 10)
_RATES: Final[dict[str, Rate]] = {
    "create_fleet": Rate(5, 1),
    "run_instances": Rate(2, 5),
    "terminate_instances": Rate(5, 5),
    "create_tags": Rate(8, 20, is_shared=False),
    "get_parameter": Rate(20, 40),
    "get_products": Rate(10, 20),
    "receive_message": Rate(300, 300, is_shared=False),
    "delete_message_batch": Rate(300, 300, is_shared=False),
}
_FALLS_TO: Final = 0.7
"""Factor of the rate after a throttled call."""
_FALLS_EVERY: Final = 1.0
"""Seconds. Throttled calls within this time lower the rate once."""
_RISES: Final = 0.02
"""Share of the full rate that is regained per second."""
_SLOWEST: Final = 0.02


def rate_of(operation: str) -> Rate:
    """`operation` is the name of the boto3 method."""
    reads = operation.startswith(("describe_", "get_", "list_", "simulate_"))
    return _RATES.get(operation, READS if reads else WRITES)


class TokenBucket:
    """`acquire` waits for a token; waiting callers are served in order."""

    def __init__(
        self,
        rate: Rate,
        *,
        replicas: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._replicas = replicas if rate.is_shared else 1
        self._tokens = self._max_tokens
        self._filled = clock()
        self._fell = self._filled - _FALLS_EVERY
        self._rate_factor = 1.0
        self._turn = asyncio.Lock()

    @property
    def per_second(self) -> float:
        """The current sustained rate."""
        return self._rate.per_second / self._replicas * self._rate_factor

    @property
    def _max_tokens(self) -> float:
        return max(1.0, self._rate.burst / self._replicas)

    def set_replicas(self, replicas: int) -> None:
        self._refill()
        self._replicas = max(1, replicas) if self._rate.is_shared else 1
        self._tokens = min(self._tokens, self._max_tokens)

    async def acquire(self) -> None:
        async with self._turn:
            self._refill()
            while self._tokens < 1:
                await self._sleep((1 - self._tokens) / self.per_second)
                self._refill()
            self._tokens -= 1

    def give_back(self) -> None:
        self._tokens = min(self._max_tokens, self._tokens + 1)

    def on_throttled(self) -> None:
        """Drop the remaining tokens and lower the rate, after AWS throttled a call."""
        self._refill()
        self._tokens = min(self._tokens, 0.0)
        if self._filled - self._fell >= _FALLS_EVERY:
            self._fell = self._filled
            self._rate_factor = max(_SLOWEST, self._rate_factor * _FALLS_TO)

    def _refill(self) -> None:
        now = self._clock()
        passed = now - self._filled
        self._tokens = min(self._max_tokens, self._tokens + passed * self.per_second + 1e-9)
        self._rate_factor = min(1.0, self._rate_factor + passed * _RISES)
        self._filled = now


class TokenBuckets:
    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        self._replicas = 1

    def bucket_for(self, operation: str) -> TokenBucket:
        if operation not in self._buckets:
            self._buckets[operation] = TokenBucket(rate_of(operation), replicas=self._replicas)
        return self._buckets[operation]

    def set_replicas(self, replicas: int) -> None:
        self._replicas = max(1, replicas)
        for bucket in self._buckets.values():
            bucket.set_replicas(self._replicas)
