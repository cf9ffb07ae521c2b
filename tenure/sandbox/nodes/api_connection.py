"""The simulator's connection to the API server: raw JSON over a small connection pool, with retries.

Like a kubelet, it retries until the API server responds. Only a rejection ends a call. It reads kubeconfig files with a
token or a client certificate.
"""

import asyncio
import base64
import logging
import ssl
import tempfile
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

Json = dict[str, Any]

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_CONNECTIONS = 8
# Also 401 and 403: a server that has just started may not have loaded its rules yet.
_RETRIED = frozenset({401, 403, 408, 429, 500, 502, 503, 504})
# The part before the slash is the manager in managedFields.
_AGENT = {"User-Agent": "kubelet/sandbox"}
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class RequestRejected(RuntimeError):
    """The API server rejected the request. `status`: HTTP status."""

    def __init__(self, status: int, what: str, message: str) -> None:
        super().__init__(f"{what}: {status}: {message[:300]}")
        self.status = status


class KubeConnection:
    """An async context manager. `call` raises RequestRejected for a rejection that retries cannot resolve."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = _find_named(config, "contexts", config["current-context"])["context"]
        self._cluster: Json = _find_named(config, "clusters", context["cluster"])["cluster"]
        self._user: Json = _find_named(config, "users", context["user"])["user"]
        self._server: str = self._cluster["server"].rstrip("/")

    async def __aenter__(self) -> Self:
        token = self._user.get("token")
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=self._tls())
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=_AGENT | ({"Authorization": f"Bearer {token}"} if token else {}),
            timeout=aiohttp.ClientTimeout(total=15),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Json | None = None, *, content_type: str = "application/json"
    ) -> Json:
        """One request, retried while the server is unavailable or overloaded. Raises RequestRejected."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._call_once(method, path, body, content_type)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                _LOG.warning("%s %s: %s; again in %.1f s", method, path, error, pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _call_once(self, method: str, path: str, body: Json | None, content_type: str) -> Json:
        headers = {"Content-Type": content_type} if body is not None else {}
        async with self._session.request(method, self._server + path, json=body, headers=headers) as response:
            if response.status in _RETRIED:
                raise aiohttp.ClientError(f"answers {response.status}")
            if response.status >= 400:
                raise RequestRejected(response.status, f"{method} {path}", await response.text())
            result: Json = await response.json(content_type=None)
            return result

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._server.startswith("https"):
            return False
        authority = _read_data(self._cluster, "certificate-authority")
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if self._cluster.get("insecure-skip-tls-verify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        certificate, key = _read_data(self._user, "client-certificate"), _read_data(self._user, "client-key")
        if certificate and key:
            _load_certificate(context, certificate, key)
        return context


def _find_named(config: Json, section: str, name: str) -> Json:
    found: Json = next(item for item in config[section] if item["name"] == name)
    return found


def _read_data(holder: Json, name: str) -> bytes | None:
    """Content of a file, inline in base64 or by path."""
    if f"{name}-data" in holder:
        return base64.b64decode(holder[f"{name}-data"])
    return Path(holder[name]).read_bytes() if name in holder else None


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # The ssl module only reads key pairs from files.
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        context.load_cert_chain(file.name)
