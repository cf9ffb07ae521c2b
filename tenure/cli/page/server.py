"""Serves the cluster page: one HTML file, and its content as server-sent events.

aiohttp serves it, since the Kubernetes client needs it anyway. The page is read-only. It has no authentication, so it
listens on the loopback interface, and there it rejects requests with another host name: a web site could otherwise
read it through DNS.
"""

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web

from tenure.cli.page.sections import Content, Section

FILES: Final = {"/": "page.html", "/page.css": "page.css", "/page.js": "page.js", "/logo.svg": "logo.svg"}
KEEPALIVE_SECONDS: Final = 15.0
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_FOLDER: Final = Path(__file__).parent / "static"
_LOOPBACK_NAMES: Final = {"localhost", "127.0.0.1", "[::1]"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SectionFeed:
    """The newest content of each section. Sections are read only while a viewer is connected."""

    def __init__(self, sections: Mapping[str, Section]) -> None:
        self._sections = sections
        self._viewers = 0
        self._watched = asyncio.Event()
        self._changed = asyncio.Condition()
        self.content: dict[str, Content] = {}
        self.versions: dict[str, int] = dict.fromkeys(sections, 0)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, section in self._sections.items():
                group.create_task(self._repeat(name, section), name=f"section {name}")

    async def _repeat(self, name: str, section: Section) -> None:
        while True:
            await self._watched.wait()
            try:
                found: Content = {"data": await section.read(), "error": ""}
            except Exception as error:
                known = self.content.get(name, {}).get("data")
                found = {"data": known, "error": f"{type(error).__name__}: {error}"[:500]}
            async with self._changed:
                previous = self.content.get(name, {})
                if found != {key: previous.get(key) for key in found}:
                    self.versions[name] += 1
                self.content[name] = {**found, "readAt": datetime.now(UTC).isoformat(timespec="seconds")}
                self._changed.notify_all()
            await asyncio.sleep(section.interval_seconds)

    def connect(self) -> None:
        self._viewers += 1
        self._watched.set()

    def disconnect(self) -> None:
        self._viewers -= 1
        if not self._viewers:
            self._watched.clear()

    def changes_since(self, known: Mapping[str, int]) -> dict[str, Content]:
        return {name: content for name, content in self.content.items() if self.versions[name] != known.get(name, 0)}

    async def wait_for_change(self, known: Mapping[str, int], seconds: float) -> dict[str, Content]:
        """The changed sections; empty after `seconds`."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.changes_since(known))
        except TimeoutError:
            return {}
        return self.changes_since(known)


def make_application(feed: SectionFeed, cluster: str, *, host_names: set[str] | None) -> web.Application:
    """`host_names`: accepted host names without port; None accepts all."""

    @web.middleware
    async def protect(request: web.Request, handler: Handler) -> web.StreamResponse:
        if host_names is not None and _host_name(request.host) not in host_names:
            raise web.HTTPForbidden(text=f"{_host_name(request.host)[:100]}: unknown host name\n")
        return await handler(request)

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)

    async def serve_file(request: web.Request) -> web.StreamResponse:
        return web.FileResponse(_FOLDER / FILES[request.path])

    async def serve_cluster(_: web.Request) -> web.StreamResponse:
        return web.json_response({"cluster": cluster})

    async def serve_events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        feed.connect()
        try:
            sent: dict[str, int] = {}
            while True:
                changes = await feed.wait_for_change(sent, KEEPALIVE_SECONDS)
                sent |= {name: feed.versions[name] for name in changes}
                text = "".join(f"event: {name}\ndata: {json.dumps(one)}\n\n" for name, one in changes.items())
                await response.write((text or ": keepalive\n\n").encode())
        except (ConnectionResetError, asyncio.CancelledError):
            return response
        finally:
            feed.disconnect()

    application = web.Application(middlewares=[protect])
    application.on_response_prepare.append(add_headers)
    application.router.add_get("/cluster", serve_cluster)
    application.router.add_get("/events", serve_events)
    for path in FILES:
        application.router.add_get(path, serve_file)
    return application


def accepted_host_names(address: str) -> set[str] | None:
    """On a loopback address, only the names of this machine. Any name on other addresses."""
    is_loopback = address == "localhost" or ipaddress.ip_address(address).is_loopback
    return _LOOPBACK_NAMES | {address} if is_loopback else None


def _host_name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


@asynccontextmanager
async def serving(application: web.Application, feed: SectionFeed, address: str, port: int) -> AsyncIterator[int]:
    """Serve inside the context. Yields the port, which is chosen for port 0. Raises OSError."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        reading = asyncio.create_task(feed.run(), name="sections of the page")
        try:
            yield int(runner.addresses[0][1])
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    finally:
        await runner.cleanup()
