"""Leader Leases, the worker's own namespace, which carries a pause of the whole cluster, and the address of its DNS."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from tenure.kube.client.client import KubeClient
from tenure.kube.client.errors import Json
from tenure.kube.client.objects import Objects
from tenure.kube.client.patches import AnnotationPatcher
from tenure.kube.client.resources import LEASES, NAMESPACES, SERVICES
from tenure.model.base import Value
from tenure.model.errors import Fault, Forbidden, NotFound

_DEFAULT_SECONDS: Final = 15


class ObservedLease(Value):
    """A leader's lease, renewed or not."""

    namespace: str
    holder: str
    renewed: datetime
    duration: timedelta

    def is_active(self, now: datetime) -> bool:
        return bool(self.holder) and self.renewed + self.duration >= now


class KubeLeases:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def find_holder(self, namespace: str, name: str, *, now: datetime) -> str:
        """The current holder of this lease; empty if it is not renewed. An empty namespace searches all."""
        return next((one.holder for one in await self.list_leases(namespace, name) if one.is_active(now)), "")

    async def list_leases(self, namespace: str, name: str) -> Sequence[ObservedLease]:
        """All of this name that were ever renewed."""
        params = {"fieldSelector": f"metadata.name={name}"}
        response = await self._client.request("GET", LEASES.path(namespace=namespace), params=params)
        return [_parse_lease(one) for one in response.get("items") or () if (one.get("spec") or {}).get("renewTime")]


def _parse_lease(lease: Json) -> ObservedLease:
    spec = lease["spec"]
    return ObservedLease(
        namespace=lease["metadata"].get("namespace", ""),
        holder=spec.get("holderIdentity") or "",
        renewed=datetime.fromisoformat(spec["renewTime"]),
        duration=timedelta(seconds=spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS),
    )


class KubeNamespaces(AnnotationPatcher):
    def __init__(self, client: KubeClient) -> None:
        super().__init__(Objects(client, NAMESPACES))


_log = structlog.get_logger(__name__)

_TRIES: Final = 5


async def dns_address(client: KubeClient, *, pause: float = 1.0) -> str:
    """Of the Service kube-dns; empty when there is none, and then nodes work it out from the range of Services.

    Tried a few times, since an answer that is missed at the start is missed until the next one.
    """
    for remaining_tries in reversed(range(_TRIES)):
        try:
            service = await client.request("GET", SERVICES.path("kube-dns", namespace="kube-system"))
        except (NotFound, Forbidden) as fault:
            _log.info("no address of the cluster's DNS", reason=fault.message)
            return ""
        except Fault as fault:
            _log.warning(
                "the address of the cluster's DNS could not be read", reason=fault.message, tries_left=remaining_tries
            )
            await asyncio.sleep(pause if remaining_tries else 0)
            continue
        address = str((service.get("spec") or {}).get("clusterIP") or "")
        return "" if address == "None" else address
    return ""
