"""Which wishes to disrupt a node are granted now, and why the others are not. Pure.

`activities/allowances.py` reads what is left of every limit, `workflows/permits.py` hands the permits out. A permit
that is out and not used yet takes room of its own, for as long as it may be used; one whose node is on its way is
counted by the limits themselves.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from model.coordination import Permit
from model.disruption import METHODS, Disrupted
from model.durations import format_duration
from model.messages import PermitAsked
from policy.budgets import Allowance, Asking
from policy.record import merged

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
