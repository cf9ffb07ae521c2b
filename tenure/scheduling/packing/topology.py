"""Who counts where: pods by domain of a topology key, and the rules that topology spread and pod (anti-)affinity make.

`demand.py` gives each class of pods its rules; `packing.py` asks them where the class may go and
tells where it went. The rules are the kube-scheduler's, with the reference's 2.14 where a node is yet to be made.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tenure.apis.labels import HOSTNAME
from tenure.model.facts import Expression, Selector, Toleration
from tenure.model.requirements import Requirements
from tenure.scheduling.instance_type_table import Amounts
from tenure.scheduling.packing.pod_requirements import Variant

UNLIMITED: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Of a spread constraint: only pods on nodes that the pod itself could use are counted."""

    alternatives: tuple[Requirements, ...] = ()
    tolerations: tuple[Toleration, ...] | None = None
    """None: taints do not matter."""


@dataclass(frozen=True, slots=True)
class Census:
    """Which pods are counted, by the domains of one topology key."""

    key: str
    namespaces: frozenset[str] | None
    """None: all of them."""
    selector: Selector | None
    nodes: NodeFilter = NodeFilter()
    owners: bool = False
    """Count those that carry the anti-affinity term, not those that it selects."""

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        inside = self.namespaces is None or namespace in self.namespaces
        return inside and self.selector is not None and all(_holds(one, labels) for one in self.selector)


class Tally:
    """A census' counts: by place for the hostname key, by domain for any other."""

    __slots__ = ("by_domain", "by_place", "census", "hostname")

    def __init__(self, census: Census) -> None:
        self.census = census
        self.hostname = census.key == HOSTNAME
        self.by_place: Amounts = np.zeros(64 if self.hostname else 0, dtype=np.int64)
        self.by_domain: dict[str, int] = {}

    def at(self, places: int) -> Amounts:
        """The counts of the first so many places."""
        if len(self.by_place) < places:
            self.by_place = np.concatenate((self.by_place, np.zeros(places + len(self.by_place), dtype=np.int64)))
        return self.by_place[:places]

    def add(self, domain: str, count: int) -> None:
        self.by_domain[domain] = self.by_domain.get(domain, 0) + count

    def count(self, domain: str) -> int:
        return self.by_domain.get(domain, 0)

    def any(self) -> bool:
        return bool(self.by_place.any()) if self.hostname else any(self.by_domain.values())


@dataclass(frozen=True, slots=True)
class Spread:
    """At most `max_skew` more here than in the emptiest domain."""

    tally: Tally
    own: bool
    """The pods are counted themselves."""
    max_skew: int
    min_domains: int = 1
    strict: tuple[Variant, ...] = ()
    """What the pods ask of their nodes, preferences left out."""


@dataclass(frozen=True, slots=True)
class Together:
    """Only where at least one of the counted pods is; anywhere for the first, if it is counted itself."""

    tally: Tally
    own: bool


@dataclass(frozen=True, slots=True)
class Apart:
    """Only where none of the counted pods is."""

    tally: Tally
    own: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """The domain must be known: somebody else's rule counts these pods."""

    tally: Tally


Rule = Spread | Together | Apart | Settled


@dataclass(slots=True)
class Domains:
    """The domains of one key that a class may use, and how many of its pods each still takes."""

    order: list[str]
    rules: tuple[Rule, ...]
    counted: Mapping[Spread, Sequence[str]] = field(default_factory=dict)
    """The domains in which each spread looks for the emptiest; all that may be used where nothing is said."""
    room: Mapping[str, int] = field(default_factory=dict)
    """How many more go where no node can be bought."""
    blocked: set[str] = field(default_factory=set)

    def shares(self, count: int) -> list[tuple[str, int]]:
        """Up to `count` pods over the domains, emptiest first; fewer when the rules leave no more room."""
        allowed = [name for name in self.order if name not in self.blocked and self._open(name)]
        allowed = self._with_company(allowed)
        spreads = [rule for rule in self.rules if isinstance(rule, Spread)]
        most = 1 if any(isinstance(rule, Apart) and rule.own for rule in self.rules) else count
        taken = dict.fromkeys(allowed, 0)
        if not spreads:
            return [(name, min(most, count)) for name in allowed[: count if most == 1 else 1]]
        for _ in range(count):
            name = self._emptiest(allowed, taken, spreads, most)
            if name is None:
                break
            taken[name] += 1
        return sorted(((name, number) for name, number in taken.items() if number), key=lambda one: self._key(one[0]))

    def why_not(self, key: str) -> str:
        """Why there is no share for one more pod, in words: which rule, and how near it is."""
        if not self.order:
            return f"no node that could be had, and none that stands, has the label {key}"
        where, said = ", ".join(self.order), []
        for rule in self.rules:
            match rule:
                case Spread():
                    counts = ", ".join(f"{name} has {rule.tally.count(name)}" for name in self._counted(rule))
                    short = len(self._counted(rule)) < rule.min_domains
                    domains = f", minDomains {rule.min_domains} takes the least for 0" if short else ""
                    said.append(
                        f"topology spread on {key} with maxSkew {rule.max_skew} takes no more: {counts}{domains}"
                    )
                case Together():
                    said.append(f"pod affinity on {key}: none of the pods that it asks for is in {where}")
                case Apart():
                    said.append(f"pod anti-affinity on {key}: there are such pods in each of {where}")
        return "; ".join(dict.fromkeys(said)) or f"{key}: none of {where} is left"

    def _counted(self, rule: Spread) -> Sequence[str]:
        return self.counted.get(rule, self.order)

    def _open(self, name: str) -> bool:
        return not any(isinstance(rule, Apart) and rule.tally.count(name) for rule in self.rules)

    def _with_company(self, allowed: list[str]) -> list[str]:
        for rule in self.rules:
            if isinstance(rule, Together):
                if rule.tally.any():
                    allowed = [name for name in allowed if rule.tally.count(name)]
                else:
                    allowed = allowed[:1] if rule.own else []
        return allowed

    def _emptiest(
        self, allowed: Iterable[str], taken: Mapping[str, int], spreads: Iterable[Spread], most: int
    ) -> str | None:
        fitting = [
            name
            for name in allowed
            if taken[name] < min(most, self.room.get(name, most)) and all(self._level(s, name, taken) for s in spreads)
        ]
        first = next(iter(spreads))
        return min(fitting, key=lambda name: first.tally.count(name) + taken[name] * first.own, default=None)

    def _level(self, spread: Spread, name: str, taken: Mapping[str, int]) -> bool:
        def here(domain: str) -> int:
            return spread.tally.count(domain) + (taken.get(domain, 0) if spread.own else 0)

        counted = self._counted(spread)
        least = min(map(here, counted), default=0) if len(counted) >= spread.min_domains else 0
        return here(name) + spread.own - least <= spread.max_skew

    def _key(self, name: str) -> tuple[int, int]:
        spread = next(rule for rule in self.rules if isinstance(rule, Spread))
        return spread.tally.count(name), self.order.index(name)


def host_caps(rules: Iterable[Rule], places: int) -> Amounts | None:
    """How many more pods each place takes by the hostname rules; None when there is no such rule."""
    caps: Amounts | None = None
    for rule in rules:
        if isinstance(rule, Settled) or not rule.tally.hostname:
            continue
        one = _host_cap(rule, rule.tally.at(places))
        caps = one if caps is None else np.minimum(caps, one)
    return caps


def new_cap(rules: Iterable[Rule]) -> int:
    """The same for a node that is yet to be made, and so has none of the counted pods; 0: none may go there."""
    cap = UNLIMITED
    for rule in rules:
        if not rule.tally.hostname:
            continue
        match rule:
            case Spread(own=True):
                cap = min(cap, rule.max_skew)
            case Apart(own=True):
                cap = min(cap, 1)
            case Together() if rule.tally.any() or not rule.own:
                cap = 0
    return cap


def is_company(rules: Iterable[Rule]) -> bool:
    """All pods of the class have to be on one node."""
    return any(isinstance(rule, Together) and rule.tally.hostname for rule in rules)


def domain_keys(rules: Iterable[Rule]) -> tuple[str, ...]:
    """The keys other than the hostname for which a domain has to be chosen."""
    return tuple(dict.fromkeys(rule.tally.census.key for rule in rules if not rule.tally.hostname))


def of_key(rules: Iterable[Rule], key: str) -> Iterator[Rule]:
    return (rule for rule in rules if rule.tally.census.key == key)


def _host_cap(rule: Spread | Together | Apart, counts: Amounts) -> Amounts:
    match rule:
        case Spread(own=True):
            return np.maximum(rule.max_skew - counts, 0)
        case Spread():
            return np.where(counts <= rule.max_skew, UNLIMITED, 0)
        case Apart():
            return np.where(counts > 0, 0, 1 if rule.own else UNLIMITED)
        case Together():
            first = rule.own and not rule.tally.any()
            return np.full(len(counts), UNLIMITED) if first else np.where(counts > 0, UNLIMITED, 0)


def _holds(one: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(one.key)
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists":
            return value is not None
    return value is None
