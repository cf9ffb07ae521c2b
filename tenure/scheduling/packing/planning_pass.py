"""One planning pass: pending pods, existing nodes and offers in, a plan out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from tenure.apis.labels import HOSTNAME, PREFER_NO_SCHEDULE, WELL_KNOWN
from tenure.model.blockers import POD_UNPLANNABLE, VOLUMES
from tenure.model.facts import PodFact, Taint
from tenure.model.plan import Plan, PlannedNodeClaim, UnschedulablePod
from tenure.scheduling.existing_nodes import ExistingNodes
from tenure.scheduling.instance_type_table import EBS_ATTACHMENTS, Amounts
from tenure.scheduling.nodepool_template import Offer, Option, RejectionReason
from tenure.scheduling.packing.instance_selection import InstanceSelector
from tenure.scheduling.packing.nodeclaims import PlannedNodeClaims
from tenure.scheduling.packing.nodes import (
    AttachmentLimits,
    NodeArrays,
    count_new_attachments,
    existing_volume_attachments,
    merge_volume_requirements,
)
from tenure.scheduling.packing.packer import Packing
from tenure.scheduling.packing.planning_budget import (
    MULTIPLE_ATTEMPTS_STEPS,
    TERM_STEPS,
    BudgetExceededError,
    PlanningBudget,
)
from tenure.scheduling.packing.pod_classes import (
    PodClass,
    build_pod_classes,
    max_pods_per_node,
    merge_equal_shapes,
    min_node_count,
    number_sizes,
    pod_granularity,
)
from tenure.scheduling.packing.pod_requirements import PodShape, build_pod_shape, volume_conflict
from tenure.scheduling.packing.rejections import unscheduled_pod
from tenure.scheduling.packing.topology_rules import FEW_TERMS, TopologyGroups, count_comparisons
from tenure.scheduling.packing.valuation import CapacityValuation
from tenure.scheduling.pods import MAX_COMBINATIONS, TOPOLOGY_FIELDS, count_combinations
from tenure.scheduling.snapshot import ClusterFacts
from tenure.scheduling.volumes import NO_VOLUME_REQUIREMENTS, Attachment, VolumeRequirements, volume_requirements

VolumeAttachments = tuple[dict[int, Mapping[str, int]], dict[int, set[Attachment]]]
"""By node index: limits by CSI driver, and attached volumes."""
_MAX_FEW_PODS: Final = 300
"""Up to this number of pods, planning is fast enough for several attempts."""


class PackingOptions(NamedTuple):
    """Options of one attempt. `use_pod_mixer`: mix unconstrained pods on new nodes instead of one class at a time.
    `use_patterns`: value instance types by patterns of whole pods instead of capacity. `extra_node_cost`: US dollars
    per hour per node, in addition to PassSettings.node_cost."""

    use_pod_mixer: bool = True
    use_patterns: bool = False
    extra_node_cost: float = 0.0


_OPTIONS: Final = (
    PackingOptions(),
    PackingOptions(use_patterns=True),
    PackingOptions(use_pod_mixer=False, use_patterns=True),
    PackingOptions(False, True, extra_node_cost=0.05),
)
"""Many pods are planned with the first one only."""


@dataclass(frozen=True)
class PackingAttempt:
    packing: Packing
    planned_nodeclaims: PlannedNodeClaims

    @property
    def needs_no_new_nodes(self) -> bool:
        """Whether all pods fit on existing nodes. No other attempt can do better."""
        return not (self.packing.unscheduled or self.packing.node_arrays.new_nodes)

    def cost(self, of_node: float) -> tuple[int, float]:
        """The number of unscheduled pods, then US dollars per hour, with `of_node` added per node."""
        nodes = range(len(self.packing.node_arrays.new_nodes))
        return len(self.packing.unscheduled), sum(
            self.planned_nodeclaims.cheapest_price(number) + of_node for number in nodes
        )


@dataclass(frozen=True)
class PassInputs:
    facts: ClusterFacts
    existing_nodes: ExistingNodes
    offers: Sequence[Offer]
    closed: Mapping[str, RejectionReason]
    """Pools that cannot launch nodes, with the reason."""
    promised: Mapping[str, str]
    """Pod UID to the existing node that was launched for the pod."""
    launch_blockers: Mapping[str, str] = field(default_factory=dict)
    """Pod UID to the reason why no node may be launched for the pod."""

    @property
    def taints(self) -> set[Taint]:
        """Of the existing and of all possible new nodes."""
        return self.existing_nodes.taints.union(*(offer.template.pool.taints for offer in self.offers))

    @property
    def available_resources(self) -> set[str]:
        """The resources of existing and of possible new nodes."""
        resources = (offer.table.resources for offer in self.offers)
        return {EBS_ATTACHMENTS}.union(self.existing_nodes.resources, *resources)

    def fork(self) -> "PassInputs":
        """A copy with its own limits and reservations, which an attempt uses up."""
        trackers = {id(offer.reservation_tracker): deepcopy(offer.reservation_tracker) for offer in self.offers}
        offers = [
            replace(
                one,
                remaining_limits=replace(one.remaining_limits),
                reservation_tracker=trackers[id(one.reservation_tracker)],
            )
            for one in self.offers
        ]
        return replace(self, offers=offers)


@dataclass(frozen=True)
class PassSettings:
    preference_policy: str
    min_values_policy: str
    most_instance_types: int
    node_cost: float
    budget: PlanningBudget = field(default_factory=PlanningBudget)
    """Of this pass, with all its attempts and simulations."""


def plan_pods(shaped_pods: Sequence[tuple[PodShape, PodFact]], inputs: PassInputs, pass_settings: PassSettings) -> Plan:
    """Place each pod and choose the nodes to launch. Few pods are planned in several attempts, and the best is kept."""
    rejected: list[UnschedulablePod] = []
    limits, attached = (
        existing_volume_attachments(inputs.facts, inputs.existing_nodes, inputs.offers)
        if any(pod.volumes for _, pod in shaped_pods)
        else ({}, {})
    )
    resolved = resolve_volume_requirements(shaped_pods, inputs.facts, inputs.offers, attached.values(), rejected)
    merged = list(merge_equal_shapes(resolved, inputs.taints))
    plannable = _without_costly_terms(merged, pass_settings.budget, rejected)
    options_to_try = _OPTIONS if len(plannable) <= _MAX_FEW_PODS else _OPTIONS[:1]
    attempts: list[PackingAttempt] = []
    for options in options_to_try:
        attempts.append(_run_attempt(plannable, inputs.fork(), pass_settings, options, (limits, attached)))
        if attempts[-1].needs_no_new_nodes or pass_settings.budget.spent > MULTIPLE_ATTEMPTS_STEPS:
            break
    best = min(attempts, key=lambda one: one.cost(pass_settings.node_cost)) if len(attempts) > 1 else attempts[0]
    rejected.sort(key=lambda one: one.pod_uid)
    return _build_plan({pod.uid: pod for _, pod in plannable}, best, rejected)


def _without_costly_terms(
    shaped_pods: Sequence[tuple[PodShape, PodFact]], budget: PlanningBudget, rejected: list[UnschedulablePod]
) -> Sequence[tuple[PodShape, PodFact]]:
    """The pods whose terms can be compared with all others within the budget; the others are added to `rejected`."""
    shapes, costly = {id(shape): shape for shape, _ in shaped_pods}, set[int]()
    many_terms = [number for number, shape in shapes.items() if shape.topology_terms.count > FEW_TERMS]
    if not many_terms:
        return shaped_pods
    labels = {(id(shape), label) for shape, pod in shaped_pods for label in pod.labels.items()}
    shapes_by_label = Counter[tuple[str, str] | None](label for _, label in labels)
    shapes_by_label[None] = len(shapes)
    for number in many_terms:
        try:
            with budget.share(1):
                budget.spend(TERM_STEPS * count_comparisons(shapes[number].topology_terms, shapes_by_label))
        except BudgetExceededError:
            costly.add(number)
    reason = f"{TOPOLOGY_FIELDS}: planning takes too long for terms that are compared with many pods"
    rejected += [unscheduled_pod(pod, reason, POD_UNPLANNABLE) for shape, pod in shaped_pods if id(shape) in costly]
    return [one for one in shaped_pods if id(one[0]) not in costly]


def _run_attempt(
    shaped_pods: Sequence[tuple[PodShape, PodFact]],
    inputs: PassInputs,
    pass_settings: PassSettings,
    options: PackingOptions,
    attached: VolumeAttachments,
) -> PackingAttempt:
    topology_groups = _build_topology_groups(inputs, (shape for shape, _ in shaped_pods))
    existing, available = inputs.existing_nodes, inputs.available_resources
    classes = build_pod_classes(
        shaped_pods,
        topology_groups,
        pass_settings.preference_policy,
        pass_settings.budget,
        available,
        inputs.launch_blockers,
    )
    resources = available.union(*(one.requests for one in classes))
    node_arrays = NodeArrays(existing, sorted(resources), AttachmentLimits(len(existing.nodes), *attached))
    packing = create_packing(node_arrays, inputs.offers, inputs.closed, classes, pass_settings, options)
    _count_running_pods(inputs.facts, topology_groups, packing, {pod.uid for _, pod in shaped_pods})
    if inputs.promised:
        packing.retain_promised(classes, inputs.promised)
    packing.schedule_all(classes)
    pods = {pod.uid: pod for _, pod in shaped_pods}
    planned_nodeclaims = PlannedNodeClaims(
        packing.node_arrays, pods, pass_settings.min_values_policy, pass_settings.most_instance_types
    )
    return PackingAttempt(packing, planned_nodeclaims)


def resolve_volume_requirements(
    shaped_pods: Iterable[tuple[PodShape, PodFact]],
    facts: ClusterFacts,
    offers: Iterable[Offer],
    attached: Iterable[set[Attachment]],
    rejected: list[UnschedulablePod],
) -> Iterator[tuple[PodShape, PodFact]]:
    """The pods whose volumes allow planning, with their volume requirements; the others are added to `rejected`."""
    found: dict[str, VolumeRequirements] = {}
    usable: list[tuple[PodShape, PodFact]] = []
    for shape, pod in shaped_pods:
        requirements = volume_requirements(pod, facts.storage) if pod.volumes else NO_VOLUME_REQUIREMENTS
        if isinstance(requirements, RejectionReason):
            rejected.append(unscheduled_pod(pod, requirements, VOLUMES))
            continue
        usable.append((shape, pod))
        if requirements is not NO_VOLUME_REQUIREMENTS:
            found[pod.uid] = requirements
    volumes = merge_volume_requirements(found, attached)
    limited = all(EBS_ATTACHMENTS in offer.table.columns for offer in offers)
    new_attachments = count_new_attachments(found) if limited else {}
    for plain, pod in usable:
        shape = plain._replace(volumes=volumes[pod.uid]) if pod.uid in volumes else plain
        if count := new_attachments.get(pod.uid):
            shape = shape._replace(requests=(*shape.requests, (EBS_ATTACHMENTS, count)))
        if reason := _explain_volume_rejection(shape, pod) if shape.volumes.alternatives else "":
            rejected.append(unscheduled_pod(pod, reason, VOLUMES))
        else:
            yield shape, pod


def _explain_volume_rejection(shape: PodShape, pod: PodFact) -> str:
    """Why the topologies of its volumes prevent the pod's plan; empty if they do not."""
    if conflict := volume_conflict(shape):
        return conflict
    count = len(shape.volumes.alternatives) * count_combinations(pod)
    if count <= MAX_COMBINATIONS:
        return ""
    return (
        f"spec.affinity: {count} combinations of required terms, preferences and topologies of its volumes, "
        f"expected at most {MAX_COMBINATIONS}; remove terms"
    )


def _build_topology_groups(inputs: PassInputs, shapes: Iterable[PodShape]) -> TopologyGroups:
    facts = inputs.facts
    topology_groups = TopologyGroups(
        {name: one.labels for name, one in facts.namespaces.items()},
        prefer_no_schedule=any(taint.effect == PREFER_NO_SCHEDULE for taint in inputs.taints),
        may_have_label=partial(may_have_label, inputs.existing_nodes, inputs.offers),
    )
    topology_groups.add_shapes(shapes)
    for node in facts.nodes:
        for pod in facts.bound_to(node):
            if pod.anti_affinity:
                topology_groups.add_anti_affinity_owners(build_pod_shape(pod).topology_terms)
    topology_groups.add_daemons(facts.daemons)
    return topology_groups


def may_have_label(existing_nodes: ExistingNodes, offers: Iterable[Offer], key: str) -> bool:
    """Whether an existing node has the label, or a new node may have it."""
    known = key in WELL_KNOWN or key == HOSTNAME or key in existing_nodes.label_keys
    return known or any(offer.template.may_have_label(key) for offer in offers)


def _count_running_pods(
    facts: ClusterFacts, topology_groups: TopologyGroups, packing: Packing, moving_uids: set[str]
) -> None:
    """Count running pods on remaining nodes, with their host ports, before any pod is placed. The ports of awaited
    DaemonSet pods count too."""
    counting = any(True for _ in topology_groups.groups)
    for node_index, node in enumerate(packing.node_arrays.existing_nodes.nodes):
        packing.node_arrays.reserve_ports(node_index, node.pending_ports)
        for pod in facts.bound_to(node.name):
            if pod.host_ports:
                packing.node_arrays.reserve_ports(node_index, pod.host_ports)
            if counting and not pod.deleting and pod.uid not in moving_uids:
                packing.counts.count_pods(topology_groups.groups_of(pod).counting, node_index)
    packing.counts.count_daemons(topology_groups.groups)


def create_packing(
    node_arrays: NodeArrays,
    offers: Sequence[Offer],
    closed: Mapping[str, RejectionReason],
    classes: Sequence[PodClass],
    pass_settings: PassSettings,
    options: PackingOptions,
) -> Packing:
    """A packing for these classes, before any pod is placed."""
    headroom_by_option: dict[Option, Amounts] = {}
    for one in classes:
        one.launchable = _can_launch_for(one, offers, headroom_by_option)
    launchable = [one for one in classes if one.launchable]
    vectors = np.array([node_arrays.to_vector(one.requests) for one in launchable], dtype=np.int64)
    vectors = vectors.reshape(len(launchable), len(node_arrays.resources))
    counts, caps = np.array([len(one.pods) for one in launchable], dtype=np.int64), max_pods_per_node(launchable)
    sized = slice(len(launchable) if options.use_patterns else 0)
    valuation = CapacityValuation(
        node_arrays.resources,
        counts @ vectors,
        granularity=pod_granularity(vectors, counts),
        max_per_node=caps @ vectors,
        sizes=number_sizes(launchable[sized], vectors[sized], counts[sized], caps[sized]),
        least_nodes=min_node_count(launchable),
        node_cost=pass_settings.node_cost + options.extra_node_cost,
    )
    instance_selector = InstanceSelector(offers, valuation, pass_settings.min_values_policy)
    return Packing(node_arrays, instance_selector, closed, options.use_pod_mixer, pass_settings.budget)


def _can_launch_for(one: PodClass, offers: Iterable[Offer], headroom_by_option: dict[Option, Amounts]) -> bool:
    """Whether any type fits such a pod: other pods must not influence the choice of types. `headroom_by_option` is a
    cache."""
    if one.launch_blocker:
        return False
    variants = [alternative.variant for alternative in one.alternatives if alternative.is_relaxed]
    for offer in offers:
        vector = offer.table.to_vector(one.requests)
        if vector is None:
            continue
        for option in (offer.restrict(None, variant) for variant in variants):
            if isinstance(option, RejectionReason):
                continue
            if option not in headroom_by_option:
                headroom = option.headroom[option.types]
                headroom_by_option[option] = headroom[
                    np.argsort(-(headroom / np.maximum(headroom.max(axis=0), 1)).sum(axis=1))
                ]
            headroom = headroom_by_option[option]
            # Most pods fit the largest type, which comes first.
            if (headroom[0] >= vector).all() or (headroom >= vector).all(axis=1).any():
                return True
    return False


def _build_plan(pods: Mapping[str, PodFact], attempt: PackingAttempt, rejected: Iterable[UnschedulablePod]) -> Plan:
    nodeclaims, packing = list[PlannedNodeClaim](), attempt.packing
    unscheduled = [*rejected, *packing.unscheduled]
    for number, new_node in enumerate(packing.node_arrays.new_nodes):
        planned = attempt.planned_nodeclaims.build(number)
        if isinstance(planned, RejectionReason):
            reason = f"pool {packing.node_arrays.slots[new_node.slot].offer.pool_name}: {planned}"
            unscheduled += [unscheduled_pod(pods[uid], reason, planned.code) for uid in new_node.pods]
        else:
            nodeclaims.append(planned)
    return Plan(claims=tuple(nodeclaims), nominations=packing.nominations, unschedulable=tuple(unscheduled))
