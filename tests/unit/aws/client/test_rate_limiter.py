"""API calls are sent in order, within the documented AWS rates, and more slowly after throttling."""

import asyncio

import pytest

from tenure.aws.client.rate_limiter import READS, WRITES, Rate, TokenBucket, TokenBuckets, rate_of
from tests.unit.aws.fakes import FakeClock


class ThrottlingApi:
    """Token bucket of EC2, as documented."""

    def __init__(self, per_second: float, burst: float, clock: FakeClock) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._tokens, self._filled = burst, 0.0

    def call(self) -> bool:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._per_second)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@pytest.mark.parametrize(
    ("operation", "rate"),
    [("describe_instances", READS), ("simulate_principal_policy", READS), ("create_launch_template", WRITES)],
)
def test_reads_and_writes_have_separate_rates(operation: str, rate: Rate) -> None:
    assert rate_of(operation) == rate


@pytest.mark.parametrize(
    ("operation", "refill", "bucket"),
    [
        ("create_fleet", 5, 50),
        ("run_instances", 2, 5),
        ("terminate_instances", 5, 100),
        ("create_launch_template", 5, 50),
        ("describe_instances", 20, 100),
    ],
)
def test_no_rate_exceeds_documented_limits(operation: str, refill: float, bucket: float) -> None:
    assert rate_of(operation).per_second <= refill and rate_of(operation).burst <= bucket


def make_bucket(rate: Rate) -> tuple[TokenBucket, FakeClock]:
    clock = FakeClock()
    return TokenBucket(rate, clock=clock, sleep=clock.sleep), clock


async def test_burst_is_sent_at_once_and_rest_in_order() -> None:
    (bucket, clock), done = make_bucket(Rate(per_second=50, burst=3)), list[tuple[int, float]]()

    async def take(number: int) -> None:
        await bucket.acquire()
        done.append((number, round(clock.now, 2)))

    await asyncio.gather(*(take(number) for number in range(5)))
    assert done == [(0, 0), (1, 0), (2, 0), (3, 0.02), (4, 0.04)]


async def test_create_fleet_never_exceeds_refill_rate_per_second() -> None:
    bucket, clock = make_bucket(rate_of("create_fleet"))
    times = [await acquired_at(bucket, clock) for _ in range(50)]
    assert max(sum(1 for other in times if one <= other < one + 0.999) for one in times) <= 5


async def test_throttling_empties_bucket() -> None:
    bucket, clock = make_bucket(Rate(per_second=20, burst=100))
    bucket.on_throttled()
    await bucket.acquire()
    assert clock.now == pytest.approx(1 / 14, rel=0.01)


async def test_concurrent_throttling_reduces_rate_once() -> None:
    bucket, _ = make_bucket(Rate(per_second=10, burst=1))
    for _ in range(10):
        bucket.on_throttled()
    assert bucket.per_second == pytest.approx(7)


async def test_rate_recovers_without_throttling() -> None:
    bucket, clock = make_bucket(Rate(per_second=10, burst=1))
    bucket.on_throttled()
    await clock.sleep(60)
    await bucket.acquire()
    assert bucket.per_second == 10


async def test_lower_account_rate_is_found_and_mostly_used() -> None:
    """The refill rate is 2 per second although 5 are documented, because other clients of the account use the rest."""
    bucket, clock = make_bucket(rate_of("create_fleet"))
    api, done, throttled = ThrottlingApi(2, 50, clock), 0, 0
    while done < 500:
        await bucket.acquire()
        if api.call():
            done += 1
        else:
            throttled += 1
            bucket.on_throttled()
    assert clock.now < 1.1 * (500 - 50) / 2
    assert throttled < 50


async def test_replicas_share_a_rate() -> None:
    bucket, clock = make_bucket(Rate(per_second=10, burst=20))
    bucket.set_replicas(4)
    times = [await acquired_at(bucket, clock) for _ in range(15)]
    assert times[4] == 0 and times[5] == pytest.approx(0.4)
    assert bucket.per_second == 2.5


async def test_operations_have_independent_buckets() -> None:
    buckets = TokenBuckets()
    for _ in range(40):
        buckets.bucket_for("create_fleet").on_throttled()
    await asyncio.wait_for(buckets.bucket_for("describe_instances").acquire(), 0.5)
    buckets.set_replicas(2)
    assert buckets.bucket_for("terminate_instances").per_second == 2.5


async def test_calls_of_one_replica_at_a_time_have_the_full_rate() -> None:
    buckets = TokenBuckets()
    before = buckets.bucket_for("create_tags")
    buckets.set_replicas(4)
    assert before.per_second == 8 and buckets.bucket_for("receive_message").per_second == 300


async def acquired_at(bucket: TokenBucket, clock: FakeClock) -> float:
    await bucket.acquire()
    return round(clock.now, 3)
