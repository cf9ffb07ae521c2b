"""Temporal's remote codec protocol, `POST /decode` and `POST /encode`, for payloads in its UI and CLI.

Every client that reaches it can read all stored payloads. It therefore listens on localhost by default, and allows
browsers from one origin only.
"""

from aiohttp import web
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from tenure.model.errors import BadInput


def make_app(codec: PayloadCodec, origin: str) -> web.Application:
    """`origin`: of Temporal's UI, such as `http://localhost:8233`."""

    async def handle(request: web.Request) -> web.Response:
        if request.method == "OPTIONS":
            return web.Response(headers=_cors_headers(origin))
        try:
            parsed = ParseDict(await request.json(), Payloads())
            change = codec.encode if request.path == "/encode" else codec.decode
            changed: list[Payload] = list(await change(list(parsed.payloads)))
        except (BadInput, ValueError, ParseError) as error:
            return web.Response(status=400, text=str(error), headers=_cors_headers(origin))
        return web.json_response(MessageToDict(Payloads(payloads=changed)), headers=_cors_headers(origin))

    made = web.Application()
    for path in ("/encode", "/decode"):
        made.router.add_route("POST", path, handle)
        made.router.add_route("OPTIONS", path, handle)
    return made


def _cors_headers(origin: str) -> dict[str, str]:
    """Headers that a browser requires before it shows a response to a page of another origin."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": "content-type,x-namespace,authorization",
        "Access-Control-Allow-Credentials": "true",
    }
