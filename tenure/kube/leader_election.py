"""Leader election by Lease: one replica hosts the watch.

The algorithm is that of client-go. A candidate counts the Lease's duration from its own observation of the last
renewal, so clocks are not compared. Leaders release the Lease when they stop. Temporal's heartbeats would cost a
billable action each (docs/decisions/worker-recovery.md).
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from tenure.clock import CLOCK, utc_now
from tenure.kube.adapters.cluster import ObservedLease
from tenure.model.errors import Conflict, Fault, NotFound

log = structlog.get_logger(__name__)

LEADER_LEASE: Final = "tenure-leader-election"
"""In the worker's namespace; its holder hosts the watch."""
LEASE_DURATION: Final = timedelta(seconds=8)
"""After it, another replica takes over: with LEASE_RETRY_SECONDS, within ten seconds of a kill."""
RENEW_SECONDS: Final = 1.5
RENEW_RETRY_SECONDS: Final = 0.5
RENEW_DEADLINE_SECONDS: Final = 6.0
"""The leader decides nothing if it could not renew for this time, before another replica may take over."""
LEASE_RETRY_SECONDS: Final = 0.5
"""Interval of a candidate's attempts, with up to 20 % more."""
NEW_LEADER_SECONDS: Final = 300.0
"""A new leader has this time to sync its caches before it may count as lost. On a busy machine, 50,000 pods need
minutes."""
LEADER_CHECK_SECONDS: Final = 10.0
REQUEST_TIMEOUT_SECONDS: Final = 3.0
"""Of one attempt: an overloaded API server answers late, and a lost connection must leave time for a second attempt."""
RETRY_AFTER_FAULT_SECONDS: Final = 5.0
"""Meanwhile, another replica may take over."""


class LeaseStore(Protocol):
    """KubeLeases."""

    async def get(self, namespace: str, name: str) -> ObservedLease | None: ...

    async def write(self, lease: ObservedLease) -> ObservedLease: ...


class LeaderElector:
    """`identity`: unique among processes that run at the same time.

    `is_leader_lost` is called while another process holds the Lease: whether it must be replaced anyway.
    """

    def __init__(
        self, leases: LeaseStore, namespace: str, identity: str, *, is_leader_lost: Callable[[], Awaitable[bool]]
    ) -> None:
        self._leases, self._namespace, self._identity = leases, namespace, identity
        self._is_leader_lost = is_leader_lost
        self._observed_version, self._observed_at = "", 0.0
        self._observed_holder: tuple[str, datetime] | None = None
        """The holder, and when it acquired the Lease."""
        self._next_check_at = 0.0
        self._has_led = False
        self._written: ObservedLease | None = None
        """The Lease as this process wrote it last; None if the last attempt failed."""
        self._renewed_at = 0.0

    @property
    def is_valid(self) -> bool:
        """Whether no other process can have acquired the Lease since the last renewal. Other threads may read it."""
        return time.monotonic() - self._renewed_at < RENEW_DEADLINE_SECONDS

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled: acquire the Lease, and run `lead` while this process holds it. An error of `lead` releases
        the Lease."""
        while True:
            await self._acquire()
            log.info("became leader", lease=LEADER_LEASE, identity=self._identity)
            try:
                await self._lead(lead)
            except Fault as fault:
                log.warning("watch stopped", fault=str(fault))
            except Exception:
                log.exception("watch failed")
            finally:
                await self._release()
            await asyncio.sleep(RETRY_AFTER_FAULT_SECONDS)

    async def _acquire(self) -> None:
        reported = ""
        while True:
            try:
                if await self._hold():
                    return
            except Conflict:
                pass
            except (Fault, TimeoutError) as error:
                if str(error) != reported:
                    log.warning("lease not acquired", lease=LEADER_LEASE, fault=self._explain(error))
                    reported = str(error)
            await asyncio.sleep(LEASE_RETRY_SECONDS * random.uniform(1, 1.2))

    def _explain(self, error: Fault | TimeoutError) -> str:
        if isinstance(error, NotFound):
            return f"SYSTEM_NAMESPACE={self._namespace}: {error}; create the namespace, or set the worker's namespace"
        return str(error) or f"no response within {REQUEST_TIMEOUT_SECONDS:.0f} s"

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._renew(), name="leader-renewal")
        try:
            await asyncio.wait({leading, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
        finally:
            leading.cancel()
            renewing.cancel()
            await asyncio.gather(leading, renewing, return_exceptions=True)

    async def _renew(self) -> None:
        """Returns when another process holds the Lease. A late renewal does not end the session, which would have to
        list all objects again; `is_valid` is false meanwhile."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            if not await self._hold_with_retry():
                log.warning("lease lost to another process", lease=LEADER_LEASE)
                return

    async def _hold_with_retry(self) -> bool:
        reported = ""
        while True:
            try:
                return await self._hold()
            except (Fault, TimeoutError) as error:
                if str(error) != reported:
                    log.warning("lease not renewed", lease=LEADER_LEASE, fault=self._explain(error))
                    reported = str(error)
                await asyncio.sleep(RENEW_RETRY_SECONDS)

    async def _hold(self) -> bool:
        """Create, acquire or renew the Lease; False while another process holds it. Raises Conflict if another process
        was faster. The holder renews with one request, without a read."""
        started_at = time.monotonic()
        async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
            lease = self._written or await self._leases.get(self._namespace, LEADER_LEASE)
            self._written = None
            if lease and lease.holder not in ("", self._identity) and not await self._may_replace(lease):
                return False
            self._written = await self._leases.write(self._next_lease(lease, utc_now()))
            if lease and self._written.transitions > lease.transitions:
                # The clock of the previous leader may be ahead, and workflows ignore observations with lower numbers.
                CLOCK.skip_numbers(lease.renewed + timedelta(seconds=RENEW_DEADLINE_SECONDS))
            self._renewed_at, self._has_led = started_at, True
            return True

    async def _may_replace(self, lease: ObservedLease) -> bool:
        if lease.version != self._observed_version:
            self._observed_version, self._observed_at = lease.version, time.monotonic()
        if time.monotonic() - self._observed_at > lease.duration.total_seconds():
            return True
        if (lease.holder, lease.acquired) != self._observed_holder:
            self._observed_holder = lease.holder, lease.acquired
            self._next_check_at = time.monotonic() + NEW_LEADER_SECONDS
        if time.monotonic() < self._next_check_at:
            return False
        self._next_check_at = time.monotonic() + LEADER_CHECK_SECONDS
        return await self._is_leader_lost()

    def _next_lease(self, lease: ObservedLease | None, now: datetime) -> ObservedLease:
        fields = {"holder": self._identity, "renewed": now, "duration": LEASE_DURATION}
        if lease is None:
            return ObservedLease(namespace=self._namespace, name=LEADER_LEASE, acquired=now, **fields)
        if lease.holder != self._identity or not self._has_led:
            # A process that replaces one of the same pod acquires the Lease too, and has to sync its caches.
            fields |= {"acquired": now, "transitions": lease.transitions + 1}
        return lease.model_copy(update=fields)

    async def _release(self) -> None:
        """Best effort: an unreleased Lease expires."""
        self._written, self._renewed_at = None, 0.0
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                lease = await self._leases.get(self._namespace, LEADER_LEASE)
                if lease and lease.holder == self._identity:
                    await self._leases.write(lease.model_copy(update={"holder": "", "renewed": utc_now()}))
        except (Fault, TimeoutError) as error:
            log.warning("lease not released", lease=LEADER_LEASE, fault=self._explain(error))
