"""Calls of hooks over HTTP. Satisfies `activities.hook_ports.Calls`."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from model.faults import TryLater
from model.hooks import CallAnswer

KEY: Final = "Idempotency-Key"
CONNECT: Final = 10.0
"""Seconds for a connection; the answer may take as long as the hook."""
_SAID: Final = 150
"""Characters of an answer that are shown, ..."""
_READ: Final = 1024
"""... and bytes of it that are read."""


class HttpCalls:
    """A session for each call: they are few, and far between."""

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallAnswer:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT, seconds))
        headers = {KEY: key, "User-Agent": "tenure"}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.post(url, json=body, allow_redirects=False) as response,
            ):
                said = await response.content.read(_READ)
                return CallAnswer(
                    status=response.status,
                    text=" ".join(said.decode(errors="replace").split())[:_SAID],
                    retry_after=_seconds(response.headers.get("Retry-After")),
                )
        except TimeoutError as error:
            raise TryLater(f"no answer within {seconds:.0f} s") from error
        except (aiohttp.ClientError, ValueError, OSError, asyncio.IncompleteReadError) as error:
            raise TryLater(f"no answer: {str(error) or type(error).__name__}"[:_SAID]) from error


def _seconds(header: str | None) -> float | None:
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
