"""The speed of the product on this machine during a test, so that limits in seconds also hold on a busy machine.

A round trip is the path of a verdict without its waits: a client changes an object, the watch shows it, the workflow
gets a signal, and a query returns it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

from tenure.apis import labels
from tenure.kube.client.resources import NODE_CLAIMS
from tenure.model.nodeclaim.state import NodeClaimState
from tests.chaos.blockages import PAUSE
from tests.support.product.cluster_scope import ClusterScope
from tests.support.product.eventually import query_state, wait_until

PAUSE_SECONDS = 1.0
"""Between two round trips."""
POLL_SECONDS = 0.05


class RoundTrips:
    def __init__(self, scope: ClusterScope, nodeclaim: str) -> None:
        self._scope, self._nodeclaim = scope, nodeclaim
        self._samples: list[tuple[float, float]] = []
        """Unix time of begin and end."""

    async def run(self) -> None:
        """Repeat round trips until cancelled."""
        handle = await self._scope.workflow_handle(self._nodeclaim)
        for number in count():
            text = f"{PAUSE} {number}"

            async def assert_observed(text: str = text) -> None:
                assert (await query_state(handle, NodeClaimState)).observed.pause == text

            begin = time.time()
            await self._scope.product.patch(
                NODE_CLAIMS.path(self._nodeclaim), {"metadata": {"annotations": {labels.PAUSE: text}}}
            )
            await wait_until(assert_observed, poll_interval=POLL_SECONDS)
            self._samples.append((begin, time.time()))
            await asyncio.sleep(PAUSE_SECONDS)

    def longest(self, begin: float, end: float) -> float:
        """Seconds of the longest round trip between these Unix times. Objects have times in whole seconds."""
        return max(last - first for first, last in self._samples if first <= end + 1 and last >= begin - 1)


@asynccontextmanager
async def measure_round_trips(scope: ClusterScope) -> AsyncIterator[RoundTrips]:
    """Start a node in this scope and repeat round trips with it."""
    (claim,) = await scope.run_pods(1)
    round_trips = RoundTrips(scope, claim["metadata"]["name"])
    task = asyncio.create_task(round_trips.run())
    try:
        yield round_trips
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
