"""Pods onto homes, onto nodes planned in this pass, and onto new ones, in that order (reference 2.4).

Takes classes of equal pods; what they say of other pods has become rules (`rules.py`). Leaves what is bought
to `scheduling/emission.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np

from model.facts import PodFact
from model.labels import CAPACITY_TYPE, ZONE, ZONE_ID
from model.plans import Unplaced
from model.resources import NODES
from scheduling.pools import Offer, Refusal
from scheduling.priced.buying import Buyer, Choice, Need
from scheduling.priced.classes import PodClass
from scheduling.priced.demand import Variant, pinned
from scheduling.priced.places import Places
from scheduling.priced.rules import Reading
from scheduling.priced.sharing import Sharing, anywhere, bought, by_reading
from scheduling.priced.topology import (
    UNLIMITED,
    Domains,
    Rule,
    Settled,
    Spread,
    Tally,
    domain_keys,
    host_caps,
    is_company,
    new_cap,
    of_key,
)
from scheduling.tolerance import untolerated
from scheduling.typetable import Amounts, Mask

_BADLY: Final = 4


@dataclass(slots=True)
class Packing:
    """One pass; its fields are its result."""

    places: Places
    buyer: Buyer
    closed: Mapping[str, Refusal] = field(default_factory=dict)
    """Pools from which nothing can be bought in this pass, and why."""
    nominations: dict[str, str] = field(default_factory=dict)
    unplaced: list[Unplaced] = field(default_factory=list)
    _domains: dict[tuple[Variant, str], list[str]] = field(default_factory=dict)
    _loose: dict[int, list[tuple[Tally, int]]] = field(default_factory=dict)
    """Bought nodes whose domain is open: what is to be counted once it is known."""

    def keep(self, one: PodClass, promised: Mapping[str, str]) -> None:
        """Leave pods where an earlier pass promised them a place, if it still takes them."""
        rest = []
        for pod in one.pods:
            home = self.places.homes.index.get(promised.get(pod.uid, ""))
            if home is None or not self._keep(one, pod, home):
                rest.append(pod)
        one.pods = rest

    def stand(self, counted: Iterable[Tally], place: int) -> None:
        """Count one pod that runs on a home, as far as the census takes notice of that node."""
        for tally in counted:
            if self._noticed(tally, place):
                self._count((tally,), place, 1)

    def _noticed(self, tally: Tally, place: int) -> bool:
        home, nodes = self.places.homes.homes[place], tally.census.nodes
        if nodes.alternatives and not any(home.requirements.compatible_strictly(one) for one in nodes.alternatives):
            return False
        taints = untolerated(nodes.tolerations or (), home.taints, tolerate_preferences=True)
        return nodes.tolerations is None or taints is None

    def place_all(self, classes: Iterable[PodClass]) -> None:
        """Until every pod has a place or a whole round brought nothing more."""
        waiting = [one for one in classes if one.pods]
        while waiting:
            before = sum(len(one.pods) for one in waiting)
            reasons: dict[int, str] = {}
            for _, tier in groupby(waiting, key=lambda one: one.pods[0].priority):
                reasons |= self._place_tier(list(tier))
            waiting = [one for one in waiting if one.pods]
            if sum(len(one.pods) for one in waiting) == before or not waiting:
                break
        for one in waiting:
            self.unplaced += [unplaced(pod, reasons[id(one)]) for pod in one.pods]

    def _place_tier(self, classes: Sequence[PodClass]) -> dict[int, str]:
        """Pods of one priority: those with rules first, since the others can fill what is left of their nodes."""
        reasons = {id(one): self.place(one) for one in classes if not anywhere(one)}
        free = [one for one in classes if anywhere(one)]
        for alike in by_reading(free):
            for one in alike:
                reading = one.readings[0]
                self._join(one, reading, reading.variant, self.places.vector(one.requests), len(one.pods))
            Sharing(self.places, self.buyer, self._put, alike).buy()
        return reasons | {id(one): self.place(one) for one in free if one.pods}

    def place(self, one: PodClass) -> str:
        """Find places for the pods of a class; why some are left, in words."""
        reason = ""
        for reading in one.readings:
            reason = self._spread_out(one, reading, reading.variant, domain_keys(reading.rules), len(one.pods))[1]
            if not one.pods:
                return ""
        return reason

    def _spread_out(
        self, one: PodClass, reading: Reading, variant: Variant, keys: Sequence[str], count: int
    ) -> tuple[int, str]:
        """Up to `count` pods, domain by domain for each key that rules are about; how many, and why not more."""
        if not keys:
            return self._fill(one, reading, variant, count)
        key, rest = keys[0], keys[1:]
        rules = tuple(of_key(reading.rules, key))
        domains = Domains(self._universe(variant, key), rules)
        placed, reason = 0, ""
        while placed < count:
            shares = domains.shares(self._chunk(one, rules, domains, count - placed))
            if not shares:
                return placed, reason or self._why_no_domain(rules, key, domains)
            for name, share in shares:
                done, why = self._spread_out(one, reading, pinned(variant, key, name), rest, share)
                placed += done
                if done < share:
                    domains.blocked.add(name)
                    reason = why
                    break
        return placed, reason

    def _chunk(self, one: PodClass, rules: Sequence[Rule], domains: Domains, count: int) -> int:
        """All at once, unless a domain might fall short: then the others must not have run ahead of it."""
        skews = [rule.max_skew for rule in rules if isinstance(rule, Spread)]
        if not skews or not (domains.blocked or any(_may_end(offer, one) for offer in self.buyer.offers)):
            return count
        return min(count, max(1, min(skews) * len(domains.order)))

    def _fill(self, one: PodClass, reading: Reading, variant: Variant, count: int) -> tuple[int, str]:
        vector = self.places.vector(one.requests)
        company = is_company(reading.rules)
        done = self._join(one, reading, variant, vector, count)
        while done < count:
            cap = min(new_cap(reading.rules), 1 if one.ports else UNLIMITED)
            if cap == 0 or (company and done):
                return done, "no node with the pods that its affinity asks for has room"
            others = np.maximum(self.buyer.demand - vector * len(one.pods), 0)
            room = self.places.open_room(variant)
            need = Need(variant, vector, count - done, cap, others, room, one.ports, together=company)
            choice = self.buyer.choose(need)
            if not isinstance(choice, Choice):
                return done, self._reason(choice)
            done += self._buy(one, variant, vector, choice, count - done, most=1 if company else choice.nodes)
        return done, ""

    def _join(self, one: PodClass, reading: Reading, variant: Variant, vector: Amounts, count: int) -> int:
        """Homes and nodes that are bought already, in their order."""
        places = self.places
        if not places.count:
            return 0
        chosen = places.admitted(variant)
        if one.ports:
            chosen = places.ports_free(one.ports, chosen)
        caps = host_caps(reading.rules, places.count)
        if caps is not None:
            chosen &= caps > 0
        fitting = places.counts(vector, chosen)
        if caps is not None:
            fitting = np.minimum(fitting, caps)
        if one.ports:
            fitting = np.minimum(fitting, 1)
        return self._assign(one, variant, vector, _shares(fitting, count, one_place=_starts_company(reading.rules)))

    def _assign(self, one: PodClass, variant: Variant, vector: Amounts, shares: Amounts) -> int:
        used = np.flatnonzero(shares)
        for place in used:
            self._put(one, variant, vector, int(place), int(shares[place]))
        return int(shares[used].sum())

    def _buy(self, one: PodClass, variant: Variant, vector: Amounts, choice: Choice, count: int, *, most: int) -> int:
        """At most so many equal nodes as the pods fill; under a limit one, since it may change the choice."""
        offer, done = choice.offer, 0
        for _ in range(1 if offer.limited else max(1, min(most, count // choice.pods))):
            place = bought(self.places, self.buyer, choice)
            share = min(choice.pods, count - done)
            self._put(one, variant, vector, place, share)
            done += share
        return done

    def _put(self, one: PodClass, variant: Variant, vector: Amounts, place: int, share: int) -> None:
        pods, one.pods = one.pods[:share], one.pods[share:]
        self.places.take(place, vector, [pod.uid for pod in pods], variant)
        self.places.take_ports(place, one.ports)
        self.buyer.demand = np.maximum(self.buyer.demand - vector * share, 0)
        if place < self.places.first:
            name = self.places.homes.homes[place].name
            self.nominations.update((pod.uid, name) for pod in pods)
        self._count(one.counted, place, share)

    def _count(self, counted: Iterable[Tally], place: int, share: int) -> None:
        for tally in counted:
            if tally.hostname:
                tally.at(self.places.count)[place] += share
            elif (domain := self._domain(place, tally.census.key)) is not None:
                tally.add(domain, share)
            else:
                self._loose.setdefault(place, []).append((tally, share))
        if place in self._loose:
            self._settle(place)

    def _settle(self, place: int) -> None:
        """Count what was open, where a pod that came later has decided the domain."""
        still = []
        for tally, share in self._loose[place]:
            domain = self._domain(place, tally.census.key)
            if domain is None:
                still.append((tally, share))
            else:
                tally.add(domain, share)
        self._loose[place] = still

    def _domain(self, place: int, key: str) -> str | None:
        """The value of a label where it is certain."""
        lane = self.places.lane_at(place)
        requirements = lane.option.requirements if lane else self.places.homes.homes[place].requirements
        one = requirements.get(key)
        return next(iter(one.values)) if one is not None and not one.complement and len(one.values) == 1 else None

    def _keep(self, one: PodClass, pod: PodFact, home: int) -> bool:
        vector = self.places.vector(one.requests)
        for reading in one.readings:
            if not self.places.homes.admitted(reading.variant)[home] or (vector > self.places.free[home]).any():
                continue
            caps = host_caps(reading.rules, self.places.count)
            if caps is not None and caps[home] <= 0:
                continue
            one.pods = [pod, *(other for other in one.pods if other is not pod)]
            kept = one.pods
            self._put(one, reading.variant, vector, home, 1)
            one.pods = kept
            return True
        return False

    def _universe(self, variant: Variant, key: str) -> list[str]:
        """The domains of a key that such pods may use: of homes, and of what can be bought now."""
        known = self._domains.get((variant, key))
        if known is None:
            wanted = variant.requirements.get(key)
            values = {*self._standing(key), *self._offered(variant, key)}
            known = self._domains[variant, key] = sorted(
                (value for value in values if wanted is None or wanted.has(value)),
                key=lambda value: (self._price_in(variant, key, value), value),
            )
        return known

    def _standing(self, key: str) -> set[str]:
        homes = range(self.places.first)
        return {value for place in homes if (value := self._domain(place, key)) is not None}

    def _offered(self, variant: Variant, key: str) -> set[str]:
        found: set[str] = set()
        for offer in self.buyer.offers:
            option = offer.narrowed(None, variant)
            if not isinstance(option, Refusal):
                found |= _values(offer, option.requirements.get(key), option.offerings, option.types, key)
        return found

    def _price_in(self, variant: Variant, key: str, value: str) -> float:
        prices = [
            float(offer.prices(option)[option.types].min())
            for offer in self.buyer.offers
            if not isinstance(option := offer.narrowed(None, pinned(variant, key, value)), Refusal)
        ]
        return min(prices, default=float("inf"))

    def _why_no_domain(self, rules: Iterable[Rule], key: str, domains: Domains) -> str:
        kinds = {type(rule).__name__ for rule in rules if not isinstance(rule, Settled)}
        words = {"Spread": "topology spread", "Together": "pod affinity", "Apart": "pod anti-affinity"}
        said = " and ".join(sorted(words[kind] for kind in kinds)) or "topology"
        return f"{said} on {key} leaves none of {', '.join(domains.order) or 'no domain'}"

    def _reason(self, refusals: Mapping[str, Refusal]) -> str:
        said = {offer.name: refusals[offer.name] for offer in self.buyer.offers if offer.name in refusals}
        every = [f"pool {name}: {refusal}" for name, refusal in {**said, **self.closed}.items()]
        return "; ".join(every) or "no existing node has room, and no NodePool is ready to make one"


def unplaced(pod: PodFact, reason: str) -> Unplaced:
    return Unplaced(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, reason=reason)


def _may_end(offer: Offer, one: PodClass) -> bool:
    """Whether the pool's limits could be reached by these pods, be they packed as badly as can be."""
    for key in offer.budget.limits:
        asked = len(one.pods) if key == NODES else one.requests.get(key, 0) * len(one.pods)
        if (offer.budget.left(key) or 0) < asked * _BADLY:
            return True
    return False


def _shares(fitting: Amounts, count: int, *, one_place: bool) -> Amounts:
    """How many of `count` each place gets, in order; with `one_place` all on the first that takes most."""
    if one_place:
        shares = np.zeros_like(fitting)
        if len(fitting) and fitting.max() > 0:
            best = int(np.minimum(fitting, count).argmax())
            shares[best] = min(int(fitting[best]), count)
        return shares
    before = np.concatenate(([0], np.cumsum(np.minimum(fitting, count))[:-1]))
    return np.asarray(np.clip(count - before, 0, fitting), dtype=np.int64)


def _starts_company(rules: Iterable[Rule]) -> bool:
    mine = tuple(rules)
    return is_company(mine) and new_cap(mine) > 0


def _values(offer: Offer, wanted: object, offerings: Mask, types: Mask, key: str) -> set[str]:
    table = offer.table
    if key in (ZONE, ZONE_ID, CAPACITY_TYPE):
        column = {ZONE: table.zones, ZONE_ID: table.zone_ids, CAPACITY_TYPE: table.capacity_types}[key]
        return set(column[offerings])
    one = offer.template.requirements.get(key)
    if one is not None and not one.complement:
        return set(one.values)
    return table.values_of(key, types)
