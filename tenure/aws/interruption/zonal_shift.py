"""Zones that a zonal shift or zonal autoshift of ARC moves the cluster away from (setting ENABLE_ZONAL_SHIFT).

Meanwhile Tenure launches no instances there, and does not consider an instance terminated that EC2 does not list.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from tenure.aws.client.cache import LastKnown
from tenure.aws.client.client import AwsClients
from tenure.aws.settings import AwsSettings
from tenure.clock import utc_now
from tenure.model.errors import BadInput, NotFound

_FRESH_SECONDS: Final = 30.0
_APPLIED: Final = "APPLIED"


class ZonalShifts:
    """If the setting is off, no zone is shifted and AWS is not queried."""

    def __init__(self, clients: AwsClients, settings: AwsSettings) -> None:
        self._clients, self._settings = clients, settings
        self._zones = LastKnown("zonal shifts", self._fetch, _FRESH_SECONDS)
        self._arn = ""

    async def fetch_shifted_zones(self) -> frozenset[str]:
        """IDs of the shifted zones, at most half a minute old. After a failed query, the last known ones.

        Raises model.faults if no query has succeeded yet.
        """
        return await self._zones.read() if self._settings.zonal_shift else frozenset()

    async def check(self) -> None:
        """Raises BadInput if the setting is on, but zonal shift is not enabled for the cluster."""
        try:
            await self.fetch_shifted_zones()
        except NotFound as fault:
            name = self._settings.cluster_name
            raise BadInput(
                f"ENABLE_ZONAL_SHIFT=true: zonal shift is not enabled for EKS cluster {name}; set false, or enable it: "
                f"aws eks update-cluster-config --name {name} --region {self._settings.region} "
                "--zonal-shift-config enabled=true"
            ) from fault

    async def _fetch(self) -> frozenset[str]:
        if not self._arn:
            response = await self._clients.call(self._clients.eks.describe_cluster, name=self._settings.cluster_name)
            self._arn = str(response["cluster"].get("arn", ""))
        found = await self._clients.call(self._clients.zonal_shift.get_managed_resource, resourceIdentifier=self._arn)
        return frozenset(_shifted_zone_ids(found, utc_now()))


def _shifted_zone_ids(raw: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Zones of applied and unexpired zonal shifts, and of applied autoshifts, which have no expiry."""
    for shift in raw.get("zonalShifts", ()):
        if shift.get("appliedStatus") == _APPLIED and shift["expiryTime"] > now:
            yield shift["awayFrom"]
    for shift in raw.get("autoshifts", ()):
        if shift.get("appliedStatus") == _APPLIED:
            yield shift["awayFrom"]
