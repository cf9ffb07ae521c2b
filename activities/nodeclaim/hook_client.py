"""HTTP calls of hooks. The address of each connection is checked, not the URL, since a name may resolve to any address,
and to another one at the next attempt."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from tenure.model.errors import BadInput, TryLater
from tenure.model.hooks import CallResult
from tenure.policy.hooks.addresses import HOOK_LOCAL_ADDRESSES, MAX_HOST_LENGTH, local_address_kind

KEY: Final = "Idempotency-Key"
CONNECT_TIMEOUT_SECONDS: Final = 10.0
"""For the connection. The response may take as long as the hook."""
_RESPONSE_MAX_CHARS: Final = 150
"""Characters of a response that are shown."""
_RESPONSE_MAX_BYTES: Final = 1024
"""Bytes of a response that are read."""


class HttpHookClient:
    """Uses one session per call, since calls are rare. `local_addresses`: hooks may call loopback and link-local
    addresses."""

    def __init__(self, *, local_addresses: bool) -> None:
        self._local_addresses = local_addresses

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallResult:
        guard = _AddressGuard()
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_TIMEOUT_SECONDS, seconds))
        headers = {KEY: key, "User-Agent": "tenure"}
        connector = aiohttp.TCPConnector(socket_factory=None if self._local_addresses else guard.open_socket)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=timeout, headers=headers, trust_env=False
                ) as session,
                session.post(url, json=body, allow_redirects=False) as response,
            ):
                content = await response.content.read(_RESPONSE_MAX_BYTES)
                return CallResult(
                    status=response.status,
                    text=" ".join(content.decode(errors="replace").split())[:_RESPONSE_MAX_CHARS],
                    retry_after=_parse_retry_after(response.headers.get("Retry-After")),
                )
        except TimeoutError as error:
            raise TryLater(f"no response within {seconds:.0f} s") from error
        except (aiohttp.ClientError, ValueError, OSError, asyncio.IncompleteReadError) as error:
            if guard.rejected and not guard.opened:
                host = (urlsplit(url).hostname or "")[:MAX_HOST_LENGTH]
                raise BadInput(
                    f"{host!r} is at {guard.rejected}; expected another address, or {HOOK_LOCAL_ADDRESSES}=true"
                ) from error
            raise TryLater(f"no response: {str(error) or type(error).__name__}"[:_RESPONSE_MAX_CHARS]) from error


class _AddressGuard:
    """Opens the sockets of one call, one for each tried address."""

    def __init__(self) -> None:
        self.opened = False
        self.rejected = ""
        """The first rejected address and the cause; empty without one."""

    def open_socket(self, target: tuple[Any, ...]) -> socket.socket:
        """Raises PermissionError for a local address; aiohttp then tries the next address of the name."""
        family, kind, protocol, _, address = target
        if kind_of_address := local_address_kind(address[0]):
            self.rejected = self.rejected or f"{address[0]}, {kind_of_address}"
            raise PermissionError(self.rejected)
        self.opened = True
        return socket.socket(family=family, type=kind, proto=protocol)


def _parse_retry_after(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
