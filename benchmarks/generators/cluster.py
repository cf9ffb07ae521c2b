"""A generated cluster to disrupt: nodes of many types, half of them nearly empty. Deterministic by seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final

from benchmarks.generators.instance_types import catalogue
from benchmarks.generators.workloads import SERVICES
from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, ON_DEMAND, SPOT, ZONE
from tenure.model.disruption.decision import Command
from tenure.model.facts import Expression, NodeClaimFact, NodeFact, NodePoolFact, PodFact, SpreadConstraint
from tenure.model.instance_types import Catalogue, InstanceType, Offering
from tenure.model.plan import PlannedNodeClaim
from tenure.scheduling.cluster_state import ClusterState
from tenure.scheduling.disruption.cost import offering_price
from tenure.scheduling.settings import PlanSettings
from tenure.scheduling.snapshot import Change
from tests.oracle.plan import matches_expression

NOW: Final = datetime(2026, 1, 2, tzinfo=UTC)
_MIB: Final = 1 << 20
_FULL: Final = (0.75, 0.97)
_IDLE: Final = (0.05, 0.35)


@dataclass(frozen=True)
class Cluster:
    types: tuple[InstanceType, ...]
    pools: tuple[NodePoolFact, ...]
    nodes: dict[str, NodeFact]
    claims: dict[str, NodeClaimFact]
    pods: dict[str, list[PodFact]]
    """Pods by node."""
    bought: list[str] = field(default_factory=list)

    def state(self, settings: PlanSettings | None = None) -> ClusterState:
        state = ClusterState(settings)
        state.set_catalogue(Catalogue(by_node_class={"default": self.types}))
        state.apply(self._iter_changes())
        return state

    def total_price(self) -> float:
        """US dollars per hour for all nodes."""
        return sum(self.price_of(name) for name in self.nodes)

    def price_of(self, name: str) -> float:
        labels = self.nodes[name].labels
        return offering_price(labels, self.types_by_name[labels[INSTANCE_TYPE]])

    @cached_property
    def types_by_name(self) -> dict[str, InstanceType]:
        return {one.name: one for one in self.types}

    def carry_out(self, command: Command) -> None:
        """Apply a command. Each new node gets the cheapest offering that its NodeClaim allows."""
        pods = {pod.uid: pod for name in command.node_names for pod in self.pods[name]}
        for name in command.node_names:
            del self.nodes[name], self.claims[name], self.pods[name]
        for one in command.moves:
            if one.target:
                self.pods[one.target].append(_bind_pod(one.target, pods[one.pod_uid]))
        for claim in command.replacements:
            name = f"bought-{len(self.bought):04}"
            self.bought.append(name)
            kind, offering = self.cheapest_offering(claim)
            add_node(self, name, claim.pool, kind, offering.zone, offering.capacity_type)
            self.pods[name] = [_bind_pod(name, pods[uid]) for uid in claim.pods]

    def cheapest_offering(self, claim: PlannedNodeClaim) -> tuple[InstanceType, Offering]:
        requirements = {one.key: one for one in claim.requirements if one.key in (CAPACITY_TYPE, ZONE)}
        named = next(one.values for one in claim.requirements if one.key == INSTANCE_TYPE)
        found = [
            (offering.price, name, offering)
            for name in named
            for offering in self.types_by_name[name].offerings
            if all(
                matches_expression({CAPACITY_TYPE: offering.capacity_type, ZONE: offering.zone}, one)
                for one in requirements.values()
            )
        ]
        _, name, offering = min(found, key=lambda one: (one[0], one[1], one[2].zone))
        return self.types_by_name[name], offering

    def _iter_changes(self) -> Iterator[Change]:
        yield from (Change(kind="pool", key=one.name, fact=one) for one in self.pools)
        yield from (Change(kind="node", key=one.name, fact=one) for one in self.nodes.values())
        yield from (Change(kind="claim", key=one.name, fact=one) for one in self.claims.values())
        for pods in self.pods.values():
            yield from (Change(kind="pod", key=one.uid, fact=one) for one in pods)


def generate_cluster(
    nodes: int, *, seed: int = 1, idle: float = 0.5, spread: bool = False, spot: float = 0.0
) -> Cluster:
    """`idle` and `spot` are fractions of the nodes. Idle nodes are up to a third full, the others nearly full. With
    `spot` 0 the pools allow no spot capacity. With `spread`, every service has a topology spread over zones."""
    dice = random.Random(seed)
    types = catalogue(16).by_node_class["default"]
    usable = [one for one in types if "nvidia.com/gpu" not in one.capacity]
    cluster = Cluster(types, tuple(_make_pool(name, spot=spot > 0) for name in ("general", "batch")), {}, {}, {})
    for number in range(nodes):
        kind, name = dice.choice(usable), f"node-{number:04}"
        capacity_type = SPOT if dice.random() < spot else ON_DEMAND
        offering = dice.choice([one for one in kind.offerings if one.capacity_type == capacity_type])
        pool = dice.choice(("general", "general", "batch"))
        add_node(cluster, name, pool, kind, offering.zone, capacity_type)
        utilization = dice.uniform(*(_IDLE if dice.random() < idle else _FULL))
        cluster.pods[name] = list(_generate_pods(name, kind, utilization, dice, spread=spread))
    return cluster


def add_node(cluster: Cluster, name: str, pool: str, kind: InstanceType, zone: str, capacity_type: str) -> None:
    """Add a node that was created a day ago."""
    labels = {key: values[0] for key, values in kind.labels.items()} | {
        NODEPOOL: pool,
        INSTANCE_TYPE: kind.name,
        ZONE: zone,
        CAPACITY_TYPE: capacity_type,
        HOSTNAME: name,
    }
    resources = {"capacity": kind.capacity, "allocatable": kind.allocatable()}
    up = NOW - timedelta(days=1)
    cluster.nodes[name] = NodeFact(
        name=name,
        provider_id=f"aws:///{zone}/{name}",
        labels=labels,
        ready=True,
        ready_changed=up,
        created=up,
        **resources,
    )
    cluster.claims[name] = NodeClaimFact(
        name=name,
        uid=f"uid-{name}",
        created=up,
        pool=pool,
        node_class="default",
        labels=labels,
        provider_id=f"aws:///{zone}/{name}",
        node_name=name,
        launched=True,
        registered=True,
        initialized=True,
        initialized_at=up,
        **resources,
    )
    cluster.pods.setdefault(name, [])


def _bind_pod(node: str, pod: PodFact) -> PodFact:
    return pod.model_copy(update={"node_name": node})


def _make_pool(name: str, *, spot: bool) -> NodePoolFact:
    fields: dict[str, Any] = {"consolidate_after": "0s", "consolidation_policy": "WhenEmptyOrUnderutilized"}
    requirements = (
        Expression(key="karpenter.k8s.aws/instance-category", operator="In", values=("c", "m", "r", "x")),
        Expression(key=CAPACITY_TYPE, operator="In", values=(ON_DEMAND, SPOT) if spot else (ON_DEMAND,)),
    )
    return NodePoolFact(name=name, uid=name, ready=True, node_class="default", requirements=requirements, **fields)


def _generate_pods(
    node: str, kind: InstanceType, utilization: float, dice: random.Random, *, spread: bool
) -> Iterator[PodFact]:
    allocatable, used = kind.allocatable(), {"cpu": 0, "memory": 0, "pods": 0}
    for number in range(allocatable["pods"]):
        service = dice.choices(range(len(SERVICES)), [weight for weight, _, _ in SERVICES])[0]
        requests = {"cpu": SERVICES[service][1], "memory": SERVICES[service][2] * _MIB, "pods": 1}
        if any(used[key] + requests[key] > allocatable[key] * utilization for key in requests):
            continue
        used = {key: used[key] + requests[key] for key in used}
        labels = {"app": f"service-{service}"}
        selector = (Expression(key="app", operator="In", values=(labels["app"],)),)
        loose = SpreadConstraint(key=ZONE, max_skew=200, selector=selector)
        uid = f"{node}-{number}"
        yield PodFact(
            uid=uid,
            namespace="default",
            name=uid,
            requests=requests,
            created=NOW - timedelta(days=1),
            node_name=node,
            phase="Running",
            labels=labels,
            spreads=(loose,) if spread else (),
        )
