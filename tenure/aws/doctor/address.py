"""Checks whether a host name resolves and its port accepts connections, from where the doctor runs."""

import asyncio
import re
import socket
from typing import Final
from urllib.parse import urlsplit

from deploy.commands import set_in_chart
from tenure.model.errors import Finding, Subject

_TIMEOUT_SECONDS: Final = 5.0
_MOVE_COREDNS: Final = (
    "kubectl -n kube-system edit deployment coredns, and require nodes without the label karpenter.sh/nodepool, which "
    "Tenure does not manage"
)
_SERVICE: Final = re.compile(r"\.svc(\.|$)")
"""Names of Services, which only the DNS of the cluster resolves; the chart rejects dnsPolicy=Default for Temporal's."""


async def check_address(at: Subject, address: str, todo: str) -> list[Finding]:
    """Empty if a connection succeeds. `address`: a URL or `host:port`. `todo`: if the port does not answer."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname or "", parts.port or 443
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except socket.gaierror as error:
        return [at.problem(f"{host} does not resolve: {error.strerror}", _dns_remedy(host))]
    except ValueError as error:
        return [at.problem(f"invalid address {address!r}: {error}", todo)]
    except (OSError, TimeoutError) as error:
        return [at.problem(f"{host} does not answer on port {port}: {error or 'timeout'}", todo)]
    writer.close()
    return []


def _dns_remedy(host: str) -> str:
    remedy = f"check the name with `nslookup {host}`; if CoreDNS has no node: {_MOVE_COREDNS}"
    if _SERVICE.search(host):
        return remedy
    return f"{remedy}; or, if TEMPORAL_ADDRESS is not a Service of the cluster, {set_in_chart('dnsPolicy=Default')}"
