"""The worker process: probes, shutdown, memory, and the lease of another controller.

Tenure must not act while Karpenter manages the same objects. `worker.py` takes work only between `wait_until_released`
and `wait_until_acquired`, and the host of the watch checks the lease separately."""

import asyncio
import ctypes
import time
from asyncio import sslproto
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from activities.ports.core import Leases
from tenure.clock import utc_now, wait_until_set
from tenure.gc_settings import FullCollections
from tenure.model.errors import Fault

log = structlog.get_logger(__name__)


@dataclass
class Readiness:
    """`why_not`: the response of `/readyz`; empty when ready."""

    why_not: str = "starting"

    def wait_for(self, what: str) -> None:
        self.why_not = what


class Health:
    """Serves both probes on one port until closed; port 0 serves none."""

    def __init__(self, port: int, not_ready: Callable[[], str]) -> None:
        self._port, self._not_ready = port, not_ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Raises OSError when the port is in use."""
        if not self._port:
            return
        app = web.Application()
        app.add_routes([web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        why_not = self._not_ready()
        return web.Response(status=503, text=why_not) if why_not else web.Response(text="ok")


async def find_unfinished(shutdowns: Mapping[str, Coroutine[Any, Any, None]], timeout: timedelta) -> list[str]:
    """Run shutdowns, by task queue, at the same time. The task queues that did not stop in time are logged, with all
    tasks that the process waits for.
    """
    queues = {asyncio.create_task(shutdown): queue for queue, shutdown in shutdowns.items()}
    _, pending = await asyncio.wait(queues, timeout=timeout.total_seconds())
    unfinished = sorted(queues[one] for one in pending)
    if unfinished:
        log.error("worker did not stop", task_queues=unfinished, tasks=sorted(map(_describe_task, asyncio.all_tasks())))
    return unfinished


def _describe_task(task: asyncio.Task[Any]) -> str:
    """The task's name, and where each of its nested calls waits."""
    calls: list[str] = [task.get_name()]
    call: Any = task.get_coro()
    while frame := getattr(call, "cr_frame", None):
        calls.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
        call = call.cr_await
    return " > ".join(calls)


TRIM_INTERVAL_SECONDS: Final = 60.0
"""Seconds. Trimming takes milliseconds in a thread, without the GIL."""
MAX_ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""From glibc's malloc.h."""
TLS_BUFFER_BYTES: Final = 32 << 10
"""Two TLS records. asyncio allocates 256 KiB for each connection, and a busy worker has 50 to the API server."""


def limit_memory() -> None:
    """Limit malloc arenas and TLS buffers. Call it before threads start: each thread would get an arena whose free
    memory others cannot use."""
    if tune := _glibc_function("mallopt"):
        tune(_M_ARENA_MAX, MAX_ARENAS)
    sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


async def trim_memory() -> None:
    """Collect garbage if memory has grown, and return free memory to the system if the allocator is glibc's. Runs until
    cancelled."""
    trim, collections = _glibc_function("malloc_trim"), FullCollections(time.monotonic)
    while True:
        await asyncio.sleep(TRIM_INTERVAL_SECONDS)
        if trim:
            await asyncio.to_thread(trim, 0)
        collections.collect_if_grown()


def _glibc_function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)


MIN_CACHED_WORKFLOWS: Final = 2000
BASE_BYTES: Final = 600 << 20
"""Memory of a worker and its planner without workflows, with 1,000 nodes (docs/decisions/worker-memory.md)."""
CACHED_WORKFLOW_BYTES: Final = 200 << 10
CGROUP_MEMORY_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


def memory_limit(file: Path = CGROUP_MEMORY_LIMIT) -> int | None:
    """Bytes that the container may use; None without a limit, or with version 1 of cgroups."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def workflow_cache_size(limit: int | None) -> int:
    """Workflows that fit into the memory limit, in hundreds; MIN_CACHED_WORKFLOWS without a limit, or if few fit."""
    fitting = ((limit or 0) - BASE_BYTES) // CACHED_WORKFLOW_BYTES // 100 * 100
    return max(MIN_CACHED_WORKFLOWS, fitting)


LEASE_POLL_SECONDS = 10.0
"""Seconds; Karpenter's lease lasts 15."""


class KarpenterLease:
    """The lease `name` in any namespace; an empty name disables the search. Both waits end when `stop` is set."""

    def __init__(
        self, leases: Leases, name: str, stop: asyncio.Event, *, poll_seconds: float = LEASE_POLL_SECONDS
    ) -> None:
        self._leases, self._lease_name, self._stop, self._poll_seconds = leases, name, stop, poll_seconds

    async def wait_until_released(self, report: Callable[[str], None], observe_holder: Callable[[], None]) -> None:
        """Wait until the lease has no holder.

        `report` receives the reason to wait, such as unreadable leases. `observe_holder` is called at each read of a
        holder, which manages the cluster meanwhile.
        """
        while self._lease_name and not self._stop.is_set():
            try:
                holder = await self._read_holder()
            except Fault as fault:
                holder = f"(not known: {fault.message})"
            else:
                if not holder:
                    return
                observe_holder()
            report(f"another controller is active: {holder} renews the lease {self._lease_name}")
            log.warning("waiting for another controller to stop", holder=holder, lease=self._lease_name)
            await wait_until_set(self._stop, self._poll_seconds)

    async def wait_until_acquired(self) -> None:
        """Wait until another controller holds the lease. A failed read does not count as a holder."""
        while not self._stop.is_set():
            await wait_until_set(self._stop, self._poll_seconds)
            try:
                if self._lease_name and await self._read_holder():
                    return
            except Fault as fault:
                log.warning("lease not read", lease=self._lease_name, fault=str(fault))

    async def _read_holder(self) -> str:
        return await self._leases.find_holder("", self._lease_name, now=utc_now())
