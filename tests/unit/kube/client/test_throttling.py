"""While the API server responds with 429, the rate stays bounded and urgent requests come first."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from kubernetes.aio.client import Configuration

from tenure.kube.client.client import THROTTLED_TRIES, KubeClient
from tenure.kube.client.rate_limiter import BURST, QPS
from tenure.model.base import REQUEST_PRIORITY
from tenure.model.errors import Throttled
from tests.support.virtual_time import in_virtual_time

WRITES = 2000
RETRY_AFTER = 2


class ThrottlingApi:
    """Rejects every request with 429 until `accepts` is set. It records the time and the path of each request."""

    def __init__(self) -> None:
        self.accepts = False
        self.requests: list[tuple[float, str]] = []

    @asynccontextmanager
    async def request(self, method: str, url: str, **_: Any) -> AsyncIterator[Any]:
        self.requests.append((asyncio.get_running_loop().time(), url.rpartition("/")[2]))
        await asyncio.sleep(0.05)

        async def read() -> bytes:
            return b"{}"

        headers = {} if self.accepts else {"Retry-After": str(RETRY_AFTER)}
        yield SimpleNamespace(status=200 if self.accepts else 429, headers=headers, read=read)


@asynccontextmanager
async def throttled_client() -> AsyncIterator[tuple[KubeClient, ThrottlingApi]]:
    client, api = KubeClient(Configuration(host="http://api.example")), ThrottlingApi()
    await client._session.close()
    client._session = api  # type: ignore[assignment]
    yield client, api


def assert_rate_bounded(api: ThrottlingApi) -> None:
    by_second = Counter(int(at) for at, _ in api.requests)
    assert max(by_second.values()) <= BURST + QPS
    assert len(api.requests) <= BURST + QPS * (api.requests[-1][0] - api.requests[0][0] + 1)


@in_virtual_time
async def test_rate_and_attempts_are_bounded_while_every_request_is_rejected() -> None:
    async with throttled_client() as (client, api):
        writes = [asyncio.create_task(client.merge(f"/api/v1/nodes/{number}", {})) for number in range(WRITES)]
        results = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(one, Throttled) for one in results)
    assert Counter(path for _, path in api.requests) == {str(number): THROTTLED_TRIES for number in range(WRITES)}
    assert_rate_bounded(api)
    for number in (0, WRITES - 1):
        times = [at for at, path in api.requests if path == str(number)]
        pauses = [after - before for before, after in pairwise(times)]
        assert all(pause >= 0.5 * RETRY_AFTER * attempt for attempt, pause in enumerate(pauses, start=1)), pauses


@in_virtual_time
async def test_writes_succeed_once_after_the_server_recovers_and_urgent_ones_come_first() -> None:
    async with throttled_client() as (client, api):

        async def write_in_bulk(number: int) -> None:
            REQUEST_PRIORITY.set("bulk")
            await client.merge(f"/api/v1/nodes/{number}", {})

        writes = [asyncio.create_task(write_in_bulk(number)) for number in range(WRITES)]
        await asyncio.sleep(2)
        api.accepts = True
        recovered_at = len(api.requests)
        await client.merge("/api/v1/nodes/urgent", {})
        place = [path for _, path in api.requests[recovered_at:]].index("urgent")
        await asyncio.gather(*writes)
    assert place <= 3
    accepted = Counter(path for _, path in api.requests[recovered_at:])
    assert set(accepted.values()) == {1} and len(accepted) > WRITES / 2
    assert_rate_bounded(api)
