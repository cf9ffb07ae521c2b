"""The capacity reservations that an EC2NodeClass selects, and how many instances each has room for now.

The one place where the gate ReservedCapacity lets reservations in: with it off nothing is asked and nothing is known.
Counts are this process's memory of EC2's last answer and of its own launches since; only speed rests on them.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog

from aws.cache import Expiring
from aws.client import AwsClients
from aws.reservation_counts import Counts
from aws.settings import RESERVED_CAPACITY, AwsSettings
from aws.tags import tag_filters
from model.base import Value
from model.catalogue import ReservationRoom
from model.faults import Fault, NotFound
from model.kinds import EC2NodeClass
from model.kinds.ec2nodeclass import ResolvedCapacityReservation
from model.kinds.selectors import CapacityReservationTerm

_log = structlog.get_logger(__name__)

FRESH_SECONDS: Final = 60.0
BLOCK: Final = "capacity-block"
EXPIRING: Final = "expiring"
BLOCK_LEAD: Final = timedelta(minutes=40)
"""EC2 ends the instances of a capacity block before its end; nodes must be drained by then (reference 6.4)."""
_PATIENCE: Final = 5.0
"""Seconds that a launch or a plan waits for fresh counts before it takes the last ones."""
_ACTIVE: Final = {"Name": "state", "Values": ["active"]}


class FoundReservation(Value):
    """A reservation as EC2 described it."""

    resolved: ResolvedCapacityReservation
    active: bool
    available: int
    """Instances that still fit in."""

    def at(self, now: datetime) -> ResolvedCapacityReservation | None:
        """As the status shows it at this time; None once it is over."""
        one = self.resolved
        if not self.active or (one.end_time is not None and one.end_time <= now):
            return None
        return one.model_copy(update={"state": EXPIRING}) if ends_soon(one, now) else one


class Reservations:
    """Answers are used again for a minute. Raises model.faults."""

    def __init__(
        self, clients: AwsClients, settings: AwsSettings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._clients, self._clock = clients, clock
        self.enabled = settings.gate(RESERVED_CAPACITY)
        self._answers: Expiring[Sequence[FoundReservation]] = Expiring(FRESH_SECONDS)
        self.counts = Counts(clock)
        self._known: dict[str, FoundReservation] = {}
        """As EC2 last described each."""

    async def resolve(self, node_class: EC2NodeClass) -> Sequence[ResolvedCapacityReservation]:
        """By id; none that is over, and none at all with the gate off."""
        if not self.enabled:
            return ()
        found = await self._find(node_class.spec.capacity_reservation_selector_terms)
        now = self._clock()
        shown = {one.resolved.id: shown for one in found if (shown := one.at(now)) is not None}
        return [shown[key] for key in sorted(shown)]

    def of(self, node_class: EC2NodeClass) -> Sequence[ResolvedCapacityReservation]:
        """What the class's status names; none with the gate off, whatever an earlier worker left there."""
        return node_class.status.capacity_reservations if self.enabled else ()

    async def freshen(self, node_classes: Iterable[EC2NodeClass]) -> None:
        """Bring the counts up to date where they are older than a minute; what cannot be asked keeps its last one."""
        due = [one for one in node_classes if self.of(one)]
        if not due:
            return
        asked = asyncio.gather(*(self._find(one.spec.capacity_reservation_selector_terms) for one in due))
        try:
            await asyncio.wait_for(asked, _PATIENCE)
        except (Fault, TimeoutError) as error:
            _log.warning("capacity reservations could not be counted", reason=str(error))

    def rooms(self, node_classes: Iterable[EC2NodeClass]) -> Mapping[str, ReservationRoom]:
        """What EC2 said of each, without this process's own launches: who plans counts NodeClaims itself."""
        reserved = {one.id for node_class in node_classes for one in self.of(node_class)}
        known = {one: room for one in sorted(reserved) if (room := self.counts.room(one)) is not None}
        return {
            one: room if self._is_usable(one) else room.model_copy(update={"available": 0})
            for one, room in known.items()
        }

    def remaining(self, reservation_id: str) -> int:
        """For a launch of this process."""
        return self.counts.remaining(reservation_id) if self._is_usable(reservation_id) else 0

    def _is_usable(self, reservation_id: str) -> bool:
        """By the clock, and not by a status that was written before it ended."""
        known = self._known.get(reservation_id)
        shown = known.at(self._clock()) if known else None
        return shown is not None and shown.state != EXPIRING

    async def ending(self, reservation_ids: Collection[str]) -> Mapping[str, datetime]:
        """Capacity blocks among them whose instances EC2 will end soon, with their ends; asked of EC2 now."""
        if not self.enabled or not reservation_ids:
            return {}
        found = [one.resolved for one in await self._ask_by_ids(sorted(reservation_ids))]
        now = self._clock()
        return {one.id: one.end_time for one in found if one.end_time is not None and ends_soon(one, now)}

    async def _find(self, terms: Sequence[CapacityReservationTerm]) -> Sequence[FoundReservation]:
        ids = sorted({term.id for term in terms if term.id})
        queries = [self._by_filters(_filters(term)) for term in terms if not term.id]
        if ids:
            queries.append(self._answers.get_or(("ids", *ids), lambda: self._ask_by_ids(ids)))
        return [one for found in await asyncio.gather(*queries) for one in found]

    async def _by_filters(self, filters: Sequence[Any]) -> Sequence[FoundReservation]:
        return await self._answers.get_or(str(filters), lambda: self._ask(Filters=list(filters)))

    async def _ask_by_ids(self, ids: Sequence[str]) -> Sequence[FoundReservation]:
        """EC2 refuses all for one that is not there: then each is asked for by itself."""
        try:
            return await self._ask(CapacityReservationIds=list(ids))
        except NotFound:
            if len(ids) == 1:
                return ()
        return [one for found in await asyncio.gather(*(self._ask_by_ids([i]) for i in ids)) for one in found]

    async def _ask(self, **request: Any) -> Sequence[FoundReservation]:
        asked = self._clock()
        paging = {} if "CapacityReservationIds" in request else {"PaginationConfig": {"PageSize": 1000}}
        found = await self._clients.pages(
            self._clients.ec2.describe_capacity_reservations, "CapacityReservations", _found, **request, **paging
        )
        self._known |= {one.resolved.id: one for one in found}
        self.counts.seen({one.resolved.id: one.available for one in found}, asked)
        return found


def ends_soon(one: ResolvedCapacityReservation, now: datetime) -> bool:
    """A capacity block near its end; other reservations leave their instances running."""
    return one.reservation_type == BLOCK and one.end_time is not None and now >= one.end_time - BLOCK_LEAD


def _filters(term: CapacityReservationTerm) -> list[Any]:
    named = {"owner-id": term.owner_id, "instance-match-criteria": term.instance_match_criteria}
    filters = [{"Name": name, "Values": [value]} for name, value in named.items() if value]
    return [_ACTIVE, *filters, *tag_filters(term.tags)]


def _found(raw: Mapping[str, Any]) -> FoundReservation:
    optional = {"endTime": raw.get("EndDate"), "interruptible": raw.get("Interruptible")}
    resolved = {
        "availabilityZone": raw.get("AvailabilityZone", ""),
        "id": raw["CapacityReservationId"],
        "instanceMatchCriteria": raw.get("InstanceMatchCriteria", ""),
        "instanceType": raw.get("InstanceType", ""),
        "ownerID": raw.get("OwnerId", ""),
        "reservationType": raw.get("ReservationType") or "default",
        "state": "active",
    } | {key: value for key, value in optional.items() if value is not None}
    return FoundReservation(
        resolved=ResolvedCapacityReservation.from_object(resolved),
        active=raw.get("State") == "active",
        available=raw.get("AvailableInstanceCount", 0) if raw.get("State") == "active" else 0,
    )
