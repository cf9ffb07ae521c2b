"""Counts placed pods in the groups of topology rules.

The domain of a new node may be open, such as its zone while it may use several. Its pods are counted once the domain is
determined.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tenure.scheduling.packing.nodes import NodeArrays
from tenure.scheduling.packing.topology import (
    AntiAffinityRule,
    Rule,
    SpreadRule,
    TopologyGroup,
    include_unions,
    is_limited_by_domain,
)
from tenure.scheduling.packing.topology_domains import Universe


@dataclass(slots=True)
class TopologyCounts:
    """The counts of one pass."""

    node_arrays: NodeArrays
    universe: Universe
    daemon_groups: tuple[TopologyGroup, ...] = ()
    """Those that count pods of DaemonSets."""
    _undetermined: dict[int, dict[str, list[tuple[TopologyGroup, int]]]] = field(default_factory=dict)
    """By index of a new node and key of its undetermined domain, the counts to add once the domain is known."""
    _open_nodes: dict[TopologyGroup, set[int]] = field(default_factory=dict)
    """Indexes of new nodes that may have such counts."""

    def count_daemons(self, groups: Iterable[TopologyGroup]) -> None:
        """Count the DaemonSet pods that existing nodes await, and from now on those of new nodes. The anti-affinity of
        pods that are counted already excludes some from existing nodes.
        """
        every = tuple(groups)
        self.daemon_groups = tuple(group for group in every if group.daemons)
        excluding = [group for group in every if group.excluded_daemons]
        for node_index in self.node_arrays.existing_nodes.present if self.daemon_groups else ():
            if uids := self.node_arrays.existing_nodes.nodes[node_index].pending_daemons:
                excluded = (one.excluded_daemons for one in excluding if self._has_counted_pods(one, node_index))
                self.count_daemons_of_node(node_index, uids.difference(*excluded))

    def _has_counted_pods(self, group: TopologyGroup, node_index: int) -> bool:
        """Whether the domain of the node has pods that the group counts."""
        if group.hostname:
            return bool(group.counts_by_node(self.node_arrays.count)[node_index])
        domain = self.node_arrays.domain_at(node_index, group.topology_index.key)
        return domain is not None and group.domain_count(domain) > 0

    def count_daemons_of_node(self, node_index: int, uids: frozenset[str]) -> None:
        for group in self.daemon_groups:
            if found := len(uids & group.daemons):
                self.count_pods((group,), node_index, found)

    def fix_daemons(self) -> None:
        """Leave only the types of new nodes that get as many DaemonSet pods as were counted."""
        for node_index in range(self.node_arrays.existing_count, self.node_arrays.count) if self.daemon_groups else ():
            new_node = self.node_arrays.new_node_at(node_index)
            template = self.node_arrays.slots[new_node.slot].offer.template
            for group in self.daemon_groups:
                counts = template.types_with_daemons(group.daemons)
                self.node_arrays.restrict_types(node_index, counts == counts[new_node.rows].max())

    def count_pods(self, groups: Sequence[TopologyGroup], node_index: int, pods: int = 1) -> None:
        undetermined, domains = self._undetermined.setdefault(node_index, {}), dict[str, str | None]()
        for group in include_unions(groups):
            if not self.universe.is_counted(group, node_index):
                continue
            if group.hostname:
                group.counts_by_node(self.node_arrays.count)[node_index] += pods
                continue
            key = group.topology_index.key
            if key not in domains:
                domains[key] = self.node_arrays.domain_at(node_index, key)
            if (domain := domains[key]) is not None:
                group.add_to_domain(domain, pods)
            else:
                undetermined.setdefault(key, []).append((group, pods))
                if node_index >= self.node_arrays.existing_count:
                    self._open_nodes.setdefault(group, set()).add(node_index)
        self._count_determined(node_index, undetermined)

    def determine_domains(self, rules: Iterable[Rule]) -> None:
        """Determine the domain of new nodes whose pods the rules count: the emptiest one for topology spread, the
        fullest one for anti-affinity.
        """
        for rule in filter(is_limited_by_domain, rules):
            group, sign = rule.group, 1 if isinstance(rule, SpreadRule) else -1
            for node_index in sorted(self._open_nodes.pop(group, ())):
                counts, key = self._undetermined[node_index], group.topology_index.key
                if key in counts and (variants := self.universe.possible_domains(node_index, key)):
                    name = min(variants, key=lambda one: sign * group.domain_count(one))
                    self.node_arrays.assign_pods(node_index, self.node_arrays.to_vector({}), [], variants[name])
                    self._count_determined(node_index, counts)

    def _count_determined(self, node_index: int, counts: dict[str, list[tuple[TopologyGroup, int]]]) -> None:
        """Add the counts whose domain is known by now, also those of earlier pods."""
        for key in [*counts]:
            domain = self.node_arrays.domain_at(node_index, key)
            if domain is not None:
                for group, pods in counts.pop(key):
                    group.add_to_domain(domain, pods)

    def open_nodes_with_daemons(self, rules: Iterable[Rule]) -> list[int]:
        """New nodes whose domain these pods would determine, and with it the domain of selected DaemonSet pods."""
        groups = {
            rule.group for rule in rules if isinstance(rule, SpreadRule | AntiAffinityRule) and rule.group.daemons
        }
        return [
            node_index
            for node_index, counts in self._undetermined.items()
            if groups and any(group in groups for one in counts.values() for group, _ in one)
        ]
