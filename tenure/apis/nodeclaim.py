"""NodeClaim (`karpenter.sh/v1`): a requested node and its status."""

from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import Field

from tenure.apis import crd_schema, labels
from tenure.apis.crd_schema import ATOMIC, BY_TYPE, DURATION, DURATION_OR_NEVER, Crd, Rule
from tenure.apis.durations import parse_duration_or_none
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus, NodeClassRef, Quantities, Requirement, Taint

# A NodeClaim's condition may have no reason or message: while a node starts, there often is none to give.
_CONDITION: Final = Crd(
    fields={
        "reason": Crd(schema={"minLength": None, "pattern": r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"}),
        "message": Crd(),
    },
    schema={"required": ["lastTransitionTime", "status", "type"]},
)


class ResourceRequests(KubeModel):
    """Minimum resources of the node."""

    requests: Quantities = {}
    """The least the node must offer."""


class NodeSpec(KubeModel):
    """Common fields of a NodeClaim and of a NodePool's template."""

    startup_taints: Annotated[tuple[Taint, ...], Crd(ATOMIC)] = ()
    """Taints the node starts with and that something else, usually a DaemonSet, takes away. Pods need not tolerate them
    to have a node made; the node is initialized when they are gone."""
    termination_grace_period: Annotated[str | None, Crd({"pattern": DURATION})] = None
    """How long the drain may last, counted from the deletion, such as '24h'. Then the remaining pods are deleted in
    spite of budgets and annotations, and the instance is terminated. Unset: as long as it takes."""
    expire_after: Annotated[str, Crd({"default": "720h", "pattern": DURATION_OR_NEVER})] = "720h"
    """The age at which a node is deleted, such as '720h', or 'Never'."""

    @property
    def termination_grace_delta(self) -> timedelta | None:
        """None: wait for ever. The CRD admits durations that cannot be read; a drain is never forced for these."""
        return parse_duration_or_none(self.termination_grace_period)

    @property
    def expire_after_delta(self) -> timedelta | None:
        """None: never, also for a duration that cannot be read."""
        return parse_duration_or_none(self.expire_after)


class NodeClaimSpec(NodeSpec):
    """The node that is asked for."""

    taints: Annotated[tuple[Taint, ...], Crd(ATOMIC)] = ()
    """Taints the node keeps."""
    requirements: Annotated[
        tuple[Requirement, ...],
        Crd(
            {"maxItems": 100, **ATOMIC},
            crd_schema.REQUIREMENT_RULES,
            required=True,
            items=Crd(fields={"key": Crd(rules=crd_schema.label_key_rules(of_each_key=False, pool=False))}),
        ),
    ] = ()
    """Requirements that the node must satisfy."""
    resources: ResourceRequests = ResourceRequests()
    node_class_ref: Annotated[NodeClassRef, Crd(required=True)] = NodeClassRef()
    """The NodeClass that says how the instance is made."""


SPEC_RULES: Final = (
    Rule(
        "self == oldSelf",
        "the spec of a NodeClaim never changes: delete it and make another, or change the NodePool, "
        "whose nodes then follow by drift",
    ),
)


class NodeClaimStatus(KubeStatus):
    """The instance and the Node behind the claim."""

    node_name: str = ""
    """Name of the Node."""
    provider_id: Annotated[str, Field(alias="providerID")] = ""
    """The instance, as the Node names it."""
    image_id: Annotated[str, Field(alias="imageID")] = ""
    """The image the instance runs."""
    capacity: Quantities = {}
    """Estimated full capacity of the node."""
    allocatable: Quantities = {}
    """Estimated allocatable capacity of the node."""
    last_pod_event_time: datetime | None = None
    """When a pod last came to the node, ended on it or left it."""
    conditions: Annotated[tuple[Condition, ...], Crd(BY_TYPE, items=_CONDITION)] = ()
    """Progress and health of the node."""


class NodeClaim(KubeObject):
    """One node that is wanted, and its life."""

    api_version: str = "karpenter.sh/v1"
    kind: str = "NodeClaim"
    spec: Annotated[NodeClaimSpec, Crd(rules=SPEC_RULES, required=True)] = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def nodepool(self) -> str:
        """The owning NodePool's name; empty for a NodeClaim that a user created."""
        return self.metadata.labels.get(labels.NODEPOOL, "")

    @property
    def expires_at(self) -> datetime | None:
        """When it is to go whatever it runs; None for never."""
        after, born = self.spec.expire_after_delta, self.metadata.creation_timestamp
        return born + after if after is not None and born is not None else None

    @property
    def capacity_type(self) -> str:
        return self.metadata.labels.get(labels.CAPACITY_TYPE, "")

    @property
    def instance_type(self) -> str:
        return self.metadata.labels.get(labels.INSTANCE_TYPE, "")

    @property
    def zone(self) -> str:
        return self.metadata.labels.get(labels.ZONE, "")
