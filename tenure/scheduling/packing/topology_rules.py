"""Pods' terms about other pods as rules over shared tallies, and the order in which preferences are given up.

Between `demand.py` (what pods say) and `packing.py` (where they go); one book for each pass.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tenure.model.facts import AffinityTerm, PodFact, SpreadConstraint
from tenure.scheduling.packing.pod_requirements import (
    Company,
    Constraints,
    Shape,
    Variant,
    alternatives,
    pinned,
    variant,
    wishes,
    with_volumes,
)
from tenure.scheduling.packing.topology import Apart, Census, NodeFilter, Rule, Settled, Spread, Tally, Together
from tenure.scheduling.pods import IGNORE


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One way to take what a pod says; the first is the strictest, later ones give preferences up."""

    variant: Variant
    rules: tuple[Rule, ...]
    own: Variant
    """Without the places of its volumes: the domains that these leave over are counted as if it could go there."""

    def pinned(self, key: str, value: str) -> "Reading":
        return Reading(pinned(self.variant, key, value), self.rules, pinned(self.own, key, value))


class Book:
    """Every tally of a pass, and who is counted in which."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """`namespaces` are the labels of each, for terms that select namespaces by them."""
        self._namespaces = namespaces or {}
        self._tallies: dict[Census, Tally] = {}
        self._counted: dict[tuple[str, frozenset[tuple[str, str]]], tuple[Tally, ...]] = {}
        self._required: set[Census] = set()

    @property
    def tallies(self) -> Iterable[Tally]:
        return self._tallies.values()

    def enter(self, shape: Shape) -> None:
        """Make the tallies that pods of this shape need. All are entered before anybody is counted."""
        company = shape.company
        for spread in company.spreads:
            self._tally(self._of_spread(spread, shape))
        for term in (*company.affinity, *company.anti_affinity):
            self._tally(self._of_term(term, company.namespace))
        for term in (*company.affinity, *company.anti_affinity):
            if not term.weight:
                self._required.add(self._of_term(term, company.namespace))
        self.enter_owners(company)

    def enter_owners(self, company: Company) -> None:
        """Whoever carries a required anti-affinity term keeps those that it selects away."""
        for term in company.anti_affinity:
            if not term.weight:
                self._tally(self._of_term(term, company.namespace, owners=True))

    def counted(self, pod: PodFact) -> tuple[Tally, ...]:
        """The tallies that select this pod, and those of its own anti-affinity."""
        if not self._tallies:
            return ()
        key = (pod.namespace, frozenset(pod.labels.items()))
        known = self._counted.get(key)
        if known is None:
            known = self._counted[key] = tuple(
                tally
                for census, tally in self._tallies.items()
                if not census.owners and census.selects(pod.namespace, pod.labels)
            )
        if not pod.anti_affinity:
            return known
        owned = tuple(
            self._tallies[census]
            for term in pod.anti_affinity
            if not term.weight and (census := self._of_term(term, pod.namespace, owners=True)) in self._tallies
        )
        return known + owned

    def readings(self, shape: Shape, example: PodFact, policy: str) -> Iterator[Reading]:
        """Preferences are given up one by one in the reference's order (2.5); at each step every alternative of the
        required node affinity is tried, and with each every place of the volumes. At the end even PreferNoSchedule is
        tolerated."""
        constraints, mine, places = shape.constraints, frozenset(self.counted(example)), shape.volumes.alternatives
        hard = (*self._required_rules(shape, mine), *self._imposed(shape, example, mine))
        for wish, soft in self._steps(shape, mine, policy):
            for strict in alternatives(constraints):
                narrowed = strict.intersection(wish) if wish is not None else strict
                own = variant(narrowed, constraints.tolerations)
                for one in with_volumes(narrowed, places):
                    yield Reading(variant(one, constraints.tolerations), (*hard, *soft), own)
        for strict in alternatives(constraints):
            own = variant(strict, constraints.tolerations, True)
            for one in with_volumes(strict, places):
                yield Reading(variant(one, constraints.tolerations, True), hard, own)

    def _steps(self, shape: Shape, mine: frozenset[Tally], policy: str):  # type: ignore[no-untyped-def]
        """What is left of the preferences: a wish for the node, and soft rules."""
        if policy == IGNORE:
            yield None, ()
            return
        company = shape.company
        together = self._soft_terms(company, company.affinity, Together, mine)
        apart = self._soft_terms(company, company.anti_affinity, Apart, mine)
        spreads = [self._spread(one, shape, mine) for one in company.spreads if not one.hard]
        nodes = list(wishes(shape.constraints))
        while True:
            yield (nodes[0] if nodes else None), (*together, *apart, *spreads)
            for held in (together, apart, nodes, spreads):
                if held:
                    held.pop(0)
                    break
            else:
                return

    def _required_rules(self, shape: Shape, mine: frozenset[Tally]) -> Iterator[Rule]:
        company = shape.company
        for spread in company.spreads:
            if spread.hard:
                yield self._spread(spread, shape, mine)
        for term in company.affinity:
            if not term.weight:
                tally = self._tally(self._of_term(term, company.namespace))
                yield Together(tally, tally in mine)
        for term in company.anti_affinity:
            if not term.weight:
                tally = self._tally(self._of_term(term, company.namespace))
                yield Apart(tally, tally in mine)

    def _imposed(self, shape: Shape, example: PodFact, mine: frozenset[Tally]) -> Iterator[Rule]:
        """What other pods' required terms mean for these."""
        for census, tally in self._tallies.items():
            if census.owners and census.selects(example.namespace, example.labels):
                yield Apart(tally, False)
            elif census in self._required and tally in mine and not tally.hostname:
                yield Settled(tally)

    def _soft_terms(
        self,
        company: Company,
        terms: Iterable[AffinityTerm],
        rule: type[Together] | type[Apart],
        mine: frozenset[Tally],
    ) -> list[Rule]:
        found: list[Rule] = []
        for term in sorted((one for one in terms if one.weight), key=lambda one: -one.weight):
            tally = self._tally(self._of_term(term, company.namespace))
            found.append(rule(tally, tally in mine))
        return found

    def _spread(self, one: SpreadConstraint, shape: Shape, mine: frozenset[Tally]) -> Rule:
        tally = self._tally(self._of_spread(one, shape))
        tolerations = shape.constraints.tolerations
        strict = tuple(variant(wanted, tolerations, True) for wanted in alternatives(shape.constraints))
        return Spread(tally, tally in mine, one.max_skew, one.min_domains, strict)

    def _of_spread(self, one: SpreadConstraint, shape: Shape) -> Census:
        return Census(one.key, frozenset({shape.company.namespace}), one.selector, _filter(one, shape.constraints))

    def _of_term(self, term: AffinityTerm, namespace: str, *, owners: bool = False) -> Census:
        return Census(term.key, self._inside(term, namespace), term.selector, owners=owners)

    def _inside(self, term: AffinityTerm, namespace: str) -> frozenset[str] | None:
        if term.namespace_selector is None:
            return frozenset(term.namespaces or (namespace,))
        if not term.namespace_selector:
            return None
        selector = Census("", None, term.namespace_selector)
        chosen = {name for name, labels in self._namespaces.items() if selector.selects(name, labels)}
        return frozenset(chosen | set(term.namespaces))

    def _tally(self, census: Census) -> Tally:
        known = self._tallies.get(census)
        if known is None:
            known = self._tallies[census] = Tally(census)
        return known


def _filter(one: SpreadConstraint, constraints: Constraints) -> NodeFilter:
    return NodeFilter(
        alternatives(constraints) if one.honor_affinity else (), constraints.tolerations if one.honor_taints else None
    )
