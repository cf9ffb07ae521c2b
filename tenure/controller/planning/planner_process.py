"""The planner: `ClusterState` in a separate process, so that planning never delays workflows.

A planner that dies is replaced and filled again from the cache. It handles one request at a time."""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

import structlog

from activities.ports.core import Events, Offerings
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.disruption.status import OverlayStatusWriter
from tenure.controller.planning.catalog import CatalogueFeed, LimitedCapacity, find_full_zones
from tenure.controller.planning.discovered_capacity import CapacityDiscovery
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.disruption.decision import Decision, DisruptionRequest
from tenure.model.errors import Fault, Preempted, TryLater
from tenure.model.instance_types import Catalogue, DevicesByNodeClass, ReservationHeadroom, UnavailableOffering
from tenure.model.invalid_objects import PLANNER_STEPS
from tenure.model.plan import Plan, PlannedNodeClaim
from tenure.scheduling.nodeoverlays import OverlayValidation
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change

if TYPE_CHECKING:  # The planner's modules take 15 MB, and only the child process needs them.
    from tenure.controller.planning.planner_child import InvalidByKey, Response

log = structlog.get_logger(__name__)

PLAN_TIMEOUT_SECONDS: Final = 60.0
"""Seconds; a planner that takes longer is killed and replaced."""
_RELEASE_WINDOW: Final = timedelta(seconds=2)
"""Offerings that become available within this time count together: EC2 rejects many in one launch."""

PLANNER_MODULE: Final = "tenure.controller.planning.planner_child"


def start_planner(settings: PlanSettings) -> tuple[Connection, subprocess.Popen[bytes]]:
    """Start a process with a command of its own, and return this process' end of its pipe.

    `multiprocessing` would import the worker's main module into the planner: 2 s of CPU time and 55 MB.
    """
    own_end, child_end = socket.socketpair()
    pipe = Connection(own_end.detach())
    with child_end:
        pipe.send(settings)
        number = child_end.fileno()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", PLANNER_MODULE, str(number)],
            stdin=subprocess.DEVNULL,
            pass_fds=[number],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    return pipe, process


class PlannerProcess:
    """One child process. Each call is one request and one response, one at a time. After a fault, create a new one."""

    def __init__(self, settings: PlanSettings, report_invalid: "Callable[[InvalidByKey], None]") -> None:
        """`report_invalid` receives all objects that raise an error in the planner, whenever they change."""
        self._report_invalid = report_invalid
        self._pipe, self._process = start_planner(settings)
        # One thread per child: pipes block, and a dead child must not block its successor.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="planner-pipe")
        self._lock, self._send_lock = asyncio.Lock(), threading.Lock()
        self._broken = False

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs, and no call ended with a timeout or a broken pipe."""
        return not self._broken and self._process.poll() is None

    async def apply(self, changes: Sequence[Change]) -> None:
        await self._call("apply", changes)

    async def set_catalogue(self, catalogue: Catalogue) -> None:
        await self._call("set_catalogue", catalogue)

    async def set_devices(self, devices: DevicesByNodeClass) -> None:
        await self._call("set_devices", devices)

    async def apply_discovered_capacity(self, discovered: DiscoveredCapacity, specs: Mapping[str, str]) -> None:
        await self._call("apply_discovered_capacity", discovered, specs)

    async def overlay_validations(self) -> Mapping[str, OverlayValidation]:
        """The validation of each NodeOverlay, by name."""
        validations, _ = await self._call("overlay_validations")
        found: Mapping[str, OverlayValidation] = validations
        return found

    async def commit(self, claims: Mapping[str, PlannedNodeClaim], *, now: datetime) -> None:
        await self._call("commit", claims, now=now)

    async def provision(
        self,
        *,
        now: datetime,
        unavailable: Sequence[UnavailableOffering],
        not_ready_grace: timedelta,
        pool_graces: Mapping[str, timedelta],
        reservations: Mapping[str, ReservationHeadroom],
        launch_blockers: Mapping[str, str] | None = None,
    ) -> Plan:
        """The plan, with its duration."""
        plan, seconds = await self._call(
            "provision",
            now=now,
            unavailable=unavailable,
            not_ready_grace=not_ready_grace,
            pool_graces=pool_graces,
            reservations=reservations,
            launch_blockers=launch_blockers,
        )
        return Plan.model_validate(plan).model_copy(update={"seconds": seconds})

    async def disrupt(self, request: DisruptionRequest) -> tuple[Decision, float]:
        """One pass of voluntary disruption, and its duration in seconds. Raises Preempted."""
        decision, seconds = await self._call("disrupt", request)
        if decision is None:
            raise Preempted
        return Decision.model_validate(decision), seconds

    def preempt(self) -> None:
        """End a running disruption pass that is preemptible. A planner that reads nothing does not delay the caller."""
        asyncio.get_running_loop().run_in_executor(None, self._send_preemption)

    def _send_preemption(self) -> None:
        with suppress(OSError), self._send_lock:
            self._pipe.send_bytes(b"")

    async def stop(self) -> None:
        """Kill the child, even during a call."""
        self._process.kill()
        self._pipe.close()
        self._thread.shutdown(wait=False)
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, 2.0)

    async def _call(self, method: str, *args: Any, **kwargs: Any) -> tuple[Any, float]:
        async with self._lock:
            loop = asyncio.get_running_loop()
            try:
                call = loop.run_in_executor(self._thread, self._send_and_receive, (method, args, kwargs))
                async with asyncio.timeout(PLAN_TIMEOUT_SECONDS):
                    result, seconds, error, invalid = await call
            except (TimeoutError, EOFError, OSError, RuntimeError) as cause:
                self._broken = True
                raise TryLater(f"the planner process does not respond to {method}: {cause!r}") from cause
        if invalid is not None:
            self._report_invalid(invalid)
        if error:
            raise TryLater(f"the planner failed in {method}: {error}")
        return result, seconds

    def _send_and_receive(self, message: tuple[str, tuple[Any, ...], dict[str, Any]]) -> "Response":
        """Runs in the thread of the pipe, since pickling a catalogue of ten classes takes seconds."""
        with self._send_lock:
            self._pipe.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
        result: Response = pickle.loads(self._pipe.recv_bytes())
        return result


@dataclass(frozen=True, slots=True)
class PlanningInputs:
    """Current availability that the catalogue does not contain."""

    unavailable: tuple[UnavailableOffering, ...]
    reservations: Mapping[str, ReservationHeadroom]


class PlannerClient:
    def __init__(
        self,
        *,
        cache: ClusterCache,
        offerings: Offerings,
        events: Events,
        settings: PlanSettings,
        now: Callable[[], datetime],
        overlay_status: OverlayStatusWriter | None = None,
        interrupted_offerings: Callable[[datetime], Sequence[UnavailableOffering]] = lambda now: (),
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """`interrupted_offerings`: those that AWS recently reclaimed, which Provisioning may not know yet."""
        self._is_leading = is_leading
        self._cache, self._settings = cache, settings
        self.limited_capacity = LimitedCapacity(cache, offerings, events, now)
        self.catalogue = CatalogueFeed(cache, offerings, now)
        self.capacity_discovery = CapacityDiscovery(cache)
        self._overlay_status, self._interrupted_offerings = overlay_status, interrupted_offerings
        self.lock = asyncio.Lock()
        self.background_lock = asyncio.Lock()
        """Background callers take this first, so at most one of them is ahead of pods that wait for a plan."""
        self.waiting_plans = 0
        """Plans for pods that wait for the lock."""
        self.has_changed = False
        """The planner received changes since the last reset of this flag."""
        self.unavailable_offerings: tuple[UnavailableOffering, ...] = ()
        """Offerings whose launches EC2 rejected, as Provisioning last reported them."""
        self.process: PlannerProcess | None = None
        self._applied: tuple[DiscoveredCapacity, Mapping[str, str]] | None = None
        self._sent_devices: DevicesByNodeClass = {}
        self._preloaded = False

    async def close(self) -> None:
        """Stop the planner process. It may hold partial state, so the next process starts from scratch and receives all
        facts."""
        if self.process:
            await self.process.stop()
            self.process = None

    @asynccontextmanager
    async def lock_for_plan(self) -> AsyncIterator[None]:
        """The lock for a plan of pods, for which a preemptible disruption pass ends."""
        self.waiting_plans += 1
        try:
            if self.lock.locked() and self.process:
                self.process.preempt()
            await self.lock.acquire()
        finally:
            self.waiting_plans -= 1
        try:
            yield
        finally:
            self.lock.release()

    def check_lease(self) -> None:
        """Before each NodeClaim of a plan is created: a process that was frozen meanwhile must not execute its plan.
        Raises TryLater if another process may have acquired the Lease."""
        if not self._is_leading():
            raise TryLater("the Lease could not be renewed in time")

    def blocked_reason(self) -> str:
        """Why no decision is possible yet; empty if one is."""
        unknown = self.catalogue.unknown_nodeclasses()
        return f"the instance types of EC2NodeClass {', '.join(unknown)} are not known yet" if unknown else ""

    async def read_planning_inputs(self, now: datetime) -> PlanningInputs:
        unavailable = tuple(one for one in self.unavailable_offerings if now < one.until)
        shifted, reservations = await self.limited_capacity.read()
        return PlanningInputs(
            (
                *unavailable,
                *find_full_zones(unavailable, self._cache.nodeclasses.values()),
                *self._interrupted_offerings(now),
                *shifted,
            ),
            reservations,
        )

    def next_available_at(self, now: datetime) -> datetime | None:
        """When the next offerings that EC2 rejected or reclaimed count as available again; None if all do. Those that
        differ by less than `_RELEASE_WINDOW` count together."""
        ends = self._unavailable_until(now)
        window_ends = min(ends, default=now) + _RELEASE_WINDOW
        return max((one for one in ends if one < window_ends), default=None)

    def all_available_at(self, now: datetime) -> datetime | None:
        """When the last offering that EC2 rejected or reclaimed counts as available again; None if all do."""
        return max(self._unavailable_until(now), default=None)

    def _unavailable_until(self, now: datetime) -> list[datetime]:
        known = (*self.unavailable_offerings, *self._interrupted_offerings(now))
        return [one.until for one in known if now < one.until]

    async def preload(self) -> None:
        """Send the facts that are known before all kinds are synced. Conclusions from several kinds follow with `sync`.
        Raises TryLater."""
        process, changes = await self._take_changes()
        self.has_changed = self._preloaded = True
        await self._send(process.apply(changes))

    async def sync(self) -> PlannerProcess:
        """Return a live planner with all changes. Raises TryLater."""
        process, changes = await self._take_changes()
        if self._preloaded:
            self._preloaded = False
            self.capacity_discovery.discover(sorted(self._cache.nodeclaims))
        else:
            self.capacity_discovery.discover_from_changes(changes)
        await self._send(self._send_changes(process, changes))
        return process

    async def _send(self, sending: Awaitable[None]) -> None:
        """A fault leaves the planner with partial state."""
        try:
            await sending
        except Fault:
            await self.close()
            raise

    async def _take_changes(self) -> tuple[PlannerProcess, Sequence[Change]]:
        """A live planner, and what it does not know yet."""
        process = self.process
        if process is None or not process.is_alive:
            await self.close()
            process = self.process = await asyncio.to_thread(
                PlannerProcess, self._settings, partial(self._cache.invalid_objects.replace_steps, PLANNER_STEPS)
            )
            self.catalogue.reset_sent()
            self._applied, self._sent_devices = None, {}
            log.info("planner started", pid=process.pid)
            return process, self._cache.snapshot_changes()
        return process, self._cache.drain_planner_changes()

    async def _send_changes(self, process: PlannerProcess, changes: Sequence[Change]) -> None:
        if changes:
            self.has_changed = True
            await process.apply(changes)
        known = (self.capacity_discovery.discovered, self.capacity_discovery.spec_hashes())
        if self._applied is None or self._applied[0] is not known[0] or self._applied[1] != known[1]:
            await process.apply_discovered_capacity(*known)
            self._applied = known
        if await self.catalogue.refresh():
            await process.set_catalogue(self.catalogue.catalogue)
            self.catalogue.confirm_sent()
        if (devices := self._cache.devices_of_types) != self._sent_devices:
            await process.set_devices(devices)
            self._sent_devices = devices
        if self._overlay_status and self._cache.overlays and not self.catalogue.unknown_nodeclasses():
            await self._overlay_status.write(await process.overlay_validations())
