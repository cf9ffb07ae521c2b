"""NodeClaim (`karpenter.sh/v1`): one node that is wanted, and what became of it."""

from datetime import datetime, timedelta

from model import labels
from model.durations import parse_duration
from model.kinds.meta import Condition, KubeModel, KubeObject, NodeClassRef, Quantities, Requirement, Taint


class ResourceRequests(KubeModel):
    """What the node must have room for."""

    requests: Quantities = {}


class NodeClaimSpec(KubeModel):
    """What is asked for; never changes after creation."""

    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    resources: ResourceRequests = ResourceRequests()
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


class NodeClaimStatus(KubeModel):
    """The instance and the Node behind the claim."""

    node_name: str = ""
    provider_id: str = ""
    image_id: str = ""
    capacity: Quantities = {}
    allocatable: Quantities = {}
    last_pod_event_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class NodeClaim(KubeObject):
    """One node's request and life."""

    api_version: str = "karpenter.sh/v1"
    kind: str = "NodeClaim"
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions

    @property
    def nodepool(self) -> str:
        """The owning NodePool's name; empty for a NodeClaim that a person made alone."""
        return self.metadata.labels.get(labels.NODEPOOL, "")

    @property
    def capacity_type(self) -> str:
        return self.metadata.labels.get(labels.CAPACITY_TYPE, "")

    @property
    def instance_type(self) -> str:
        return self.metadata.labels.get(labels.INSTANCE_TYPE, "")

    @property
    def zone(self) -> str:
        return self.metadata.labels.get(labels.ZONE, "")
