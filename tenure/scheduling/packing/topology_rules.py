"""Topology terms of pods as rules over shared counts, and the order in which preferences are relaxed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

from tenure.apis.labels import HOSTNAME, normalize_label_key
from tenure.model.facts import AffinityTerm, DaemonSetFact, Expression, PodFact, Selector, SpreadConstraint
from tenure.model.requirements import EXISTS, IN, Requirements, parse_requirement
from tenure.scheduling.packing.pod_requirements import (
    NO_TOPOLOGY_TERMS,
    PodShape,
    PodTopologyTerms,
    combine_with_volumes,
    exclude_label,
    intern_variant,
    pin_label,
    preferred_node_affinity,
    topology_terms_of,
)
from tenure.scheduling.packing.topology import (
    AffinityRule,
    AntiAffinityRule,
    KnownDomainRule,
    NodeFilter,
    Rule,
    SpreadRule,
    TopologyGroup,
    TopologyIndex,
)
from tenure.scheduling.pods import IGNORE, Constraints, Variant, node_requirement_alternatives


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintAlternative:
    """One way to satisfy a pod's terms; the first is the strictest, later ones drop preferences."""

    variant: Variant
    rules: tuple[Rule, ...]
    without_volumes: Variant
    """The variant without the requirements of its volumes. Spread constraints also count domains that only the volumes
    exclude."""
    is_relaxed: bool = False
    """Whether it has no preferences."""

    def pin_label(self, key: str, value: str) -> "ConstraintAlternative":
        return ConstraintAlternative(
            pin_label(self.variant, key, value), self.rules, pin_label(self.without_volumes, key, value)
        )

    def exclude_label(self, key: str) -> "ConstraintAlternative":
        """Only nodes without the label, to which the rules of this topology key do not apply."""
        rules = tuple(rule for rule in self.rules if rule.group.topology_index.key != key)
        return ConstraintAlternative(exclude_label(self.variant, key), rules, exclude_label(self.without_volumes, key))

    def add_rules(self, rules: Iterable[Rule]) -> "ConstraintAlternative":
        return replace(self, rules=added) if len(added := (*self.rules, *rules)) > len(self.rules) else self


class PodTopologyGroups(NamedTuple):
    counting: tuple[TopologyGroup, ...]
    """The groups that select a pod, and the groups of its own anti-affinity terms."""
    excluding: tuple[TopologyGroup, ...]
    """The groups of pods whose required anti-affinity terms select it."""


_NO_GROUPS: Final = PodTopologyGroups((), ())
_NO_LABELS: Final = Requirements()
FEW_TERMS: Final = 10
"""Of topology spread and pod (anti-)affinity. Comparing them takes no part of the budget. More required anti-affinity
terms are combined."""


class TopologyGroups:
    """Every topology group of a pass, with the pods that each counts."""

    def __init__(
        self,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        *,
        prefer_no_schedule: bool = True,
        may_have_label: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`namespaces`: labels by namespace, for terms with a namespaceSelector. `prefer_no_schedule`: whether any node
        may have a taint with this effect. `may_have_label`: whether any node may have this label; anti-affinity with
        another topology key has no effect."""
        self._namespaces = namespaces or {}
        self._prefer_no_schedule = prefer_no_schedule
        self._may_have_label = cache(may_have_label)
        self._groups: dict[TopologyIndex, TopologyGroup] = {}
        self._by_label: dict[tuple[str, str] | None, list[tuple[int, TopologyGroup]]] = {}
        """By a label that the selected pods have, or None: the groups with their numbers."""
        self._groups_by_labels: dict[tuple[str, frozenset[tuple[str, str]]], PodTopologyGroups] = {}
        self._owned_groups: dict[PodTopologyTerms, tuple[TopologyGroup, ...]] = {}
        self._required_affinity: dict[PodTopologyTerms, list[TopologyIndex]] = {}
        self._unions: dict[tuple[TopologyGroup, ...], TopologyGroup] = {}
        self._required: dict[TopologyGroup, bool] = {}
        """The groups of required terms, and whether one of these is a pod affinity."""

    def add_daemons(self, daemons: Iterable[DaemonSetFact]) -> None:
        """Count the pods that DaemonSets will have on nodes, for the terms of others and for their own anti-affinity
        terms."""
        pods = {daemon.pod.uid: daemon.pod for daemon in daemons}
        for pod in pods.values():
            if pod.anti_affinity:
                self.add_anti_affinity_owners(topology_terms_of(pod))
        for uid, pod in pods.items():
            groups = self.groups_of(pod)
            for group in groups.counting:
                group.daemons.add(uid)
            for group in groups.excluding:
                group.excluded_daemons.add(uid)

    @property
    def groups(self) -> Iterable[TopologyGroup]:
        return self._groups.values()

    def add_shapes(self, shapes: Iterable[PodShape]) -> None:
        """Create the groups that pods of these shapes need."""
        by_id = {id(shape): shape for shape in shapes if shape.topology_terms is not NO_TOPOLOGY_TERMS}
        distinct_shapes = {(shape.topology_terms, shape.constraints): shape for shape in by_id.values()}
        for shape in distinct_shapes.values():
            self.add_shape(shape)

    def add_shape(self, shape: PodShape) -> None:
        """Create the groups that pods of this shape need. All groups exist before any pod is counted."""
        topology_terms = shape.topology_terms
        for spread in topology_terms.spreads:
            self._get_group(self._spread_index(spread, shape))
        for index in self._list_required_affinity(topology_terms):
            if self._may_have_label(index.key):
                self._required[self._get_group(index)] = True
        for term in (one for one in topology_terms.affinity if one.weight):
            self._get_group(self._term_index(term, topology_terms.namespace))
        for term in self._effective_anti_affinity(topology_terms):
            group = self._get_group(self._term_index(term, topology_terms.namespace))
            if not term.weight:
                self._required.setdefault(group, False)
        self.add_anti_affinity_owners(topology_terms)

    def add_anti_affinity_owners(self, topology_terms: PodTopologyTerms) -> None:
        """A pod with a required anti-affinity term excludes the pods that the term selects."""
        for index in self._owner_indexes(topology_terms):
            self._get_group(index)

    def _owner_indexes(self, topology_terms: PodTopologyTerms) -> Iterator[TopologyIndex]:
        """One for each required anti-affinity term; for many terms, one for each topology key."""
        terms = (one for one in self._effective_anti_affinity(topology_terms) if not one.weight)
        by_key = dict[str | TopologyIndex, list[TopologyIndex]]()
        for index in dict.fromkeys(self._term_index(term, topology_terms.namespace) for term in terms):
            by_key.setdefault(index.key if topology_terms.count > FEW_TERMS else index, []).append(index)
        for owned_terms in by_key.values():
            yield TopologyIndex(owned_terms[0].key, None, None, owned_terms=tuple(owned_terms))

    def groups_of(self, pod: PodFact, topology_terms: PodTopologyTerms | None = None) -> PodTopologyGroups:
        """`topology_terms`: of the pod, if known."""
        if not self._groups:
            return _NO_GROUPS
        key = (pod.namespace, frozenset(pod.labels.items()))
        known = self._groups_by_labels.get(key)
        if known is None:
            candidates = sorted({one for label in (None, *pod.labels.items()) for one in self._by_label.get(label, ())})
            selecting = [one for _, one in candidates if one.topology_index.selects(pod.namespace, pod.labels)]
            known = self._groups_by_labels[key] = PodTopologyGroups(
                tuple(group for group in selecting if not group.topology_index.owned_terms),
                tuple(group for group in selecting if group.topology_index.owned_terms),
            )
        if not pod.anti_affinity:
            return known
        own = self._list_owned(topology_terms or topology_terms_of(pod))
        return PodTopologyGroups(known.counting + own, known.excluding)

    def _list_owned(self, topology_terms: PodTopologyTerms) -> tuple[TopologyGroup, ...]:
        known = self._owned_groups.get(topology_terms)
        if known is None:
            known = self._owned_groups[topology_terms] = tuple(
                self._groups[index] for index in self._owner_indexes(topology_terms) if index in self._groups
            )
        return known

    def constraint_alternatives(
        self, shape: PodShape, example: PodFact, policy: str
    ) -> Iterator[ConstraintAlternative]:
        """Preferences are relaxed one by one in the order of reference 2.5. Each step tries every alternative of the
        required node affinity with every alternative of the volumes. The last step also tolerates PreferNoSchedule, if
        any node may have such a taint."""
        constraints, volume_alternatives = shape.constraints, shape.volumes.alternatives
        groups = self.groups_of(example, shape.topology_terms)
        own_groups = frozenset(groups.counting)
        hard = (*self._required_rules(shape, own_groups), *self._imposed_rules(groups))
        alternatives = node_requirement_alternatives(constraints)
        for preference, soft in self._relaxation_steps(shape, own_groups, policy):
            is_relaxed = preference is None and not soft
            for strict in alternatives:
                preferred = strict.intersection(preference) if preference is not None else strict
                own = intern_variant(preferred, constraints.tolerations)
                for one in combine_with_volumes(preferred, volume_alternatives):
                    variant = intern_variant(one, constraints.tolerations)
                    yield ConstraintAlternative(variant, (*hard, *soft), own, is_relaxed)
        if not self._prefer_no_schedule:
            return
        for strict in alternatives:
            own = intern_variant(strict, constraints.tolerations, True)
            for one in combine_with_volumes(strict, volume_alternatives):
                yield ConstraintAlternative(intern_variant(one, constraints.tolerations, True), hard, own, True)

    def _relaxation_steps(self, shape: PodShape, own_groups: frozenset[TopologyGroup], policy: str):  # type: ignore[no-untyped-def]
        """The remaining preferences at each step: preferred node affinity, and soft rules."""
        if policy == IGNORE:
            yield None, ()
            return
        topology_terms = shape.topology_terms
        affinity = self._preferred_rules(topology_terms, topology_terms.affinity, AffinityRule, own_groups)
        anti_affinity = self._preferred_rules(
            topology_terms, self._effective_anti_affinity(topology_terms), AntiAffinityRule, own_groups
        )
        spreads = [self._spread_rule(one, shape, own_groups) for one in topology_terms.spreads if not one.hard]
        nodes = list(preferred_node_affinity(shape.constraints))
        while True:
            yield (nodes[0] if nodes else None), (*affinity, *anti_affinity, *spreads)
            for preferences in (affinity, anti_affinity, nodes, spreads):
                if preferences:
                    preferences.pop(0)
                    break
            else:
                return

    def _required_rules(self, shape: PodShape, own_groups: frozenset[TopologyGroup]) -> Iterator[Rule]:
        topology_terms = shape.topology_terms
        for spread in topology_terms.spreads:
            if spread.hard:
                yield self._spread_rule(spread, shape, own_groups)
        groups = tuple(map(self._get_group, self._list_required_affinity(topology_terms)))
        is_conjunction = sum(not term.weight for term in topology_terms.affinity) > 1
        for group in groups:
            yield AffinityRule(group, group in own_groups, groups if is_conjunction else ())
        for term in self._effective_anti_affinity(topology_terms):
            if not term.weight:
                group = self._get_group(self._term_index(term, topology_terms.namespace))
                yield AntiAffinityRule(group, group in own_groups)

    def _imposed_rules(self, groups: PodTopologyGroups) -> Iterator[Rule]:
        """Rules that required terms of other pods impose on these. Many terms are combined by topology key."""
        excluding = dict[str, list[TopologyGroup]]()
        for group in groups.excluding:
            excluding.setdefault(group.topology_index.key, []).append(group)
        for same_key in excluding.values():
            united = [self._unite(tuple(same_key))] if len(same_key) > FEW_TERMS else same_key
            yield from (AntiAffinityRule(group, False) for group in united)
        known = dict[str, KnownDomainRule]()
        for group in groups.counting:
            if not group.hostname and group in self._required:
                key, attracts = group.topology_index.key, self._required[group]
                if key not in known or (attracts and not known[key].attracts):
                    known[key] = KnownDomainRule(group, attracts)
        yield from known.values()

    def _unite(self, groups: tuple[TopologyGroup, ...]) -> TopologyGroup:
        """The group that counts the pods of all these groups, which have the same topology key."""
        known = self._unions.get(groups)
        if known is None:
            known = self._unions[groups] = TopologyGroup(TopologyIndex(groups[0].topology_index.key, None, None))
            known.daemons = set[str]().union(*(group.daemons for group in groups))
            for group in groups:
                group.unions.append(known)
        return known

    def _preferred_rules(
        self,
        topology_terms: PodTopologyTerms,
        terms: Iterable[AffinityTerm],
        rule: type[AffinityRule] | type[AntiAffinityRule],
        own_groups: frozenset[TopologyGroup],
    ) -> list[Rule]:
        found: list[Rule] = []
        for term in sorted((one for one in terms if one.weight), key=lambda one: -one.weight):
            group = self._get_group(self._term_index(term, topology_terms.namespace))
            found.append(rule(group, group in own_groups))
        return found

    def _spread_rule(self, one: SpreadConstraint, shape: PodShape, own_groups: frozenset[TopologyGroup]) -> Rule:
        group = self._get_group(self._spread_index(one, shape))
        tolerations, labels = shape.constraints.tolerations, _other_topology_keys(one, shape.topology_terms)
        strict = tuple(
            intern_variant(requirements.intersection(labels), tolerations, True)
            for requirements in node_requirement_alternatives(shape.constraints)
        )
        return SpreadRule(group, group in own_groups, one.max_skew, one.min_domains, strict, labels)

    def _spread_index(self, one: SpreadConstraint, shape: PodShape) -> TopologyIndex:
        labels = _other_topology_keys(one, shape.topology_terms)
        return TopologyIndex(
            normalize_label_key(one.key),
            frozenset({shape.topology_terms.namespace}),
            # kube-scheduler counts no pods for an empty selector.
            one.selector or None,
            _node_filter(one, shape.constraints, labels),
        )

    def _term_index(self, term: AffinityTerm, namespace: str) -> TopologyIndex:
        key = normalize_label_key(term.key)
        return TopologyIndex(key, self._selected_namespaces(term, namespace), term.selector)

    def _list_required_affinity(self, topology_terms: PodTopologyTerms) -> list[TopologyIndex]:
        """One for each topology key. kube-scheduler counts only the pods that all required terms select."""
        known = self._required_affinity.get(topology_terms)
        if known is None:
            known = self._required_affinity[topology_terms] = self._combine_required_affinity(topology_terms)
        return known

    def _combine_required_affinity(self, topology_terms: PodTopologyTerms) -> list[TopologyIndex]:
        indexes = [
            self._term_index(term, topology_terms.namespace) for term in topology_terms.affinity if not term.weight
        ]
        if len(indexes) < 2:
            return indexes
        listed = [index.namespaces for index in indexes if index.namespaces is not None]
        namespaces = frozenset.intersection(*listed) if listed else None
        selector = _combine_selectors(index.selector for index in indexes)
        return [*dict.fromkeys(replace(index, namespaces=namespaces, selector=selector) for index in indexes)]

    def _effective_anti_affinity(self, topology_terms: PodTopologyTerms) -> Iterator[AffinityTerm]:
        """kube-scheduler ignores anti-affinity on nodes without the topology key."""
        return (one for one in topology_terms.anti_affinity if self._may_have_label(normalize_label_key(one.key)))

    def _selected_namespaces(self, term: AffinityTerm, namespace: str) -> frozenset[str] | None:
        if term.namespace_selector is None:
            return frozenset(term.namespaces or (namespace,))
        if not term.namespace_selector:
            return None
        selector = TopologyIndex("", None, term.namespace_selector)
        chosen = {name for name, labels in self._namespaces.items() if selector.selects(name, labels)}
        return frozenset(chosen | set(term.namespaces))

    def _get_group(self, topology_index: TopologyIndex) -> TopologyGroup:
        known = self._groups.get(topology_index)
        if known is None:
            known = self._groups[topology_index] = TopologyGroup(topology_index)
            selectors = {one.selector for one in topology_index.owned_terms or (topology_index,)}
            for label in {label for one in selectors for label in _selected_labels(one)}:
                self._by_label.setdefault(label, []).append((len(self._groups), known))
        return known


def count_comparisons(terms: PodTopologyTerms, shapes_by_label: Mapping[tuple[str, str] | None, int]) -> int:
    """Of these terms with other pods. A term that names a label is compared with pods that have it; None stands for
    all. Required affinity terms are compared for each of their topology keys."""
    keys = {one.key for one in terms.affinity if not one.weight}
    selectors = [(one.selector, 1) for one in terms.spreads]
    selectors += [(one.selector, 1) for one in terms.anti_affinity]
    selectors += [(one.selector, 1 if one.weight else len(keys)) for one in terms.affinity]
    return sum(
        times * (1 + sum(shapes_by_label.get(label, 0) for label in _selected_labels(selector)))
        for selector, times in selectors
    )


def _selected_labels(selector: Selector | None) -> Iterable[tuple[str, str] | None]:
    """Labels of which each selected pod has one; None if they are not known."""
    for one in selector or ():
        if one.operator == IN:
            return {(one.key, value): None for value in one.values}
    return () if selector is None else (None,)


def _node_filter(one: SpreadConstraint, constraints: Constraints, labels: Requirements) -> NodeFilter:
    alternatives = node_requirement_alternatives(constraints) if one.honor_affinity else ()
    if labels:
        alternatives = tuple(requirements.intersection(labels) for requirements in alternatives or (Requirements(),))
    return NodeFilter(alternatives, constraints.tolerations if one.honor_taints else None)


def _other_topology_keys(one: SpreadConstraint, topology_terms: PodTopologyTerms) -> Requirements:
    """The topology keys of the other hard constraints must exist on a node, so that a hard constraint includes it."""
    keys = {spread.key for spread in topology_terms.spreads if spread.hard and one.hard} - {one.key, HOSTNAME}
    return Requirements(parse_requirement(Expression(key=key, operator=EXISTS)) for key in keys) if keys else _NO_LABELS


def _combine_selectors(selectors: Iterable[Selector | None]) -> Selector | None:
    """Selects the pods that all selectors select."""
    expressions = dict[Expression, None]()
    for selector in selectors:
        if selector is None:
            return None
        expressions.update(dict.fromkeys(selector))
    return tuple(expressions)
