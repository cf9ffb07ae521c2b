"""NodeClaim (`karpenter.sh/v1`): a requested node and its status."""

from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import Field

from tenure.apis import crd_schema, labels
from tenure.apis.crd_schema import ATOMIC, BY_TYPE, DURATION, DURATION_OR_NEVER, Crd, Rule
from tenure.apis.durations import parse_duration_or_none
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus, NodeClassRef, Quantities, Requirement, Taint

# Reason and message of a NodeClaim's condition may be empty, as they often are while a node starts.
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
    """Minimum of each resource."""


class NodeSpec(KubeModel):
    """Common fields of a NodeClaim and of a NodePool's template."""

    startup_taints: Annotated[tuple[Taint, ...], Crd(ATOMIC)] = ()
    """Taints that the node starts with and another component, usually a DaemonSet, removes. Pods need not tolerate them
    to trigger a launch. The node is initialized once they are removed."""
    termination_grace_period: Annotated[str | None, Crd({"pattern": DURATION})] = None
    """Maximum duration of the drain, from the deletion of the NodeClaim, such as '24h'. Afterwards the remaining pods
    are deleted regardless of budgets and annotations, and the instance is terminated. Unset: no limit."""
    expire_after: Annotated[str, Crd({"default": "720h", "pattern": DURATION_OR_NEVER})] = "720h"
    """Age at which a node is deleted, such as '720h', or 'Never'."""

    @property
    def termination_grace_delta(self) -> timedelta | None:
        """None: no limit, also for an invalid duration that the CRD accepts."""
        return parse_duration_or_none(self.termination_grace_period)

    @property
    def expire_after_delta(self) -> timedelta | None:
        """None: never, also for an invalid duration that the CRD accepts."""
        return parse_duration_or_none(self.expire_after)


class NodeClaimSpec(NodeSpec):
    """The requested node."""

    taints: Annotated[tuple[Taint, ...], Crd(ATOMIC)] = ()
    """Permanent taints of the node."""
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
    """The NodeClass that configures the instance."""


SPEC_RULES: Final = (
    Rule(
        "self == oldSelf",
        "spec is immutable: delete the NodeClaim and create another one, or change the NodePool, "
        "whose nodes are then replaced by drift",
    ),
)


class NodeClaimStatus(KubeStatus):
    """The instance and the Node behind the claim."""

    node_name: str = ""
    """Name of the Node."""
    provider_id: Annotated[str, Field(alias="providerID")] = ""
    """Provider ID of the instance, as in the Node's spec."""
    image_id: Annotated[str, Field(alias="imageID")] = ""
    """Image of the instance."""
    capacity: Quantities = {}
    """Estimated full capacity of the node."""
    allocatable: Quantities = {}
    """Estimated allocatable capacity of the node."""
    last_pod_event_time: datetime | None = None
    """When a pod was last bound to the node, finished on it or was removed from it."""
    conditions: Annotated[tuple[Condition, ...], Crd(BY_TYPE, items=_CONDITION)] = ()
    """Progress and health of the node."""


class NodeClaim(KubeObject):
    """A requested node and its lifecycle."""

    api_version: str = "karpenter.sh/v1"
    kind: str = "NodeClaim"
    spec: Annotated[NodeClaimSpec, Crd(rules=SPEC_RULES, required=True)] = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def nodepool(self) -> str:
        """The owning NodePool's name; empty for a NodeClaim that a user created."""
        return self.metadata.labels.get(labels.NODEPOOL, "")

    @property
    def provider_id(self) -> str:
        return self.status.provider_id

    @property
    def node_name(self) -> str:
        return self.status.node_name

    @property
    def registered(self) -> bool:
        return self.is_true(labels.REGISTERED_CONDITION)

    @property
    def expires_at(self) -> datetime | None:
        """When the node expires, regardless of its pods; None for never."""
        after, born = self.spec.expire_after_delta, self.metadata.creation_timestamp
        return born + after if after is not None and born is not None else None

    @property
    def disrupted_by(self) -> str:
        """The workflow ID of the disruption command that it is part of; empty if there is none."""
        condition = self.condition(labels.DISRUPTION_REASON)
        return condition.message if condition is not None and condition.is_true else ""

    @property
    def capacity_type(self) -> str:
        return self.metadata.labels.get(labels.CAPACITY_TYPE, "")

    @property
    def instance_type(self) -> str:
        return self.metadata.labels.get(labels.INSTANCE_TYPE, "")

    @property
    def zone(self) -> str:
        return self.metadata.labels.get(labels.ZONE, "")
