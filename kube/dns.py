"""The address of the cluster's DNS, which nodes are told at boot; one of IPv6 makes the cluster an IPv6 one."""

import asyncio
from typing import Final

import structlog

from kube.client import KubeClient
from kube.resources import SERVICES
from model.faults import Fault, Forbidden, NotFound

_log = structlog.get_logger(__name__)

_TRIES: Final = 5


async def dns_address(client: KubeClient, *, pause: float = 1.0) -> str:
    """Of the Service kube-dns; empty when there is none, and then nodes work it out from the range of Services.

    Tried a few times, since an answer that is missed at the start is missed until the next one.
    """
    for left in reversed(range(_TRIES)):
        try:
            service = await client.request("GET", SERVICES.path("kube-dns", namespace="kube-system"))
        except (NotFound, Forbidden) as fault:
            _log.info("no address of the cluster's DNS", reason=fault.message)
            return ""
        except Fault as fault:
            _log.warning("the address of the cluster's DNS could not be read", reason=fault.message, tries_left=left)
            await asyncio.sleep(pause if left else 0)
            continue
        address = str((service.get("spec") or {}).get("clusterIP") or "")
        return "" if address == "None" else address
    return ""
