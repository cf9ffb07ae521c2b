"""Health checks of the sandbox's parts, as `processes.py` wants them: None when well, else what is wrong."""

import asyncio
import ssl

import aiohttp

from sandbox.processes import HealthCheck

_PER_REQUEST = aiohttp.ClientTimeout(total=3)


def http_ok(url: str, *, token: str | None = None) -> HealthCheck:
    """Healthy when a GET answers 2xx. TLS is not verified: the parts' own certificates are self-signed."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    tls = _unverified() if url.startswith("https") else False

    async def check() -> str | None:
        async with (
            aiohttp.ClientSession(timeout=_PER_REQUEST) as session,
            session.get(url, headers=headers, ssl=tls) as response,
        ):
            return None if response.ok else f"{url} answers {response.status}"

    return check


def listens(port: int) -> HealthCheck:
    """Healthy when the port accepts connections."""

    async def check() -> str | None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return None

    return check


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
