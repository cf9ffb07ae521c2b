"""Proof that a plan keeps every constraint, by the kube-scheduler's rules and on its own reading of them.

Shares no logic with the planner, so that it can find the planner's mistakes. Tests and benchmarks run plans through it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from tenure.model.facts import DaemonSetFact, Expression, NodeFact, PodFact, PoolFact, Taint, Toleration
from tenure.model.instance_types import InstanceType, Offering
from tenure.model.provisioning import Plan, PlannedClaim
from tenure.scheduling.validation.topology import Spot, company_violations, one_value
from tenure.scheduling.validation.volumes import Disks, out_of_reach, over_limit, unusable


@dataclass(frozen=True, kw_only=True)
class Given:
    """The world a plan was made in. `used` is what each pool's nodes have already."""

    pods: Mapping[str, PodFact]
    """Those that want a place, by UID."""
    pools: Mapping[str, PoolFact] = field(default_factory=dict)
    types: Mapping[str, InstanceType] = field(default_factory=dict)
    nodes: Mapping[str, NodeFact] = field(default_factory=dict)
    bound: Mapping[str, Sequence[PodFact]] = field(default_factory=dict)
    """Pods by the node they run on."""
    daemons: Sequence[DaemonSetFact] = ()
    used: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of each."""
    disks: Disks = field(default_factory=Disks)


def violations(plan: Plan, given: Given) -> list[str]:
    """Everything that is wrong with a plan, in words; empty for a valid one."""
    found = [*_counted(plan, given), *_limits(plan, given), *_volumes(plan, given)]
    for number, claim in enumerate(plan.claims):
        found += [f"claim {number}: {wrong}" for wrong in _claim(claim, given)]
    for name, pods in _nominated(plan, given).items():
        found += [f"node {name}: {wrong}" for wrong in _node(name, pods, given)]
    return found + list(company_violations(_spots(plan, given), given.namespaces, _admits, _tolerates))


def _spots(plan: Plan, given: Given) -> list[Spot]:
    """Every node as it will be when the plan is carried out."""
    planned = _nominated(plan, given)
    spots = []
    for name, node in given.nodes.items():
        labels = {key: frozenset({value}) for key, value in node.labels.items()}
        pods = [*given.bound.get(name, ()), *planned.get(name, ())]
        spots.append(Spot(name, labels, node.taints, pods, frozenset(pod.uid for pod in planned.get(name, ()))))
    for number, claim in enumerate(plan.claims):
        outcomes = [
            labels
            for kind in (given.types[name] for name in _named(claim))
            for labels in (_outcome(claim, kind, offering) for offering in kind.offerings if offering.available)
            if all(matches(labels, one) for one in _known(claim, labels))
        ]
        pods = [given.pods[uid] for uid in claim.pods if uid in given.pods]
        spots.append(
            Spot(f"claim {number}", one_value(outcomes), claim.taints, pods, frozenset(pod.uid for pod in pods))
        )
    return spots


def _admits(pod: PodFact, spot: Spot) -> bool:
    """For labels that are open, whether there is a choice that suits."""
    wanted = set(pod.node_selector) | {one.key for term in pod.required_terms for one in term}
    choices = [[(key, value) for value in spot.values(key)] for key in wanted if spot.values(key)]
    return any(selects(pod, dict(choice)) for choice in product(*choices))


def _tolerates(pod: PodFact, spot: Spot) -> bool:
    return endures(pod, spot.taints)


def matches(labels: Mapping[str, str], expression: Expression) -> bool:
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


def selects(pod: PodFact, labels: Mapping[str, str]) -> bool:
    """Node selector and required node affinity, as the kube-scheduler filters by them."""
    if any(labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    terms = [term for term in pod.required_terms if term]
    return not pod.required_terms or any(all(matches(labels, one) for one in term) for term in terms)


def endures(pod: PodFact, taints: Iterable[Taint]) -> bool:
    """Tolerates every taint that filters; PreferNoSchedule only ranks."""
    hard = [taint for taint in taints if taint.effect != "PreferNoSchedule"]
    return all(any(_covers(toleration, taint) for toleration in pod.tolerations) for taint in hard)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    same_key = toleration.key == taint.key or (toleration.key == "" and toleration.operator == "Exists")
    same_value = toleration.operator == "Exists" or toleration.value == taint.value
    return same_key and same_value and toleration.effect in ("", taint.effect)


def _counted(plan: Plan, given: Given) -> Iterator[str]:
    places = Counter(uid for claim in plan.claims for uid in claim.pods)
    places.update(plan.nominations.keys())
    places.update(one.pod_uid for one in plan.unplaced)
    for uid, times in places.items():
        if uid not in given.pods:
            yield f"pod {uid} is not one that wants a place"
        if times > 1:
            yield f"pod {uid} is answered {times} times"
    yield from (f"pod {uid} is not answered" for uid in given.pods if uid not in places)


def _volumes(plan: Plan, given: Given) -> Iterator[str]:
    for uid in (*plan.nominations, *(uid for claim in plan.claims for uid in claim.pods)):
        if uid in given.pods:
            yield from (f"pod {uid}: {wrong}" for wrong in unusable(given.pods[uid], given.disks))


def _limits(plan: Plan, given: Given) -> Iterator[str]:
    for pool in given.pools.values():
        mine = [claim for claim in plan.claims if claim.pool == pool.name]
        for key, limit in pool.limits.items():
            bought = len(mine) if key == "nodes" else sum(_most(claim, key, given) for claim in mine)
            total = bought + given.used.get(pool.name, {}).get(key, 0)
            if mine and bought and total > limit:
                yield f"pool {pool.name}: {key} {total} passes the limit {limit}"


def _most(claim: PlannedClaim, key: str, given: Given) -> int:
    return max(given.types[name].capacity.get(key, 0) for name in _named(claim))


def _named(claim: PlannedClaim) -> tuple[str, ...]:
    return next(one.values for one in claim.requirements if one.key == "node.kubernetes.io/instance-type")


def _claim(claim: PlannedClaim, given: Given) -> Iterator[str]:
    pods = [given.pods[uid] for uid in claim.pods if uid in given.pods]
    pool = given.pools[claim.pool]
    if not pods:
        yield "is for no pod"
    if not pool.ready or pool.deleting or pool.static:
        yield f"pool {pool.name} makes no nodes"
    yield from (f"{pod.name} does not tolerate its taints" for pod in pods if not endures(pod, claim.taints))
    for name in _named(claim):
        kind = given.types[name]
        outcomes = [_outcome(claim, kind, offering) for offering in kind.offerings if offering.available]
        possible = [labels for labels in outcomes if all(matches(labels, one) for one in _known(claim, labels))]
        if not possible:
            yield f"{name} cannot be had"
        for labels in possible:
            yield from _outcome_wrong(claim, kind, labels, pods, given)


def _outcome_wrong(
    claim: PlannedClaim, kind: InstanceType, labels: Mapping[str, str], pods: list[PodFact], given: Given
) -> Iterator[str]:
    yield from (f"{pod.name} may not run on {kind.name} with {labels}" for pod in pods if not selects(pod, labels))
    for pod in pods:
        away = out_of_reach(pod, labels, given.disks, matches)
        yield from (f"{pod.name} does not reach {one} on {kind.name} with {labels}" for one in away)
    with_daemons = [*pods, *_daemons(given, labels, claim.taints, frozenset())]
    yield from (f"{kind.name} has not enough {key}" for key in _short(kind.allocatable(), with_daemons))


def _outcome(claim: PlannedClaim, kind: InstanceType, offering: Offering) -> dict[str, str]:
    """The labels of the node if the claim gets this offering."""
    single = {key: values[0] for key, values in kind.labels.items() if len(values) == 1}
    return {
        **claim.labels,
        **single,
        "node.kubernetes.io/instance-type": kind.name,
        "topology.kubernetes.io/zone": offering.zone,
        "topology.k8s.aws/zone-id": offering.zone_id,
        "karpenter.sh/capacity-type": offering.capacity_type,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
    }


def _known(claim: PlannedClaim, labels: Mapping[str, str]) -> list[Expression]:
    """The claim's requirements that its launch decides by; a node gets a custom label from the claim itself."""
    return [one for one in claim.requirements if one.key not in claim.labels]


def _nominated(plan: Plan, given: Given) -> dict[str, list[PodFact]]:
    by_node: dict[str, list[PodFact]] = defaultdict(list)
    for uid, name in plan.nominations.items():
        if uid in given.pods:
            by_node[name].append(given.pods[uid])
    return by_node


def _node(name: str, pods: list[PodFact], given: Given) -> Iterator[str]:
    node = given.nodes.get(name)
    if node is None or node.deleting:
        yield "is not there, or goes"
        return
    labels = {"kubernetes.io/hostname": name, **node.labels}
    bound = given.bound.get(name, ())
    present = frozenset(pod.owner_uid for pod in bound if pod.daemonset)
    everything = [*pods, *bound, *_daemons(given, labels, node.taints, present)]
    yield from (f"{pod.name} does not tolerate its taints" for pod in pods if not endures(pod, node.taints))
    yield from (f"{pod.name} may not run on it" for pod in pods if not selects(pod, labels))
    yield from (f"it has not enough {key}" for key in _short(node.allocatable, everything))
    for pod in pods:
        yield from (f"{pod.name} does not reach {one}" for one in out_of_reach(pod, labels, given.disks, matches))
    for driver, wanted, limit in over_limit(name, bound, pods, given.disks):
        yield f"{wanted} volumes of {driver}, which attaches {limit}"


def _daemons(
    given: Given, labels: Mapping[str, str], taints: Iterable[Taint], present: frozenset[str]
) -> list[PodFact]:
    missing = [daemon.pod for daemon in given.daemons if daemon.uid not in present]
    return [pod for pod in missing if selects(pod, labels) and endures(pod, taints)]


def _short(room: Mapping[str, int], pods: Iterable[PodFact]) -> list[str]:
    asked: Counter[str] = Counter()
    for pod in pods:
        asked.update(pod.requests)
    return sorted(key for key, amount in asked.items() if amount > room.get(key, 0))
