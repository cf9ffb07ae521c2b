"""A proxy in front of the API server that can misbehave: answer errors, delay, lose answers, cut connections.

It runs in the sandbox's own process (`world.py` starts it) and is told what to do through `Faults`. Without rules it
only passes on, watches included. It speaks plain HTTP or TLS to its clients and TLS to the API server.
"""

import asyncio
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from sandbox.faults import Answer, Cut, Delay, Faults, LoseAnswer

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-connection", "host"}
)
READS = frozenset({"GET", "HEAD", "OPTIONS"})


class Requests:
    """Those that are open, kept so that they can be counted and cut; see `OpenRequests`."""

    def __init__(self) -> None:
        self._open: dict[int, web.BaseRequest] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def track(self, request: web.BaseRequest) -> Iterator[None]:
        self._loop = asyncio.get_running_loop()
        self._open[id(request)] = request
        try:
            yield
        finally:
            del self._open[id(request)]

    def count(self, path: re.Pattern[str]) -> int:
        return len(self._matching(path))

    def cut(self, path: re.Pattern[str]) -> int:
        found = self._matching(path)
        for request in found:
            if self._loop:
                self._loop.call_soon_threadsafe(_abort, request)
        return len(found)

    def _matching(self, path: re.Pattern[str]) -> list[web.BaseRequest]:
        return [request for request in list(self._open.values()) if path.search(request.path_qs)]


class Proxy:
    """`upstream` is the API server's URL, `authority` the PEM file that proves it; `tls` is for the proxy's clients."""

    def __init__(self, upstream: str, authority: Path, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._upstream, self._port, self._tls = URL(upstream), port, tls
        self._authority = authority
        self._requests = Requests()
        self._runner: web.ServerRunner | None = None
        self.faults = Faults(self._requests)
        self.written: list[str] = []
        """Method and path of all requests that are no reads, whatever became of them."""
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"

    async def start(self) -> None:
        trusted = ssl.create_default_context(cafile=str(self._authority))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        self._runner = web.ServerRunner(
            web.Server(self._handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls).start()

    async def stop(self) -> None:
        """Cut what is open. Safe to call twice, and before `start`."""
        if self._runner is None:
            return
        self._requests.cut(re.compile(""))
        await self._runner.cleanup()
        await self._session.close()
        self._runner = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in READS:
            self.written.append(f"{request.method} {request.path}")
        with self._requests.track(request):
            return await self._decide(request)

    async def _decide(self, request: web.BaseRequest) -> web.StreamResponse:
        match self.faults.next(request.method, request.path_qs):
            case Answer() as answer:
                return web.Response(status=answer.status, headers=answer.headers(), body=answer.body())
            case Delay(seconds):
                await asyncio.sleep(seconds)
                return await self._pass_on(request)
            case Cut():
                return _abort(request)
            case LoseAnswer():
                async with self._ask(request) as answered:
                    await answered.read()
                return _abort(request)
            case None:
                return await self._pass_on(request)

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            async with self._ask(request) as answered:
                response = web.StreamResponse(status=answered.status, headers=_kept(answered.headers))
                await response.prepare(request)
                async for chunk in answered.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except aiohttp.ClientError:
            # What the API server did to us, the client shall see as well.
            return _abort(request)

    def _ask(self, request: web.BaseRequest) -> "aiohttp.client._RequestContextManager":
        url = self._upstream.join(URL(request.raw_path, encoded=True))
        body = request.content if request.can_read_body else None
        return self._session.request(
            request.method, url, headers=_kept(request.headers), data=body, allow_redirects=False
        )


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


def _abort(request: web.BaseRequest) -> web.StreamResponse:
    """Close the connection without a word. The response is never sent: it only ends the handler."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
