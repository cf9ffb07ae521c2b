"""One simulation: nodes are removed, and the planner places their pods on other nodes and on new ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from tenure.apis.quantity import format_amount
from tenure.apis.resources import sum_resources
from tenure.model.base import format_number, format_short_list
from tenure.model.disruption.decision import Method
from tenure.model.facts import PodFact
from tenure.model.plan import UnschedulablePod
from tenure.scheduling.disruption.candidates import Candidate
from tenure.scheduling.disruption.cluster_snapshot import ClusterSnapshot
from tenure.scheduling.nodepool_template import NOT_AVAILABLE, Offer, RejectionReason
from tenure.scheduling.packing.nodeclaims import PlannedNodeClaims
from tenure.scheduling.packing.nodes import AttachmentLimits, NodeArrays
from tenure.scheduling.packing.planning_pass import (
    PackingAttempt,
    PackingOptions,
    create_packing,
    may_have_label,
    resolve_volume_requirements,
)
from tenure.scheduling.packing.pod_classes import build_pod_classes
from tenure.scheduling.packing.pod_requirements import PodShape
from tenure.scheduling.packing.rejections import NO_NODEPOOL_AVAILABLE
from tenure.scheduling.packing.topology_rules import TopologyGroups

_DEFAULT_OPTIONS: Final = PackingOptions()
_OPTIONS_FOR_FEW_PODS: Final = (
    PackingOptions(use_patterns=True),
    PackingOptions(use_pod_mixer=False, use_patterns=True, extra_node_cost=0.05),
)
_OPTIONS_FOR_MANY_PODS: Final = (PackingOptions(), PackingOptions(extra_node_cost=0.05))
_MAX_FEW_PODS: Final = 300
_MAX_NAMED: Final = 6
"""Resources in a message."""
_NO_OFFERS: Final[Sequence[Offer]] = ()


@dataclass(slots=True)
class Simulation:
    """The removal of some nodes, with every attempt to place their pods."""

    removals: Sequence[Candidate]
    pods: Mapping[str, PodFact]
    attempts: list[PackingAttempt] = field(default_factory=list)
    """Attempts that place every pod."""
    problem: str = ""
    """Why no attempt succeeded; empty if one did."""

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(one.node_name for one in self.removals)


@dataclass(frozen=True, slots=True)
class MovingPods:
    """Pods of the disrupted nodes."""

    shaped_pods: list[tuple[PodShape, PodFact]]
    method: Method | None


def simulate_removal(
    snapshot: ClusterSnapshot,
    removals: Sequence[Candidate],
    method: Method | None = None,
    *,
    ceiling: float = 0.0,
    one_node: bool = False,
    freed_reservation: str = "",
) -> Simulation:
    """`method` decides which existing nodes accept the pods. `ceiling`: new nodes must cost less, in US dollars per
    hour; 0 allows none. `one_node`: allow only one new node. `freed_reservation`: the removal frees one instance of
    this capacity reservation. An error becomes the problem of this simulation. Raises `Preempted`."""
    snapshot.check_preempted()
    offers_below = partial(snapshot.offers_below, ceiling, removals, freed_reservation)
    try:
        simulation = _run_simulation(snapshot, removals, method, offers_below, ceiling=ceiling, one_node=one_node)
    except Exception as error:
        return Simulation(removals, {}, problem=f"the simulation failed: {error!r}")
    if simulation.problem and ceiling > 0:
        simulation.problem = "; ".join((simulation.problem, *snapshot.closed_nodepools.values()))
    return simulation


def _run_simulation(
    snapshot: ClusterSnapshot,
    removals: Sequence[Candidate],
    method: Method | None,
    offers_below: Callable[[], list[Offer]],
    *,
    ceiling: float,
    one_node: bool,
) -> Simulation:
    pods = {pod.uid: pod for one in removals for pod in one.pods}
    simulation = Simulation(removals, pods)
    rejected: list[UnschedulablePod] = []
    shaped_pods = [(snapshot.get_shape(pod), pod) for pod in pods.values()]
    if any(pod.volumes for pod in pods.values()):
        shaped_pods = list(
            resolve_volume_requirements(
                shaped_pods, snapshot.facts, snapshot.offers, snapshot.volume_attachments[1].values(), rejected
            )
        )
    if rejected:
        simulation.problem = _describe_unschedulable(rejected)
        return simulation
    moving = MovingPods(shaped_pods, method)
    unknown_domain_pod = snapshot.unknown_domain_pod(lambda: build_topology_groups(snapshot, moving))
    if unknown_domain_pod:
        simulation.problem = (
            f"{unknown_domain_pod} counts for these pods, and it is not known yet where its new node will be"
        )
        return simulation
    existing_only = run_attempt(snapshot, removals, moving, _NO_OFFERS, _DEFAULT_OPTIONS)
    if not existing_only.packing.unscheduled:
        _accept_attempt(simulation, existing_only)
        return simulation
    simulation.problem = _describe_unschedulable(existing_only.packing.unscheduled)
    if ceiling <= 0:
        return simulation
    if not any(offer.available.any() for offer in offers_below()):
        simulation.problem += f"; and there is no offering below {format_number(ceiling)} $/h"
        return simulation
    unscheduled_pods = [pods[one.pod_uid] for one in existing_only.packing.unscheduled]
    for must_fit_one_node, options in _packing_options(len(pods), one_node=one_node):
        offers = offers_below()
        if must_fit_one_node:
            offers = _offers_with_headroom(offers, unscheduled_pods)
            if not offers:
                if one_node:
                    too_large = _describe_too_large(unscheduled_pods)
                    simulation.problem += f"; and {too_large} is available below {format_number(ceiling)} $/h"
                continue
        packing_attempt = run_attempt(snapshot, removals, moving, offers, options)
        if not packing_attempt.packing.unscheduled:
            _accept_attempt(simulation, packing_attempt)
        elif not simulation.attempts:
            limit = "" if ceiling == float("inf") else f" (of nodes below {format_number(ceiling)} $/h)"
            simulation.problem = f"{_describe_unschedulable(packing_attempt.packing.unscheduled)}{limit}"
    return simulation


def _packing_options(pods: int, *, one_node: bool) -> Iterator[tuple[bool, PackingOptions]]:
    """The packing options to try, each with whether one new node must have room for all unscheduled pods."""
    yield True, _DEFAULT_OPTIONS
    if not one_node:
        yield from (
            (False, options) for options in (_OPTIONS_FOR_FEW_PODS if pods <= _MAX_FEW_PODS else _OPTIONS_FOR_MANY_PODS)
        )


def run_attempt(
    snapshot: ClusterSnapshot,
    removals: Sequence[Candidate],
    moving: MovingPods,
    offers: Sequence[Offer],
    options: PackingOptions,
) -> PackingAttempt:
    """One attempt to place the pods, with these offers."""
    topology_groups = build_topology_groups(snapshot, moving)
    settings, available = snapshot.pass_settings, snapshot.available_resources
    classes = build_pod_classes(
        moving.shaped_pods, topology_groups, settings.preference_policy, settings.budget, available
    )
    existing_nodes = snapshot.existing_nodes_without(removals, moving.method)
    limits, attached = snapshot.volume_attachments if any(pod.volumes for _, pod in moving.shaped_pods) else ({}, {})
    node_arrays = NodeArrays(
        existing_nodes,
        snapshot.resources,
        AttachmentLimits(len(existing_nodes.nodes), limits, attached),
        np.maximum(snapshot.free, 0),
    )
    packing = create_packing(node_arrays, offers, snapshot.closed if offers else {}, classes, settings, options)
    snapshot.count_running_pods(topology_groups, packing, ports=any(one.ports for one in classes))
    packing.schedule_all(classes)
    pods = {pod.uid: pod for _, pod in moving.shaped_pods}
    planned_nodeclaims = PlannedNodeClaims(
        node_arrays, pods, snapshot.pass_settings.min_values_policy, snapshot.pass_settings.most_instance_types
    )
    return PackingAttempt(packing, planned_nodeclaims)


def build_topology_groups(snapshot: ClusterSnapshot, moving: MovingPods) -> TopologyGroups:
    """Topology rules of these pods, and rules of others that select them."""
    topology_groups = TopologyGroups(
        {name: one.labels for name, one in snapshot.facts.namespaces.items()},
        may_have_label=partial(may_have_label, snapshot.existing_nodes, snapshot.offers),
    )
    topology_groups.add_shapes(shape for shape, _ in moving.shaped_pods)
    snapshot.add_anti_affinity_terms(topology_groups)
    topology_groups.add_daemons(snapshot.daemons)
    return topology_groups


def _accept_attempt(simulation: Simulation, attempt: PackingAttempt) -> None:
    """Accept the attempt unless it places pods on an uninitialized node (reference 4.6)."""
    existing_nodes = attempt.packing.node_arrays.existing_nodes
    uninitialized = {
        uid: name
        for uid, name in attempt.packing.nominations.items()
        if not existing_nodes.nodes[existing_nodes.index[name]].initialized
    }
    if uninitialized:
        uid, name = min(uninitialized.items())
        pod = simulation.pods[uid]
        simulation.problem = f"pod {pod.namespace}/{pod.name} would run on {name}, which is not initialized yet"
        return
    simulation.attempts.append(attempt)
    simulation.problem = ""


def _offers_with_headroom(offers: Sequence[Offer], pods: Sequence[PodFact]) -> list[Offer]:
    """Offers restricted to types with headroom for all of these pods together."""
    requests, restricted = sum_resources(pod.demand for pod in pods), list[Offer]()
    for offer in offers:
        vector, base = offer.table.to_vector(requests), offer.base_option()
        if vector is not None:
            types = np.all(offer.template.headroom >= vector, axis=1)
            available_offerings = offer.available & offer.table.reserved
            available_offerings = (
                available_offerings if isinstance(base, RejectionReason) else available_offerings | base.offerings
            )
            available = available_offerings & types[offer.table.offering_rows]
            if available.any():
                restricted.append(
                    Offer(
                        offer.template,
                        np.asarray(available, dtype=bool),
                        offer.remaining_limits,
                        offer.reservation_tracker,
                    )
                )
    return restricted


def _describe_too_large(pods: Sequence[PodFact]) -> str:
    requests = sum_resources(pod.demand for pod in pods)
    amounts = [f"{format_amount(key, requests[key])} {key}" for key in sorted(requests) if requests[key]]
    return f"no single node with room for {format_short_list(amounts, _MAX_NAMED)}"


def _describe_unschedulable(missing: Sequence[UnschedulablePod]) -> str:
    first = missing[0]
    more = f" (and {len(missing) - 1} more pods)" if len(missing) > 1 else ""
    reason = first.reason.replace(NO_NODEPOOL_AVAILABLE, "no other node has room")
    reason = reason.replace(NOT_AVAILABLE, "is cheap enough and available")
    return f"pod {first.namespace}/{first.name} fits nowhere{more}: {reason}"
