"""Leases: whether somebody else is at work in this cluster. Satisfies `activities.ports.Leases`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from kube.client import KubeClient
from kube.errors import Json
from kube.resources import LEASES
from model.base import Value

_DEFAULT_SECONDS: Final = 15


class LeaseSeen(Value):
    """A leader's lease, renewed or not."""

    namespace: str
    holder: str
    renewed: datetime
    lasts: timedelta

    def held(self, now: datetime) -> bool:
        return bool(self.holder) and self.renewed + self.lasts >= now


class KubeLeases:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def holder(self, namespace: str, name: str, *, now: datetime) -> str:
        """Who renews this lease at present; empty when nobody does. An empty namespace looks everywhere."""
        return next((one.holder for one in await self.seen(namespace, name) if one.held(now)), "")

    async def seen(self, namespace: str, name: str) -> Sequence[LeaseSeen]:
        """All of this name that were ever renewed."""
        params = {"fieldSelector": f"metadata.name={name}"}
        answer = await self._client.request("GET", LEASES.path(namespace=namespace), params=params)
        return [_seen(one) for one in answer.get("items") or () if (one.get("spec") or {}).get("renewTime")]


def _seen(lease: Json) -> LeaseSeen:
    spec = lease["spec"]
    return LeaseSeen(
        namespace=lease["metadata"].get("namespace", ""),
        holder=spec.get("holderIdentity") or "",
        renewed=datetime.fromisoformat(spec["renewTime"]),
        lasts=timedelta(seconds=spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS),
    )
