"""A proxy in front of the API server that injects faults: errors, delays, lost responses, closed connections.

It runs in the sandbox's own process (`environment.py` starts it), and `Faults` has its rules. Without rules it
forwards everything, watches included. It speaks plain HTTP or TLS to its clients and TLS to the API server.

A rule matches requests by method and path (a regular expression that is searched in path and query) and names the
fault. The first matching rule that is not used up applies. Tests add rules through `Faults`.
"""

import asyncio
import json
import random
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import aiohttp
from aiohttp import web
from yarl import URL

_REASONS = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass(frozen=True)
class ErrorResponse:
    """Respond with this status, without forwarding the request. `retry_after` is in seconds."""

    status: int
    retry_after: int | None = None
    message: str = "fault injected by the sandbox's proxy"

    def headers(self) -> dict[str, str]:
        after = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {"Content-Type": "application/json"} | after

    def body(self) -> bytes:
        status = {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": _REASONS.get(self.status, "Unknown"),
            "code": self.status,
            "details": {} if self.retry_after is None else {"retryAfterSeconds": self.retry_after},
        }
        return json.dumps(status).encode()


@dataclass(frozen=True)
class Delay:
    """Forward the request after this many seconds."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """Close the connection without forwarding the request."""


@dataclass(frozen=True)
class DropResponse:
    """Forward the request, then close the connection without a response."""


Fault = ErrorResponse | Delay | Cut | DropResponse


@dataclass
class Rule:
    """`times`: maximum number of hits (None: unlimited). `share`: fraction of matching requests. `hits`: counter."""

    fault: Fault
    path: re.Pattern[str]
    method: str | None = None
    times: int | None = None
    share: float = 1.0
    hits: int = field(default=0, init=False)

    def matches(self, method: str, path: str) -> bool:
        if self.times is not None and self.hits >= self.times:
            return False
        return self.method in (None, method) and self.path.search(path) is not None


class OpenRequests(Protocol):
    """Open requests at the proxy. Both methods are thread-safe."""

    def count(self, path: re.Pattern[str]) -> int: ...

    def cut(self, path: re.Pattern[str]) -> int: ...


class Faults:
    """The rules of one proxy. Thread-safe."""

    def __init__(self, requests: OpenRequests, seed: int = 0) -> None:
        self._requests = requests
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._dice = random.Random(seed)

    def add(
        self, fault: Fault, path: str = "", *, method: str | None = None, times: int | None = None, share: float = 1.0
    ) -> Rule:
        """Append a rule. The empty path matches every request."""
        rule = Rule(fault, re.compile(path), method, times, share)
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: object) -> None:
        with self._lock:
            self._rules = [other for other in self._rules if other is not rule]

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    @contextmanager
    def during(self, fault: Fault, path: str = "", *, method: str | None = None, share: float = 1.0) -> Iterator[Rule]:
        """The rule applies inside the block."""
        rule = self.add(fault, path, method=method, share=share)
        try:
            yield rule
        finally:
            self.remove(rule)

    def cut_open(self, path: str = "") -> int:
        """Close the connections of open requests, such as watches. Returns their number."""
        return self._requests.cut(re.compile(path))

    def open(self, path: str = "") -> int:
        """Number of open requests."""
        return self._requests.count(re.compile(path))

    def next_fault(self, method: str, path: str) -> Fault | None:
        """The fault for this request, if any."""
        with self._lock:
            for rule in self._rules:
                if rule.matches(method, path) and (rule.share >= 1 or self._dice.random() < rule.share):
                    rule.hits += 1
                    return rule.fault
        return None


HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "proxy-connection", "host"}
)
READS = frozenset({"GET", "HEAD", "OPTIONS"})


class Requests:
    """Registry of open requests; see `OpenRequests`."""

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
    """`upstream`: URL of the API server. `authority`: PEM file with its CA. `tls`: for clients of the proxy."""

    def __init__(self, upstream: str, authority: Path, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._upstream, self._port, self._tls = URL(upstream), port, tls
        self._authority = authority
        self._requests = Requests()
        self._runner: web.ServerRunner | None = None
        self.faults = Faults(self._requests)
        self.written: list[str] = []
        """Method and path of all write requests, with any outcome."""
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
        """Close open connections. Safe to call twice, and before `start`."""
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
        match self.faults.next_fault(request.method, request.path_qs):
            case ErrorResponse() as fault:
                return web.Response(status=fault.status, headers=fault.headers(), body=fault.body())
            case Delay(seconds):
                await asyncio.sleep(seconds)
                return await self._pass_on(request)
            case Cut():
                return _abort(request)
            case DropResponse():
                async with self._forward(request) as upstream_response:
                    await upstream_response.read()
                return _abort(request)
            case None:
                return await self._pass_on(request)

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            async with self._forward(request) as upstream_response:
                response = web.StreamResponse(
                    status=upstream_response.status, headers=_end_to_end_headers(upstream_response.headers)
                )
                await response.prepare(request)
                async for chunk in upstream_response.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except aiohttp.ClientError:
            # Pass a closed connection of the API server on to the client.
            return _abort(request)

    def _forward(self, request: web.BaseRequest) -> "aiohttp.client._RequestContextManager":
        url = self._upstream.join(URL(request.raw_path, encoded=True))
        body = request.content if request.can_read_body else None
        return self._session.request(
            request.method, url, headers=_end_to_end_headers(request.headers), data=body, allow_redirects=False
        )


def _end_to_end_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


def _abort(request: web.BaseRequest) -> web.StreamResponse:
    """Close the connection. The returned response is never sent; it only ends the handler."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
