"""Places pods on existing nodes, on new nodes of this pass, and on further new nodes, in this order (reference 2.4)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import numpy as np

from tenure.apis.resources import NODES
from tenure.model.blockers import BACKOFF, POD_UNPLANNABLE, TOPOLOGY
from tenure.model.facts import PodFact
from tenure.model.plan import UnschedulablePod
from tenure.scheduling.instance_type_table import Amounts
from tenure.scheduling.nodepool_template import Offer, RejectionReason
from tenure.scheduling.packing.instance_selection import InstanceSelector
from tenure.scheduling.packing.node_requests import InstanceChoice, NodeRequest
from tenure.scheduling.packing.nodes import NodeArrays, distribute_pods
from tenure.scheduling.packing.patterns import pods_per_row
from tenure.scheduling.packing.planning_budget import (
    MEASUREMENT_STEPS,
    PLACEMENT_STEPS,
    BudgetExceededError,
    PlanningBudget,
)
from tenure.scheduling.packing.pod_classes import PodClass
from tenure.scheduling.packing.pod_requirements import pin_label
from tenure.scheduling.packing.rejections import explain_exceeded_budget, explain_rejections, unscheduled_pod
from tenure.scheduling.packing.shared_nodes import SharedNodePacker, add_new_node, group_by_variant, is_unconstrained
from tenure.scheduling.packing.topology import (
    NO_LABEL,
    UNLIMITED,
    AffinityRule,
    Domains,
    Rule,
    SpreadRule,
    domain_keys,
    hostname_caps,
    is_limited_by_domain,
    new_node_cap,
    on_node_of_daemons,
    requires_shared_node,
    rules_for_key,
    types_with_allowed_daemons,
)
from tenure.scheduling.packing.topology_counts import TopologyCounts
from tenure.scheduling.packing.topology_domains import Universe, filter_requested
from tenure.scheduling.packing.topology_rules import ConstraintAlternative
from tenure.scheduling.pods import Variant

_FITS: Final = RejectionReason("")
_WORST_PACKING_FACTOR: Final = 4


@dataclass(slots=True)
class Packing:
    """One pass; its fields are its result."""

    node_arrays: NodeArrays
    instance_selector: InstanceSelector
    closed: Mapping[str, RejectionReason] = field(default_factory=dict)
    """Pools that cannot launch nodes in this pass, with the reason."""
    use_pod_mixer: bool = True
    """Whether unconstrained pods of several classes are mixed on new nodes."""
    budget: PlanningBudget = field(default_factory=PlanningBudget)
    """Shared by all attempts of a pass."""
    nominations: dict[str, str] = field(default_factory=dict)
    unscheduled: list[UnschedulablePod] = field(default_factory=list)
    universe: Universe = field(init=False)
    counts: TopologyCounts = field(init=False)

    def __post_init__(self) -> None:
        self.universe = Universe(self.node_arrays, self.instance_selector.offers)
        self.counts = TopologyCounts(self.node_arrays, self.universe)

    def retain_promised(self, classes: Sequence[PodClass], promised: Mapping[str, str]) -> None:
        """Place pods on the nodes that earlier passes launched for them, if they still fit there. They are counted
        after each round, since those plans placed them in another order. The next round is for pod affinity to them."""
        while retained := [(one, node_index) for one in classes for node_index in self._retain_class(one, promised)]:
            for one, node_index in retained:
                self.counts.count_pods(one.counting_groups, node_index, 1)

    def _retain_class(self, one: PodClass, promised: Mapping[str, str]) -> list[int]:
        """The node indexes of the retained pods."""
        retained, rest = list[int](), list[PodFact]()
        if self.counts.daemon_groups:
            for alternative in one.alternatives:
                self.universe.set_daemon_counts(alternative.rules)
        for pod in one.pods:
            node_index = self.node_arrays.existing_nodes.index.get(promised.get(pod.uid, ""))
            if node_index is None or not self._retain_pod(one, pod, node_index):
                rest.append(pod)
            else:
                retained.append(node_index)
        one.pods = rest
        return retained

    def schedule_all(self, classes: Iterable[PodClass]) -> None:
        """Repeat until every pod is placed or a whole round placed none."""
        waiting = pending = [one for one in classes if one.pods]
        reasons: dict[int, RejectionReason] = {}
        while pending:
            before = sum(len(one.pods) for one in pending)
            for tier in self._tiers(pending):
                reasons |= self._schedule_tier(tier)
            if sum(len(one.pods) for one in pending) == before:
                break
            pending = [one for one in pending if one.pods and (self._may_launch(one) or not is_unconstrained(one))]
        self.counts.fix_daemons()
        for one in waiting:
            self.unscheduled += [unscheduled_pod(pod, reasons[id(one)], reasons[id(one)].code) for pod in one.pods]

    def _may_launch(self, one: PodClass) -> bool:
        """Whether any pool may have a type for such pods, without regard to limits."""
        return one.launchable or not (
            one.launch_blocker or all(not offer.available_reservations() for offer in self.instance_selector.offers)
        )

    def _tiers(self, classes: Iterable[PodClass]) -> Iterator[list[PodClass]]:
        """The classes by priority. If capacity is unlimited, those whose rules count the DaemonSet pods of a domain
        come last, since each new node changes the count.
        """
        unlimited = not any(one.has_limits or one.available_reservations() for one in self.instance_selector.offers)
        last = list[PodClass]()
        for _, group in groupby(classes, key=lambda one: one.pods[0].priority):
            tier = list(group)
            yield [one for one in tier if not _counts_new_nodes(one)]
            last += filter(_counts_new_nodes, tier)
            if not unlimited:
                yield last
                last = []
        yield last

    def _schedule_tier(self, classes: Sequence[PodClass]) -> dict[int, RejectionReason]:
        """Pods of one priority: constrained pods first, since the others can fill their nodes."""
        free = [one for one in classes if is_unconstrained(one)] if self.use_pod_mixer else []
        reasons = {
            id(one): self.schedule_class(one) for one in classes if not (self.use_pod_mixer and is_unconstrained(one))
        }
        for alike in group_by_variant(free):
            for one in alike:
                alternative = one.alternatives[0]
                self._join_nodes(
                    one, alternative, alternative.variant, self.node_arrays.to_vector(one.requests), len(one.pods)
                )
            launchable = [one for one in alike if one.pods and self._may_launch(one)]
            if launchable:
                SharedNodePacker(self.node_arrays, self.instance_selector, self._assign_pods, launchable).add_nodes()
        return reasons | {id(one): self.schedule_class(one) for one in free if one.pods}

    def schedule_class(self, one: PodClass) -> RejectionReason:
        """Place the pods of a class. Returns why some remain; empty if none do."""
        if one.pods[-1].uid not in self.budget.exceeded:
            try:
                with self.budget.share(len(one.pods)):
                    return self._schedule_alternatives(one)
            except BudgetExceededError:
                if reason := self._explain_missing_capacity(one, one.alternatives[-1]):
                    return reason
                exceeded = explain_exceeded_budget(self._count_usable_domains(one.alternatives[0]))
                self.budget.exceeded |= {pod.uid: exceeded for pod in one.pods}
        return RejectionReason(self.budget.exceeded[one.pods[-1].uid], POD_UNPLANNABLE)

    def _count_usable_domains(self, alternative: ConstraintAlternative) -> dict[str, int]:
        usable, variant = self.universe.usable_domains, alternative.without_volumes
        return {
            key: len(usable(variant, key, rules_for_key(alternative.rules, key)))
            for key in domain_keys(alternative.rules)
        }

    def _schedule_alternatives(self, one: PodClass) -> RejectionReason:
        reason = _FITS
        self.counts.determine_domains(one.alternatives[-1].rules)
        for alternative in one.alternatives:
            if self.counts.daemon_groups:
                self.universe.set_daemon_counts(alternative.rules)
            keys = sorted(domain_keys(alternative.rules), key=lambda key: not _excludes_all(alternative.rules, key))
            if keys and self._is_launch_excluded(one) and (reason := self._explain_missing_capacity(one, alternative)):
                continue
            reason = self._schedule_by_domain(one, alternative, keys, len(one.pods))[1]
            if not one.pods:
                return _FITS
        volumes = " or ".join(str(where) for where in one.volumes.alternatives)
        return RejectionReason(f"{reason}; its volumes need {volumes}", reason.code) if volumes else reason

    def _is_launch_excluded(self, one: PodClass) -> bool:
        """Whether no type fits such a pod, or every pool has reached its limits."""
        return not self._may_launch(one) or not any(
            offer.types_within_limits(np.ones(len(offer.table), dtype=bool)).any()
            for offer in self.instance_selector.offers
        )

    def _explain_missing_capacity(self, one: PodClass, alternative: ConstraintAlternative) -> RejectionReason:
        """Why no node, existing or new, has room for such a pod in any domain; empty if one may."""
        vector, nothing = self.node_arrays.to_vector(one.requests), self.node_arrays.to_vector({})
        if (
            requires_shared_node(alternative.rules)
            or self._pods_per_node(one, alternative, alternative.variant, vector).any()
        ):
            return _FITS
        if one.launch_blocker:
            return RejectionReason(one.launch_blocker, BACKOFF)
        request = NodeRequest(alternative.variant, vector, 1, 1, nothing, nothing, one.ports, rules=alternative.rules)
        found = self.instance_selector.choose_instance(request)
        return _FITS if isinstance(found, InstanceChoice) else self._explain_rejections(alternative.variant, found)

    def _schedule_by_domain(
        self, one: PodClass, alternative: ConstraintAlternative, keys: Sequence[str], count: int
    ) -> tuple[int, RejectionReason]:
        """Place up to `count` pods, domain by domain for each key of a rule. Returns how many, and why not more."""
        self.budget.spend(PLACEMENT_STEPS)
        if not keys:
            return self._schedule_in_domain(one, alternative, alternative.variant, count)
        key, rest = keys[0], keys[1:]
        rules = tuple(rules_for_key(alternative.rules, key))
        inner = [rule for rule in alternative.rules if rule.group.topology_index.key in rest]
        universe = self.universe.usable_domains(alternative.without_volumes, key, rules)
        least = {rule: self.universe.counted_domains(rule) for rule in rules if isinstance(rule, SpreadRule)}
        blocked = set(universe) - set(filter_requested(universe, alternative.variant, key))
        domains = Domains(universe, rules, least, blocked=blocked)
        counts_daemons = [rule for rule in least if rule.group.daemons]
        domains.occupied = set[str]().union(*map(self.universe.occupied_domains, counts_daemons))
        scheduled, measured, reason = 0, -1, _FITS
        while scheduled < count:
            if scheduled > measured:  # Room changes only with placed pods.
                measured = scheduled
                self.budget.spend(MEASUREMENT_STEPS * len(domains.order))
                if least:
                    domains.headroom = self._domain_headroom(one, alternative, key, domains.order)
                if counts_daemons or (least and self.node_arrays.existing_count):
                    domains.fitting_pods = self._fitting_pods_by_domain(one, alternative, key, domains.order)
            chunk = self._chunk_size(one, rules, inner, domains, count - scheduled)
            self.budget.spend((chunk if least else 1) * len(domains.order))
            pods_by_domain = domains.distribute_pods(chunk)
            if not pods_by_domain:
                return scheduled, reason or RejectionReason(domains.rejection_message(key), TOPOLOGY)
            for name, share in pods_by_domain:
                if name == NO_LABEL:
                    within = alternative.exclude_label(key)
                else:
                    daemon_rules = map(on_node_of_daemons, domains.awaits_daemons(name))
                    within = alternative.pin_label(key, name).add_rules(daemon_rules)
                done, why = self._schedule_by_domain(one, within, rest, share)
                scheduled += done
                if done < share:
                    domains.blocked.add(name)
                    reason = why
                    break
        return scheduled, reason

    def _chunk_size(
        self, one: PodClass, rules: Sequence[Rule], inner: Sequence[Rule], domains: Domains, count: int
    ) -> int:
        """All pods at once, unless a domain may run out of capacity, or pod affinity may exclude it: then other domains
        must not get ahead of it.

        One pod while a spread rule of an `inner` key is uneven: kube-scheduler binds pods one by one, and each must
        satisfy the rules of all keys.
        """
        skews = [rule.max_skew for rule in rules if isinstance(rule, SpreadRule)]
        if skews and any(self._is_uneven(rule) for rule in inner if isinstance(rule, SpreadRule)):
            return 1
        offers, domain_count = self.instance_selector.offers, len(domains.order)
        affine = any(isinstance(rule, AffinityRule) for rule in one.alternatives[-1].rules)
        if not skews or not (
            affine or domains.blocked or any(_may_run_out(offer, one, domain_count) for offer in offers)
        ):
            return count
        return min(count, max(1, min(skews) * domain_count))

    def _is_uneven(self, rule: SpreadRule) -> bool:
        """Whether the pods in two domains differ by more than one."""
        counts = [rule.group.domain_count(name) for name in self.universe.counted_domains(rule)]
        return max(counts, default=0) - min(counts, default=0) > 1

    def _fitting_pods_by_domain(
        self, one: PodClass, alternative: ConstraintAlternative, key: str, names: Iterable[str]
    ) -> dict[str, int]:
        """How many such pods fit on the nodes of each domain."""
        vector = self.node_arrays.to_vector(one.requests)
        inside = {name: pin_label(alternative.variant, key, name) for name in names}
        return {
            name: int(np.minimum(self._pods_per_node(one, alternative, within, vector), len(one.pods)).sum())
            for name, within in inside.items()
        }

    def _domain_headroom(
        self, one: PodClass, alternative: ConstraintAlternative, key: str, names: Iterable[str]
    ) -> dict[str, int]:
        """For domains in which no node can be launched for such pods: how many more fit there."""
        vector = self.node_arrays.to_vector(one.requests)
        allows_new_nodes = not one.launch_blocker and new_node_cap(alternative.rules) > 0
        full = [
            name
            for name in names
            if not allows_new_nodes
            or not self.instance_selector.can_launch(
                pin_label(alternative.variant, key, name), vector, one.ports, alternative.rules
            )
        ]
        return self._fitting_pods_by_domain(one, alternative, key, full)

    def _schedule_in_domain(
        self, one: PodClass, alternative: ConstraintAlternative, variant: Variant, count: int
    ) -> tuple[int, RejectionReason]:
        vector = self.node_arrays.to_vector(one.requests)
        must_share_node = requires_shared_node(alternative.rules)
        done = self._join_nodes(one, alternative, variant, vector, count)
        if one.launch_blocker and done < count:
            return done, RejectionReason(one.launch_blocker, BACKOFF)
        while done < count:
            self.budget.spend(PLACEMENT_STEPS)
            cap = min(new_node_cap(alternative.rules), 1 if one.ports else UNLIMITED)
            others = np.maximum(self.instance_selector.demand - vector * len(one.pods), 0)
            open_headroom = self.node_arrays.open_headroom(variant)
            request = NodeRequest(
                variant,
                vector,
                count - done,
                cap,
                others,
                open_headroom,
                one.ports,
                one.size,
                alternative.rules,
                must_share_node=must_share_node,
            )
            if cap == 0 or (must_share_node and done):
                joined = self._enlarge_node(one, alternative, request) if must_share_node else 0
                done += joined
                if joined:
                    continue
                return done, RejectionReason("no node with the pods that its affinity selects has room", TOPOLOGY)
            instance_choice = self.instance_selector.choose_instance(request)
            if not isinstance(instance_choice, InstanceChoice):
                return done, self._explain_rejections(variant, instance_choice)
            most = 1 if must_share_node or _starts_affinity_group(alternative.rules) else instance_choice.nodes
            done += self._add_nodes(one, request, instance_choice, most)
        return done, _FITS

    def _enlarge_node(self, one: PodClass, alternative: ConstraintAlternative, request: NodeRequest) -> int:
        """Enlarge a new node that these pods must join and do not fit. Returns how many pods then join it."""
        node_arrays = self.node_arrays
        caps = hostname_caps(alternative.rules, node_arrays.count)
        open_nodes = (
            np.flatnonzero(caps[node_arrays.existing_count :]) + node_arrays.existing_count if caps is not None else ()
        )
        for node_index in map(int, open_nodes):
            new_node, slot = (
                node_arrays.new_nodes[node_index - node_arrays.existing_count],
                node_arrays.slot_after_join(node_index, request.variant),
            )
            grown_request = replace(request, ports=(*request.ports, *new_node.ports))
            used = node_arrays.used_amounts(node_index - node_arrays.existing_count)
            found = (
                self.instance_selector.find_larger(slot.offer, slot.option, used, new_node.rows, grown_request)
                if slot and new_node.allowed_types is None
                else None
            )
            if found is not None:
                node_arrays.enlarge_node(node_index, *found)
                return self._join_nodes(one, alternative, request.variant, request.vector, request.count)
        return 0

    def _join_nodes(
        self, one: PodClass, alternative: ConstraintAlternative, variant: Variant, vector: Amounts, count: int
    ) -> int:
        """Place pods on existing and new nodes, in their order."""
        if not self.node_arrays.count:
            return 0
        fitting = self._pods_per_node(one, alternative, variant, vector)
        pods_by_node = distribute_pods(fitting, count, one_node=_starts_affinity_group(alternative.rules))
        used = np.flatnonzero(pods_by_node)
        for node_index in used:
            share = int(pods_by_node[node_index])
            self._assign_pods(one, variant, vector, int(node_index), share, alternative.rules)
        return int(pods_by_node[used].sum())

    def _pods_per_node(
        self, one: PodClass, alternative: ConstraintAlternative, variant: Variant, vector: Amounts
    ) -> Amounts:
        """How many such pods fit on each node."""
        node_arrays = self.node_arrays
        chosen = node_arrays.admitting(variant)
        if one.ports:
            chosen = node_arrays.with_free_ports(one.ports, chosen)
        caps = hostname_caps(alternative.rules, node_arrays.count)
        if caps is not None:
            chosen &= caps > 0
        if self.counts.daemon_groups:
            chosen[self.counts.open_nodes_with_daemons(alternative.rules)] = False
        fitting = node_arrays.pod_counts(vector, chosen)
        if one.launch_blocker:
            fitting[node_arrays.existing_count :] = 0
        if caps is not None:
            fitting = np.minimum(fitting, caps)
        if one.ports:
            fitting = np.minimum(fitting, 1)
        attachable = node_arrays.attachment_limits.pod_caps(one.volumes, node_arrays.count)
        return fitting if attachable is None else np.minimum(fitting, attachable)

    def _add_nodes(self, one: PodClass, request: NodeRequest, instance_choice: InstanceChoice, most: int) -> int:
        """Add at most `most` equal nodes, as many as the pods fill. A pool with limits gets one, since its limits may
        change the choice."""
        offer, done = instance_choice.offer, 0
        for _ in range(1 if offer.has_limits else max(1, min(most, request.count // instance_choice.pods))):
            node_index = add_new_node(self.node_arrays, self.instance_selector, instance_choice)
            share = min(instance_choice.pods, request.count - done)
            self._assign_pods(one, request.variant, request.vector, node_index, share, request.rules)
            done += share
        return done

    def _assign_pods(
        self, one: PodClass, variant: Variant, vector: Amounts, node_index: int, share: int, rules: Sequence[Rule] = ()
    ) -> None:
        self._pack_pods(one, variant, vector, node_index, share, rules)
        self.counts.count_pods(one.counting_groups, node_index, share)

    def _pack_pods(
        self, one: PodClass, variant: Variant, vector: Amounts, node_index: int, share: int, rules: Sequence[Rule] = ()
    ) -> None:
        pods, one.pods = one.pods[:share], one.pods[share:]
        slot = self.node_arrays.slot_at(node_index) if self.counts.daemon_groups else None
        if slot is not None:
            if any(rule.group.daemons for rule in rules):
                self.node_arrays.restrict_types(node_index, types_with_allowed_daemons(slot.offer.template, rules))
            if not (new_node := self.node_arrays.new_node_at(node_index)).pods:
                self.counts.count_daemons_of_node(node_index, slot.offer.template.daemons_of(new_node.rows))
        self.node_arrays.assign_pods(node_index, vector, [pod.uid for pod in pods], variant)
        self.node_arrays.reserve_ports(node_index, one.ports)
        self.node_arrays.attachment_limits.add_pods(node_index, one.volumes, share)
        self.instance_selector.demand = np.maximum(self.instance_selector.demand - vector * share, 0)
        if one.size >= 0:
            self.instance_selector.valuation.sizes.counts[one.size] -= share
        if node_index < self.node_arrays.existing_count:
            name = self.node_arrays.existing_nodes.nodes[node_index].name
            self.nominations.update((pod.uid, name) for pod in pods)

    def _retain_pod(self, one: PodClass, pod: PodFact, node_index: int) -> bool:
        vector = self.node_arrays.to_vector(one.requests)
        attachable = self.node_arrays.attachment_limits.pod_caps(one.volumes, self.node_arrays.count)
        if attachable is not None and attachable[node_index] <= 0:
            return False
        for alternative in one.alternatives:
            chosen = self.node_arrays.with_free_ports(one.ports, self.node_arrays.admitting(alternative.variant))
            if not chosen[node_index] or (vector > self.node_arrays.free[node_index]).any():
                continue
            caps = hostname_caps(alternative.rules, self.node_arrays.count)
            if caps is not None and caps[node_index] <= 0:
                continue
            remaining, one.pods = one.pods, [pod]
            self._pack_pods(one, alternative.variant, vector, node_index, 1)
            one.pods = remaining
            return True
        return False

    def _explain_rejections(self, variant: Variant, rejections: Mapping[str, RejectionReason]) -> RejectionReason:
        """The reasons of the offers' pools by weight, and of the closed pools."""
        names = (offer.pool_name for offer in self.instance_selector.offers)
        return explain_rejections(
            variant, {name: rejections[name] for name in names if name in rejections} | dict(self.closed)
        )


def _may_run_out(offer: Offer, one: PodClass, domains: int) -> bool:
    """Whether nodes for these pods could use up a reservation, or reach the pool's limits, even in the worst packing.
    Each domain has a node."""
    if offer.available_reservations():
        return True
    vector = offer.table.to_vector(one.requests) if offer.has_limits else None
    if vector is None:
        return False
    pods_per_node = pods_per_row(offer.template.headroom, vector)
    fitting = pods_per_node > 0
    if not fitting.any():
        return False
    nodes = np.maximum(-(-len(one.pods) // pods_per_node[fitting]), domains)
    least_amounts = {
        key: (nodes * offer.table.capacity[fitting, column]).min() for key, column in offer.table.columns.items()
    }
    least_amounts[NODES] = len(one.pods)
    return any(
        (offer.remaining_limits.remaining(key) or 0) < int(least_amounts.get(key, 0)) * _WORST_PACKING_FACTOR
        for key in offer.remaining_limits.limits
    )


def _counts_new_nodes(one: PodClass) -> bool:
    return any(rule.group.daemons and is_limited_by_domain(rule) for rule in one.alternatives[-1].rules)


def _excludes_all(rules: Iterable[Rule], key: str) -> bool:
    """Whether pod affinity leaves no domain of this key, so that the other keys need not be tried."""
    return any(
        isinstance(rule, AffinityRule) and not (rule.own or rule.requires_daemons or rule.group.has_pods())
        for rule in rules_for_key(rules, key)
    )


def _starts_affinity_group(rules: Iterable[Rule]) -> bool:
    """Whether these pods are the first of their hostname affinity, so that the others must follow them."""
    return any(isinstance(rule, AffinityRule) and rule.group.hostname and rule.allows_first for rule in rules)
