"""Leases: whether somebody else is at work in this cluster. Satisfies `activities.ports.Leases`."""

from datetime import datetime, timedelta
from typing import Final

from kube.client import KubeClient
from kube.errors import Json
from kube.resources import LEASES

_DEFAULT_SECONDS: Final = 15


class KubeLeases:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def holder(self, namespace: str, name: str, *, now: datetime) -> str:
        """Who renews this lease at present; empty when nobody does. An empty namespace looks everywhere."""
        params = {"fieldSelector": f"metadata.name={name}"}
        answer = await self._client.request("GET", LEASES.path(namespace=namespace), params=params)
        return next((who for lease in answer.get("items") or () if (who := _held_by(lease, now))), "")


def _held_by(lease: Json, now: datetime) -> str:
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    if not renewed:
        return ""
    lasts = timedelta(seconds=spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS)
    holder: str = spec.get("holderIdentity") or ""
    return holder if datetime.fromisoformat(renewed) + lasts >= now else ""
