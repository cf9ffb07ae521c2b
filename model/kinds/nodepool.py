"""NodePool (`karpenter.sh/v1`): what nodes may be made, how many, and when they may be disrupted."""

from datetime import timedelta

from model.durations import parse_duration
from model.kinds.meta import Condition, KubeModel, KubeObject, NodeClassRef, Quantities, Requirement, Taint


class Budget(KubeModel):
    """How many nodes of the pool may go at once, always or while a schedule is active."""

    nodes: str = "10%"
    schedule: str | None = None
    duration: str | None = None
    reasons: tuple[str, ...] | None = None
    """None: for every reason."""


class Disruption(KubeModel):
    """When Tenure may replace or remove nodes of its own accord."""

    consolidate_after: str = "0s"
    consolidation_policy: str = "WhenEmptyOrUnderutilized"
    budgets: tuple[Budget, ...] = (Budget(),)

    @property
    def consolidate_after_delta(self) -> timedelta | None:
        """None: never. Raises DurationError."""
        return parse_duration(self.consolidate_after)


class TemplateMeta(KubeModel):
    """Labels and annotations that every NodeClaim and Node of the pool gets."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class TemplateSpec(KubeModel):
    """What a NodeClaim of the pool starts from."""

    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    node_class_ref: NodeClassRef = NodeClassRef()
    termination_grace_period: str | None = None
    expire_after: str = "720h"

    @property
    def termination_grace_delta(self) -> timedelta | None:
        """None: wait for ever. Raises DurationError."""
        return None if self.termination_grace_period is None else parse_duration(self.termination_grace_period)

    @property
    def expire_after_delta(self) -> timedelta | None:
        """None: never. Raises DurationError."""
        return parse_duration(self.expire_after)


class NodeClaimTemplate(KubeModel):
    """The template of the pool's NodeClaims."""

    metadata: TemplateMeta = TemplateMeta()
    spec: TemplateSpec = TemplateSpec()


class NodePoolSpec(KubeModel):
    """What the user wants of the pool."""

    template: NodeClaimTemplate = NodeClaimTemplate()
    disruption: Disruption = Disruption()
    limits: Quantities = {}
    weight: int | None = None
    replicas: int | None = None
    """Set: a static pool of that many nodes."""


class NodePoolStatus(KubeModel):
    """What Tenure found out about the pool."""

    resources: Quantities = {}
    nodes: int = 0
    node_class_observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class NodePool(KubeObject):
    """A pool of alike nodes."""

    api_version: str = "karpenter.sh/v1"
    kind: str = "NodePool"
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions

    @property
    def is_static(self) -> bool:
        return self.spec.replicas is not None

    @property
    def weight(self) -> int:
        return self.spec.weight or 0
