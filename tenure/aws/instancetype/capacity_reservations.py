"""Capacity reservations that an EC2NodeClass selects, the room in each, and the offerings and labels that they add.

Counts are EC2's last answer and this process's own launches since. Rather too many than too few: a launch that finds no
room is refused and planned again, while unseen room is paid for and unused. With the gate ReservedCapacity off nothing
is asked.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from cachetools import TTLCache

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedCapacityReservation
from tenure.apis.ec2nodeclass_selectors import CapacityReservationTerm
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import tag_filters
from tenure.clock import utc_now
from tenure.model.base import Value
from tenure.model.errors import Fault, NotFound
from tenure.model.instance_types import Offering, ReservationHeadroom
from tenure.model.launch import FleetResult

_COUNT_TTL: Final = timedelta(hours=24)
"""A count that is not renewed for this long expires."""


@dataclass(slots=True)
class _Count:
    available: int
    at: datetime
    changes: list[tuple[datetime, int]] = field(default_factory=list)
    full_at: datetime | None = None


class ReservationCounts:
    """By reservation id. One that EC2 was never asked about has room for none."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}
        self._running: TTLCache[str, str] = TTLCache(MAX_ENTRIES, _COUNT_TTL.total_seconds())

    def record_counts(self, available: Mapping[str, int], requested_at: datetime) -> None:
        """EC2's counts; `asked` is when the query started, and later launches are counted in addition."""
        for key, count in available.items():
            previous = self._counts.get(key)
            later = [one for one in previous.changes if one[0] > requested_at] if previous else []
            full = previous.full_at if previous and previous.full_at and previous.full_at > requested_at else None
            self._counts[key] = _Count(count, requested_at, later, full)
        self._counts = {key: one for key, one in self._counts.items() if requested_at - one.at < _COUNT_TTL}

    def record_launch_result(self, result: FleetResult) -> None:
        """The result of CreateFleet. Only a capacity error makes a reservation full; a throttled call does not."""
        for instance in result.instances:
            self.record_launch(instance.reservation_id)
        for error in result.errors:
            if error.insufficient:
                self.set_full(error.reservation_id)

    def record_launch(self, reservation_id: str) -> None:
        self._record_change(reservation_id, -1)

    def record_running(self, instance_id: str, reservation_id: str) -> None:
        """Seen running there by the component that also observes its termination."""
        if reservation_id:
            self._running[instance_id] = reservation_id

    def record_termination(self, instance_id: str) -> None:
        """It runs no more: its place is free, if it was seen to have one."""
        reservation_id = self._running.get(instance_id)
        if reservation_id is not None:
            self._running.pop(instance_id, None)
            self._record_change(reservation_id, 1)

    def set_full(self, reservation_id: str) -> None:
        """EC2 reported no capacity: zero until its next count."""
        if count := self._counts.get(reservation_id):
            count.full_at = self._clock()

    def remaining(self, reservation_id: str) -> int:
        count = self._counts.get(reservation_id)
        if count is None or count.full_at is not None or self._clock() - count.at >= _COUNT_TTL:
            return 0
        return max(0, count.available + sum(change for _, change in count.changes))

    def last_reported(self, reservation_id: str) -> ReservationHeadroom | None:
        """EC2's own last count; None when it is not known. One that is full has none."""
        count = self._counts.get(reservation_id)
        if count is None:
            return None
        return ReservationHeadroom(available=0 if count.full_at else count.available, at=count.at)

    def _record_change(self, reservation_id: str, change: int) -> None:
        if count := self._counts.get(reservation_id):
            count.changes.append((self._clock(), change))


_log = structlog.get_logger(__name__)

FRESH_SECONDS: Final = 60.0
BLOCK: Final = "capacity-block"
EXPIRING: Final = "expiring"
BLOCK_LEAD: Final = timedelta(minutes=40)
"""EC2 ends the instances of a capacity block before its end; nodes must be drained by then (reference 6.4)."""
_REFRESH_TIMEOUT_SECONDS: Final = 5.0
"""Seconds that a launch or a plan waits for fresh counts before it takes the last ones."""
_ACTIVE: Final = {"Name": "state", "Values": ["active"]}


class FoundReservation(Value):
    resolved: ResolvedCapacityReservation
    active: bool
    available: int
    """Instances that still fit in."""

    def resolve_at(self, now: datetime) -> ResolvedCapacityReservation | None:
        """As the status shows it at this time; None once it is over."""
        one = self.resolved
        if not self.active or (one.end_time is not None and one.end_time <= now):
            return None
        return one.model_copy(update={"state": EXPIRING}) if ends_soon(one, now) else one


class Reservations:
    """Answers are used again for a minute. Raises model.faults."""

    def __init__(self, clients: AwsClients, settings: AwsSettings, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._clients, self._clock = clients, clock
        self.enabled = settings.is_gate_enabled(FeatureGate.RESERVED_CAPACITY)
        self._cache: TTLCache[Hashable, Sequence[FoundReservation]] = TTLCache(MAX_ENTRIES, FRESH_SECONDS)
        self.counts = ReservationCounts(clock)
        self._known: dict[str, FoundReservation] = {}
        """As EC2 last described each."""

    async def resolve(self, node_class: EC2NodeClass) -> Sequence[ResolvedCapacityReservation]:
        """By id; none that is over, and none at all with the gate off."""
        if not self.enabled:
            return ()
        found = await self._find_by_terms(node_class.spec.capacity_reservation_selector_terms)
        now = self._clock()
        resolved = {one.resolved.id: resolved for one in found if (resolved := one.resolve_at(now)) is not None}
        return [resolved[key] for key in sorted(resolved)]

    def for_nodeclass(self, node_class: EC2NodeClass) -> Sequence[ResolvedCapacityReservation]:
        """Reservations in the class's status; none with the gate off, whatever an earlier worker wrote."""
        return node_class.status.capacity_reservations if self.enabled else ()

    async def refresh_counts(self, node_classes: Iterable[EC2NodeClass]) -> None:
        """Refresh counts older than a minute; a failed query keeps the last count."""
        due = [one for one in node_classes if self.for_nodeclass(one)]
        if not due:
            return
        requests = asyncio.gather(*(self._find_by_terms(one.spec.capacity_reservation_selector_terms) for one in due))
        try:
            await asyncio.wait_for(requests, _REFRESH_TIMEOUT_SECONDS)
        except (Fault, TimeoutError) as error:
            _log.warning("capacity reservations could not be counted", reason=str(error))

    def capacities(self, node_classes: Iterable[EC2NodeClass]) -> Mapping[str, ReservationHeadroom]:
        """EC2's counts without this process's launches: the planner counts NodeClaims itself."""
        reserved = {one.id for node_class in node_classes for one in self.for_nodeclass(node_class)}
        known = {one: capacity for one in sorted(reserved) if (capacity := self.counts.last_reported(one)) is not None}
        return {
            one: capacity if self._is_usable(one) else capacity.model_copy(update={"available": 0})
            for one, capacity in known.items()
        }

    def remaining(self, reservation_id: str) -> int:
        return self.counts.remaining(reservation_id) if self._is_usable(reservation_id) else 0

    def _is_usable(self, reservation_id: str) -> bool:
        """By the clock, and not by a status that was written before it ended."""
        known = self._known.get(reservation_id)
        resolved = known.resolve_at(self._clock()) if known else None
        return resolved is not None and resolved.state != EXPIRING

    async def find_ending(self, reservation_ids: Collection[str]) -> Mapping[str, datetime]:
        """Capacity blocks among them whose instances EC2 will end soon, with their ends; asked of EC2 now."""
        if not self.enabled or not reservation_ids:
            return {}
        found = [one.resolved for one in await self._describe_by_ids(sorted(reservation_ids))]
        now = self._clock()
        return {one.id: one.end_time for one in found if one.end_time is not None and ends_soon(one, now)}

    async def _find_by_terms(self, terms: Sequence[CapacityReservationTerm]) -> Sequence[FoundReservation]:
        ids = sorted({term.id for term in terms if term.id})
        queries = [self._by_filters(_term_filters(term)) for term in terms if not term.id]
        if ids:
            queries.append(get_or_load(self._cache, ("ids", *ids), lambda: self._describe_by_ids(ids)))
        return [one for found in await asyncio.gather(*queries) for one in found]

    async def _by_filters(self, filters: Sequence[Any]) -> Sequence[FoundReservation]:
        return await get_or_load(self._cache, str(filters), lambda: self._describe(Filters=list(filters)))

    async def _describe_by_ids(self, ids: Sequence[str]) -> Sequence[FoundReservation]:
        """EC2 refuses all for one that is not there: then each is asked for by itself."""
        try:
            return await self._describe(CapacityReservationIds=list(ids))
        except NotFound:
            if len(ids) == 1:
                return ()
        return [one for found in await asyncio.gather(*(self._describe_by_ids([i]) for i in ids)) for one in found]

    async def _describe(self, **request: Any) -> Sequence[FoundReservation]:
        requested_at = self._clock()
        paging = {} if "CapacityReservationIds" in request else {"PaginationConfig": {"PageSize": 1000}}
        found = await self._clients.paginate(
            self._clients.ec2.describe_capacity_reservations,
            "CapacityReservations",
            _parse_reservation,
            **request,
            **paging,
        )
        self._known |= {one.resolved.id: one for one in found}
        self.counts.record_counts({one.resolved.id: one.available for one in found}, requested_at)
        return found


def ends_soon(one: ResolvedCapacityReservation, now: datetime) -> bool:
    """A capacity block near its end; other reservations leave their instances running."""
    return one.reservation_type == BLOCK and one.end_time is not None and now >= one.end_time - BLOCK_LEAD


def _term_filters(term: CapacityReservationTerm) -> list[Any]:
    named = {"owner-id": term.owner_id, "instance-match-criteria": term.instance_match_criteria}
    filters = [{"Name": name, "Values": [value]} for name, value in named.items() if value]
    return [_ACTIVE, *filters, *tag_filters(term.tags)]


def _parse_reservation(raw: Mapping[str, Any]) -> FoundReservation:
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


PRICE_PART: Final = 10_000_000
"""A reserved instance is paid for already: it costs this part of on-demand, so that larger ones still cost more."""


def reserved_offerings(
    reservations: Iterable[ResolvedCapacityReservation],
    base: Sequence[Offering],
    zone_ids: Mapping[str, str],
    launchable: Collection[str],
) -> list[Offering]:
    """One for each reservation of the type whose other offerings are `base`; those about to end are not available."""
    prices = {one.zone: one.price for one in base if one.capacity_type == labels.ON_DEMAND}
    return [
        Offering(
            zone=one.availability_zone,
            zone_id=zone_ids.get(one.availability_zone, ""),
            capacity_type=labels.RESERVED,
            price=prices.get(one.availability_zone, 0.0) / PRICE_PART,
            available=one.availability_zone in launchable and one.state == "active",
            reservation_id=one.id,
            reservation_type="capacity-block" if one.reservation_type == "capacity-block" else "default",
            interruptible=bool(one.interruptible),
        )
        for one in reservations
    ]


def reserved_labels(
    described: Mapping[str, tuple[str, ...]], reservations: Sequence[ResolvedCapacityReservation]
) -> dict[str, tuple[str, ...]]:
    """The type's labels with the values of nodes in these reservations."""
    if not reservations:
        return dict(described)
    return {
        **described,
        labels.CAPACITY_TYPE: (*described.get(labels.CAPACITY_TYPE, ()), labels.RESERVED),
        labels.CAPACITY_RESERVATION_ID: tuple(sorted(one.id for one in reservations)),
        labels.CAPACITY_RESERVATION_TYPE: tuple(sorted({one.reservation_type for one in reservations})),
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: tuple(sorted({_bool(one.interruptible) for one in reservations})),
    }


def _bool(value: bool | None) -> str:
    return "true" if value else "false"
