"""The control API under /_sim: JSON in, JSON out; what tests and the demo turn, and what they read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from sandbox.aws.request import HttpRequest
from sandbox.aws.seed import reset
from sandbox.aws.standin import StandIn
from sandbox.aws.wire.render import Response, json_response

Body = dict[str, Any]
Handler = Callable[[StandIn, Body], Any]


class BadControl(ValueError):
    """The control request makes no sense; answered with 400 and the text."""


class Control:
    def __init__(self, standin: StandIn) -> None:
        self._standin = standin

    def answer(self, http: HttpRequest) -> Response:
        handler = ROUTES.get((http.method, http.path.removeprefix("/_sim/")))
        if handler is None:
            return json_response({"error": f"no such control: {http.method} {http.path}"}, 404)
        try:
            body = {**dict(parse_qsl(http.query)), **http.json()}
            return json_response(handler(self._standin, body))
        except (BadControl, ValueError, KeyError, TypeError, json.JSONDecodeError) as error:
            return json_response({"error": f"{type(error).__name__}: {error}"}, 400)


def health(standin: StandIn, body: Body) -> Any:
    home = standin.home
    return {"ok": True, "region": home.region, "account": home.account, "cluster": standin.settings.cluster_name}


def do_reset(standin: StandIn, body: Body) -> Any:
    reset(standin)
    return {"ok": True}


def counters(standin: StandIn, body: Body) -> Any:
    return {"calls": standin.counters.listing()}


def clear_counters(standin: StandIn, body: Body) -> Any:
    standin.counters.clear()
    return {"ok": True}


ROUTES: dict[tuple[str, str], Handler] = {
    ("GET", "health"): health,
    ("POST", "reset"): do_reset,
    ("GET", "counters"): counters,
    ("DELETE", "counters"): clear_counters,
}
