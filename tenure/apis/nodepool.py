"""NodePool (`karpenter.sh/v1`): requirements, limits and disruption of a pool's nodes."""

from typing import Annotated, Final

from tenure.apis import crd_schema
from tenure.apis.crd_schema import ATOMIC, BY_TYPE, CRON, DURATION_OR_NEVER, INT32, INT64, LABEL_VALUE, Crd, Rule
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus, NodeClassRef, Quantities, Requirement, Taint
from tenure.apis.nodeclaim import NodeSpec


class Budget(KubeModel):
    """How many nodes of the pool may be disrupted at once, always or while a schedule is active."""

    nodes: Annotated[str, Crd({"default": "10%", "pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$"}, required=True)] = "10%"
    """A number of nodes such as '5', or a share of the pool's nodes such as '10%', rounded up."""
    schedule: Annotated[str | None, Crd({"pattern": CRON})] = None
    """When the budget becomes active: a cron schedule in UTC, or a macro such as @hourly."""
    duration: Annotated[str | None, Crd({"pattern": r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"})] = None
    """How long the budget stays active, in hours and minutes such as '8h' or '1h30m'."""
    reasons: Annotated[
        tuple[str, ...] | None,
        Crd(
            {"maxItems": 50, "x-kubernetes-list-type": "set"},
            items=Crd({"enum": ["Underutilized", "Empty", "Drifted", "Unhealthy"]}, doc="A reason to disrupt."),
        ),
    ] = None
    """Disruption reasons that the budget applies to; unset: all."""


class Disruption(KubeModel):
    """Voluntary replacement and removal of nodes."""

    consolidate_after: Annotated[str, Crd({"default": "0s", "pattern": DURATION_OR_NEVER})] = "0s"
    """How long no pod may have been added to or removed from a node before it is considered for consolidation, such as
    '30s', or 'Never'."""
    consolidation_policy: Annotated[
        str, Crd({"default": "WhenEmptyOrUnderutilized", "enum": ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]})
    ] = "WhenEmptyOrUnderutilized"
    """Which nodes are considered for consolidation."""
    budgets: Annotated[
        tuple[Budget, ...],
        Crd(
            {"default": [{"nodes": "10%"}], "maxItems": 50, **ATOMIC},
            (
                Rule(
                    "self.all(b, has(b.schedule) == has(b.duration))",
                    "'schedule' must be set with 'duration': add the missing one, e.g. duration: 8h, or remove the "
                    "other so that the budget is always active",
                ),
            ),
        ),
    ] = (Budget(),)
    """How many nodes may be disrupted at once. Of the active budgets, the most restrictive one applies."""


class TemplateMeta(KubeModel):
    """Labels and annotations of every NodeClaim and Node of the pool."""

    labels: Annotated[
        dict[str, str],
        Crd(
            {"maxProperties": 100, "x-kubernetes-map-type": "atomic"},
            crd_schema.label_key_rules(of_each_key=True, pool=True),
            items=Crd({"maxLength": 63, "pattern": LABEL_VALUE}),
        ),
    ] = {}
    """Labels of the nodes."""
    annotations: Annotated[dict[str, str], Crd({"x-kubernetes-map-type": "granular"})] = {}
    """Annotations of the nodes."""


class TemplateSpec(NodeSpec):
    """Template of the pool's NodeClaims."""

    taints: Annotated[tuple[Taint, ...], Crd(ATOMIC)] = ()
    """Permanent taints of the nodes."""
    requirements: Annotated[
        tuple[Requirement, ...],
        Crd(
            {"maxItems": 100, **ATOMIC},
            crd_schema.REQUIREMENT_RULES,
            required=True,
            items=Crd(fields={"key": Crd(rules=crd_schema.label_key_rules(of_each_key=False, pool=True))}),
        ),
    ] = ()
    """Requirements of every node; pods can narrow them."""
    node_class_ref: Annotated[
        NodeClassRef,
        Crd(
            rules=(
                Rule(
                    "self.group == oldSelf.group",
                    "nodeClassRef.group is immutable: restore the old group or create a new NodePool",
                ),
                Rule(
                    "self.kind == oldSelf.kind",
                    "nodeClassRef.kind is immutable: restore the old kind or create a new NodePool",
                ),
            ),
            required=True,
        ),
    ] = NodeClassRef()
    """The NodeClass that configures the instances."""


class NodeClaimTemplate(KubeModel):
    """The template of the pool's NodeClaims."""

    metadata: TemplateMeta = TemplateMeta()
    spec: Annotated[TemplateSpec, Crd(required=True)] = TemplateSpec()


class NodePoolSpec(KubeModel):
    """Template, disruption and limits of the pool's nodes."""

    template: Annotated[NodeClaimTemplate, Crd(required=True)] = NodeClaimTemplate()
    disruption: Annotated[Disruption, Crd(schema={"default": {"consolidateAfter": "0s"}})] = Disruption()
    limits: Quantities = {}
    """No more nodes are created once the pool's capacity reaches the limits; 'nodes' limits their number."""
    weight: Annotated[int | None, Crd({**INT32, "minimum": 1, "maximum": 100})] = None
    """Pools with a larger weight are tried first; unset: 0."""
    replicas: Annotated[
        int | None, Crd({**INT64, "minimum": 0}, doc="A static pool of this many nodes, regardless of pods. Alpha.")
    ] = None


SPEC_RULES: Final = (
    Rule(
        "has(self.replicas) == has(oldSelf.replicas)",
        "cannot transition a NodePool between static ('replicas' set) and dynamic ('replicas' unset): "
        "create a new NodePool",
    ),
    Rule(
        "!has(self.replicas) || !has(self.limits) || self.limits.all(r, r == 'nodes')",
        "only 'limits.nodes' is supported on NodePools with 'replicas': remove the other limits",
    ),
    Rule(
        "!has(self.replicas) || !has(self.weight)",
        "'weight' is not supported on NodePools with 'replicas': remove it",
    ),
)


class NodePoolStatus(KubeStatus):
    """Observed state of the pool."""

    resources: Quantities = {}
    """Capacity of the pool's nodes."""
    nodes: Annotated[int, Crd({**INT64, "default": 0})] = 0
    """Number of the pool's nodes."""
    node_class_observed_generation: Annotated[int, Crd(INT64)] = 0
    """Generation of the NodeClass for which NodeRegistrationHealthy holds."""
    conditions: Annotated[tuple[Condition, ...], Crd(BY_TYPE)] = ()
    """Health of the pool."""


class NodePool(KubeObject):
    """A pool of similar nodes: their requirements, limits and disruption."""

    api_version: str = "karpenter.sh/v1"
    kind: str = "NodePool"
    spec: Annotated[NodePoolSpec, Crd(rules=SPEC_RULES, required=True)] = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()

    @property
    def is_static(self) -> bool:
        return self.spec.replicas is not None

    @property
    def weight(self) -> int:
        return self.spec.weight or 0
