"""Checks whether a host name resolves and its port accepts connections, from where the doctor runs."""

import asyncio
import socket
from typing import Final
from urllib.parse import urlsplit

from tenure.model.errors import Finding, Subject

_TIMEOUT_SECONDS: Final = 5.0
_DNS_REMEDY: Final = (
    "check the name with `nslookup {host}`; if CoreDNS has no node, "
    "helm upgrade tenure deploy/charts/tenure --reuse-values --set dnsPolicy=Default"
)


async def check_address(at: Subject, address: str, todo: str) -> list[Finding]:
    """Empty if a connection succeeds. `address`: a URL or `host:port`. `todo`: if the port does not answer."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    host, port = parts.hostname or "", parts.port or 443
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except socket.gaierror as error:
        return [at.problem(f"{host} does not resolve: {error.strerror}", _DNS_REMEDY.format(host=host))]
    except (OSError, TimeoutError) as error:
        return [at.problem(f"{host} does not answer on port {port}: {error or 'timeout'}", todo)]
    writer.close()
    return []
