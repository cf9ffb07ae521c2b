"""Forward all other requests to moto's WSGI application, in process.

`limit_regions` limits moto's instance type offerings to some regions, which saves about 100 MB and half a second of
startup. Call it before moto's EC2 is imported.
"""

from __future__ import annotations

import io
import threading
from typing import Any
from urllib.parse import unquote

import moto.utilities.utils as moto_utilities
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from tenure.sandbox.aws.http.request import HttpRequest
from tenure.sandbox.aws.wire.responses import AwsError, Response


class Moto:
    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._ready: set[str] = set()
        self._first = threading.Lock()

    def call(self, http: HttpRequest, service: str) -> Response:
        """Raises AwsError InvalidAction if moto does not support the action (it returns an HTML page)."""
        if service in self._ready:
            return self._run(http)
        with self._first:
            response = self._run(http)
            self._ready.add(service)
        return response

    def _run(self, http: HttpRequest) -> Response:
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            started[:] = [int(status.split()[0]), dict(headers)]

        try:
            body = b"".join(self._app(_environ(http), start_response))
        except NotImplementedError as error:
            raise _not_an_action() from error
        status, headers = started
        headers.pop("Content-Length", None)
        if status >= 500 and headers.get("Content-Type", "").startswith("text/html"):
            raise _not_an_action()
        return Response(status, body, headers)


def _not_an_action() -> AwsError:
    return AwsError("InvalidAction", "The action is not valid for this web service.", 400)


def _environ(http: HttpRequest) -> dict[str, Any]:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": http.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(http.path),
        "RAW_URI": http.path,
        "REQUEST_URI": http.path,
        "QUERY_STRING": http.query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(http.body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "CONTENT_LENGTH": str(len(http.body)),
        "CONTENT_TYPE": http.headers.get("content-type", ""),
    }
    for name, value in http.headers.items():
        if name not in ("content-length", "content-type"):
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    environ.setdefault("HTTP_HOST", "localhost")
    return environ


OFFERINGS = "ec2/resources/instance_type_offerings/"


def limit_regions(*regions: str) -> None:
    load = moto_utilities.load_resource

    def load_if_used(resource: str) -> Any:
        region = resource.rsplit("/", 1)[-1].split(".")[0]
        unwanted = resource.startswith(OFFERINGS) and region not in regions
        return [] if unwanted else load(resource)

    moto_utilities.load_resource = load_if_used
