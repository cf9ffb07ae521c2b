"""A minimal API server that answers with queued responses and records its requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes.aio.client import Configuration

from tenure.kube.client.client import KubeClient

Json = dict[str, Any]
OVER: web.AppKey[asyncio.Event] = web.AppKey("over", asyncio.Event)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeApi:
    """Answers with the next handler in `lists` or `watches`. With an empty queue the request stays open and silent."""

    def __init__(self) -> None:
        self.lists: list[Handler] = []
        self.watches: list[Handler] = []
        self.requests: list[dict[str, str]] = []
        self.over = asyncio.Event()
        """Set at the end of a test to end open requests."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        queue = self.watches if "watch" in request.query else self.lists
        if queue:
            return await queue.pop(0)(request)
        await self.over.wait()
        return web.Response(status=503)

    @property
    def watch_versions(self) -> list[str]:
        return [query["resourceVersion"] for query in self.requests if "watch" in query]

    @property
    def list_count(self) -> int:
        return sum("watch" not in query for query in self.requests)


@asynccontextmanager
async def serve_api(api: FakeApi) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app[OVER] = api.over
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    client = KubeClient(Configuration(host=f"http://127.0.0.1:{port}"))
    try:
        yield client
    finally:
        api.over.set()
        await client.close()
        await runner.cleanup()


def item(name: str, version: int, **more: Any) -> Json:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, **more}


def list_response(version: int, *items: Json, more: str = "") -> Handler:
    async def respond(_: web.Request) -> web.StreamResponse:
        metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
        return web.json_response({"metadata": metadata, "items": list(items)})

    return respond


def error_response(code: int, reason: str, headers: dict[str, str] | None = None) -> Handler:
    async def respond(_: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "reason": reason, "message": f"said {reason}"}
        return web.json_response(body, status=code, headers=headers)

    return respond


def watch_response(*events: Json, then: str = "stay") -> Handler:
    """Send `events`, then `stay` open and silent, `end` the response, or `cut` the connection in mid-line."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(json.dumps(event).encode() + b"\n")
        if then == "stay":
            await request.app[OVER].wait()
        if then == "cut":
            await response.write(b'{"type": "ADDED", "obj')
            assert request.transport is not None
            request.transport.abort()
        return response

    return respond


def event(kind: str, raw: Json) -> Json:
    return {"type": kind, "object": raw}
