"""`/healthz` and `/readyz`: whether the process lives, and whether it may be relied on, with the reason when not.

The worker's logs: one JSON object a line, or lines for people, on stdout.

Memory without use is given back to the machine: glibc keeps what was freed, tens of megabytes after a scale-up.

Another controller of the same kinds: two of one NodeClaim would fight, so nothing is done while one is at work.

`worker.py` takes work only between `gone` and `come`; `host.py` gives up the watch by itself as well.
"""

import asyncio
import ctypes
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import structlog
from aiohttp import web

from activities.ports.core import Leases
from tenure.model.errors import Fault


@dataclass
class Readiness:
    """What `/readyz` says; empty when there is nothing to wait for."""

    why_not: str = "starting"

    def wait_for(self, what: str) -> None:
        self.why_not = what


class Health:
    """Serves both probes on one port until closed."""

    def __init__(self, port: int, not_ready: Callable[[], str]) -> None:
        self._port, self._not_ready = port, not_ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Raises OSError when the port is taken."""
        app = web.Application()
        app.add_routes([web.get("/healthz", self._alive), web.get("/readyz", self._ready)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _alive(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _ready(self, _: web.Request) -> web.Response:
        why_not = self._not_ready()
        return web.Response(status=503, text=why_not) if why_not else web.Response(text="ok")


_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}


def configure(level: Literal["debug", "info", "error"], form: Literal["json", "console"]) -> None:
    """Libraries are heard from warnings upwards only."""
    least = _LEVELS[level]
    logging.basicConfig(
        level=max(least, logging.WARNING), stream=sys.stdout, format="%(levelname)s %(name)s %(message)s"
    )
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(least),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="time"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if form == "console" else structlog.processors.JSONRenderer(),
        ],
    )


EVERY: Final = 60.0
"""Seconds. It takes milliseconds, in a thread, and of the interpreter's time nothing."""
ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h."""


def share_arenas() -> None:
    """Once, before there are threads: each would get an arena, and what is free in one is of no use to the others."""
    if tune := _glibc("mallopt"):
        tune(_M_ARENA_MAX, ARENAS)


async def give_back() -> None:
    """Until it is cancelled; at once where the system's allocator is another."""
    trim = _glibc("malloc_trim")
    while trim:
        await asyncio.sleep(EVERY)
        await asyncio.to_thread(trim, 0)


def _glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)


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
