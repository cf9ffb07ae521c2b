"""Another controller of the same kinds: two of one NodeClaim would fight, so nothing is done while one is at work.

`worker.py` waits here before it takes any work; `host.py` looks again while it watches.
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


async def wait_for_others(leases: Leases, name: str, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Until nobody renews the lease `name` in any namespace, or `stop`; `say` gets the reason. "" looks for none."""
    while name and not stop.is_set():
        try:
            holder = await leases.holder("", name, now=datetime.now(UTC))
        except Fault as fault:
            holder = f"(not known: {fault.message})"
        if not holder:
            return
        say(f"another controller is at work: {holder} renews the lease {name}")
        log.warning("waiting for another controller to stop", holder=holder, lease=name)
        try:
            await asyncio.wait_for(stop.wait(), LOOK_EVERY)
        except TimeoutError:
            continue
