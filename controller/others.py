"""Another controller of the same kinds: two of one NodeClaim would fight, so nothing is done while one is at work.

`worker.py` takes work only between `gone` and `come`; `host.py` gives up the watch by itself as well.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from activities.ports import Leases
from model.faults import Fault

log = structlog.get_logger(__name__)

LOOK_EVERY = 10.0
"""Seconds; Karpenter's lease lasts 15."""


class Others:
    """Whoever renews the lease `name` in any namespace; an empty name looks for nobody. Both calls end on `stop`."""

    def __init__(self, leases: Leases, name: str, stop: asyncio.Event, *, look_every: float = LOOK_EVERY) -> None:
        self._leases, self._name, self._stop, self._look_every = leases, name, stop, look_every

    async def gone(self, say: Callable[[str], None]) -> None:
        """Until nobody does; `say` gets the reason to wait. Leases that cannot be read are one."""
        while self._name and not self._stop.is_set():
            try:
                holder = await self._holder()
            except Fault as fault:
                holder = f"(not known: {fault.message})"
            if not holder:
                return
            say(f"another controller is at work: {holder} renews the lease {self._name}")
            log.warning("waiting for another controller to stop", holder=holder, lease=self._name)
            await self._pause()

    async def come(self) -> None:
        """Until somebody does. An API server that does not answer is no sign of anybody."""
        while not self._stop.is_set():
            await self._pause()
            try:
                if self._name and await self._holder():
                    return
            except Fault as fault:
                log.warning("lease not read", lease=self._name, fault=str(fault))

    async def _holder(self) -> str:
        return await self._leases.holder("", self._name, now=datetime.now(UTC))

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), self._look_every)
        except TimeoutError:
            return
