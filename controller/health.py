"""`/healthz` and `/readyz`: whether the process lives, and whether it may be relied on, with the reason when not."""

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web


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
