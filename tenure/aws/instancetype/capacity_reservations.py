"""Capacity reservations of EC2NodeClasses: their free capacity, and the offerings and labels that they add.

A count is EC2's last response, adjusted by the launches and terminations that this process has seen since. It is rather
too high than too low: a launch without capacity is rejected and replanned, while unused capacity is paid for. Without
the gate ReservedCapacity, EC2 is not queried.
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
"""Lifetime of a count without a new response."""


@dataclass(slots=True)
class _Count:
    available: int
    at: datetime
    changes: list[tuple[datetime, int]] = field(default_factory=list)
    full_at: datetime | None = None


class ReservationCounts:
    """Counts by reservation ID. A reservation without a count has no free capacity."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}
        self._running: TTLCache[str, str] = TTLCache(MAX_ENTRIES, _COUNT_TTL.total_seconds())

    def record_counts(self, available: Mapping[str, int], requested_at: datetime) -> None:
        """Store EC2's counts. Changes since `requested_at`, the start of the query, still apply."""
        for key, count in available.items():
            previous = self._counts.get(key)
            later = [one for one in previous.changes if one[0] > requested_at] if previous else []
            full = previous.full_at if previous and previous.full_at and previous.full_at > requested_at else None
            self._counts[key] = _Count(count, requested_at, later, full)
        self._counts = {key: one for key, one in self._counts.items() if requested_at - one.at < _COUNT_TTL}

    def record_launch_result(self, result: FleetResult) -> None:
        """Record a result of CreateFleet. Only a capacity error marks a reservation as full."""
        for instance in result.instances:
            self.record_launch(instance.reservation_id)
        for error in result.errors:
            if error.insufficient:
                self.set_full(error.reservation_id)

    def record_launch(self, reservation_id: str) -> None:
        self._record_change(reservation_id, -1)

    def record_running(self, instance_id: str, reservation_id: str) -> None:
        """Remember the reservation of a running instance, for `record_termination`."""
        if reservation_id:
            self._running[instance_id] = reservation_id

    def record_termination(self, instance_id: str) -> None:
        """Free the capacity of a terminated instance, if its reservation is known."""
        reservation_id = self._running.get(instance_id)
        if reservation_id is not None:
            self._running.pop(instance_id, None)
            self._record_change(reservation_id, 1)

    def set_full(self, reservation_id: str) -> None:
        """Count zero until EC2's next response, because a launch found no capacity."""
        if count := self._counts.get(reservation_id):
            count.full_at = self._clock()

    def remaining(self, reservation_id: str) -> int:
        count = self._counts.get(reservation_id)
        if count is None or count.full_at is not None or self._clock() - count.at >= _COUNT_TTL:
            return 0
        return max(0, count.available + sum(change for _, change in count.changes))

    def last_reported(self, reservation_id: str) -> ReservationHeadroom | None:
        """EC2's last count, without changes since; zero if full, None if unknown."""
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
"""EC2 terminates the instances of a capacity block before its end; nodes must be drained by then (reference 6.4)."""
_REFRESH_TIMEOUT_SECONDS: Final = 5.0
"""Maximum time that a launch or a plan waits for new counts before it uses the last ones."""
_ACTIVE: Final = {"Name": "state", "Values": ["active"]}


class FoundReservation(Value):
    resolved: ResolvedCapacityReservation
    active: bool
    available: int
    """Free capacity, in instances."""

    def resolve_at(self, now: datetime) -> ResolvedCapacityReservation | None:
        """The reservation as shown in the status at this time; None after its end."""
        one = self.resolved
        if not self.active or (one.end_time is not None and one.end_time <= now):
            return None
        return one.model_copy(update={"state": EXPIRING}) if ends_soon(one, now) else one


class Reservations:
    """Responses are cached for a minute. Raises model.faults."""

    def __init__(self, clients: AwsClients, settings: AwsSettings, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._clients, self._clock = clients, clock
        self.enabled = settings.is_gate_enabled(FeatureGate.RESERVED_CAPACITY)
        self._cache: TTLCache[Hashable, Sequence[FoundReservation]] = TTLCache(MAX_ENTRIES, FRESH_SECONDS)
        self.counts = ReservationCounts(clock)
        self._known: dict[str, FoundReservation] = {}
        """EC2's last description of each reservation that has a count, by ID."""

    async def resolve(self, node_class: EC2NodeClass) -> Sequence[ResolvedCapacityReservation]:
        """Current reservations, sorted by ID; none if the gate is disabled."""
        if not self.enabled:
            return ()
        found = await self._find_by_terms(node_class.spec.capacity_reservation_selector_terms)
        now = self._clock()
        resolved = {one.resolved.id: resolved for one in found if (resolved := one.resolve_at(now)) is not None}
        return [resolved[key] for key in sorted(resolved)]

    def for_nodeclass(self, node_class: EC2NodeClass) -> Sequence[ResolvedCapacityReservation]:
        """Reservations in the class's status; none if the gate is disabled, even if an earlier worker wrote some."""
        return node_class.status.capacity_reservations if self.enabled else ()

    async def refresh_counts(self, node_classes: Iterable[EC2NodeClass]) -> None:
        """Refresh counts that are older than a minute. After a failed query, the last counts are used."""
        due = [one for one in node_classes if self.for_nodeclass(one)]
        if not due:
            return
        requests = asyncio.gather(*(self._find_by_terms(one.spec.capacity_reservation_selector_terms) for one in due))
        try:
            async with asyncio.timeout(_REFRESH_TIMEOUT_SECONDS):
                await requests
        except (Fault, TimeoutError) as error:
            _log.warning("failed to refresh capacity reservations, using the last counts", reason=str(error))

    def capacities(self, node_classes: Iterable[EC2NodeClass]) -> Mapping[str, ReservationHeadroom]:
        """EC2's counts, without the launches of this process, because the planner counts NodeClaims itself."""
        reserved = {one.id for node_class in node_classes for one in self.for_nodeclass(node_class)}
        known = {one: capacity for one in sorted(reserved) if (capacity := self.counts.last_reported(one)) is not None}
        return {
            one: capacity if self._is_usable(one) else capacity.model_copy(update={"available": 0})
            for one, capacity in known.items()
        }

    def remaining(self, reservation_id: str) -> int:
        return self.counts.remaining(reservation_id) if self._is_usable(reservation_id) else 0

    def _is_usable(self, reservation_id: str) -> bool:
        """Whether the reservation is usable now; the status may have been written before its end."""
        known = self._known.get(reservation_id)
        resolved = known.resolve_at(self._clock()) if known else None
        return resolved is not None and resolved.state != EXPIRING

    async def find_ending(self, reservation_ids: Collection[str]) -> Mapping[str, datetime]:
        """Ends of the capacity blocks whose instances EC2 will terminate soon, by ID, from a new query."""
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
        """Describe together; if one does not exist and EC2 rejects the request, describe each by itself."""
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
        self.counts.record_counts({one.resolved.id: one.available for one in found}, requested_at)
        known = self._known | {one.resolved.id: one for one in found}
        self._known = {key: one for key, one in known.items() if self.counts.last_reported(key) is not None}
        return found


def ends_soon(one: ResolvedCapacityReservation, now: datetime) -> bool:
    """Whether the reservation is a capacity block near its end. Other reservations leave their instances running."""
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
"""Divisor of the on-demand price. Reserved instances are already paid for, but larger ones must still cost more."""


def reserved_offerings(
    reservations: Iterable[ResolvedCapacityReservation],
    base: Sequence[Offering],
    zone_ids: Mapping[str, str],
    launchable: Collection[str],
) -> list[Offering]:
    """One offering per reservation of the type; `base`: its other offerings, for prices.

    Reservations that are about to end are not available.
    """
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
    """The labels of the type, with the values of nodes in these reservations added."""
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
