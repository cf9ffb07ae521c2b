"""Renewal of certificates and the API key for Temporal while a worker runs.

A new API key is used without a restart. TLS files belong to the connection: once changed files are complete, the worker
stops as on SIGTERM, and its supervisor restarts it with the new files."""

import asyncio
import random
import ssl
from pathlib import Path
from typing import Final, Protocol

import structlog

from tenure.controller.temporal.connection import Security
from tenure.model.errors import BadInput

log = structlog.get_logger(__name__)

EVERY: Final = 60.0
"""Seconds. The kubelet takes about as long to update the files of a changed Secret."""
SPREAD: Final = 300.0
"""Seconds over which replicas that saw the same change spread their restarts."""


class ApiKeyClient(Protocol):
    api_key: str | None


class CertificateWatcher:
    """Create it before the files are used, so that it misses no change."""

    def __init__(
        self, security: Security, stop: asyncio.Event, *, every: float = EVERY, spread: float = SPREAD
    ) -> None:
        self._security, self._stop, self._every, self._spread = security, stop, every, spread
        self._known = self._read_files()
        self._last_warning = ""

    async def watch(self, client: ApiKeyClient) -> None:
        """Runs until cancelled, or until it stops the worker."""
        while True:
            await asyncio.sleep(self._every)
            self._take_key(client)
            if not self._has_changed():
                continue
            pause = random.uniform(0, self._spread)
            names = sorted(self._security.tls_files())
            log.info("TLS files for Temporal changed: restarting the worker", files=names, seconds=round(pause))
            await asyncio.sleep(pause)
            if self._has_changed():
                self._stop.set()
                return

    def _take_key(self, client: ApiKeyClient) -> None:
        try:
            key = self._security.read_api_key()
        except BadInput as error:
            self._warn_once(error.message)
            return
        if key and key != client.api_key:
            client.api_key = key
            log.info("API key for Temporal replaced")

    def _has_changed(self) -> bool:
        """Whether the files changed and are valid. Partly written files are checked again later."""
        if self._read_files() == self._known:
            return False
        why = self._find_problem()
        self._warn_once(why)
        return not why

    def _read_files(self) -> dict[str, bytes | None]:
        return {name: _read(path) for name, path in self._security.tls_files().items()}

    def _find_problem(self) -> str:
        """Why no client could connect with the current files; empty when they are valid."""
        security, context = self._security, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if security.ca:
                context.load_verify_locations(security.ca)
            if security.cert:
                context.load_cert_chain(security.cert, security.key, password="")
        except (OSError, ValueError) as error:
            return f"{', '.join(sorted(security.tls_files().values()))}: {error}"
        return ""

    def _warn_once(self, why: str) -> None:
        if why and why != self._last_warning:
            log.warning("files for Temporal changed and are not complete yet", why=why)
        self._last_warning = why


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
