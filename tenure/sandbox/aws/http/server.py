"""HTTP/1.1 with keep-alive and one thread per connection. A response may be lost on purpose."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tenure.sandbox.aws.http.request import HttpRequest
from tenure.sandbox.aws.wire.responses import Response

Application = Callable[[HttpRequest], Response]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, host: str, port: int, application: Application) -> None:
        self.application = application
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Do not log a traceback when a client disconnects."""

    def serve_in_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="aws-stand-in", daemon=True)
        thread.start()
        return thread


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 300
    server: Server

    def do_POST(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self._body(headers)
        if body is None:
            self.close_connection = True
            return
        self._write(self.server.application(HttpRequest(self.command, path, query, headers, body)))

    do_GET = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_POST

    def _body(self, headers: dict[str, str]) -> bytes | None:
        """None for an incomplete request: its client was killed while sending it."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks()
        length = int(headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else b""
        return body if len(body) == length else None

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue
        return b"".join(parts)

    def _write(self, response: Response) -> None:
        if response.cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        lines = [f"HTTP/1.1 {response.status} {responses.get(response.status, '')}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        lines += [f"Date: {self.date_time_string()}", f"Content-Length: {len(response.body)}", "", ""]
        body = b"" if self.command == "HEAD" else response.body
        self.wfile.write("\r\n".join(lines).encode("latin-1") + body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the base class
        """Requests are counted, not logged."""
