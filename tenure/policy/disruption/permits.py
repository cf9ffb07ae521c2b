"""Which wishes to disrupt a node are granted now, and why the others are not. Pure.

`activities/nodepool/budgets.py` reads what is left of every limit, `workflows/disruption/permits.py` hands the
permits out. A permit
that is out and not used yet takes room of its own, for as long as it may be used; one whose node is on its way is
counted by the limits themselves.

Permits under budgets for all NodePools together: who has booked a place before whom. Pure.

The Cluster workflow keeps the book, so that two NodePools that look at the same moment do not both take the last place.

The record of nodes that went voluntarily, by which rates count: put together, and as an annotation of the NodePool.

`workflows/disruption/permits.py` keeps it; the annotation is for a workflow that has lost it. Pure.

When a NodePool reads its budget again, while wishes wait for it.

The watch tells of what a budget depends on, and whoever has a permit gives it back: then it is read at once. A look by
time is for what nobody told of, so it comes ever more slowly; where time alone lets nodes go, it comes at that time.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from pydantic import ValidationError

from tenure.apis.durations import format_duration
from tenure.model.disruption.permits import BookAsked, Booked
from tenure.model.disruption.planning import METHODS, Disrupted
from tenure.model.signals import PermitAsked
from tenure.model.workflow_states import Permit
from tenure.policy.disruption.budgets import Allowance, Asking


def booked(book: Iterable[Booked], asked: BookAsked, now: datetime) -> tuple[Booked, ...]:
    """The book with what a NodePool wants in it now, in the place of what it wanted before; without what has lapsed."""
    others = (one for one in book if one.pool != asked.pool and one.until > now)
    mine = (Booked(pool=asked.pool, claim_uid=uid, until=until) for uid, until in sorted(asked.wanted.items()))
    return (*others, *mine)


def before(book: Iterable[Booked], pool: str) -> tuple[str, ...]:
    """UIDs of what other NodePools have booked."""
    return tuple(one.claim_uid for one in book if one.pool != pool)


def lapses(book: Iterable[Booked], pool: str) -> datetime | None:
    """When the first of these is free again, unless its node is on its way by then."""
    return min((one.until for one in book if one.pool != pool), default=None)


MOST: Final = 1000
"""Entries that are written, the newest: an object's annotations have room for 256 KiB in all."""


def merged(*records: Iterable[Disrupted], since: datetime) -> tuple[Disrupted, ...]:
    """What any of them tells of, once, and not before `since`; oldest first."""
    found: Counter[Disrupted] = Counter()
    for record in records:
        found |= Counter(one for one in record if one.at >= since)
    return tuple(sorted(found.elements(), key=lambda one: (one.at, one.uid)))


def written(record: Iterable[Disrupted]) -> str:
    lines = [[one.reason, one.at.isoformat(), one.uid] for one in record]
    return json.dumps(lines[-MOST:], separators=(",", ":")) if lines else ""


def read(text: str, pool: str) -> tuple[Disrupted, ...]:
    """Nothing of what cannot be read: people may write there too."""
    try:
        return tuple(
            Disrupted(pool=pool, reason=reason, at=datetime.fromisoformat(at), uid=uid)
            for reason, at, uid in json.loads(text or "[]")
        )
    except (ValueError, TypeError, ValidationError):
        return ()


_COUNTS: Final = re.compile(
    r" of \d+ nodes allows \d+|\d+ in use|\d+ permits out|\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-][\d:]+)?"
)
"""And moments, which move with every look."""


@dataclass(frozen=True)
class Decision:
    granted: tuple[PermitAsked, ...]
    waiting: tuple[PermitAsked, ...]
    why: Mapping[str, str]
    """By `key_of` a wish that waits: what it waits for. One that was not looked at yet is not in it."""
    out: tuple[Permit, ...]
    """Of the permits from before, those that go on."""
    gone: tuple[Permit, ...]
    """Those whose nodes are gone: they have been used."""


def key_of(wish: PermitAsked) -> str:
    return f"{wish.claim_uid} {wish.workflow_id}"


def decide_permits(
    pool: str,
    wishes: Iterable[PermitAsked],
    permits: Sequence[Permit],
    allowances: Mapping[str, Allowance],
    now: datetime,
    *,
    held: str = "",
) -> Decision:
    """Oldest first. `allowances` by reason; `held`: why nothing goes at all, in words."""
    read = next((one for one in allowances.values() if one.read), None)
    standing = {*read.count.standing} if read else None
    going = {*read.count.consuming} if read else set[str]()
    out = tuple(one for one in permits if _goes_on(one, standing, going, now))
    gone = tuple(one for one in permits if standing is not None and one.claim_uid not in standing)
    # Nodes that went another way do not take their wishes back.
    known = [one for one in wishes if standing is None or one.claim_uid in standing]
    room = _Rooms(pool, allowances, now, held)
    for permit in out:
        room.take(permit.claim_uid, unused=permit.counts_until > now and permit.claim_uid not in going)
    holders = {one.claim_uid: one for one in out}
    granted: list[PermitAsked] = []
    waiting: list[PermitAsked] = []
    why: dict[str, str] = {}
    for wish in sorted(known, key=lambda one: (one.since, one.claim_uid)):
        if wish.reason not in allowances:
            waiting.append(wish)
            continue
        holder = holders.get(wish.claim_uid)
        if holder is not None and is_held_by(holder, wish):
            granted.append(wish)
            continue
        refusal = taken_by(holder, now) or room.refusal(wish)
        if refusal:
            waiting.append(wish)
            why[key_of(wish)] = refusal
        else:
            granted.append(wish)
            room.take(wish.claim_uid, unused=True)
            holders[wish.claim_uid] = permit_of(wish, now, now)
    return Decision(tuple(granted), tuple(waiting), why, out, gone)


def permit_of(wish: PermitAsked, now: datetime, until: datetime) -> Permit:
    return Permit(
        claim_name=wish.claim_name,
        claim_uid=wish.claim_uid,
        reason=wish.reason,
        workflow_id=wish.workflow_id,
        since=now,
        until=until,
        begins_within=wish.begins_within,
    )


def is_held_by(permit: Permit, wish: PermitAsked) -> bool:
    """An earlier version did not say who has a permit: then it was the NodeClaim, which asks again."""
    return permit.claim_uid == wish.claim_uid and permit.workflow_id in ("", wish.workflow_id)


def cause_of(why: str) -> str:
    """What keeps a wish waiting, without the counts that come and go while it does."""
    return _COUNTS.sub("", why)


def taken_by(permit: Permit | None, now: datetime) -> str:
    """Why nobody else gets a permit for this NodeClaim; empty when one may."""
    if permit is None:
        return ""
    lapsed = permit.counts_until < now
    until = "its node is on its way" if lapsed else f"until {permit.counts_until.isoformat(timespec='seconds')}"
    return (
        f"a permit for {permit.claim_name} is out to {permit.workflow_id or 'its workflow'}: {permit.reason}, {until}"
    )


def after(past: Iterable[Disrupted], gone: Iterable[Permit], pool: str, since: datetime) -> tuple[Disrupted, ...]:
    """The record of what went, with those permits that were used, and without what no rate looks back at."""
    return merged(past, used(gone, pool), since=since)


def used(permits: Iterable[Permit], pool: str) -> Iterator[Disrupted]:
    """What permits count as once their nodes are on their way. Expiry is none of the disruptions that rates count."""
    for one in permits:
        for method in METHODS:
            if one.reason == method and one.since:
                yield Disrupted(pool=pool, reason=method, at=one.since, uid=one.claim_uid)


def _goes_on(permit: Permit, standing: set[str] | None, going: set[str], now: datetime) -> bool:
    """A lease lapses, unless its node is on its way: then it is known who has it until it is gone."""
    if standing is None:
        return permit.counts_until > now
    return permit.claim_uid in standing and (permit.counts_until > now or permit.claim_uid in going)


@dataclass
class _Rooms:
    """What is left while permits are given, one after the other."""

    pool: str
    allowances: Mapping[str, Allowance]
    now: datetime
    held: str
    leased: int = 0
    """Out and not used yet, those of this decision among them."""
    by_zone: dict[str, int] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)

    def take(self, uid: str, *, unused: bool) -> None:
        zone = self._zone(uid)
        if zone:
            self.begun.add(zone)
        if unused:
            self.leased += 1
            self.by_zone[zone] = self.by_zone.get(zone, 0) + 1

    def refusal(self, wish: PermitAsked) -> str:
        """What keeps it, in words; empty when nothing does. A budget counts every node that goes, for any reason."""
        left = self.allowances[wish.reason]
        if self.held:
            return self.held
        asking = left.asking.get(wish.claim_uid, Asking())
        if asking.paused:
            return f"NodeClaim {wish.claim_name} {asking.paused}"
        if young := _too_young(left, asking, self.now):
            return f"NodeClaim {wish.claim_name}: {young}"
        out = f"{self.leased} permits out"
        if left.allowed <= self.leased:
            return f"NodePool {self.pool}: {left.why}, {out}"
        if left.cluster is not None and left.cluster.allowed <= self.leased:
            return f"all NodePools: {left.cluster.why}, {out}"
        return self._in_zone(left, asking.zone)

    def _in_zone(self, left: Allowance, zone: str) -> str:
        room = left.zones.get(zone)
        if room is not None and room.allowed <= self.by_zone.get(zone, 0):
            return f"NodePool {self.pool} in {zone or 'no zone'}: {room.why}, {self.by_zone.get(zone, 0)} permits out"
        rule = left.zones_at_once
        begun = self.begun | {*rule.begun} if rule else set()
        if rule and zone not in begun and len(begun) >= rule.most:
            return (
                f"NodePool {self.pool}: nodes go in {', '.join(sorted(begun))} now, and perZone.zonesAtOnce is "
                f"{rule.most}: {zone or 'a node without a zone'} waits"
            )
        return ""

    def _zone(self, uid: str) -> str:
        found = (one.asking[uid].zone for one in self.allowances.values() if uid in one.asking)
        return next(found, "")


def _too_young(left: Allowance, asking: Asking, now: datetime) -> str:
    if left.youngest is None or asking.created is None:
        return ""
    until = asking.created + left.youngest
    if now >= until:
        return ""
    youngest = format_duration(left.youngest)
    return f"it is younger than minimumNodeAge {youngest}, until {until.isoformat(timespec='seconds')}"


LOOK_AGAIN: Final = timedelta(seconds=30)
"""After a change, ..."""
LOOK_SLOWEST: Final = timedelta(minutes=4)
"""... and while nothing changes: twice as long each time, up to this."""
LOOK_FIXED: Final = timedelta(hours=1)
"""While nothing that nodes do lets any go; a change of the spec or of a pause is told."""
LATE: Final = timedelta(seconds=5)
"""Who read the budget has another clock: by it the moment that has come here was still to come."""


def is_fixed(allowances: Mapping[str, Allowance], held: str) -> bool:
    """Nothing goes whatever nodes do, for none of the reasons; `held`: why nothing goes at all."""
    return bool(held) or all(one.fixed for one in allowances.values())


def next_look(
    looks: int,
    allowances: Mapping[str, Allowance],
    permits: Sequence[Permit],
    now: datetime,
    *,
    held: str = "",
    until: datetime | None = None,
    booked_until: datetime | None = None,
) -> datetime:
    """After as many looks since the last change, `now` being that of the last. `held` ends at `until`, others' places
    under what all share at `booked_until`, if those are what is waited for."""
    if is_fixed(allowances, held):
        return _first((until,) if held else _opening(allowances, now), now + LOOK_FIXED, now)
    pause = min(LOOK_SLOWEST, LOOK_AGAIN * 2 ** min(looks - 1, 8))
    lapses = (booked_until, *(one.counts_until for one in permits))
    return _first((*_opening(allowances, now), *lapses), now + pause, now)


def _opening(allowances: Mapping[str, Allowance], now: datetime) -> Iterable[datetime]:
    return [max(one.opens, now + LATE) for one in allowances.values() if one.opens]


def _first(moments: Iterable[datetime | None], latest: datetime, now: datetime) -> datetime:
    return min((one for one in (*moments, latest) if one is not None and one > now), default=latest)
