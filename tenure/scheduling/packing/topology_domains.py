"""The domains of a topology key: domains that pods may use, and domains that a spread constraint counts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import numpy as np

from tenure.apis.labels import CAPACITY_TYPE, ZONE, ZONE_ID
from tenure.model.facts import Toleration
from tenure.model.requirements import Requirements
from tenure.scheduling.instance_type_table import Mask
from tenure.scheduling.nodepool_template import Offer, Option
from tenure.scheduling.packing.nodes import NodeArrays, NodeSlot
from tenure.scheduling.packing.pod_requirements import exclude_label, pin_label
from tenure.scheduling.packing.topology import (
    NO_LABEL,
    AntiAffinityRule,
    KnownDomainRule,
    NodeFilter,
    Rule,
    SpreadRule,
    TopologyGroup,
)
from tenure.scheduling.pods import Variant
from tenure.scheduling.taints import first_untolerated

_ANY_POD: Final = Variant(Requirements([]), (Toleration(operator="Exists"),), tolerate_preferences=True)
"""Without requirements."""


@dataclass(slots=True)
class Universe:
    """The domains in one pass."""

    node_arrays: NodeArrays
    offers: Sequence[Offer]
    new_node_labels: Sequence[Requirements] = ()
    """Known labels of nodes that other commands launch."""
    _usable_domains: dict[tuple[Variant, str, bool, bool], list[str]] = field(default_factory=dict)
    _counted_nodes: dict[TopologyGroup, Mask] = field(default_factory=dict)
    _counted_slots: dict[tuple[TopologyGroup, NodeSlot], bool] = field(default_factory=dict)
    _counted_domains: dict[SpreadRule, tuple[str, ...]] = field(default_factory=dict)
    _offered_daemons: dict[SpreadRule, set[int]] = field(default_factory=dict)
    _values_by_option: dict[tuple[Option, str], set[str]] = field(default_factory=dict)

    def usable_domains(self, variant: Variant, key: str, rules: Iterable[Rule]) -> list[str]:
        """Domains that these pods may use, cheapest first: of existing nodes and of current offers.

        With anti-affinity only, nodes without the label are a further one (NO_LABEL), and domains without offers come
        first. NO_LABEL is the last one if other pods must follow these into a domain.
        """
        rules = tuple(rules)
        avoids = all(isinstance(rule, AntiAffinityRule | KnownDomainRule) for rule in rules)
        attracts = any(isinstance(rule, KnownDomainRule) and rule.attracts for rule in rules)
        known = self._usable_domains.get((variant, key, avoids, attracts))
        if known is None:
            found = self._avoided_domains(variant, key, attracts) if avoids else self._required_domains(variant, key)
            known = self._usable_domains[variant, key, avoids, attracts] = found
        return known

    def _required_domains(self, variant: Variant, key: str) -> list[str]:
        every = filter_requested({*self._existing_domains(key), *self._offered_domains(variant, key)}, variant, key)
        return sorted(every, key=lambda value: (self._cheapest_price(pin_label(variant, key, value)), value))

    def _avoided_domains(self, variant: Variant, key: str, attracts: bool) -> list[str]:
        """Only domains of nodes that admit such pods, since many keys with many values may apply."""
        admitting, absent = self.node_arrays.existing_nodes.admitting, exclude_label(variant, key)
        existing = self._existing_domains(key, admitting(variant))
        values = filter_requested(existing | self._offered_domains(variant, key), variant, key)
        prices = {value: self._cheapest_price(pin_label(variant, key, value)) for value in values}
        if admitting(absent).any() or self._can_launch(absent):
            prices[NO_LABEL] = self._cheapest_price(absent)

        def order(value: str) -> tuple[bool, bool, float, str]:
            has_offer = prices[value] < float("inf")
            return attracts and value == NO_LABEL, has_offer and not attracts, prices[value], value

        # Without a usable domain, any domain leads to the reason.
        return sorted(prices, key=order) or sorted(filter_requested(self._existing_domains(key), variant, key))[:1]

    def counted_domains(self, rule: SpreadRule) -> tuple[str, ...]:
        """Domains among which the minimum is found (reference 2.14).

        They belong to nodes that the constraint includes, to offers that fit the pods' strict requirements, and to
        nodes being launched for any pod.
        """
        known = self._counted_domains.get(rule)
        if known is None:
            key, existing = rule.group.topology_index.key, self.occupied_domains(rule)
            offered = {value for variant in rule.strict for value in self._offered_domains(variant, key)}
            launched = (one for one in self.new_node_labels if key in one and one.is_compatible(rule.labels))
            new = {value for one in launched for value in one[key].values}
            known = self._counted_domains[rule] = tuple(sorted(existing | offered | new))
        return known

    def occupied_domains(self, rule: SpreadRule) -> set[str]:
        """Domains of the existing nodes that the constraint includes."""
        key = rule.group.topology_index.key
        return {
            value
            for node_index in self._counted_existing_nodes(rule)
            if (value := self.node_arrays.domain_at(node_index, key)) is not None
        }

    def possible_domains(self, node_index: int, key: str) -> dict[str, Variant]:
        """The domains that a new node may still have, cheapest first, with requirements that determine each."""
        slot = self.node_arrays.slot_at(node_index)
        if slot is None:
            return {}
        row, found = self.node_arrays.new_node_at(node_index).rows[0], list[tuple[float, str, Variant]]()
        for name in self._offered_values(slot.offer, slot.option, key):
            pinned = pin_label(_ANY_POD, key, name)
            following = self.node_arrays.slot_after_join(node_index, pinned)
            if following is not None and following.option.types[row]:
                found.append((float(slot.offer.cheapest_prices(following.option)[row]), name, pinned))
        return {name: pinned for _, name, pinned in sorted(found, key=itemgetter(0, 1))}

    def set_daemon_counts(self, rules: Iterable[Rule]) -> None:
        """Set `fewest` and `most` of the groups of spread constraints that count pods of DaemonSets."""
        for rule in rules:
            if isinstance(rule, SpreadRule) and rule.group.daemons:
                self._set_daemon_counts(rule)

    def _set_daemon_counts(self, rule: SpreadRule) -> None:
        group, new = rule.group, self._daemons_of_offers(rule)
        counts = set(new)
        if group.hostname:
            existing = [*self._counted_existing_nodes(rule)]
            counts |= {int(count) for count in group.counts_by_node(self.node_arrays.count)[existing]}
            added = [*self._counts_of_new_nodes(group)]
            counts |= set(added)
            if rule.min_domains > max(1, len(existing) + len(added)):
                counts = {0}
        group.fewest = min(counts, default=0)
        group.most = max((one for one in new if not group.hostname or one <= rule.most_counted_before), default=0)

    def _counts_of_new_nodes(self, group: TopologyGroup) -> Iterator[int]:
        """The fewest DaemonSet pods of each new node of this pass."""
        for number, new_node in enumerate(self.node_arrays.new_nodes):
            slot = self.node_arrays.slot_at(self.node_arrays.existing_count + number)
            if slot is not None and self.is_counted(group, self.node_arrays.existing_count + number):
                yield int(slot.offer.template.types_with_daemons(group.daemons)[new_node.rows].min())

    def _daemons_of_offers(self, rule: SpreadRule) -> set[int]:
        """How many counted DaemonSet pods new nodes for these pods can have."""
        known = self._offered_daemons.get(rule)
        if known is None:
            known = self._offered_daemons[rule] = {
                int(count)
                for variant in rule.strict
                for offer in self.offers
                for option in offer.launchable_options(variant)
                for count in np.unique(offer.template.types_with_daemons(rule.group.daemons)[option.types])
            }
        return known

    def _counted_existing_nodes(self, rule: SpreadRule) -> Iterator[int]:
        return (
            node_index
            for node_index in self.node_arrays.existing_nodes.present
            if self.is_counted(rule.group, node_index)
        )

    def is_counted(self, group: TopologyGroup, node_index: int) -> bool:
        """Whether pods on this node are counted, by nodeAffinityPolicy and nodeTaintsPolicy."""
        nodes, slot = group.topology_index.nodes, self.node_arrays.slot_at(node_index)
        if slot is not None:
            known = self._counted_slots.get((group, slot))
            if known is None:
                known = self._counted_slots[group, slot] = _is_slot_counted(nodes, slot)
            return known
        counted_nodes = self._counted_nodes.get(group)
        if counted_nodes is None:
            counted_nodes = self._counted_nodes[group] = self.node_arrays.existing_nodes.matching(
                nodes.alternatives, nodes.tolerations
            )
        return bool(counted_nodes[node_index])

    def _existing_domains(self, key: str, chosen: Mask | None = None) -> set[str]:
        """The domains of the chosen existing nodes, by default of all."""
        return {
            value
            for node_index in self.node_arrays.existing_nodes.present
            if (chosen is None or chosen[node_index])
            and (value := self.node_arrays.domain_at(node_index, key)) is not None
        }

    def _offered_domains(self, variant: Variant, key: str) -> set[str]:
        found: set[str] = set()
        for offer in self.offers:
            for option in offer.launchable_options(variant):
                found |= self._offered_values(offer, option, key)
        return found

    def _offered_values(self, offer: Offer, option: Option, key: str) -> set[str]:
        known = self._values_by_option.get((option, key))
        if known is None:
            known = self._values_by_option[option, key] = _offered_values(offer, option, key)
        return known

    def _can_launch(self, variant: Variant) -> bool:
        return any(True for offer in self.offers for _ in offer.launchable_options(variant))

    def _cheapest_price(self, variant: Variant) -> float:
        prices = [
            float(offer.cheapest_prices(option)[option.types].min())
            for offer in self.offers
            for option in offer.launchable_options(variant)
        ]
        return min(prices, default=float("inf"))


def _is_slot_counted(nodes: NodeFilter, slot: NodeSlot) -> bool:
    if nodes.alternatives and not any(slot.option.requirements.is_compatible(one) for one in nodes.alternatives):
        return False
    return (
        nodes.tolerations is None
        or first_untolerated(nodes.tolerations, slot.offer.template.pool.taints, tolerate_preferences=True) is None
    )


def filter_requested(values: Iterable[str], variant: Variant, key: str) -> list[str]:
    """The values of a label that such pods allow."""
    requirement = variant.requirements.get(key)
    if requirement is None:
        return [*values]
    return [one for one in values if (not requirement.present if one == NO_LABEL else requirement.has(one))]


def _offered_values(offer: Offer, option: Option, key: str) -> set[str]:
    table, requirement = offer.table, option.requirements.get(key)
    if key in (ZONE, ZONE_ID, CAPACITY_TYPE):
        column = {ZONE: table.zones, ZONE_ID: table.zone_ids, CAPACITY_TYPE: table.capacity_types}[key]
        return set(column[option.offerings])
    if requirement is not None and not requirement.complement:
        return set(requirement.values)
    return table.values_of(key, option.types)
