"""The speed of the product on this machine during a test, so that limits in seconds also hold on a busy machine.

A round trip is the path of a verdict without its waits: a client changes an object, the watch shows it, its workflow
gets a signal, decides, and logs the new verdict.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import cycle

from tenure.apis import labels
from tenure.kube.client.resources import NODES
from tests.support.product.cluster_scope import ClusterScope, object_names
from tests.support.product.eventually import wait_until
from tests.support.product.objects import Object
from tests.support.product.product import InstalledProduct

PAUSE_SECONDS = 1.0
"""Between two round trips."""


def verdict_lines(product: InstalledProduct, nodeclaim: str) -> list[Object]:
    """The log lines about new verdicts on the NodeClaim, also of killed workers."""
    lines = [one for one in product.log_entries() if one["message"] == "blocked nodeclaim"]
    return [one for one in lines if one["NodeClaim"]["name"] == nodeclaim]


class RoundTrips:
    """Sets and removes do-not-disrupt on an empty Node whose NodePool never consolidates."""

    def __init__(self, scope: ClusterScope, nodeclaim: str, node: str) -> None:
        self._scope, self._nodeclaim, self._node = scope, nodeclaim, node
        self._samples: list[tuple[float, float]] = []
        """Unix time of begin and end."""

    async def run(self) -> None:
        """Repeat round trips until cancelled."""
        for value, code in cycle((("true", "NodeDoNotDisrupt"), (None, "Never"))):
            begin = time.time()
            self._samples.append((begin, float("inf")))
            await self._scope.product.patch(
                NODES.path(self._node), {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: value}}}
            )
            end = await wait_until(partial(self.assert_logged, code, after=begin))
            self._samples[-1] = (begin, end)
            await asyncio.sleep(PAUSE_SECONDS)

    async def assert_logged(self, code: str, *, after: float) -> float:
        """The Unix time at which this code was logged last."""
        times = [
            datetime.fromisoformat(one["time"]).timestamp()
            for one in verdict_lines(self._scope.product, self._nodeclaim)
            if one["code"] == code
        ]
        assert times and times[-1] > after, f"{self._nodeclaim} was not {code}"
        return times[-1]

    def longest(self, begin: float, end: float) -> float:
        """Seconds of the longest round trip between these Unix times. Objects have times in whole seconds."""
        now = time.time()
        return max(min(last, now) - first for first, last in self._samples if first <= end + 1 and last >= begin - 1)


@asynccontextmanager
async def measure_round_trips(scope: ClusterScope) -> AsyncIterator[RoundTrips]:
    """Start an empty node in this scope and repeat round trips with it."""
    (claim,) = await scope.run_pods(1)
    await scope.scale_deployment(0)
    (name,) = object_names([claim])
    round_trips = RoundTrips(scope, name, claim["status"]["nodeName"])
    await wait_until(lambda: round_trips.assert_logged("Never", after=0.0))
    task = asyncio.create_task(round_trips.run())
    try:
        yield round_trips
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
