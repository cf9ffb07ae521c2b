"""Zonal shifts for planning: a zone that is away is marked like missing capacity, and NodePools get an event."""

from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.ports import Events, Offerings
from controller.caches import Caches
from model.catalogue import UnavailableOffering
from model.faults import Fault

log = structlog.get_logger(__name__)

_MARKED_FOR: Final = timedelta(minutes=1)
"""Longer than a plan takes; the next one asks again."""


class Shifts:
    def __init__(self, caches: Caches, offerings: Offerings, events: Events) -> None:
        self._caches, self._offerings, self._events = caches, offerings, events
        self._known: frozenset[str] = frozenset()

    async def marks(self, now: datetime) -> tuple[UnavailableOffering, ...]:
        """One for each zone that is away. What cannot be read is what was last known."""
        try:
            away = await self._offerings.away()
        except Fault as fault:
            log.warning("zonal shifts not read", fault=str(fault))
            away = self._known
        await self._say(away)
        names = {
            subnet.zone
            for one in self._caches.node_classes.values()
            for subnet in one.status.subnets
            if subnet.zone_id in away
        }
        return tuple(
            UnavailableOffering(
                instance_type="*", zone=zone, capacity_type="*", until=now + _MARKED_FOR, reason="ZonalShift"
            )
            for zone in sorted(names)
        )

    async def _say(self, away: frozenset[str]) -> None:
        begun, ended, self._known = away - self._known, self._known - away, away
        for reason, zones, words in (
            ("ZonalShiftActive", begun, "is shifted away from: no node is bought there"),
            ("ZonalShiftCleared", ended, "is back: nodes are bought there again"),
        ):
            for zone in sorted(zones):
                for name, view in self._caches.pools.items():
                    await self._events.publish(
                        kind="NodePool",
                        name=name,
                        uid=view.fact.uid,
                        reason=reason,
                        message=f"Zone {zone} {words}",
                        warning=reason == "ZonalShiftActive",
                    )
