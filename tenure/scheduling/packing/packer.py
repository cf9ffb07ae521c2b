"""Pods onto homes, onto nodes planned in this pass, and onto new ones, in that order (reference 2.4).

Takes classes of equal pods; what they say of other pods has become rules (`rules.py`). Leaves what is bought
to `tenure/scheduling/nodeclaim_builder.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np

from tenure.apis.resources import NODES
from tenure.model.facts import PodFact
from tenure.model.provisioning import Unplaced
from tenure.scheduling.instance_type_table import Amounts
from tenure.scheduling.nodepool_template import Offer, Refusal
from tenure.scheduling.packing.instance_selection import Buyer
from tenure.scheduling.packing.node_requests import Choice, Need
from tenure.scheduling.packing.nodes import Places, shares
from tenure.scheduling.packing.pod_classes import PodClass
from tenure.scheduling.packing.pod_requirements import Variant, pinned
from tenure.scheduling.packing.shared_nodes import Sharing, anywhere, bought, by_reading
from tenure.scheduling.packing.topology import (
    UNLIMITED,
    Domains,
    Rule,
    Spread,
    Tally,
    domain_keys,
    host_caps,
    is_company,
    new_cap,
    of_key,
)
from tenure.scheduling.packing.topology_domains import Universe, asked_for
from tenure.scheduling.packing.topology_rules import Reading

NOTHING_SOLD: Final = "no existing node has room, and no NodePool is ready to make one"
_BADLY: Final = 4


@dataclass(slots=True)
class Packing:
    """One pass; its fields are its result."""

    places: Places
    buyer: Buyer
    closed: Mapping[str, Refusal] = field(default_factory=dict)
    """Pools from which nothing can be bought in this pass, and why."""
    blended: bool = True
    """Whether pods that may go anywhere are put on nodes by a mix."""
    nominations: dict[str, str] = field(default_factory=dict)
    unplaced: list[Unplaced] = field(default_factory=list)
    universe: Universe = field(init=False)
    _loose: dict[int, list[tuple[Tally, int]]] = field(default_factory=dict)
    """Bought nodes whose domain is open: what is to be counted once it is known."""

    def __post_init__(self) -> None:
        self.universe = Universe(self.places, self.buyer.offers)

    def keep(self, one: PodClass, promised: Mapping[str, str]) -> None:
        """Leave pods where an earlier pass promised them a place, if it still takes them."""
        rest = []
        for pod in one.pods:
            home = self.places.homes.index.get(promised.get(pod.uid, ""))
            if home is None or not self._keep(one, pod, home):
                rest.append(pod)
        one.pods = rest

    def stand(self, counted: Iterable[Tally], place: int, pods: int = 1) -> None:
        """Count pods that run on a home."""
        self._count(counted, place, pods)

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
        free = [one for one in classes if anywhere(one)] if self.blended else []
        reasons = {id(one): self.place(one) for one in classes if not (self.blended and anywhere(one))}
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
            reason = self._spread_out(one, reading, domain_keys(reading.rules), len(one.pods))[1]
            if not one.pods:
                return ""
        volumes = " or ".join(str(where) for where in one.volumes.alternatives)
        return f"{reason}; its volumes need {volumes}" if volumes else reason

    def _spread_out(self, one: PodClass, reading: Reading, keys: Sequence[str], count: int) -> tuple[int, str]:
        """Up to `count` pods, domain by domain for each key that rules are about; how many, and why not more."""
        if not keys:
            return self._fill(one, reading, reading.variant, count)
        key, rest = keys[0], keys[1:]
        rules = tuple(of_key(reading.rules, key))
        universe = self.universe.usable(reading.own, key)
        least = {rule: self.universe.counted(rule) for rule in rules if isinstance(rule, Spread)}
        blocked = set(universe) - set(asked_for(universe, reading.variant, key))
        domains = Domains(universe, rules, least, blocked=blocked)
        placed, reason = 0, ""
        while placed < count:
            if least:
                domains.room = self._room(one, reading, key, domains.order)
            shares = domains.shares(self._chunk(one, rules, domains, count - placed))
            if not shares:
                return placed, reason or domains.why_not(key)
            for name, share in shares:
                done, why = self._spread_out(one, reading.pinned(key, name), rest, share)
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

    def _room(self, one: PodClass, reading: Reading, key: str, names: Iterable[str]) -> dict[str, int]:
        """Of domains in which no node can be bought for such pods: how many more go there."""
        vector = self.places.vector(one.requests)
        sold = new_cap(reading.rules) > 0
        inside = {name: pinned(reading.variant, key, name) for name in names}
        return {
            name: int(np.minimum(self._fitting(one, reading, within, vector), len(one.pods)).sum())
            for name, within in inside.items()
            if not (sold and self.buyer.sells(within, vector, one.ports))
        }

    def _fill(self, one: PodClass, reading: Reading, variant: Variant, count: int) -> tuple[int, str]:
        vector = self.places.vector(one.requests)
        company = is_company(reading.rules)
        done = self._join(one, reading, variant, vector, count)
        while done < count:
            cap = min(new_cap(reading.rules), 1 if one.ports else UNLIMITED)
            others = np.maximum(self.buyer.demand - vector * len(one.pods), 0)
            room = self.places.open_room(variant)
            need = Need(variant, vector, count - done, cap, others, room, one.ports, one.size, together=company)
            if cap == 0 or (company and done):
                joined = self._grow(one, reading, need) if company else 0
                done += joined
                if joined:
                    continue
                return done, "no node with the pods that its affinity asks for has room"
            choice = self.buyer.choose(need)
            if not isinstance(choice, Choice):
                return done, self._reason(choice)
            done += self._buy(one, variant, vector, choice, count - done, most=1 if company else choice.nodes)
        return done, ""

    def _grow(self, one: PodClass, reading: Reading, need: Need) -> int:
        """Make a bought node larger, which these pods have to join and cannot; how many then do."""
        places = self.places
        caps = host_caps(reading.rules, places.count)
        open_places = np.flatnonzero(caps[places.first :]) + places.first if caps is not None else ()
        for place in map(int, open_places):
            node, lane = places.bought[place - places.first], places.joined(place, need.variant)
            wanted = replace(need, ports=(*need.ports, *node.ports))
            used = places.used(place - places.first)
            found = self.buyer.larger(lane.offer, lane.option, used, node.rows, wanted) if lane else None
            if found is not None:
                places.grow(place, *found)
                return self._join(one, reading, need.variant, need.vector, need.count)
        return 0

    def _join(self, one: PodClass, reading: Reading, variant: Variant, vector: Amounts, count: int) -> int:
        """Homes and nodes that are bought already, in their order."""
        fitting = self._fitting(one, reading, variant, vector)
        return self._assign(one, variant, vector, shares(fitting, count, one_place=_starts_company(reading.rules)))

    def _fitting(self, one: PodClass, reading: Reading, variant: Variant, vector: Amounts) -> Amounts:
        """How many such pods each place takes."""
        places = self.places
        if not places.count:
            return np.zeros(0, dtype=np.int64)
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
        attachable = places.attachments.caps(one.volumes, places.count)
        return fitting if attachable is None else np.minimum(fitting, attachable)

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
        self.places.attachments.take(place, one.volumes, share)
        self.buyer.demand = np.maximum(self.buyer.demand - vector * share, 0)
        if one.size >= 0:
            self.buyer.appraisal.sizes.counts[one.size] -= share
        if place < self.places.first:
            name = self.places.homes.homes[place].name
            self.nominations.update((pod.uid, name) for pod in pods)
        self._count(one.counted, place, share)

    def _count(self, counted: Iterable[Tally], place: int, share: int) -> None:
        for tally in counted:
            if not self.universe.notices(tally, place):
                continue
            if tally.hostname:
                tally.at(self.places.count)[place] += share
            elif (domain := self.places.domain(place, tally.census.key)) is not None:
                tally.add(domain, share)
            else:
                self._loose.setdefault(place, []).append((tally, share))
        if place in self._loose:
            self._settle(place)

    def _settle(self, place: int) -> None:
        """Count what was open, where a pod that came later has decided the domain."""
        still = []
        for tally, share in self._loose[place]:
            domain = self.places.domain(place, tally.census.key)
            if domain is None:
                still.append((tally, share))
            else:
                tally.add(domain, share)
        self._loose[place] = still

    def _keep(self, one: PodClass, pod: PodFact, home: int) -> bool:
        vector = self.places.vector(one.requests)
        attachable = self.places.attachments.caps(one.volumes, self.places.count)
        if attachable is not None and attachable[home] <= 0:
            return False
        for reading in one.readings:
            chosen = self.places.ports_free(one.ports, self.places.admitted(reading.variant))
            if not chosen[home] or (vector > self.places.free[home]).any():
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

    def _reason(self, refusals: Mapping[str, Refusal]) -> str:
        said = {offer.name: refusals[offer.name] for offer in self.buyer.offers if offer.name in refusals}
        every = [f"pool {name}: {refusal}" for name, refusal in {**said, **self.closed}.items()]
        return "; ".join(every) or NOTHING_SOLD


def unplaced(pod: PodFact, reason: str) -> Unplaced:
    return Unplaced(pod_uid=pod.uid, namespace=pod.namespace, name=pod.name, reason=reason)


def _may_end(offer: Offer, one: PodClass) -> bool:
    """Whether the pool's limits could be reached by these pods, be they packed as badly as can be."""
    for key in offer.budget.limits:
        asked = len(one.pods) if key == NODES else one.requests.get(key, 0) * len(one.pods)
        if (offer.budget.left(key) or 0) < asked * _BADLY:
            return True
    return False


def _starts_company(rules: Iterable[Rule]) -> bool:
    mine = tuple(rules)
    return is_company(mine) and new_cap(mine) > 0
