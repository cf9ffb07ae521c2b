"""The result of a simulation as JSON or tables: new nodes with prices, pods on existing nodes, unschedulable pods."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tenure.apis import labels
from tenure.apis.resources import PODS
from tenure.cli.console import PrintableTable, make_table, unwrapped
from tenure.model.base import format_number
from tenure.model.facts import Expression, PodFact
from tenure.model.instance_types import OFFERING_KEYS, InstanceType, Offering
from tenure.model.plan import Plan, PlannedNodeClaim
from tenure.model.requirements import Requirements

_FIRST = ("cpu", "memory")


@dataclass(frozen=True)
class NewNode:
    pool: str
    types: tuple[str, ...]
    """Cheapest first."""
    zones: tuple[str, ...]
    capacity_types: tuple[str, ...]
    price: float
    """US dollars per hour of the cheapest offering that fits."""
    pods: tuple[str, ...] = ()
    utilization: Mapping[str, float] = field(default_factory=dict)
    """Requests of pods and DaemonSets relative to the cheapest type, by resource."""


@dataclass(frozen=True)
class Simulation:
    nodes: tuple[NewNode, ...]
    existing: Mapping[str, tuple[str, ...]]
    unschedulable: Mapping[str, str]
    seconds: float
    pods: int

    @property
    def price(self) -> float:
        return sum(one.price for one in self.nodes)


def build_simulation(
    plan: Plan, pods: Mapping[str, PodFact], types: Mapping[str, Mapping[str, InstanceType]], seconds: float
) -> Simulation:
    """`pods` by UID, including running pods; `types` by pool and name."""
    names = _display_names(pods)
    existing: dict[str, list[str]] = {}
    for uid, node in plan.nominations.items():
        existing.setdefault(node, []).append(names[uid])
    scheduled = {*plan.nominations, *(uid for one in plan.claims for uid in one.pods)}
    unschedulable = {one.pod_uid: one.reason for one in plan.unschedulable}
    for uid, pod in pods.items():
        if uid not in scheduled and uid not in unschedulable and not pod.node_name and not pod.is_finished:
            unschedulable[uid] = _exclusion_reason(pod)
    # Many nodes of a large plan have the same NodePool and requirements.
    alike: dict[tuple[str, tuple[Expression, ...]], NewNode] = {}
    for one in plan.claims:
        key = one.pool, one.requirements
        if key not in alike:
            alike[key] = _to_new_node(one, types[one.pool])
    return Simulation(
        nodes=tuple(
            replace(
                found := alike[one.pool, one.requirements],
                pods=tuple(names[uid] for uid in one.pods),
                utilization=_compute_utilization(one, types[one.pool][found.types[0]]),
            )
            for one in plan.claims
        ),
        existing={node: tuple(found) for node, found in existing.items()},
        unschedulable={names[uid]: reason for uid, reason in unschedulable.items()},
        seconds=seconds,
        pods=len(scheduled) + len(unschedulable),
    )


def as_json(found: Simulation) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "nodePool": one.pool,
                "pods": list(one.pods),
                "instanceTypes": list(one.types),
                "zones": list(one.zones),
                "capacityTypes": list(one.capacity_types),
                "price": round(one.price, 6),
            }
            for one in found.nodes
        ],
        "existing": {node: list(pods) for node, pods in found.existing.items()},
        "unschedulable": dict(found.unschedulable),
        "pricePerHour": round(found.price, 6),
        "solveSeconds": round(found.seconds, 6),
        "podsPerSecond": round(found.pods / found.seconds, 1) if found.seconds else 0.0,
    }


def format_simulation(found: Simulation) -> list[object]:
    """Identical nodes share a row."""
    parts: list[object] = [_nodes_table(found)] if found.nodes else []
    if found.existing:
        rows = ((node, str(len(pods))) for node, pods in sorted(found.existing.items()))
        parts.append(make_table("existing node", "pods", rows=rows))
    if found.unschedulable:
        parts.append(make_table("unschedulable", "reason", rows=_unschedulable_rows(found.unschedulable)))
    scheduled = found.pods - len(found.unschedulable)
    parts.append(
        f"{scheduled} of {found.pods} pods scheduled, {len(found.nodes)} new nodes, "
        f"{format_number(found.price)} $/h, planned in {found.seconds:.3f} s"
    )
    return parts


def _unschedulable_rows(unschedulable: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for reason, number in Counter(unschedulable.values()).most_common():
        first = next(pod for pod, why in unschedulable.items() if why == reason)
        yield first if number == 1 else f"{number} pods, such as {first}", reason


def _nodes_table(found: Simulation) -> PrintableTable:
    alike = Counter(
        (
            one.pool,
            one.types[0],
            str(len(one.types) - 1),
            " ".join(one.zones),
            " ".join(one.capacity_types),
            str(len(one.pods)),
            ", ".join(f"{key} {share:.0%}" for key, share in one.utilization.items()),
            f"{one.price:.4f}",
        )
        for one in found.nodes
    )
    columns = ("others", "zones", "capacity", "pods", "utilization", "$/h each")
    return make_table(
        "nodes",
        "pool",
        *unwrapped("cheapest type"),
        *columns,
        rows=((str(number), *line) for line, number in alike.items()),
    )


def _to_new_node(claim: PlannedNodeClaim, types: Mapping[str, InstanceType]) -> NewNode:
    """Pods and utilization are left empty."""
    requirements = Requirements.from_expressions(claim.requirements)
    named = next(one.values for one in claim.requirements if one.key == labels.INSTANCE_TYPE)
    fitting = {name: [one for one in types[name].offerings if _is_allowed(one, requirements)] for name in named}
    ordered = sorted((name for name in named if fitting[name]), key=lambda name: (_lowest_price(fitting[name]), name))
    every = [one for offerings in fitting.values() for one in offerings]
    return NewNode(
        pool=claim.pool,
        types=tuple(ordered),
        zones=tuple(sorted({one.zone for one in every})),
        capacity_types=tuple(sorted({one.capacity_type for one in every})),
        price=_lowest_price(fitting[ordered[0]]),
    )


def _compute_utilization(claim: PlannedNodeClaim, chosen: InstanceType) -> dict[str, float]:
    allocatable = chosen.allocatable()
    keys = dict.fromkeys((*_FIRST, *sorted(claim.requests.keys() - {PODS})))
    return {key: claim.requests.get(key, 0) / allocatable[key] for key in keys if allocatable.get(key)}


def _is_allowed(offering: Offering, requirements: Requirements) -> bool:
    constraints = ((requirements[key], offering.label(key)) for key in OFFERING_KEYS if key in requirements)
    return offering.available and all(one.has(value) if value else not one.present for one, value in constraints)


def _lowest_price(offerings: list[Offering]) -> float:
    return min(one.price for one in offerings)


def _exclusion_reason(pod: PodFact) -> str:
    """Why the planner ignores it (reference 2.2)."""
    if pod.daemonset or pod.mirror:
        return f"its node is chosen by {'its DaemonSet' if pod.daemonset else 'the kubelet'}"
    if pod.deleting:
        return "it is being deleted"
    if pod.nominated_node:
        return f"kube-scheduler has nominated {pod.nominated_node} for it"
    if not pod.unschedulable:
        return "it has schedulingGates"
    return "it requires a node outside of NodePools"


def _display_names(pods: Mapping[str, PodFact]) -> dict[str, str]:
    """By name if that is unique; else with the namespace; else by UID."""
    times = Counter(pod.name for pod in pods.values())
    full = {uid: f"{pod.namespace}/{pod.name}" for uid, pod in pods.items()}
    alike = Counter(full.values())
    return {
        uid: pod.name if times[pod.name] == 1 else full[uid] if alike[full[uid]] == 1 else uid
        for uid, pod in pods.items()
    }
