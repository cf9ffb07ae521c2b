"""One token bucket per API, at the rates that AWS grants an account in a region by default, shared by the replicas.

Where EC2 refuses sooner the pace falls, and rises again while nothing is refused (docs/decisions/aws-call-rates.md).
aiolimiter does not fit: neither rate nor level of its AsyncLimiter can be changed, and no token can be returned.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple


class Rate(NamedTuple):
    per_second: float
    burst: float
    """Calls that may go out together; less than AWS grants, which leaves some for others in the account."""


READS: Final = Rate(20, 20)
WRITES: Final = Rate(5, 10)
_RATES: Final[dict[str, Rate]] = {
    "create_fleet": Rate(5, 1),
    "run_instances": Rate(2, 5),
    "terminate_instances": Rate(5, 5),
    "create_tags": Rate(1, 10),
    "get_parameter": Rate(20, 40),
    "get_products": Rate(10, 20),
    "receive_message": Rate(300, 300),
    "delete_message_batch": Rate(300, 300),
}
_FALLS_TO: Final = 0.7
"""The share of the pace that is left after a refusal."""
_FALLS_EVERY: Final = 1.0
"""Seconds: refusals that come together are one."""
_RISES: Final = 0.02
"""Share of the full pace that comes back each second."""
_SLOWEST: Final = 0.02


def rate_of(operation: str) -> Rate:
    """By the name of the boto3 method."""
    reads = operation.startswith(("describe_", "get_", "list_"))
    return _RATES.get(operation, READS if reads else WRITES)


class TokenBucket:
    """`acquire` waits until a call may go out; calls go in the order in which they asked."""

    def __init__(
        self,
        rate: Rate,
        *,
        replicas: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate, self._replicas, self._clock, self._sleep = rate, replicas, clock, sleep
        self._tokens = self._max_tokens
        self._filled = clock()
        self._fell = self._filled - _FALLS_EVERY
        self._rate_factor = 1.0
        self._turn = asyncio.Lock()

    @property
    def per_second(self) -> float:
        """Sustained calls per second at present."""
        return self._rate.per_second / self._replicas * self._rate_factor

    @property
    def _max_tokens(self) -> float:
        return max(1.0, self._rate.burst / self._replicas)

    def set_replicas(self, replicas: int) -> None:
        self._refill()
        self._replicas = max(1, replicas)
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
        """AWS throttled a call: the remaining burst is void, and the granted rate is lower than assumed."""
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
