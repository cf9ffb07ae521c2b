"""Node-hours of a day in which Deployments scale up and down, with and without PodDeletionCostManagement.

    .venv/bin/python -m benchmarks.deletion_cost [--deployments 12] [--seeds 1,2] [--policies WhenEmpty] [--types ""]

Planner and deletion costs are Tenure's. kube-scheduler and the ReplicaSet controller are models: the former binds each
pod to the feasible node with the most free room, as NodeResourcesFit with LeastAllocated does by default. The latter
deletes by deletion cost, then pods that share a node, then young pods (kubernetes: pkg/controller/controller_utils.go).
A step of five minutes scales, binds, launches, writes deletion costs, and runs one disruption pass. Prints Markdown.
"""

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from typing import Any, Final

from benchmarks.generators.cluster import NOW, Cluster, add_node
from benchmarks.generators.instance_types import catalogue
from benchmarks.generators.workloads import SERVICES
from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_CATEGORY, INSTANCE_TYPE, ON_DEMAND
from tenure.model.disruption.decision import METHODS, BudgetHeadroom, DisruptionBudgets, DisruptionRequest, NodeVerdict
from tenure.model.facts import Expression, NodePoolFact, PodFact
from tenure.scheduling.cluster_state import ClusterState
from tenure.scheduling.disruption.deletion_cost import CostedNode, decide_deletion_costs
from tenure.scheduling.snapshot import Change

STEP: Final = timedelta(minutes=5)
DAY: Final = timedelta(days=1)
BUDGET: Final = 0.1
"""The default budget of a NodePool."""
POOL: Final = "general"
POLICIES: Final = ("WhenEmpty", "WhenEmptyOrUnderutilized")
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Deployment:
    """Its replicas follow a sine between `low` and `high`, which begins at its lowest point `shift` into the day."""

    name: str
    cpu: int
    memory: int
    low: int
    high: int
    shift: timedelta

    def replicas_at(self, at: datetime) -> int:
        phase = 2 * math.pi * ((at - NOW - self.shift) / DAY)
        return round(self.low + (self.high - self.low) * (1 - math.cos(phase)) / 2)

    def make_pod(self, number: int, at: datetime) -> PodFact:
        name = f"{self.name}-{number}"
        requests = {"cpu": self.cpu, "memory": self.memory * _MIB, "pods": 1}
        return PodFact(
            uid=name,
            namespace="default",
            name=name,
            requests=requests,
            created=at,
            owner_kind="ReplicaSet",
            owner_uid=self.name,
            unschedulable=True,
            labels={"app": self.name},
        )


def make_deployments(count: int, dice: random.Random) -> list[Deployment]:
    found = []
    for number in range(count):
        _, cpu, memory = dice.choices(SERVICES[:8], [weight for weight, _, _ in SERVICES[:8]])[0]
        high = dice.randint(15, 60)
        shift = timedelta(hours=dice.uniform(-2, 2))
        found.append(Deployment(f"app-{number}", cpu, memory, high // 5, high, shift))
    return found


@dataclass
class Totals:
    node_hours: float = 0.0
    dollars: float = 0.0
    moved_pods: int = 0
    launched_nodes: int = 0


@dataclass
class SimulatedDay:
    deployments: list[Deployment]
    instance_type: str
    """The only type of the NodePool; empty: any type."""
    policy: str
    has_costs: bool
    """Whether deletion costs are written."""
    cluster: Cluster = field(init=False)
    totals: Totals = field(default_factory=Totals)
    pending: list[PodFact] = field(default_factory=list)
    created: int = 0

    def __post_init__(self) -> None:
        only = (INSTANCE_TYPE, (self.instance_type,)) if self.instance_type else (INSTANCE_CATEGORY, ("c", "m", "r"))
        requirements = (
            Expression(key=only[0], operator="In", values=only[1]),
            Expression(key=CAPACITY_TYPE, operator="In", values=(ON_DEMAND,)),
        )
        rules: Any = {"consolidation_policy": self.policy, "consolidate_after": "0s"}
        pool = NodePoolFact(name=POOL, uid=POOL, ready=True, node_class="default", requirements=requirements, **rules)
        self.cluster = Cluster(catalogue(16).by_node_class["default"], (pool,), {}, {}, {})

    def run(self, days: float) -> Totals:
        """The day before the first one, which is not counted, fills the cluster."""
        at = NOW - DAY
        while at < NOW + days * DAY:
            if at == NOW:
                self.totals = Totals()
            self._run_step(at)
            hours = STEP / timedelta(hours=1)
            self.totals.node_hours += hours * len(self.cluster.nodes)
            self.totals.dollars += hours * self.cluster.total_price()
            at += STEP
        return self.totals

    def _run_step(self, at: datetime) -> None:
        for deployment in self.deployments:
            self._scale(deployment, at)
        self._bind_to_existing_nodes()
        if self.pending:
            self._launch(at)
        state = self.cluster.state()
        request = DisruptionRequest(now=at, allowed_disruptions=self._budgets())
        decision = state.disrupt(request)
        if self.has_costs:
            self._write_costs(decision.nodes)
        for command in decision.commands:
            self.cluster.carry_out(command)
            self.totals.moved_pods += len(command.moves)
            self.totals.launched_nodes += len(command.replacements)

    def _scale(self, deployment: Deployment, at: datetime) -> None:
        pods = [pod for pod in self._iter_pods() if pod.owner_uid == deployment.name]
        for _ in range(deployment.replicas_at(at) - len(pods)):
            self.pending.append(deployment.make_pod(self.created, at))
            self.created += 1
        excess = len(pods) - deployment.replicas_at(at)
        if excess > 0:
            on_node = Counter(pod.node_name for pod in pods)
            order = sorted(pods, key=lambda pod: _deletion_order(pod, on_node))
            for pod in order[:excess]:
                self.cluster.pods[pod.node_name].remove(pod)

    def _iter_pods(self) -> Iterator[PodFact]:
        return (pod for pods in self.cluster.pods.values() for pod in pods)

    def _bind_to_existing_nodes(self) -> None:
        waiting, self.pending = self.pending, []
        for pod in waiting:
            free = {name: self._free_share(name, pod) for name in self.cluster.nodes}
            best = max(free, key=lambda name: free[name], default="")
            if best and free[best] >= 0:
                self._bind(pod, best)
            else:
                self.pending.append(pod)

    def _free_share(self, name: str, pod: PodFact) -> float:
        """The mean share of CPU and memory that stays free with the pod; negative if it does not fit."""
        allocatable, pods = self.cluster.nodes[name].allocatable, [*self.cluster.pods[name], pod]
        used = {key: sum(one.requests[key] for one in pods) for key in pod.requests}
        shares = {key: 1 - used[key] / allocatable[key] for key in used}
        return -1.0 if min(shares.values()) < 0 else (shares["cpu"] + shares["memory"]) / 2

    def _bind(self, pod: PodFact, node: str) -> None:
        bound = {"node_name": node, "phase": "Running", "unschedulable": False}
        self.cluster.pods[node].append(pod.model_copy(update=bound))

    def _launch(self, at: datetime) -> None:
        state: ClusterState = self.cluster.state()
        state.apply(Change(kind="pod", key=pod.uid, fact=pod) for pod in self.pending)
        plan = state.provision(now=at)
        pods = {pod.uid: pod for pod in self.pending}
        for claim in plan.claims:
            name = f"node-{self.created}-{self.totals.launched_nodes}"
            kind, offering = self.cluster.cheapest_offering(claim)
            add_node(self.cluster, name, claim.pool, kind, offering.zone, offering.capacity_type)
            self.totals.launched_nodes += 1
            for uid in claim.pods:
                self._bind(pods.pop(uid), name)
        for uid, name in plan.nominations.items():
            self._bind(pods.pop(uid), name)
        self.pending = list(pods.values())

    def _budgets(self) -> DisruptionBudgets:
        allowed = BudgetHeadroom(allowed=math.ceil(BUDGET * len(self.cluster.nodes)))
        return DisruptionBudgets(pools={POOL: dict.fromkeys(METHODS, allowed)})

    def _write_costs(self, verdicts: tuple[NodeVerdict, ...]) -> None:
        pods = self.cluster.pods
        nodes = [CostedNode(one, written=_written(pods[one.node])) for one in verdicts if pods[one.node]]
        for name, cost in decide_deletion_costs(nodes, self._budgets()).items():
            pods[name] = [pod.model_copy(update={"written_cost": cost}) for pod in pods[name]]


def _written(pods: list[PodFact]) -> int | None:
    return next((pod.written_cost for pod in pods if pod.written_cost is not None), None)


def _deletion_order(pod: PodFact, on_node: Mapping[str, int]) -> tuple[int, int, float]:
    return pod.written_cost or 0, -on_node[pod.node_name], -pod.created.timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deployments", type=int, default=12)
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--days", type=float, default=1)
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated values of consolidationPolicy")
    parser.add_argument("--types", default="m6i.2xlarge,", help="comma-separated instance types; empty: any type")
    options = parser.parse_args()
    print("| consolidationPolicy | Types | Seed | Costs | Node-hours | $ | Moved pods | Launched nodes |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    choices = product(options.policies.split(","), options.types.split(","), map(int, options.seeds.split(",")))
    for policy, instance_type, seed in choices:
        deployments = make_deployments(options.deployments, random.Random(seed))
        for has_costs in (False, True):
            found = SimulatedDay(deployments, instance_type, policy, has_costs).run(options.days)
            cells = (f"{found.node_hours:.0f}", f"{found.dollars:.2f}", found.moved_pods, found.launched_nodes)
            row = (f"`{policy}`", instance_type or "any", seed, "yes" if has_costs else "no", *cells)
            print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
