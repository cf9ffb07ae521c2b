"""Pods by topology domain, and the rules of topology spread and pod (anti-)affinity.

The rules are the kube-scheduler's, with the reference's 2.14 for new nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np

from tenure.apis.labels import HOSTNAME
from tenure.model.facts import Selector, Toleration, matches_selector
from tenure.model.requirements import Requirements
from tenure.scheduling.instance_type_table import Amounts, Mask
from tenure.scheduling.nodepool_template import NodePoolTemplate
from tenure.scheduling.pods import Variant

UNLIMITED: Final = np.iinfo(np.int64).max
NO_LABEL: Final = "(no label)"
"""Stands for the nodes without the topology key among its domains. No label can have this value."""


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """For a spread constraint: only pods on nodes that the pod itself could use are counted."""

    alternatives: tuple[Requirements, ...] = ()
    """They include `labels` of the constraint's SpreadRule."""
    tolerations: tuple[Toleration, ...] | None = None
    """None: taints are ignored."""


@dataclass(frozen=True, slots=True)
class TopologyIndex:
    """The pods that a topology group counts, and the topology key of its domains."""

    key: str
    namespaces: frozenset[str] | None
    """None: all namespaces."""
    selector: Selector | None
    nodes: NodeFilter = NodeFilter()
    owned_terms: tuple["TopologyIndex", ...] = ()
    """Anti-affinity terms of one key. Count the pods that have them, not the pods that one of them selects."""

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if self.owned_terms:
            return any(one.selects(namespace, labels) for one in self.owned_terms)
        inside = self.namespaces is None or namespace in self.namespaces
        return inside and matches_selector(self.selector, labels)


class TopologyGroup:
    """The counts of a TopologyIndex: by node index for the hostname key, by domain for other keys."""

    __slots__ = (
        "by_domain",
        "by_node_index",
        "daemons",
        "excluded_daemons",
        "fewest",
        "hostname",
        "most",
        "topology_index",
        "unions",
    )

    def __init__(self, topology_index: TopologyIndex) -> None:
        self.topology_index = topology_index
        self.hostname = topology_index.key == HOSTNAME
        self.by_node_index: Amounts = np.zeros(64 if self.hostname else 0, dtype=np.int64)
        self.by_domain: dict[str, int] = {}
        self.daemons: set[str] = set()
        """UIDs of the DaemonSets whose pods the group counts on each node that gets one."""
        self.excluded_daemons: set[str] = set()
        """UIDs of the DaemonSets whose pods the anti-affinity of counted pods excludes from their domain."""
        self.unions: list[TopologyGroup] = []
        """Groups that count the pods of this group and of others."""
        self.fewest, self.most = 0, 0
        """For the spread constraint that is being scheduled: the minimum of a node, if the pods of DaemonSets are the
        first on a new one, and the maximum of these on a new node."""

    def counts_by_node(self, node_count: int) -> Amounts:
        """The counts of the first `node_count` nodes."""
        if len(self.by_node_index) < node_count:
            self.by_node_index = np.concatenate(
                (self.by_node_index, np.zeros(node_count + len(self.by_node_index), dtype=np.int64))
            )
        return self.by_node_index[:node_count]

    def add_to_domain(self, domain: str, count: int) -> None:
        self.by_domain[domain] = self.by_domain.get(domain, 0) + count

    def domain_count(self, domain: str) -> int:
        return self.by_domain.get(domain, 0)

    def has_pods(self) -> bool:
        return bool(self.by_node_index.any()) if self.hostname else any(self.by_domain.values())


def include_unions(groups: Sequence[TopologyGroup]) -> Iterable[TopologyGroup]:
    """The groups that count a pod of these groups."""
    return dict.fromkeys(chain(groups, *(group.unions for group in groups)))


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """At most `max_skew` more pods in a domain than in the emptiest one."""

    group: TopologyGroup
    counts_itself: bool
    """Whether the group counts these pods themselves."""
    max_skew: int
    min_domains: int = 1
    strict: tuple[Variant, ...] = ()
    """The pods' node requirements without preferences, and `labels`."""
    labels: Requirements = field(default_factory=Requirements)
    """The topology keys of the pods' other hard constraints. kube-scheduler ignores nodes that lack one of them."""

    @property
    def most_counted_before(self) -> int:
        """How many pods a node may have before another one is added."""
        return self.max_skew + self.group.fewest - self.counts_itself


@dataclass(frozen=True, slots=True)
class AffinityRule:
    """Only in domains with a counted pod. If the group counts these pods (`own`), the first one may go anywhere."""

    group: TopologyGroup
    own: bool
    combined: tuple[TopologyGroup, ...] = ()
    """If the pods have several required terms, the groups of all their topology keys. They count the same pods."""

    @property
    def allows_first(self) -> bool:
        """Whether these pods are the first, so that the rule does not limit them yet."""
        return self.own and not any(group.has_pods() for group in self.combined or (self.group,))

    @property
    def requires_daemons(self) -> bool:
        """Whether the DaemonSet pods of a new node can satisfy the rule there, and the pods themselves cannot."""
        return bool(self.group.daemons) and not self.allows_first


@dataclass(frozen=True, slots=True)
class AntiAffinityRule:
    """Only in domains without a counted pod, or on nodes without the label. `own`: the group counts these pods
    themselves."""

    group: TopologyGroup
    own: bool


@dataclass(frozen=True, slots=True)
class KnownDomainRule:
    """The domain must be known, or absent, since another pod's rule counts these pods."""

    group: TopologyGroup
    attracts: bool = False
    """Whether the rule is a required pod affinity: other pods can follow these only into a domain."""


Rule = SpreadRule | AffinityRule | AntiAffinityRule | KnownDomainRule


def is_limited_by_domain(rule: Rule) -> bool:
    """Whether counted pods may exclude their domain."""
    return isinstance(rule, SpreadRule | AntiAffinityRule) and not rule.group.hostname


@dataclass(slots=True)
class Domains:
    """The domains of one key that a class may use, and how many of its pods each one still accepts."""

    order: list[str]
    rules: tuple[Rule, ...]
    counted_domains: Mapping[SpreadRule, Sequence[str]] = field(default_factory=dict)
    """The domains among which a spread constraint finds its minimum; without an entry, all usable domains."""
    headroom: Mapping[str, int] = field(default_factory=dict)
    """How many more pods fit in domains in which no node can be launched."""
    fitting_pods: Mapping[str, int] = field(default_factory=dict)
    """How many more pods fit on existing and new nodes, if there are existing nodes or the pods of DaemonSets count."""
    occupied: Set[str] = frozenset()
    """Domains of existing nodes, where the pods of DaemonSets count."""
    blocked: set[str] = field(default_factory=set)

    def distribute_pods(self, count: int) -> list[tuple[str, int]]:
        """Distribute up to `count` pods over the domains, emptiest first; fewer if the rules allow no more."""
        allowed = [name for name in self.order if name not in self.blocked and self._is_allowed(name)]
        allowed = self._satisfying_affinity(allowed)
        spreads = [rule for rule in self.rules if isinstance(rule, SpreadRule)]
        most = 1 if any(isinstance(rule, AntiAffinityRule) and rule.own for rule in self.rules) else count
        taken = dict.fromkeys(allowed, 0)
        if not spreads:
            return self._distribute_in_order(allowed, count, most)
        if any(spread.group.daemons for spread in spreads):
            taken = self._distribute_until_launch(count, allowed, spreads, most)
            count = 0
        for _ in range(count):
            name = self._emptiest_domain(allowed, taken, spreads, most)
            if name is None:
                break
            taken[name] += 1
        return sorted(
            ((name, number) for name, number in taken.items() if number),
            key=lambda one: self._emptiest_first_order(one[0]),
        )

    def _distribute_in_order(self, allowed: Iterable[str], count: int, most: int) -> list[tuple[str, int]]:
        """All pods in the first domain; at most `most` in each if that is 1. Nodes without the label have no limit."""
        found = list[tuple[str, int]]()
        for name in allowed:
            share = count if name == NO_LABEL else min(most, count)
            found.append((name, share))
            count -= share
            if count <= 0 or most > 1:
                break
        return found

    def awaits_daemons(self, name: str) -> tuple[AffinityRule, ...]:
        """The rules that only a new node in this domain satisfies, by its DaemonSet pods."""
        return tuple(
            rule
            for rule in self.rules
            if isinstance(rule, AffinityRule) and rule.requires_daemons and not rule.group.domain_count(name)
        )

    def rejection_message(self, key: str) -> str:
        """Why the domains accept no more pods: each rule and its counts."""
        if not self.order:
            return f"no launchable node and no existing node has the label {key}"
        where, reasons = ", ".join(name for name in self.order if name != NO_LABEL), []
        for rule in self.rules:
            match rule:
                case SpreadRule():
                    counts = ", ".join(
                        f"{name} has {rule.group.domain_count(name)}" for name in self._counted_domains(rule)
                    )
                    short = len(self._counted_domains(rule)) < rule.min_domains
                    domains = f", fewer than minDomains {rule.min_domains}, so the minimum is 0" if short else ""
                    reasons.append(
                        f"topology spread on {key} with maxSkew {rule.max_skew} allows no more: {counts}{domains}"
                    )
                case AffinityRule():
                    none = (
                        "no pod that all of its required terms select" if rule.combined else "none of the selected pods"
                    )
                    reasons.append(f"pod affinity on {key}: {none} is in {where}")
                case AntiAffinityRule():
                    reasons.append(f"pod anti-affinity on {key}: selected pods are in each of {where}")
        return "; ".join(dict.fromkeys(reasons)) or f"{key}: none of {where} is left"

    def _counted_domains(self, rule: SpreadRule) -> Sequence[str]:
        return self.counted_domains.get(rule, self.order)

    def _is_allowed(self, name: str) -> bool:
        return not any(isinstance(rule, AntiAffinityRule) and rule.group.domain_count(name) for rule in self.rules)

    def _satisfying_affinity(self, allowed: list[str]) -> list[str]:
        for rule in self.rules:
            if isinstance(rule, AffinityRule):
                if rule.requires_daemons:
                    allowed = [name for name in allowed if rule.group.domain_count(name)] or allowed
                elif rule.allows_first:
                    allowed = allowed[:1]
                else:
                    allowed = [name for name in allowed if rule.group.domain_count(name)]
        return allowed

    def _distribute_until_launch(
        self, count: int, allowed: Sequence[str], spreads: Sequence[SpreadRule], most: int
    ) -> dict[str, int]:
        """Distribute pods up to the first that needs a new node, since its DaemonSet pods count too. If no single
        domain may get one, all of the emptiest domains get one."""
        taken = dict.fromkeys(allowed, 0)

        def is_allowed(added: Mapping[str, int]) -> bool:
            return all(
                added[name] <= min(most, self.headroom.get(name, most))
                and all(self._is_final_within_skew(spread, name, added) for spread in spreads)
                for name in added
                if added[name]
            )

        def order(name: str) -> tuple[bool, int]:
            return taken[name] >= self.fitting_pods.get(name, 0), self._final_count(spreads[0], name, taken)

        for _ in range(count):
            fitting = [name for name in allowed if is_allowed({**taken, name: taken[name] + 1})]
            if not fitting:
                break
            name = min(fitting, key=order)
            taken[name] += 1
            if taken[name] > self.fitting_pods.get(name, 0):
                return taken
        if any(taken.values()):
            return taken
        counts = {name: self._final_count(spreads[0], name, {}) for name in self._counted_domains(spreads[0])}
        emptiest = {name: 1 for name, number in counts.items() if number == min(counts.values())}
        is_possible = emptiest.keys() <= taken.keys() and len(emptiest) <= count and is_allowed(emptiest)
        return emptiest if is_possible else taken

    def _is_final_within_skew(self, spread: SpreadRule, name: str, added: Mapping[str, int]) -> bool:
        counted_domains = self._counted_domains(spread)
        counts = [self._final_count(spread, domain, added) for domain in counted_domains]
        with_nodes = sum(self._has_node(spread, domain, added) for domain in counted_domains)
        least = min(counts, default=0) if with_nodes >= spread.min_domains else 0
        return self._final_count(spread, name, added) - least <= spread.max_skew

    def _has_node(self, spread: SpreadRule, name: str, added: Mapping[str, int]) -> bool:
        """kube-scheduler does not count the other domains for `minDomains`."""
        return name in self.occupied or spread.group.domain_count(name) > 0 or added.get(name, 0) > 0

    def _final_count(self, spread: SpreadRule, name: str, added: Mapping[str, int]) -> int:
        """With the added pods and the DaemonSet pods of a new node, if they need one or the domain has none."""
        group, pods = spread.group, added.get(name, 0)
        count = group.domain_count(name) + pods * spread.counts_itself
        if pods > self.fitting_pods.get(name, 0):
            return count + group.most
        return count if count or name in self.occupied else group.fewest

    def _emptiest_domain(
        self, allowed: Iterable[str], taken: Mapping[str, int], spreads: Iterable[SpreadRule], most: int
    ) -> str | None:
        highest = [(spread, self._highest_count(spread, taken)) for spread in spreads]
        fitting = [
            name
            for name in allowed
            if taken[name] < min(most, self.headroom.get(name, most))
            and all(_count_in(spread, name, taken) <= count for spread, count in highest)
        ]
        first = highest[0][0]

        def order(name: str) -> tuple[int, bool]:
            """Of equally empty domains, one with room on its nodes comes first."""
            return _count_in(first, name, taken), taken[name] >= self.fitting_pods.get(name, 0)

        return min(fitting, key=order, default=None)

    def _highest_count(self, spread: SpreadRule, taken: Mapping[str, int]) -> int:
        """The highest count of a domain that may get another pod."""
        domains = self._counted_domains(spread)
        counts = [_count_in(spread, name, taken) for name in domains] if len(domains) >= spread.min_domains else [0]
        return min(counts, default=0) + spread.max_skew - spread.counts_itself

    def _emptiest_first_order(self, name: str) -> tuple[int, int]:
        spread = next(rule for rule in self.rules if isinstance(rule, SpreadRule))
        return spread.group.domain_count(name), self.order.index(name)


def _count_in(spread: SpreadRule, name: str, taken: Mapping[str, int]) -> int:
    return spread.group.domain_count(name) + (taken.get(name, 0) if spread.counts_itself else 0)


def hostname_caps(rules: Iterable[Rule], node_count: int) -> Amounts | None:
    """How many more pods the hostname rules allow on each node; None without such rules."""
    caps: Amounts | None = None
    for rule in rules:
        if isinstance(rule, KnownDomainRule) or not rule.group.hostname:
            continue
        one = _hostname_cap(rule, rule.group.counts_by_node(node_count))
        caps = one if caps is None else np.minimum(caps, one)
    return caps


def new_node_cap(rules: Iterable[Rule]) -> int:
    """How many pods the hostname rules allow on a new node, which has no counted pods yet, except of DaemonSets."""
    cap = UNLIMITED
    for rule in rules:
        if not rule.group.hostname:
            continue
        match rule:
            case SpreadRule(counts_itself=True):
                cap = min(cap, rule.max_skew + rule.group.fewest - rule.group.most)
            case AntiAffinityRule(own=True):
                cap = min(cap, 1)
            case AffinityRule() if not rule.group.daemons and not rule.allows_first:
                cap = 0
    return cap


def requires_shared_node(rules: Iterable[Rule]) -> bool:
    """Whether all pods of the class must run on one node."""
    return any(isinstance(rule, AffinityRule) and rule.group.hostname and not rule.group.daemons for rule in rules)


def types_with_allowed_daemons(template: NodePoolTemplate, rules: Iterable[Rule]) -> Mask:
    """The types of a new node whose DaemonSet pods the rules allow.

    kube-scheduler counts bound pods only. A DaemonSet pod is bound before the pods for which the node is launched,
    since it tolerates the taints of a new node. Therefore anti-affinity excludes types that get a selected DaemonSet
    pod, and hostname affinity requires one, also if the pods select themselves and are the first, since nodes for other
    pods may get one. Hostname spread excludes types that get too many.
    """
    allowed: Mask = np.ones(len(template.table), dtype=bool)
    for rule in rules:
        if not rule.group.daemons:
            continue
        match rule:
            case AntiAffinityRule():
                allowed &= template.types_with_daemons(rule.group.daemons) == 0
            case AffinityRule() if rule.group.hostname and rule.requires_daemons:
                allowed &= template.types_with_daemons(rule.group.daemons) > 0
            case AffinityRule() if rule.allows_first:
                preferred = allowed & (template.types_with_daemons(rule.group.daemons) > 0)
                allowed = preferred if preferred.any() else allowed
            case SpreadRule() if rule.group.hostname:
                allowed &= template.types_with_daemons(rule.group.daemons) <= rule.most_counted_before
    return allowed


def on_node_of_daemons(rule: AffinityRule) -> AffinityRule:
    """Only on new nodes that get a DaemonSet pod which the rule selects."""
    group = TopologyGroup(replace(rule.group.topology_index, key=HOSTNAME))
    group.daemons = rule.group.daemons
    return AffinityRule(group, own=False)


def domain_keys(rules: Iterable[Rule]) -> tuple[str, ...]:
    """The keys other than hostname for which a domain must be chosen."""
    return tuple(dict.fromkeys(rule.group.topology_index.key for rule in rules if not rule.group.hostname))


def rules_for_key(rules: Iterable[Rule], key: str) -> Iterator[Rule]:
    return (rule for rule in rules if rule.group.topology_index.key == key)


def _hostname_cap(rule: SpreadRule | AffinityRule | AntiAffinityRule, counts: Amounts) -> Amounts:
    match rule:
        case SpreadRule(counts_itself=True):
            return np.maximum(rule.max_skew + rule.group.fewest - counts, 0)
        case SpreadRule():
            return np.where(counts <= rule.max_skew + rule.group.fewest, UNLIMITED, 0)
        case AntiAffinityRule():
            return np.where(counts > 0, 0, 1 if rule.own else UNLIMITED)
        case AffinityRule():
            return np.full(len(counts), UNLIMITED) if rule.allows_first else np.where(counts > 0, UNLIMITED, 0)
