"""What `caches.py` hands over beside facts: what became dirty, and a NodePool as planning and ready nodes see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kube.errors import Json
from kube.facts import pool_fact
from model.facts import ClaimFact, PoolFact
from model.hashing import nodepool_hash
from model.kinds import Budget, NodePool
from model.labels import NODE_REGISTRATION_HEALTHY, PAUSE


@dataclass(frozen=True)
class PoolView:
    """A NodePool: what planning needs, and what a ready node decides on."""

    fact: PoolFact
    policy: str
    """`<consolidationPolicy>/<consolidateAfter>`."""
    budgets: tuple[Budget, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """The NodePool's own, which LifecyclePolicies select by."""
    pause: str = ""
    """Its annotation tenure.sh/pause."""
    healthy_at: tuple[int, int] | None = None
    """Generations of the pool and its NodeClass for which its condition NodeRegistrationHealthy is True."""


@dataclass
class Dirty:
    """What changed since it was last asked for."""

    claims: set[str] = field(default_factory=set)
    pools: set[str] = field(default_factory=set)
    node_classes: set[str] = field(default_factory=set)
    pods: bool = False
    """Which pods want a node, or when that is to be looked at again, may have changed."""
    volume_claims: set[str] = field(default_factory=set)
    """PersistentVolumeClaims as `namespace/name`: pods that wait for them may be planned now."""
    gone_claims: dict[str, ClaimFact] = field(default_factory=dict)
    """By UID: NodeClaims that left the API server."""
    gone_pools: set[str] = field(default_factory=set)
    gone_node_classes: set[str] = field(default_factory=set)


def pool_view(pool: Json) -> PoolView:
    """Raises ValueError for a pool that cannot be read."""
    typed = NodePool.from_object(pool)
    disruption = typed.spec.disruption
    # The nodes of a static pool are there to be there, whatever runs on them (reference 4.5).
    after = "Never" if typed.spec.replicas is not None else disruption.consolidate_after
    return PoolView(
        fact=pool_fact(pool).model_copy(update={"hash": nodepool_hash(typed)}),
        budgets=disruption.budgets,
        policy=f"{disruption.consolidation_policy}/{after}",
        labels=typed.metadata.labels,
        pause=typed.metadata.annotations.get(PAUSE, ""),
        healthy_at=_healthy_at(typed),
    )


def _healthy_at(pool: NodePool) -> tuple[int, int] | None:
    told = pool.condition(NODE_REGISTRATION_HEALTHY)
    if told is None or not told.is_true:
        return None
    return told.observed_generation, pool.status.node_class_observed_generation
