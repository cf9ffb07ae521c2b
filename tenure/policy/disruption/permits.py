"""Decisions on permit requests, and the time at which a NodePool reads its budgets again.

An unused permit counts against the budgets while it is valid. If its node is being deleted, the node counts instead of
the permit. The Cluster workflow keeps a ledger of reservations, so that two NodePools cannot both use the last
disruption of a shared limit. Rates need the record of past disruptions, which is also written to an annotation.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.durations import format_duration
from tenure.apis.labels import UNHEALTHY
from tenure.model.disruption.decision import BUDGET_REASONS, BudgetHeadroom, PastDisruption
from tenure.model.disruption.permits import PermitReservation, ReservationRequest
from tenure.model.signals import PermitRequest
from tenure.model.workflow_states import Permit
from tenure.policy.backoff import backoff
from tenure.policy.disruption.budgets import AllowedDisruptions, PermitCandidate


def update_reservations(
    ledger: Iterable[PermitReservation], request: ReservationRequest, now: datetime
) -> tuple[PermitReservation, ...]:
    """The ledger with the new reservations of a NodePool in place of its old ones, and without expired ones."""
    others = (one for one in ledger if one.pool != request.pool and one.until > now)
    mine = (
        PermitReservation(pool=request.pool, claim_uid=uid, until=until)
        for uid, until in sorted(request.desired.items())
    )
    return (*others, *mine)


def reserved_by_others(ledger: Iterable[PermitReservation], pool: str) -> tuple[str, ...]:
    return tuple(one.claim_uid for one in ledger if one.pool != pool)


def reservations_lapse_at(ledger: Iterable[PermitReservation], pool: str) -> datetime | None:
    return min((one.until for one in ledger if one.pool != pool), default=None)


MAX_RECORDED: Final = 1000
"""Only the newest entries are written, since all annotations of an object may have at most 256 KiB."""


def merge_records(*records: Iterable[PastDisruption], since: datetime) -> tuple[PastDisruption, ...]:
    """The entries of all records without duplicates, from `since` on, oldest first."""
    found: Counter[PastDisruption] = Counter()
    for record in records:
        found |= Counter(one for one in record if one.at >= since)
    return tuple(sorted(found.elements(), key=lambda one: (one.at, one.uid)))


def serialize_record(record: Iterable[PastDisruption]) -> str:
    lines = [[one.reason, one.at.isoformat(), one.uid] for one in record]
    return json.dumps(lines[-MAX_RECORDED:], separators=(",", ":")) if lines else ""


def parse_record(text: str, pool: str) -> tuple[PastDisruption, ...]:
    """Empty for an invalid annotation, since users can edit it."""
    try:
        return tuple(
            PastDisruption(pool=pool, reason=reason, at=datetime.fromisoformat(at), uid=uid)
            for reason, at, uid in json.loads(text or "[]")
        )
    except (ValueError, TypeError, RecursionError):
        return ()


_COUNTS: Final = re.compile(
    r" of \d+ nodes allows \d+|\d+ in use|\d+ permits (?:out|granted)|\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-][\d:]+)?"
)
"""Counts, and timestamps that change with every poll."""


@dataclass(frozen=True)
class PermitDecisions:
    granted: tuple[PermitRequest, ...]
    waiting: tuple[PermitRequest, ...]
    why: Mapping[str, str]
    """Why a request waits, by `request_key`. A request that was not evaluated has no entry."""
    active: tuple[Permit, ...]
    deleted: tuple[Permit, ...]


def request_key(request: PermitRequest) -> str:
    return f"{request.claim_uid} {request.workflow_id}"


def decide_permits(
    pool: str,
    requests: Iterable[PermitRequest],
    permits: Sequence[Permit],
    allowed_disruptions: Mapping[str, AllowedDisruptions],
    now: datetime,
    *,
    blocked_by: str = "",
) -> PermitDecisions:
    """Decide the requests, oldest first.

    `allowed_disruptions`: by reason. `blocked_by`: if set, no request is granted, for this cause.
    """
    observed = next((one for one in allowed_disruptions.values() if one.read), None)
    existing = {*observed.count.existing, *_starting_nodes(observed)} if observed else None
    unavailable = {*observed.count.unavailable} if observed else set[str]()
    disrupting = {*observed.count.consuming} - unavailable if observed else set[str]()
    active = tuple(one for one in permits if _is_active(one, existing, disrupting, now))
    deleted = tuple(one for one in permits if existing is not None and one.claim_uid not in existing)
    # The workflow of a NodeClaim that was deleted for another reason does not withdraw its request.
    known = [one for one in requests if existing is None or one.claim_uid in existing]
    headroom = _PermitHeadroom(pool, allowed_disruptions, now, blocked_by, unavailable)
    for permit in active:
        headroom.count_permit(permit.claim_uid, unused=permit.counts_until > now and permit.claim_uid not in disrupting)
    holders = {one.claim_uid: one for one in active}
    granted: list[PermitRequest] = []
    waiting: list[PermitRequest] = []
    why: dict[str, str] = {}
    for request in sorted(known, key=lambda one: (one.since, one.claim_uid)):
        if request.reason not in allowed_disruptions:
            waiting.append(request)
            continue
        holder = holders.get(request.claim_uid)
        if holder is not None and is_granted_to(holder, request):
            granted.append(request)
            continue
        rejection = explain_outstanding_permit(holder, now) or headroom.rejection_reason(request)
        if rejection:
            waiting.append(request)
            why[request_key(request)] = rejection
        else:
            granted.append(request)
            headroom.count_permit(request.claim_uid, unused=True)
            holders[request.claim_uid] = new_permit(request, now, now)
    return PermitDecisions(tuple(granted), tuple(waiting), why, active, deleted)


def _starting_nodes(observed: AllowedDisruptions) -> list[str]:
    """Budgets do not count nodes that were never initialized, but these may be repaired."""
    return [uid for uid, candidate in observed.candidates.items() if not candidate.initialized]


def new_permit(request: PermitRequest, now: datetime, until: datetime) -> Permit:
    return Permit(
        claim_name=request.claim_name,
        claim_uid=request.claim_uid,
        reason=request.reason,
        workflow_id=request.workflow_id,
        since=now,
        until=until,
        begins_within=request.begins_within,
    )


def is_granted_to(permit: Permit, request: PermitRequest) -> bool:
    """A permit without a workflow ID is granted to any requester of the same NodeClaim."""
    return permit.claim_uid == request.claim_uid and permit.workflow_id in ("", request.workflow_id)


def stable_cause(why: str) -> str:
    """The cause without counts and timestamps, which change while a request waits."""
    return _COUNTS.sub("", why)


def explain_outstanding_permit(permit: Permit | None, now: datetime) -> str:
    if permit is None:
        return ""
    lapsed = permit.counts_until < now
    until = "its node is being deleted" if lapsed else f"until {permit.counts_until.isoformat(timespec='seconds')}"
    return f"{permit.workflow_id or 'its workflow'} holds a permit for {permit.claim_name}: {permit.reason}, {until}"


def update_record(
    past: Iterable[PastDisruption], deleted: Iterable[Permit], pool: str, since: datetime
) -> tuple[PastDisruption, ...]:
    return merge_records(past, disruptions_of(deleted, pool), since=since)


def disruptions_of(permits: Iterable[Permit], pool: str) -> Iterator[PastDisruption]:
    """Used permits as entries of the record. Rates do not count expiration."""
    for one in permits:
        for method in BUDGET_REASONS:
            if one.reason == method and one.since:
                yield PastDisruption(pool=pool, reason=method, at=one.since, uid=one.claim_uid)


def _is_active(permit: Permit, existing: set[str] | None, disrupting: set[str], now: datetime) -> bool:
    """A permit expires, unless its node is being deleted: the holder then keeps it until the node is deleted."""
    if existing is None:
        return permit.counts_until > now
    return permit.claim_uid in existing and (permit.counts_until > now or permit.claim_uid in disrupting)


@dataclass
class _PermitHeadroom:
    pool: str
    allowed_disruptions: Mapping[str, AllowedDisruptions]
    now: datetime
    blocked_by: str
    unavailable: Collection[str] = ()
    """UIDs of NodeClaims whose nodes are NotReady or missing."""
    leased: int = 0
    leased_unavailable: int = 0
    by_zone: Counter[str] = field(default_factory=Counter)
    unavailable_by_zone: Counter[str] = field(default_factory=Counter)
    begun: set[str] = field(default_factory=set)

    def count_permit(self, uid: str, *, unused: bool) -> None:
        """A permit for a node that was never initialized uses no budget (reference 1.15, section 3.5)."""
        candidate = self._find_candidate(uid)
        if not candidate.initialized:
            return
        zone = candidate.zone
        if zone:
            self.begun.add(zone)
        if unused and uid in self.unavailable:
            self.leased_unavailable += 1
            self.unavailable_by_zone[zone] += 1
        elif unused:
            self.leased += 1
            self.by_zone[zone] += 1

    def rejection_reason(self, request: PermitRequest) -> str:
        budget = self.allowed_disruptions[request.reason]
        if self.blocked_by:
            return self.blocked_by
        candidate = budget.candidates.get(request.claim_uid, PermitCandidate())
        if candidate.paused:
            return f"NodeClaim {request.claim_name} {candidate.paused}"
        if request.reason == UNHEALTHY and not candidate.initialized:
            return ""
        if request.reason != UNHEALTHY and (young := _too_young(budget, candidate, self.now)):
            return f"NodeClaim {request.claim_name}: {young}"
        unavailable = request.claim_uid in self.unavailable
        leased, leased_unavailable = self.leased, self.leased_unavailable
        granted = f"{leased + leased_unavailable} permits granted"
        pool_headroom = BudgetHeadroom(allowed=budget.allowed, allowed_unavailable=budget.allowed_unavailable)
        if _is_exhausted(pool_headroom, leased, leased_unavailable, unavailable=unavailable):
            return f"NodePool {self.pool}: {budget.why}, {granted}"
        if budget.cluster and _is_exhausted(budget.cluster, leased, leased_unavailable, unavailable=unavailable):
            return f"all NodePools: {budget.cluster.why}, {granted}"
        return self._zone_rejection_reason(budget, candidate.zone, unavailable=unavailable)

    def _zone_rejection_reason(self, budget: AllowedDisruptions, zone: str, *, unavailable: bool) -> str:
        headroom, leased, leased_unavailable = (
            budget.zones.get(zone),
            self.by_zone[zone],
            self.unavailable_by_zone[zone],
        )
        if headroom and _is_exhausted(headroom, leased, leased_unavailable, unavailable=unavailable):
            granted = f"{leased + leased_unavailable} permits granted"
            return f"NodePool {self.pool} in {zone or 'no zone'}: {headroom.why}, {granted}"
        rule = budget.zones_at_once
        begun = self.begun | {*rule.active_zones} if rule else set()
        if rule and zone not in begun and len(begun) >= rule.max_zones:
            return (
                f"NodePool {self.pool}: nodes are disrupted in {', '.join(sorted(begun))}, and perZone.zonesAtOnce is "
                f"{rule.max_zones}: {zone or 'a node without a zone'} waits"
            )
        return ""

    def _find_candidate(self, uid: str) -> PermitCandidate:
        found = (one.candidates[uid] for one in self.allowed_disruptions.values() if uid in one.candidates)
        return next(found, PermitCandidate())


def _is_exhausted(headroom: BudgetHeadroom, leased: int, leased_unavailable: int, *, unavailable: bool) -> bool:
    """Most limits count a node that is NotReady or missing already, with and without a permit. Rates and budgets for
    repair do not count it, so that its permit counts."""
    if headroom.allowed_for(unavailable=True) <= leased + leased_unavailable:
        return True
    return not unavailable and headroom.allowed <= leased


def _too_young(budget: AllowedDisruptions, candidate: PermitCandidate, now: datetime) -> str:
    if budget.minimum_node_age is None or candidate.created is None:
        return ""
    until = candidate.created + budget.minimum_node_age
    if now >= until:
        return ""
    minimum_node_age = format_duration(budget.minimum_node_age)
    return f"it is younger than minimumNodeAge {minimum_node_age}, until {until.isoformat(timespec='seconds')}"


CHECK_INTERVAL: Final = timedelta(seconds=30)
"""Polling interval after a change."""
MAX_CHECK_INTERVAL: Final = timedelta(minutes=4)
"""Without a change, the interval doubles up to this."""
FIXED_CHECK_INTERVAL: Final = timedelta(hours=1)
"""Interval while no change of a node can allow a disruption; changes of a spec or a pause are signaled."""
CLOCK_SKEW: Final = timedelta(seconds=5)
"""The clock of the process that reads the budgets may be behind the workflow's clock."""


def is_fixed(allowed_disruptions: Mapping[str, AllowedDisruptions], blocked_by: str) -> bool:
    """No change of a node can allow a disruption for any reason. `blocked_by`: the cause if no request is granted."""
    return bool(blocked_by) or all(one.fixed for one in allowed_disruptions.values())


def next_check_at(
    checks: int,
    allowed_disruptions: Mapping[str, AllowedDisruptions],
    permits: Sequence[Permit],
    now: datetime,
    *,
    blocked_by: str = "",
    until: datetime | None = None,
    reserved_until: datetime | None = None,
) -> datetime:
    """When to read the budgets again.

    `checks`: number of polls since the last change, including the one at `now`. `until`: end of `blocked_by`.
    `reserved_until`: when the first reservation of another NodePool expires, if requests wait for it.
    """
    if is_fixed(allowed_disruptions, blocked_by):
        return _first_after(
            (until,) if blocked_by else _opening_times(allowed_disruptions, now), now + FIXED_CHECK_INTERVAL, now
        )
    pause = backoff(CHECK_INTERVAL, MAX_CHECK_INTERVAL, checks - 1)
    expiries = (reserved_until, *(one.counts_until for one in permits))
    return _first_after((*_opening_times(allowed_disruptions, now), *expiries), now + pause, now)


def _opening_times(allowed_disruptions: Mapping[str, AllowedDisruptions], now: datetime) -> Iterable[datetime]:
    return [max(one.opens, now + CLOCK_SKEW) for one in allowed_disruptions.values() if one.opens]


def _first_after(timestamps: Iterable[datetime | None], latest: datetime, now: datetime) -> datetime:
    return min((one for one in (*timestamps, latest) if one is not None and one > now), default=latest)
