"""The fields of NodePools that the controller depends on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import nodepool_hash
from tenure.apis.labels import NODE_REGISTRATION_HEALTHY, NODEPOOL_CONDITIONS, PAUSE
from tenure.apis.nodepool import Budget, NodePool
from tenure.kube.client.errors import Json
from tenure.kube.facts.objects import nodepool_fact
from tenure.model.facts import NodePoolFact


@dataclass(frozen=True)
class NodePoolView:
    """A NodePool: fields for planning, and fields that the decisions about its ready nodes depend on."""

    fact: NodePoolFact
    consolidation: str
    """`<consolidationPolicy>/<consolidateAfter>`."""
    budgets: tuple[Budget, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the NodePool itself; LifecyclePolicies select by them."""
    pause: str = ""
    """The annotation tenure.sh/pause."""
    healthy_at: tuple[int, int] | None = None
    """Generations of the pool and its NodeClass for which the condition NodeRegistrationHealthy is True."""
    not_ready: Mapping[str, str] = field(default_factory=dict)
    """Message of each condition that is False and keeps it from being Ready."""


def read_nodepool_view(pool: Json) -> NodePoolView:
    """Raises ValueError for an invalid pool."""
    typed = NodePool.from_object(pool)
    disruption = typed.spec.disruption
    # A static pool keeps its nodes whether or not pods run on them (reference 4.5).
    after = "Never" if typed.spec.replicas is not None else disruption.consolidate_after
    return NodePoolView(
        fact=nodepool_fact(pool).model_copy(update={"hash": nodepool_hash(typed)}),
        budgets=disruption.budgets,
        consolidation=f"{disruption.consolidation_policy}/{after}",
        labels=typed.metadata.labels,
        pause=typed.metadata.annotations.get(PAUSE, ""),
        healthy_at=_healthy_at(typed),
        not_ready=list_false_conditions(typed, NODEPOOL_CONDITIONS),
    )


def list_false_conditions(found: NodePool | EC2NodeClass, types: Iterable[str]) -> dict[str, str]:
    """Message of each of these conditions that is False."""
    return {one.type: one.message for one in found.conditions if one.type in types and one.status == "False"}


def _healthy_at(pool: NodePool) -> tuple[int, int] | None:
    condition = pool.condition(NODE_REGISTRATION_HEALTHY)
    if condition is None or not condition.is_true:
        return None
    return condition.observed_generation, pool.status.node_class_observed_generation
