"""Proof that a plan keeps every constraint, by the kube-scheduler's rules.

The oracle shares no logic with the planner, so that it can find the planner's mistakes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from tenure.apis.labels import NODE_NAME_FIELD
from tenure.model.facts import DaemonSetFact, Expression, NodeFact, NodePoolFact, PodFact, Taint, Toleration
from tenure.model.instance_types import InstanceType, Offering
from tenure.model.plan import Plan, PlannedNodeClaim
from tests.oracle.topology import Spot, one_value, topology_violations
from tests.oracle.volumes import (
    StorageInputs,
    find_exceeded_limits,
    find_unusable_volumes,
    unreachable_claims,
)


@dataclass(frozen=True, kw_only=True)
class PlanInputs:
    """The inputs of a plan. `used` is the usage of each NodePool's existing nodes."""

    pods: Mapping[str, PodFact]
    """Pending pods by UID."""
    pools: Mapping[str, NodePoolFact] = field(default_factory=dict)
    types: Mapping[str, InstanceType] = field(default_factory=dict)
    nodes: Mapping[str, NodeFact] = field(default_factory=dict)
    bound: Mapping[str, Sequence[PodFact]] = field(default_factory=dict)
    """Running pods by node."""
    daemons: Sequence[DaemonSetFact] = ()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels by namespace."""
    disks: StorageInputs = field(default_factory=StorageInputs)


def find_violations(plan: Plan, inputs: PlanInputs) -> list[str]:
    """All violations of a plan as text; empty for a valid plan."""
    found = [*_counting_violations(plan, inputs), *_limit_violations(plan, inputs), *_volume_violations(plan, inputs)]
    for number, nodeclaim in enumerate(plan.claims):
        found += [f"claim {number}: {problem}" for problem in _nodeclaim_violations(nodeclaim, inputs)]
    for name, pods in _nominated_pods(plan, inputs).items():
        found += [f"node {name}: {problem}" for problem in _node_violations(name, pods, inputs)]
    return found + list(
        topology_violations(_build_spots(plan, inputs), inputs.namespaces, admits_pod, tolerates_taints_of)
    )


def _build_spots(plan: Plan, inputs: PlanInputs) -> list[Spot]:
    """All nodes as they are after the plan is carried out."""
    planned = _nominated_pods(plan, inputs)
    spots = []
    for name, node in inputs.nodes.items():
        labels = {key: frozenset({value}) for key, value in node.labels.items()}
        bound = inputs.bound.get(name, ())
        present = frozenset(pod.owner_uid for pod in bound if pod.daemonset)
        single = {"kubernetes.io/hostname": name, **node.labels, NODE_NAME_FIELD: name}
        daemons = awaited_daemon_pods(inputs.daemons, single, node.taints, present, node.allocatable)
        pods = [*bound, *planned.get(name, ()), *daemons]
        spots.append(Spot(name, labels, node.taints, pods, frozenset(pod.uid for pod in planned.get(name, ()))))
    for number, nodeclaim in enumerate(plan.claims):
        outcomes = [(kind, labels) for kind, _, labels in launch_outcomes(nodeclaim, inputs.types)]
        awaited = {
            one.uid: one
            for kind, labels in outcomes
            for one in awaited_daemon_pods(inputs.daemons, labels, nodeclaim.taints, frozenset(), kind.allocatable())
        }
        pods = [inputs.pods[uid] for uid in nodeclaim.pods if uid in inputs.pods]
        labels_of_node = one_value(labels for _, labels in outcomes)
        planned_uids = frozenset(pod.uid for pod in pods)
        spots.append(
            Spot(f"claim {number}", labels_of_node, nodeclaim.taints, [*pods, *awaited.values()], planned_uids)
        )
    return spots


def launch_outcomes(
    nodeclaim: PlannedNodeClaim, types: Mapping[str, InstanceType]
) -> Iterator[tuple[InstanceType, Offering, Mapping[str, str]]]:
    """The instance types and offerings with which a NodeClaim may launch, and the labels of its node then."""
    for instance_type in (types[name] for name in _instance_type_names(nodeclaim)):
        for offering in filter(lambda one: one.available, instance_type.offerings):
            labels = _outcome_labels(nodeclaim, instance_type, offering)
            if all(matches_expression(labels, one) for one in _launch_requirements(nodeclaim, labels)):
                yield instance_type, offering, labels


def admits_pod(pod: PodFact, spot: Spot) -> bool:
    """True if any combination of the spot's possible labels admits the pod."""
    keys = set(pod.node_selector) | {one.key for term in pod.required_terms for one in term}
    choices = [[(key, value) for value in spot.values(key)] for key in keys if spot.values(key)]
    return any(selects_node(pod, dict(label_choice)) for label_choice in product(*choices))


def tolerates_taints_of(pod: PodFact, spot: Spot) -> bool:
    return tolerates_taints(pod, spot.taints)


def matches_expression(labels: Mapping[str, str], expression: Expression) -> bool:
    """Whether a node with these labels satisfies one expression of a node selector term."""
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    try:
        number, bound = int(value or ""), int(expression.values[0])
    except ValueError:
        return False
    return {"Gt": number > bound, "Lt": number < bound, "Gte": number >= bound, "Lte": number <= bound}[
        expression.operator
    ]


def selects_node(pod: PodFact, labels: Mapping[str, str]) -> bool:
    """Node selector and required node affinity, as the kube-scheduler filters by them."""
    if any(labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    terms = [term for term in pod.required_terms if term]
    return not pod.required_terms or any(all(matches_expression(labels, one) for one in term) for term in terms)


def tolerates_taints(pod: PodFact, taints: Iterable[Taint]) -> bool:
    """Tolerates every taint that filters; PreferNoSchedule only ranks."""
    hard = [taint for taint in taints if taint.effect != "PreferNoSchedule"]
    return all(any(_toleration_covers(toleration, taint) for toleration in pod.tolerations) for taint in hard)


def _toleration_covers(toleration: Toleration, taint: Taint) -> bool:
    same_key = toleration.key == taint.key or (toleration.key == "" and toleration.operator == "Exists")
    same_value = toleration.operator == "Exists" or toleration.value == taint.value
    return same_key and same_value and toleration.effect in ("", taint.effect)


def _counting_violations(plan: Plan, inputs: PlanInputs) -> Iterator[str]:
    occurrences = Counter(uid for nodeclaim in plan.claims for uid in nodeclaim.pods)
    occurrences.update(plan.nominations.keys())
    occurrences.update(one.pod_uid for one in plan.unschedulable)
    for uid, times in occurrences.items():
        if uid not in inputs.pods:
            yield f"pod {uid} is not one that wants a place"
        if times > 1:
            yield f"pod {uid} is answered {times} times"
    yield from (f"pod {uid} is not answered" for uid in inputs.pods if uid not in occurrences)


def _volume_violations(plan: Plan, inputs: PlanInputs) -> Iterator[str]:
    for uid in (*plan.nominations, *(uid for nodeclaim in plan.claims for uid in nodeclaim.pods)):
        if uid in inputs.pods:
            yield from (f"pod {uid}: {problem}" for problem in find_unusable_volumes(inputs.pods[uid], inputs.disks))


def _limit_violations(plan: Plan, inputs: PlanInputs) -> Iterator[str]:
    for pool in inputs.pools.values():
        planned = [nodeclaim for nodeclaim in plan.claims if nodeclaim.pool == pool.name]
        for key, limit in pool.limits.items():
            launched = (
                len(planned)
                if key == "nodes"
                else sum(_largest_capacity(nodeclaim, key, inputs) for nodeclaim in planned)
            )
            total = launched + inputs.used.get(pool.name, {}).get(key, 0)
            if planned and launched and total > limit:
                yield f"pool {pool.name}: {key} {total} passes the limit {limit}"


def _largest_capacity(nodeclaim: PlannedNodeClaim, key: str, inputs: PlanInputs) -> int:
    return max(inputs.types[name].capacity.get(key, 0) for name in _instance_type_names(nodeclaim))


def _instance_type_names(nodeclaim: PlannedNodeClaim) -> tuple[str, ...]:
    return next(one.values for one in nodeclaim.requirements if one.key == "node.kubernetes.io/instance-type")


def _nodeclaim_violations(nodeclaim: PlannedNodeClaim, inputs: PlanInputs) -> Iterator[str]:
    pods = [inputs.pods[uid] for uid in nodeclaim.pods if uid in inputs.pods]
    pool = inputs.pools[nodeclaim.pool]
    if not pods:
        yield "is for no pod"
    if not pool.ready or pool.deleting or pool.static:
        yield f"pool {pool.name} makes no nodes"
    yield from (
        f"{pod.name} does not tolerate its taints" for pod in pods if not tolerates_taints(pod, nodeclaim.taints)
    )
    labels_by_type: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for instance_type, _, labels in launch_outcomes(nodeclaim, inputs.types):
        labels_by_type[instance_type.name].append(labels)
    for name in _instance_type_names(nodeclaim):
        instance_type, possible = inputs.types[name], labels_by_type[name]
        if not possible:
            yield f"{name} cannot be had"
        for labels in possible:
            yield from _outcome_violations(nodeclaim, instance_type, labels, pods, inputs)


def _outcome_violations(
    nodeclaim: PlannedNodeClaim,
    instance_type: InstanceType,
    labels: Mapping[str, str],
    pods: list[PodFact],
    inputs: PlanInputs,
) -> Iterator[str]:
    yield from (
        f"{pod.name} may not run on {instance_type.name} with {labels}" for pod in pods if not selects_node(pod, labels)
    )
    for pod in pods:
        unreachable = unreachable_claims(pod, labels, inputs.disks, matches_expression)
        yield from (f"{pod.name} does not reach {one} on {instance_type.name} with {labels}" for one in unreachable)
    allocatable = instance_type.allocatable()
    with_daemons = [*pods, *awaited_daemon_pods(inputs.daemons, labels, nodeclaim.taints, frozenset(), allocatable)]
    yield from (
        f"{instance_type.name} has not enough {key}" for key in _insufficient_resources(allocatable, with_daemons)
    )


def _outcome_labels(nodeclaim: PlannedNodeClaim, instance_type: InstanceType, offering: Offering) -> dict[str, str]:
    """The node's labels if the NodeClaim launches with this offering."""
    single = {key: values[0] for key, values in instance_type.labels.items() if len(values) == 1}
    return {
        **nodeclaim.labels,
        **single,
        "node.kubernetes.io/instance-type": instance_type.name,
        "topology.kubernetes.io/zone": offering.zone,
        "topology.k8s.aws/zone-id": offering.zone_id,
        "karpenter.sh/capacity-type": offering.capacity_type,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
    }


def _launch_requirements(nodeclaim: PlannedNodeClaim, labels: Mapping[str, str]) -> list[Expression]:
    """The requirements that the launch has to satisfy. A node gets custom labels from the NodeClaim itself."""
    return [one for one in nodeclaim.requirements if one.key not in nodeclaim.labels]


def _nominated_pods(plan: Plan, inputs: PlanInputs) -> dict[str, list[PodFact]]:
    by_node: dict[str, list[PodFact]] = defaultdict(list)
    for uid, name in plan.nominations.items():
        if uid in inputs.pods:
            by_node[name].append(inputs.pods[uid])
    return by_node


def _node_violations(name: str, pods: list[PodFact], inputs: PlanInputs) -> Iterator[str]:
    node = inputs.nodes.get(name)
    if node is None or node.deleting:
        yield "is not there, or goes"
        return
    labels = {"kubernetes.io/hostname": name, **node.labels, NODE_NAME_FIELD: name}
    bound = inputs.bound.get(name, ())
    present = frozenset(pod.owner_uid for pod in bound if pod.daemonset)
    everything = [*pods, *bound, *awaited_daemon_pods(inputs.daemons, labels, node.taints, present, node.allocatable)]
    yield from (f"{pod.name} does not tolerate its taints" for pod in pods if not tolerates_taints(pod, node.taints))
    yield from (f"{pod.name} may not run on it" for pod in pods if not selects_node(pod, labels))
    yield from (f"it has not enough {key}" for key in _insufficient_resources(node.allocatable, everything))
    for pod in pods:
        yield from (
            f"{pod.name} does not reach {one}"
            for one in unreachable_claims(pod, labels, inputs.disks, matches_expression)
        )
    for driver, attached, limit in find_exceeded_limits(name, bound, pods, inputs.disks):
        yield f"{attached} volumes of {driver}, which attaches {limit}"


def awaited_daemon_pods(
    daemons: Iterable[DaemonSetFact],
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    present: frozenset[str],
    allocatable: Mapping[str, int],
) -> list[PodFact]:
    """Pods of DaemonSets that will run on the node. One that lacks a requested device keeps its pod Pending."""
    return [
        daemon.pod
        for daemon in daemons
        if daemon.uid not in present
        and selects_node(daemon.pod, labels)
        and tolerates_taints(daemon.pod, taints)
        and all(allocatable.get(key) for key, amount in daemon.pod.requests.items() if amount)
    ]


def _insufficient_resources(allocatable: Mapping[str, int], pods: Iterable[PodFact]) -> list[str]:
    requested: Counter[str] = Counter()
    for pod in pods:
        requested.update(pod.requests)
    return sorted(key for key, amount in requested.items() if amount > allocatable.get(key, 0))
