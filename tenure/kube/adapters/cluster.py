"""Leader Leases, the worker's namespace, whose annotation pauses the whole cluster, and the cluster's DNS address."""

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
    """A leader's Lease, active or expired."""

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
        """The holder of the active Lease; empty without one. An empty namespace searches all namespaces."""
        return next((one.holder for one in await self.list_leases(namespace, name) if one.is_active(now)), "")

    async def list_leases(self, namespace: str, name: str) -> Sequence[ObservedLease]:
        """All Leases with this name that were ever renewed."""
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
    """Cluster IP of the Service kube-dns; if empty, nodes derive it from the Service CIDR.

    Retried several times, because the worker reads it only once, at startup.
    """
    for remaining_tries in reversed(range(_TRIES)):
        try:
            service = await client.request("GET", SERVICES.path("kube-dns", namespace="kube-system"))
        except (NotFound, Forbidden) as fault:
            _log.info("cluster DNS address not found", reason=fault.message)
            return ""
        except Fault as fault:
            _log.warning("failed to read cluster DNS address", reason=fault.message, tries_left=remaining_tries)
            await asyncio.sleep(pause if remaining_tries else 0)
            continue
        address = str((service.get("spec") or {}).get("clusterIP") or "")
        return "" if address == "None" else address
    return ""
