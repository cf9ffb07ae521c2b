"""Renewal of certificates and the API key for Temporal while a worker runs.

A new API key is used in place. TLS belongs to the connection: a worker whose files changed stops as on SIGTERM, once
they are complete, and its supervisor starts it with the new ones."""

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
"""Seconds. The kubelet needs about as long until a Secret that changed is in the file."""
SPREAD: Final = 300.0
"""Seconds within which replicas that saw the same stop, each at a moment of its own."""


class ApiKeyClient(Protocol):
    api_key: str | None


class CertificateWatcher:
    """Made before the files are used, so that no change is missed."""

    def __init__(
        self, security: Security, stop: asyncio.Event, *, every: float = EVERY, spread: float = SPREAD
    ) -> None:
        self._security, self._stop, self._every, self._spread = security, stop, every, spread
        self._known = self._read_files()
        self._last_warning = ""

    async def watch(self, client: ApiKeyClient) -> None:
        """Until it is cancelled, or has the worker stop."""
        while True:
            await asyncio.sleep(self._every)
            self._take_key(client)
            if not self._has_changed():
                continue
            pause = random.uniform(0, self._spread)
            names = sorted(self._security.tls_files())
            log.info(
                "files for Temporal's TLS are new: the worker stops, to start with them",
                files=names,
                seconds=round(pause),
            )
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
            log.info("Temporal's API key is new, and used from now on")

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
