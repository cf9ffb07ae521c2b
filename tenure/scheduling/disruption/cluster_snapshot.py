"""State shared by all simulations of a pass: free capacity after placing pending pods, topology counts and offers.

A simulation copies only what it changes. Each accepted command is applied before the search for the next.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tenure.apis.labels import CAPACITY_TYPE, ZONE
from tenure.apis.resources import NODES, add, subtract
from tenure.model.disruption.decision import Method
from tenure.model.facts import HostPort, PodFact
from tenure.model.plan import Plan, PlannedNodeClaim
from tenure.model.requirements import Requirement, Requirements
from tenure.scheduling.disruption.candidates import Candidate, ignore_preemption
from tenure.scheduling.existing_nodes import ExistingNodes
from tenure.scheduling.instance_type_table import Amounts, Mask, Prices
from tenure.scheduling.nodepool_template import Offer, RemainingLimits
from tenure.scheduling.packing.nodes import existing_volume_attachments, free_amounts
from tenure.scheduling.packing.packer import Packing
from tenure.scheduling.packing.planning_pass import PassInputs, PassSettings, VolumeAttachments
from tenure.scheduling.packing.pod_classes import limit_requests
from tenure.scheduling.packing.pod_requirements import NO_TOPOLOGY_TERMS, PodShape, PodTopologyTerms, build_pod_shape
from tenure.scheduling.packing.topology import include_unions
from tenure.scheduling.packing.topology_rules import TopologyGroups
from tenure.scheduling.snapshot import ClusterFacts
from tenure.scheduling.volumes import volume_attachments

_CountKey = tuple[str, frozenset[tuple[str, str]], PodTopologyTerms]
"""Equal for pods that topology groups count alike."""
_DOMAIN_KEYS: Final = (ZONE, CAPACITY_TYPE)
"""Labels of a node that may be known before its launch."""
_NO_COUNTS: Final[Counter[int]] = Counter()


@dataclass(slots=True)
class TopologyCounts:
    """The number of pods that are counted alike, by the index of their node."""

    example: PodFact
    by_node_index: Counter[int] = field(default_factory=Counter)


class ClusterSnapshot:
    def __init__(
        self,
        inputs: PassInputs,
        pass_settings: PassSettings,
        get_shape: Callable[[PodFact], PodShape],
        closed_nodes: Mapping[Method, Iterable[str]],
        check_preempted: Callable[[], None] = ignore_preemption,
    ):
        """`closed_nodes`: by disruption method, the names of nodes that accept no displaced pods. `check_preempted` is
        called before each simulation."""
        self.check_preempted = check_preempted
        self.facts: ClusterFacts = inputs.facts
        self.existing_nodes: ExistingNodes = inputs.existing_nodes
        self.closed = inputs.closed
        self.pass_settings, self.get_shape = pass_settings, get_shape
        self.offers: list[Offer] = list(inputs.fork().offers)
        self.daemons = self.facts.daemons
        device_names = {name for pod in self.facts.pods.values() for name, _ in pod.devices}
        self.available_resources = available = inputs.available_resources | device_names
        requests = (limit_requests(pod.demand, available) for pod in self.facts.pods.values())
        self.resources = sorted(available.union(*requests))
        self.free: Amounts = free_amounts(self.existing_nodes, self.resources).copy()
        self.removed: Mask = np.zeros(len(self.existing_nodes.nodes), dtype=bool)
        self.closed_nodepools: dict[str, str] = {}
        """NodePools excluded from replacements, with the reason."""
        self.receivers: set[str] = set()
        """Names of existing nodes that receive pods of nodes disrupted in this pass."""
        self._closed_to_method = {method: self._node_mask(names) for method, names in closed_nodes.items()}
        self.volume_attachments: VolumeAttachments = existing_volume_attachments(
            self.facts, self.existing_nodes, self.offers
        )
        self._topology_counts: dict[_CountKey, TopologyCounts] = {}
        self._ports: list[tuple[int, tuple[HostPort, ...]]] = []
        self._anti_affinity_terms: dict[PodTopologyTerms, None] = {}
        self._pods_on_new_nodes: list[tuple[PodFact, Requirements]] = []
        """Pods on nodes not yet launched, with the known labels of these nodes."""
        self._new_node_labels: list[Requirements] = []
        """The known labels of these nodes."""
        self._offers_below: dict[float, list[Offer]] = {}
        self.worst_prices: dict[tuple[str, Requirements, str], Prices] = {}
        """The highest price of each type, by pool, requirements and reservation."""
        for node_index, node in enumerate(self.existing_nodes.nodes):
            if node.pending_ports:
                self._ports.append((node_index, node.pending_ports))
            for pod in self.facts.bound_to(node.name):
                self._count_pod(pod, node_index)

    def apply_plan(self, plan: Plan, pods: Mapping[str, PodFact]) -> None:
        """Place pending pods as planned, independently of any disruption."""
        for uid, name in (*plan.nominations.items(), *plan.reserved.items()):
            if uid in pods and name in self.existing_nodes.index:
                self._assign_pod(pods[uid], self.existing_nodes.index[name])
        for nodeclaim in plan.claims:
            self._count_against_limits(nodeclaim)

    def close_nodepools(self, pools: Mapping[str, str]) -> None:
        """Exclude these NodePools from replacements, for the given reasons."""
        self.offers = [one for one in self.offers if one.pool_name not in pools]
        self.closed_nodepools = dict(pools)

    def apply_removal(
        self, removals: Sequence[Candidate], moves: Mapping[str, str], new_nodeclaims: Sequence[PlannedNodeClaim]
    ) -> None:
        """Remove nodes. `moves`: pod UID to existing node; the new NodeClaims are for the other pods."""
        self.removed |= self._node_mask(one.node_name for one in removals)
        for offer in self.offers:
            offer.remaining_limits = _limits_without(removals, offer)
        self.assign_pods({pod.uid: pod for one in removals for pod in one.pods}, moves, new_nodeclaims)

    def assign_pods(
        self, pods: Mapping[str, PodFact], moves: Mapping[str, str], new_nodeclaims: Sequence[PlannedNodeClaim]
    ) -> None:
        """Place pods of removed nodes: `moves` to existing nodes by name, the others on new NodeClaims."""
        for uid, name in moves.items():
            self._assign_pod(pods[uid], self.existing_nodes.index[name])
            self.receivers.add(name)
        for nodeclaim in new_nodeclaims:
            self._count_against_limits(nodeclaim)
            known_labels = Requirements(_single_value_labels(nodeclaim))
            self._new_node_labels.append(known_labels)
            self._pods_on_new_nodes += [(pods[uid], known_labels) for uid in nodeclaim.pods if uid in pods]

    def fork(self) -> "ClusterSnapshot":
        """A copy for changes that may be discarded."""
        forked = object.__new__(ClusterSnapshot)
        forked.__dict__ |= self.__dict__
        forked.free, forked.removed = self.free.copy(), self.removed.copy()
        forked.volume_attachments = (self.volume_attachments[0], dict(self.volume_attachments[1]))
        forked.receivers = set(self.receivers)
        forked.offers = [replace(one, remaining_limits=replace(one.remaining_limits)) for one in self.offers]
        forked._topology_counts = {
            key: TopologyCounts(one.example, one.by_node_index.copy()) for key, one in self._topology_counts.items()
        }
        forked._ports, forked._pods_on_new_nodes, forked._new_node_labels = (
            list(self._ports),
            list(self._pods_on_new_nodes),
            list(self._new_node_labels),
        )
        forked._anti_affinity_terms = dict(self._anti_affinity_terms)
        return forked

    def existing_nodes_without(self, removals: Iterable[Candidate], method: Method | None) -> ExistingNodes:
        """The nodes without these removals. With a `method`, some nodes accept no displaced pods."""
        removed = self.removed | self._node_mask(one.node_name for one in removals)
        return self.existing_nodes.without(removed, self._closed_to_method.get(method, removed) if method else removed)

    def offers_below(self, ceiling: float, removals: Sequence[Candidate], freed_reservation: str = "") -> list[Offer]:
        """Offers below this price in US dollars per hour. The disrupted nodes do not count against limits, and leave
        one place in the capacity reservation."""
        cheap_offers = self._offers_below.get(ceiling)
        if cheap_offers is None:
            cheap_offers = self._offers_below[ceiling] = [_restrict_to_price(one, ceiling) for one in self.offers]
        trackers = {id(one.reservation_tracker): deepcopy(one.reservation_tracker) for one in cheap_offers}
        for tracker in trackers.values() if freed_reservation else ():
            tracker.reserve(freed_reservation, -1)
        return [
            replace(
                one,
                remaining_limits=_limits_without(removals, current),
                reservation_tracker=trackers[id(one.reservation_tracker)],
            )
            for one, current in zip(cheap_offers, self.offers, strict=True)
        ]

    def available_offerings(self, offer: Offer) -> Mask:
        """The offer's available offerings at any price."""
        return next(one.available for one in self.offers if one.pool_name == offer.pool_name)

    def add_anti_affinity_terms(self, topology_groups: TopologyGroups) -> None:
        """Add the anti-affinity terms of running pods."""
        for topology_terms in self._anti_affinity_terms:
            topology_groups.add_anti_affinity_owners(topology_terms)

    def count_running_pods(self, topology_groups: TopologyGroups, packing: Packing, *, ports: bool) -> None:
        """Count running pods on remaining nodes. With `ports`, also reserve their host ports."""
        packing.universe.new_node_labels = self._new_node_labels
        packing.counts.count_daemons(topology_groups.groups)
        removed = ~np.isin(np.arange(len(self.removed)), packing.node_arrays.existing_nodes.present)
        if ports:
            for node_index, taken in self._ports:
                if not removed[node_index]:
                    packing.node_arrays.reserve_ports(node_index, taken)
        if not any(True for _ in topology_groups.groups):
            return
        for topology_counts in self._topology_counts.values():
            groups = topology_groups.groups_of(topology_counts.example).counting
            for node_index, pods in topology_counts.by_node_index.items() if groups else _NO_COUNTS.items():
                if not removed[node_index]:
                    packing.counts.count_pods(groups, node_index, pods)
        for pod, known_labels in self._pods_on_new_nodes:
            for group in include_unions(topology_groups.groups_of(pod).counting):
                one = known_labels.get(group.topology_index.key)
                if one is not None and not group.hostname:
                    group.add_to_domain(next(iter(one.values)), 1)

    def unknown_domain_pod(self, build_topology_groups: Callable[[], TopologyGroups]) -> str:
        """A pod that one of these topology groups counts, on a node not yet launched whose zone or capacity type is
        unknown. Empty if there is none."""
        undetermined = [
            (pod, known_labels)
            for pod, known_labels in self._pods_on_new_nodes
            if len(known_labels) < len(_DOMAIN_KEYS)
        ]
        if not undetermined:
            return ""
        topology_groups = build_topology_groups()
        for pod, known_labels in undetermined:
            keys = {group.topology_index.key for group in topology_groups.groups_of(pod).counting}
            if any(key not in known_labels for key in keys.intersection(_DOMAIN_KEYS)):
                return f"pod {pod.namespace}/{pod.name}"
        return ""

    def _node_mask(self, names: Iterable[str]) -> Mask:
        mask: Mask = np.zeros(len(self.existing_nodes.nodes), dtype=bool)
        mask[[self.existing_nodes.index[name] for name in names if name in self.existing_nodes.index]] = True
        return mask

    def _assign_pod(self, pod: PodFact, node_index: int) -> None:
        demand = pod.demand
        self.free[node_index] -= [demand.get(key, 0) for key in self.resources]
        if pod.volumes and node_index in self.volume_attachments[0]:
            self.volume_attachments[1][node_index] = self.volume_attachments[1].get(
                node_index, set()
            ) | volume_attachments(pod, self.facts.storage)
        self._count_pod(pod.model_copy(update={"deleting": False}), node_index)

    def _count_pod(self, pod: PodFact, node_index: int) -> None:
        if pod.host_ports:
            self._ports.append((node_index, pod.host_ports))
        topology_terms = build_pod_shape(pod).topology_terms if pod.anti_affinity else NO_TOPOLOGY_TERMS
        if pod.anti_affinity:
            self._anti_affinity_terms[topology_terms] = None
        if not pod.deleting:
            key = pod.namespace, frozenset(pod.labels.items()), topology_terms
            topology_counts = self._topology_counts.get(key)
            if topology_counts is None:
                topology_counts = self._topology_counts[key] = TopologyCounts(pod)
            topology_counts.by_node_index[node_index] += 1

    def _count_against_limits(self, nodeclaim: PlannedNodeClaim) -> None:
        for offer in self.offers:
            if offer.pool_name == nodeclaim.pool and offer.has_limits:
                offer.remaining_limits.add_usage({**nodeclaim.capacity_bound, NODES: 1})


def used_capacity_of(removals: Iterable[Candidate], pool: str) -> dict[str, int]:
    """Capacity that the disrupted nodes use of a pool's limits."""
    used: dict[str, int] = {}
    for one in removals:
        if one.nodeclaim.pool == pool:
            used = add(used, one.nodeclaim.capacity or (one.node.capacity if one.node else {}), {NODES: 1})
    return used


def _limits_without(removals: Iterable[Candidate], offer: Offer) -> RemainingLimits:
    """Remaining limits of the pool without these nodes."""
    if not offer.has_limits:
        return offer.remaining_limits
    return RemainingLimits(
        offer.remaining_limits.limits,
        subtract(offer.remaining_limits.used, used_capacity_of(removals, offer.pool_name)),
    )


def _restrict_to_price(offer: Offer, ceiling: float) -> Offer:
    cheap = offer.available & (offer.table.offering_prices < ceiling)
    return Offer(offer.template, np.asarray(cheap, dtype=bool), offer.remaining_limits, offer.reservation_tracker)


def _single_value_labels(nodeclaim: PlannedNodeClaim) -> Iterable[Requirement]:
    """Labels with exactly one value, such as the zone."""
    for key, one in Requirements.from_expressions(nodeclaim.requirements).items():
        if key in _DOMAIN_KEYS and not one.complement and len(one.values) == 1:
            yield one
