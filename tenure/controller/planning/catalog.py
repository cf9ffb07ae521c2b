"""Instance types for the planner: asked for when a NodeClass changes or they grow old, sent only when they differ.

Zonal shifts for planning: a zone that is away is marked like missing capacity, and NodePools get an event.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.ports.core import Events, Offerings
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.signals.digests import short
from tenure.model.errors import Fault
from tenure.model.instance_types import Catalogue, InstanceType, UnavailableOffering

log = structlog.get_logger(__name__)

FRESH_FOR: Final = timedelta(minutes=5)
AGAIN_IN: Final = timedelta(seconds=3)
"""After a failure."""


class CatalogueFeed:
    def __init__(self, caches: Caches, offerings: Offerings, now: Callable[[], datetime]) -> None:
        self._caches, self._offerings, self._now = caches, offerings, now
        self._asked_for: dict[str, str] = {}
        self._next: datetime | None = None
        self._failed_at: datetime | None = None
        self.catalogue = Catalogue()
        self._digest = _digest(self.catalogue)
        self._sent = ""
        self._by_name: dict[str, dict[str, InstanceType]] = {}
        self.on_news: Callable[[], None] = lambda: None
        """Called when something else is known than before."""

    def forget(self) -> None:
        """The planner is a new one and knows nothing."""
        self._sent = ""

    def delivered(self) -> None:
        """The planner has it."""
        self._sent = self._digest

    def unknown(self) -> list[str]:
        """NodeClasses of usable pools whose instance types nobody could tell yet."""
        used = {view.fact.node_class for view in self._caches.pools.values() if view.fact.ready}
        return sorted(name for name in used if name in self._caches.node_classes and name not in self._asked_for)

    def types_of(self, node_class: EC2NodeClass) -> Mapping[str, InstanceType] | None:
        """By name, under the class as it is now; None while that is not known."""
        name = node_class.name
        if self._asked_for.get(name) != _shape(node_class) or name not in self.catalogue.by_node_class:
            return None
        if name not in self._by_name:
            self._by_name[name] = {one.name: one for one in self.catalogue.by_node_class[name]}
        return self._by_name[name]

    async def refresh(self) -> bool:
        """Ask where it is due; True when the planner has not got what is known now. An old catalogue is better than
        none, so a failure is logged and tried again soon."""
        classes = self._of_use()
        wanted = {name: _shape(one) for name, one in classes.items()}
        now = self._now()
        if wanted != self._asked_for or self._next is None or now >= self._next:
            try:
                await self._ask(list(classes.values()), wanted, now)
            except Fault as fault:
                log.warning("instance types not read", fault=str(fault))
                self._asked_for = {name: known for name, known in self._asked_for.items() if name in wanted}
        return self._digest != self._sent

    def _of_use(self) -> dict[str, EC2NodeClass]:
        """Those that a NodePool or a NodeClaim names and that may be launched from: each costs all instance types."""
        pools = {view.fact.node_class for view in self._caches.pools.values()}

        def is_named(name: str) -> bool:
            return name in pools or any(claim.node_class == name for claim in self._caches.claims.values())

        known = self._caches.node_classes
        return {name: one for name, one in known.items() if not _is_refused(one) and is_named(name)}

    async def _ask(self, classes: Sequence[EC2NodeClass], wanted: dict[str, str], now: datetime) -> None:
        if self._failed_at is not None and now - self._failed_at < AGAIN_IN:
            return
        self._failed_at = now
        await self._offerings.refresh()
        self.catalogue = await self._offerings.catalogue(classes)
        self._by_name = {}
        before = (self._digest, self._asked_for)
        self._digest = _digest(self.catalogue)
        self._asked_for, self._next, self._failed_at = wanted, now + FRESH_FOR, None
        if before != (self._digest, self._asked_for):
            self.on_news()


def _is_refused(node_class: EC2NodeClass) -> bool:
    ready = node_class.condition(labels.READY)
    return ready is not None and ready.is_false


def _shape(node_class: EC2NodeClass) -> str:
    """What its instance types depend on: the spec, and what the selectors resolved to, not conditions or versions."""
    ready = node_class.condition(labels.READY)
    resolved = node_class.status.model_copy(update={"conditions": ()})
    return short(f"{node_class.metadata.generation} {ready and ready.status} {resolved.model_dump_json()}")


def _digest(catalogue: Catalogue) -> str:
    return hashlib.sha256(catalogue.model_dump_json().encode()).hexdigest()


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
