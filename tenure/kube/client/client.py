"""JSON requests to the API server over one shared session.

`kubernetes.aio` loads credentials and CA certificates (kubeconfig or in-cluster, with token refresh). Its typed models
are not used, because they drop unknown fields and are slow. Every failure is a fault of `model/errors.py`.
"""

import asyncio
import json
import os
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

from tenure.clock import CLOCK
from tenure.endpoints import Endpoints
from tenure.kube.client.errors import CONNECTION_ERRORS, Json, fault_of, fault_of_connection, read_json
from tenure.kube.client.rate_limiter import RateLimiter
from tenure.kube.client.resources import resource_of
from tenure.model.errors import BadInput, Fault, NotFound, Throttled
from tenure.tracing.recorder import TRACES

ENDPOINT = "Kubernetes API"
CONNECTIONS = 100
"""Maximum number of connections; each watch holds one."""
TIMEOUT = 15.0
"""Seconds for a request and its response; shorter than the start-to-close timeout of every calling activity."""
THROTTLED_TRIES = 5
_CONNECT_TIMEOUT = 5.0
_TOKEN_CHECK = 60.0
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True)
class Response:
    """A response of the API server, success or error."""

    request: str
    """Method and path."""
    code: int
    body: bytes
    retry_after: str | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.code < 300

    def parse_json(self) -> Json:
        """Raises TryLater if it is not JSON."""
        return read_json(self.body, what=self.request) if self.body else {}


class KubeClient:
    """A session with one API server; `connect` creates it."""

    def __init__(
        self,
        configuration: Any,
        *,
        refresh: asyncio.Task[None] | None = None,
        rate_limiter: RateLimiter | None = None,
        endpoints: Endpoints | None = None,
    ) -> None:
        self._endpoints = endpoints or Endpoints()
        self._configuration = configuration
        self._refresh = refresh
        self._rate_limiter = rate_limiter or RateLimiter()
        self._server = configuration.host.rstrip("/")
        self._host_name = getattr(configuration, "tls_server_name", None) or None
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=_ssl_context(configuration), keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"Accept": "application/json", "User-Agent": "tenure"},
            proxy=configuration.proxy or None,
        )
        self.calls = 0
        """Requests sent, watches included."""

    async def close(self) -> None:
        if self._refresh:
            self._refresh.cancel()
            with suppress(asyncio.CancelledError):
                await self._refresh
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
        timeout: float = TIMEOUT,
    ) -> Response:
        """The response with any status code. Raises TryLater if there was no response."""
        headers, request = await self._auth_headers(), f"{method} {path}"
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body, separators=(",", ":")).encode()
        self.calls += 1
        try:
            async with (
                self._rate_limiter.slot(),
                self._session.request(
                    method,
                    self._server + path,
                    params=params,
                    data=data,
                    headers=headers,
                    server_hostname=self._host_name,
                    timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT_TIMEOUT),
                ) as response,
            ):
                self._observe(response)
                return Response(request, response.status, await response.read(), response.headers.get("Retry-After"))
        except CONNECTION_ERRORS as error:
            raise self._connection_fault(error, request) from error

    async def request(self, method: str, path: str, **options: Any) -> Json:
        """The JSON of the response. Raises the fault of any status code other than 2xx.

        A request with a 429 response was not executed, so every method is retried, after the Retry-After of the server.
        """
        with TRACES.start_call(f"{method} {resource_of(path)}", {"http.request.method": method, "url.path": path}):
            for attempt in range(THROTTLED_TRIES):
                response = await self.send(method, path, **options)
                if response.is_success:
                    return response.parse_json()
                fault = fault_of(response.code, response.body, what=response.request, retry_after=response.retry_after)
                if not isinstance(fault, Throttled) or attempt == THROTTLED_TRIES - 1:
                    break
                await asyncio.sleep((fault.retry_after or 0.5) * (0.5 + random.random()) * (attempt + 1))
            raise fault

    async def get(self, path: str, **options: Any) -> Json | None:
        """The object; None if it does not exist."""
        try:
            return await self.request("GET", path, **options)
        except NotFound:
            return None

    async def merge(self, path: str, patch: object) -> Json:
        """Send a JSON merge patch. Returns the patched object."""
        return await self.request("PATCH", path, body=patch, content_type=MERGE_PATCH)

    @asynccontextmanager
    async def stream_lines(
        self, path: str, *, params: Mapping[str, str], silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a streaming response. Raises TryLater after `silence` seconds without data."""
        async with self._rate_limiter.slot():
            self.calls += 1  # Only its start counts for the limit: a watch stays open for minutes.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=silence)
        try:
            async with self._session.get(
                self._server + path,
                params=params,
                headers=await self._auth_headers(),
                timeout=timeout,
                server_hostname=self._host_name,
                read_bufsize=2**20,
            ) as response:
                self._observe(response)
                if response.status != 200:
                    body = await response.read()
                    after = response.headers.get("Retry-After")
                    raise fault_of(response.status, body, what=f"WATCH {path}", retry_after=after)
                yield _split_lines(response.content)
        except CONNECTION_ERRORS as error:
            raise self._connection_fault(error, f"WATCH {path}") from error

    def _observe(self, response: aiohttp.ClientResponse) -> None:
        self._endpoints.record_response(ENDPOINT)
        CLOCK.observe_date(response.headers.get("Date"))

    def _connection_fault(self, error: Exception, what: str) -> Fault:
        fault = fault_of_connection(error, what=what)
        self._endpoints.record_failure(ENDPOINT, fault.message)
        return fault

    async def _auth_headers(self) -> dict[str, str]:
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return {"Authorization": token} if token else {}


async def connect(
    kubeconfig: str = "", *, rate_limiter: RateLimiter | None = None, endpoints: Endpoints | None = None
) -> KubeClient:
    """Connect with this kubeconfig (paths separated by `:`), else the default one, else the pod's service account.

    Raises BadInput with the searched locations if none is usable.
    """
    if kubeconfig and not _any_path_exists(kubeconfig):
        raise BadInput(f"kubeconfig {kubeconfig}: no such file, expected an existing kubeconfig")
    configuration = Configuration()
    refresh = None
    try:
        if kubeconfig or _any_path_exists(KUBE_CONFIG_DEFAULT_LOCATION):
            loader = await config.load_kube_config(
                config_file=kubeconfig or None, client_configuration=configuration, persist_config=False
            )
            if loader.provider == "gcp" or "exec" in (loader._user or ()):
                renewing = config.refresh_token(loader, configuration, interval=_TOKEN_CHECK)
                refresh = asyncio.create_task(renewing, name="kube-token-refresh")
        else:
            config.load_incluster_config(client_configuration=configuration)
        return KubeClient(configuration, refresh=refresh, rate_limiter=rate_limiter, endpoints=endpoints)
    except Exception as error:  # The library raises any error for a file or a certificate that it cannot read.
        searched_locations = kubeconfig or "KUBECONFIG, ~/.kube/config and the pod's service account"
        reason = " ".join(str(error).split()).rstrip(".")
        raise BadInput(f"no Kubernetes cluster configured in {searched_locations}: {reason}") from error


def _any_path_exists(paths: str) -> bool:
    """As in kubectl, one existing path is enough."""
    return any(Path(path).expanduser().exists() for path in paths.split(os.pathsep))


def _ssl_context(configuration: Any) -> ssl.SSLContext | bool:
    if not configuration.host.startswith("https"):
        return False
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _split_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length; aiohttp's `readline` fails for long lines."""
    rest = b""
    async for chunk in content.iter_any():
        *complete_lines, rest = (rest + chunk).split(b"\n")
        for line in complete_lines:
            if line:
                yield line
