"""NodePool (`karpenter.sh/v1`): allowed nodes, their number, and their disruption."""

from typing import Annotated, Final

from tenure.apis import crd_schema
from tenure.apis.crd_schema import ATOMIC, BY_TYPE, CRON, DURATION_OR_NEVER, INT32, INT64, LABEL_VALUE, Crd, Rule
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus, NodeClassRef, Quantities, Requirement, Taint
from tenure.apis.nodeclaim import NodeSpec


class Budget(KubeModel):
    """How many nodes of the pool may go at once, always or while a schedule is active."""

    nodes: Annotated[str, Crd({"default": "10%", "pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$"}, required=True)] = "10%"
    """A number of nodes such as '5', or a share of the pool's nodes such as '10%', rounded up."""
    schedule: Annotated[str | None, Crd({"pattern": CRON})] = None
    """When the budget begins to hold, as a cron line in UTC or a macro such as @hourly."""
    duration: Annotated[str | None, Crd({"pattern": r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"})] = None
    """How long it then holds, in hours and minutes such as '8h' or '1h30m'."""
    reasons: Annotated[
        tuple[str, ...] | None,
        Crd(
            {"maxItems": 50, "x-kubernetes-list-type": "set"},
            items=Crd({"enum": ["Underutilized", "Empty", "Drifted"]}, doc="A reason to disrupt."),
        ),
    ] = None
    """Which disruptions it counts; unset: all."""


class Disruption(KubeModel):
    """Voluntary replacement and removal of nodes."""

    consolidate_after: Annotated[str, Crd({"pattern": DURATION_OR_NEVER}, required=True)] = "0s"
    """How long a node must have had no pod come or go before it is considered, such as '30s', or 'Never'."""
    consolidation_policy: Annotated[
        str, Crd({"default": "WhenEmptyOrUnderutilized", "enum": ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]})
    ] = "WhenEmptyOrUnderutilized"
    """Which nodes are considered."""
    budgets: Annotated[
        tuple[Budget, ...],
        Crd(
            {"default": [{"nodes": "10%"}], "maxItems": 50, **ATOMIC},
            (
                Rule(
                    "self.all(b, has(b.schedule) == has(b.duration))",
                    "a budget has both 'schedule' and 'duration', or neither: add the missing one, such as "
                    "duration: 8h, or remove the other so that the budget always holds",
                ),
            ),
        ),
    ] = (Budget(),)
    """How many nodes may go at once. Of several that are active the tightest counts."""


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
    """Taints the nodes keep."""
    requirements: Annotated[
        tuple[Requirement, ...],
        Crd(
            {"maxItems": 100, **ATOMIC},
            crd_schema.REQUIREMENT_RULES,
            required=True,
            items=Crd(fields={"key": Crd(rules=crd_schema.label_key_rules(of_each_key=False, pool=True))}),
        ),
    ] = ()
    """Requirements of every node; pods narrow them."""
    node_class_ref: Annotated[
        NodeClassRef,
        Crd(
            rules=(
                Rule(
                    "self.group == oldSelf.group",
                    "the group of nodeClassRef never changes: write the old group again, or make a new NodePool",
                ),
                Rule(
                    "self.kind == oldSelf.kind",
                    "the kind of nodeClassRef never changes: write the old kind again, or make a new NodePool",
                ),
            ),
            required=True,
        ),
    ] = NodeClassRef()
    """The NodeClass that says how instances are made."""


class NodeClaimTemplate(KubeModel):
    """The template of the pool's NodeClaims."""

    metadata: TemplateMeta = TemplateMeta()
    spec: Annotated[TemplateSpec, Crd(required=True)] = TemplateSpec()


class NodePoolSpec(KubeModel):
    """Nodes that the pool may have."""

    template: Annotated[NodeClaimTemplate, Crd(required=True)] = NodeClaimTemplate()
    disruption: Annotated[Disruption, Crd(schema={"default": {"consolidateAfter": "0s"}})] = Disruption()
    limits: Quantities = {}
    """No more nodes are made once the pool's capacity reaches these; 'nodes' limits their number."""
    weight: Annotated[int | None, Crd({**INT32, "minimum": 1, "maximum": 100})] = None
    """Pools with more weight are tried first; unset: 0."""
    replicas: Annotated[
        int | None, Crd({**INT64, "minimum": 0}, doc="A static pool of this many nodes, whatever the pods need. Alpha.")
    ] = None
    """Set: a static pool of that many nodes."""


SPEC_RULES: Final = (
    Rule(
        "has(self.replicas) == has(oldSelf.replicas)",
        "a NodePool stays static (with 'replicas') or dynamic (without): to change it, make a new NodePool",
    ),
    Rule(
        "!has(self.replicas) || !has(self.limits) || self.limits.all(r, r == 'nodes')",
        "a NodePool with 'replicas' can be limited in 'limits.nodes' alone: remove the other limits",
    ),
    Rule(
        "!has(self.replicas) || !has(self.weight)",
        "'weight' means nothing for a NodePool with 'replicas': remove it",
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
