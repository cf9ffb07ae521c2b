"""Leader Leases, the worker's namespace, whose annotation pauses the whole cluster, and the cluster's DNS address."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
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
    name: str
    holder: str
    """Empty if the last holder released it."""
    renewed: datetime
    acquired: datetime
    duration: timedelta
    transitions: int = 0
    """Number of changes of the holder."""
    version: str = ""
    """The resource version that was read; empty: the Lease does not exist."""

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

    async def get(self, namespace: str, name: str) -> ObservedLease | None:
        """None if it does not exist or was never renewed."""
        found = await self._client.get(LEASES.path(name, namespace=namespace))
        return _parse_lease(found) if found and (found.get("spec") or {}).get("renewTime") else None

    async def write(self, lease: ObservedLease) -> ObservedLease:
        """Create the Lease, or replace the version that was read; returns the written one. Raises Conflict if it has
        changed since."""
        metadata = {"name": lease.name, "namespace": lease.namespace}
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata | ({"resourceVersion": lease.version} if lease.version else {}),
            "spec": {
                "holderIdentity": lease.holder,
                "renewTime": _format_micro_time(lease.renewed),
                "acquireTime": _format_micro_time(lease.acquired),
                "leaseDurationSeconds": int(lease.duration.total_seconds()),
                "leaseTransitions": lease.transitions,
            },
        }
        method, name = ("PUT", lease.name) if lease.version else ("POST", "")
        return _parse_lease(await self._client.request(method, LEASES.path(name, namespace=lease.namespace), body=body))


def _parse_lease(lease: Json) -> ObservedLease:
    metadata, spec = lease["metadata"], lease["spec"]
    renewed = datetime.fromisoformat(spec["renewTime"])
    return ObservedLease(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        holder=spec.get("holderIdentity") or "",
        renewed=renewed,
        acquired=datetime.fromisoformat(spec.get("acquireTime") or spec["renewTime"]),
        duration=timedelta(seconds=spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS),
        transitions=spec.get("leaseTransitions") or 0,
        version=metadata.get("resourceVersion", ""),
    )


def _format_micro_time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class KubeNamespaces(AnnotationPatcher):
    def __init__(self, client: KubeClient) -> None:
        super().__init__(Objects(client, NAMESPACES))


async def cluster_uid(client: KubeClient) -> str:
    """The UID of the namespace kube-system, which every cluster has. Raises Fault."""
    return str((await client.request("GET", NAMESPACES.path("kube-system")))["metadata"]["uid"])


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
