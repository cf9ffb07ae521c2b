"""A running cluster whose nodes can be disrupted; decided commands can be applied to it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

from tenure.apis.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, ZONE
from tenure.apis.resources import NODES, add
from tenure.model.disruption.decision import Command, Decision, DisruptionRequest
from tenure.model.facts import NodeClaimFact, NodeFact, NodePoolFact, PodDisruptionBudgetFact, PodFact
from tenure.model.instance_types import InstanceType, Offering
from tenure.model.plan import PlannedNodeClaim
from tenure.scheduling.disruption.cost import offering_price
from tenure.scheduling.snapshot import Fact
from tests.oracle.plan import PlanInputs, matches_expression
from tests.unit.scheduling import builders
from tests.unit.scheduling.builders import COMMON, NOW, Cluster

Choose = Callable[[Sequence[tuple[InstanceType, Offering]]], tuple[InstanceType, Offering]]
_numbers = count()


def cheapest(offered: Sequence[tuple[InstanceType, Offering]]) -> tuple[InstanceType, Offering]:
    return min(offered, key=lambda one: (one[1].price, one[0].name, one[1].zone))


def most_expensive(offered: Sequence[tuple[InstanceType, Offering]]) -> tuple[InstanceType, Offering]:
    return max(offered, key=lambda one: (one[1].price, one[0].name, one[1].zone))


def pool(name: str = "default", *requirements: str, **more: Any) -> NodePoolFact:
    """A NodePool that consolidates at once by default."""
    defaults = {"consolidate_after": "0s", "consolidation_policy": "WhenEmptyOrUnderutilized"}
    return builders.pool(name, *requirements, **{**defaults, **more})


def pdb(name: str = "pdb", *selector: str, **more: Any) -> PodDisruptionBudgetFact:
    fields = {"namespace": "default", "name": name, "selector": builders.expressions(*selector), **more}
    return PodDisruptionBudgetFact.model_validate(fields)


class Fleet:
    def __init__(
        self, *pools: NodePoolFact, instance_types: Sequence[InstanceType] = COMMON, facts: Sequence[Fact] = ()
    ) -> None:
        self.pools = {one.name: one for one in pools or (pool(),)}
        self.instance_types = {one.name: one for one in instance_types}
        self.facts = tuple(facts)
        self.nodes: dict[str, NodeFact] = {}
        self.nodeclaims: dict[str, NodeClaimFact] = {}
        self.pods: dict[str, list[PodFact]] = {}

    def node(
        self,
        name: str,
        instance_type: str,
        *pods: PodFact,
        of: str = "default",
        zone: str = "a",
        capacity_type: str = "on-demand",
        labels: Mapping[str, str] | None = None,
        node: Mapping[str, Any] | None = None,
        **nodeclaim_fields: Any,
    ) -> "Fleet":
        """Add an initialized node with these pods. `node` and `nodeclaim_fields` override fields of the facts."""
        found_type = self.instance_types[instance_type]
        node_labels = {key: values[0] for key, values in found_type.labels.items()} | {
            NODEPOOL: of,
            INSTANCE_TYPE: instance_type,
            ZONE: zone,
            CAPACITY_TYPE: capacity_type,
            HOSTNAME: name,
            **self.pools[of].template_labels,
            **(labels or {}),
        }
        taints = self.pools[of].taints
        fact = builders.node(
            name,
            labels=node_labels,
            capacity=found_type.capacity,
            allocatable=found_type.allocatable(),
            **{"taints": taints, **(node or {})},
        )
        self.nodes[name] = fact
        times = {"created": NOW - timedelta(hours=1), "initialized_at": NOW - timedelta(hours=1)}
        fields = {"labels": node_labels, "taints": taints, **times, **nodeclaim_fields}
        self.nodeclaims[name] = builders.nodeclaim(name, of=of, on=fact, **fields)
        self.pods[name] = [
            one.model_copy(update={"node_name": name, "phase": "Running" if one.phase == "Pending" else one.phase})
            for one in pods
        ]
        return self

    def launch(self, planned: PlannedNodeClaim, pods: Sequence[PodFact], choose: Choose = cheapest) -> str:
        """Add an initialized node for a planned NodeClaim."""
        instance_type, offering = choose(self.possible_offerings(planned))
        name = f"n{next(_numbers):05}"
        self.node(
            name,
            instance_type.name,
            *pods,
            of=planned.pool,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            labels=planned.labels,
        )
        return name

    def possible_offerings(self, planned: PlannedNodeClaim) -> list[tuple[InstanceType, Offering]]:
        """The offerings that EC2 may launch for the NodeClaim."""
        found = []
        for instance_type in self.instance_types.values():
            for one in instance_type.offerings:
                labels = {key: values[0] for key, values in instance_type.labels.items()} | {
                    **planned.labels,
                    INSTANCE_TYPE: instance_type.name,
                    ZONE: one.zone,
                    CAPACITY_TYPE: one.capacity_type,
                    "topology.k8s.aws/zone-id": one.zone_id,
                }
                if one.available and all(
                    matches_expression(labels, requirement) for requirement in planned.requirements
                ):
                    found.append((instance_type, one))
        return found

    def to_cluster(self) -> Cluster:
        facts: list[Fact] = [*self.pools.values(), *self.nodes.values(), *self.nodeclaims.values(), *self.facts]
        facts += [pod for pods in self.pods.values() for pod in pods]
        return Cluster(*facts, instance_types=tuple(self.instance_types.values()))

    def decide(self, **request: Any) -> Decision:
        return self.to_cluster().state.disrupt(DisruptionRequest(**{"now": NOW, **request}))

    def price(self) -> float:
        return sum(
            offering_price(one.labels, self.instance_types[one.labels[INSTANCE_TYPE]]) for one in self.nodes.values()
        )

    def apply(self, command: Command, choose: Choose = cheapest) -> None:
        """Remove the candidates, launch the replacements, and move each pod to its target."""
        moving = {pod.uid: pod for name in command.node_names for pod in self.pods[name]}
        for name in command.node_names:
            del self.nodes[name], self.nodeclaims[name], self.pods[name]
        for one in command.moves:
            if one.target:
                self.pods[one.target].append(moving[one.pod_uid].model_copy(update={"node_name": one.target}))
        for planned in command.replacements:
            self.launch(planned, [moving[uid] for uid in planned.pods], choose)

    def build_plan_inputs(self, command: Command) -> PlanInputs:
        """The inputs for which the moves of a command are a plan: the cluster without the candidates."""
        used: dict[str, dict[str, int]] = {}
        for name, nodeclaim in self.nodeclaims.items():
            if name not in command.node_names:
                used[nodeclaim.pool] = add(used.get(nodeclaim.pool, {}), nodeclaim.capacity, {NODES: 1})
        moved = {one.pod_uid for one in command.moves}
        return PlanInputs(
            pods={pod.uid: pod for name in command.node_names for pod in self.pods[name] if pod.uid in moved},
            pools=self.pools,
            types=self.instance_types,
            nodes={name: one for name, one in self.nodes.items() if name not in command.node_names},
            bound={name: pods for name, pods in self.pods.items() if name not in command.node_names},
            used=used,
        )
