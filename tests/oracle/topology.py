"""Proof that a plan satisfies topology spread, pod affinity, pod anti-affinity and host ports.

Preferences are not checked. A node with several possible zones counts in each of them. Terminating pods are gone when
the plan is complete.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tenure.model.facts import AffinityTerm, Expression, PodFact, Selector, SpreadConstraint, Taint

HOSTNAME: Final = "kubernetes.io/hostname"
Fits = Callable[[PodFact, "Spot"], bool]


@dataclass(frozen=True)
class Spot:
    """An existing or planned node, with the possible values of each label."""

    name: str
    labels: Mapping[str, frozenset[str]]
    taints: tuple[Taint, ...]
    pods: Sequence[PodFact]
    planned: frozenset[str]
    """UIDs of the pods that the plan places here."""

    def values(self, key: str) -> frozenset[str]:
        return frozenset({self.name}) if key == HOSTNAME else self.labels.get(key, frozenset())

    def domain_of(self, key: str) -> str | None:
        """The label's value if it is certain."""
        values = self.values(key)
        return next(iter(values)) if len(values) == 1 else None


def topology_violations(
    spots: Sequence[Spot], namespaces: Mapping[str, Mapping[str, str]], admits: Fits, tolerates: Fits
) -> Iterator[str]:
    """`admits`: whether node selector and affinity admit the pod to the spot; `tolerates`: whether it tolerates the
    taints.
    """
    everyone = [(pod, spot) for spot in spots for pod in spot.pods if not pod.deleting]
    index = _SelectorIndex(everyone)
    for spot in spots:
        yield from _port_violations(spot)
        for pod in spot.pods:
            for term in pod.anti_affinity:
                if not term.weight and not pod.deleting:
                    yield from _anti_affinity_violations(pod, spot, term, index, namespaces)
            if pod.uid in spot.planned:
                yield from _affinity_violations(pod, spot, index, namespaces)
                yield from (
                    problem
                    for one in pod.spreads
                    if one.hard and (problem := _skew_violation(pod, spot, one, spots, index, admits, tolerates))
                )


class _SelectorIndex:
    """Pods by selector, computed once per selector."""

    def __init__(self, everyone: Sequence[tuple[PodFact, Spot]]) -> None:
        self._everyone = everyone
        self._known: dict[tuple[frozenset[str] | None, Selector | None], list[tuple[PodFact, Spot]]] = {}

    def select(self, namespaces: frozenset[str] | None, selector: Selector | None) -> list[tuple[PodFact, Spot]]:
        key = (namespaces, selector)
        if key not in self._known:
            self._known[key] = [
                (pod, spot)
                for pod, spot in self._everyone
                if (namespaces is None or pod.namespace in namespaces) and matches_selector(pod.labels, selector)
            ]
        return self._known[key]


def matches_selector(labels: Mapping[str, str], selector: Selector | None) -> bool:
    return selector is not None and all(_matches_expression(labels, expression) for expression in selector)


def _matches_expression(labels: Mapping[str, str], expression: Expression) -> bool:
    has, value = expression.key in labels, labels.get(expression.key, "")
    return {
        "In": has and value in expression.values,
        "NotIn": not has or value not in expression.values,
        "Exists": has,
        "DoesNotExist": not has,
    }[expression.operator]


def _selected_namespaces(
    term: AffinityTerm, own_namespace: str, namespaces: Mapping[str, Mapping[str, str]]
) -> frozenset[str] | None:
    if term.namespace_selector is None:
        return frozenset(term.namespaces) or frozenset({own_namespace})
    if not term.namespace_selector:
        return None
    chosen = {name for name, labels in namespaces.items() if matches_selector(labels, term.namespace_selector)}
    return frozenset(chosen) | frozenset(term.namespaces)


def _anti_affinity_violations(
    pod: PodFact, spot: Spot, term: AffinityTerm, index: _SelectorIndex, namespaces: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    domains = spot.values(term.key)
    for other, where in index.select(_selected_namespaces(term, pod.namespace, namespaces), term.selector):
        concerned = pod.uid in spot.planned or other.uid in where.planned
        if other is not pod and concerned and domains & where.values(term.key):
            yield f"{pod.name} on {spot.name} keeps {other.name} on {where.name} away by {term.key}"


def _affinity_violations(
    pod: PodFact, spot: Spot, index: _SelectorIndex, namespaces: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """kube-scheduler counts the pods that all required terms select, for each of the terms' topology keys."""
    terms = [term for term in pod.affinity if not term.weight]
    keys = {term.key for term in terms}
    selections = [
        {
            (other.uid, where.name): (other, where)
            for other, where in index.select(_selected_namespaces(term, pod.namespace, namespaces), term.selector)
            if any(where.values(key) for key in keys)
        }
        for term in terms
    ]
    chosen = (
        [one for position, one in selections[0].items() if all(position in each for each in selections)]
        if terms
        else []
    )
    for key in sorted(keys):
        domain = spot.domain_of(key)
        has_peer = any(where.domain_of(key) == domain for _, where in chosen)
        if domain is None or not has_peer or not _could_be_first(terms, key, domain, chosen):
            yield f"{pod.name} on {spot.name} misses the pods that its affinity by {key} asks for"


def _could_be_first(
    terms: Sequence[AffinityTerm], key: str, domain: str, chosen: Sequence[tuple[PodFact, Spot]]
) -> bool:
    """True if a pod in the domain has no such terms or already ran. Otherwise these pods must be the first of their
    kind: every selected pod elsewhere is planned and has no such terms.
    """
    in_domain = [(pod, where) for pod, where in chosen if where.domain_of(key) == domain]
    if any(not _has_affinity_terms(pod, terms) or pod.uid not in where.planned for pod, where in in_domain):
        return True
    elsewhere = [(pod, where) for pod, where in chosen if where.domain_of(key) != domain]
    return all(pod.uid in where.planned and not _has_affinity_terms(pod, terms) for pod, where in elsewhere)


def _has_affinity_terms(pod: PodFact, terms: Iterable[AffinityTerm]) -> bool:
    own = {(one.key, one.selector) for one in pod.affinity if not one.weight}
    return own >= {(one.key, one.selector) for one in terms}


def _skew_violation(
    pod: PodFact,
    spot: Spot,
    one: SpreadConstraint,
    spots: Sequence[Spot],
    index: _SelectorIndex,
    admits: Fits,
    tolerates: Fits,
) -> str:
    domain = spot.domain_of(one.key)
    if domain is None:
        return f"{pod.name} on {spot.name} is spread by {one.key}, which is open there"
    if one.selector == ():
        # kube-scheduler counts no pods for an empty selector.
        return ""
    keys = {other.key for other in pod.spreads if other.hard}
    counted = [
        other_spot
        for other_spot in spots
        if all(other_spot.values(key) for key in keys)
        and (not one.honor_affinity or admits(pod, other_spot))
        and (not one.honor_taints or tolerates(pod, other_spot))
    ]
    counted_names = {other_spot.name for other_spot in counted}
    counts: dict[str, int] = defaultdict(int)
    for other_spot in counted:
        if (name := other_spot.domain_of(one.key)) is not None:
            counts[name] += 0
    selected = index.select(frozenset({pod.namespace}), one.selector)
    if any(not _has_spread_constraint(other, one) for other, where in selected if other.uid in where.planned):
        # Selected pods without a spread constraint may be bound later, in any domain.
        return ""
    counts_itself = matches_selector(pod.labels, one.selector)
    for other, where in selected:
        if where.name in counted_names and (name := where.domain_of(one.key)) is not None:
            # A planned pod may be bound later than a pod that the constraint does not count.
            may_follow = not counts_itself and other.uid in where.planned and name == domain
            counts[name] += not may_follow
    least = min(counts.values(), default=0) if len(counts) >= one.min_domains else 0
    exceeded = counts[domain] - least > one.max_skew
    return f"{pod.name} in {one.key} {domain}: {counts[domain]} there, {least} elsewhere" if exceeded else ""


def _has_spread_constraint(pod: PodFact, one: SpreadConstraint) -> bool:
    return any(other.hard and (other.key, other.selector) == (one.key, one.selector) for other in pod.spreads)


def _port_violations(spot: Spot) -> Iterator[str]:
    taken = [(port, pod) for pod in spot.pods for port in pod.host_ports]
    for number, (port, pod) in enumerate(taken):
        for other, second in taken[:number]:
            same = (port.port, port.protocol) == (other.port, other.protocol)
            concerned = {pod.uid, second.uid} & spot.planned
            if same and concerned and (port.address == other.address or not (port.address and other.address)):
                yield f"{pod.name} and {second.name} both want host port {port.port} of {spot.name}"


def one_value(labels: Iterable[Mapping[str, str]]) -> dict[str, frozenset[str]]:
    """All values of each label among some outcomes."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in labels:
        for key, value in one.items():
            found[key].add(value)
    return {key: frozenset(values) for key, values in found.items()}
