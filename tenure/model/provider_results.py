"""Results of the ports in `activities/ports/core.py`: live instances, nodes, pods and evictions.

`tenure/kube/` and `tenure/aws/` create these values, and activities read them. They are here so that adapters do not
import the ports.
"""

from datetime import datetime, timedelta
from typing import Literal

from tenure.model.base import Message, Value
from tenure.model.instance_types import Market


class InstanceFacts(Value):
    instance_id: str
    state: str
    """pending, running, stopping, stopped, shutting-down."""
    instance_type: str = ""
    zone: str = ""
    image_id: str = ""
    subnet_id: str = ""
    security_group_ids: tuple[str, ...] = ()
    capacity_type: str = ""
    reservation_id: str = ""
    """Empty unless the instance was launched only into this capacity reservation, and the feature gate is on."""
    reservation_type: Literal["", "default", "capacity-block"] = ""
    interruptible: bool = False
    placement_group: str = ""
    partition: str = ""
    tags: dict[str, str] = {}
    launched_at: datetime | None = None
    instance_profile: str = ""
    state_reason: str = ""
    """Why it is stopped or terminated, as `code: message`; empty for a running instance."""
    root: str = ""
    """Root device type: `ebs` keeps its data at a stop, `instance-store` does not."""

    @property
    def market(self) -> Market:
        return "interruptible" if self.interruptible else self.reservation_type


class LaunchFacts(Value):
    """For the NodeClaim of a launched instance: its labels, and the capacity and allocatable of its instance type."""

    provider_id: str
    image_id: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    capacity: dict[str, int]
    allocatable: dict[str, int]


class ConditionPatch(Message):
    """A condition to set. With status `True` and no reason, the reason is the type's name."""

    type: str
    status: str
    """Empty removes the condition; only for conditions that do not affect `Ready`."""
    reason: str = ""
    message: str = ""


DeletionCostWrite = Literal["updated", "skipped_unchanged", "skipped_notfound", "skipped_conflict", "error"]
"""Values of Karpenter's metric label `result`."""


class CostedPod(Value):
    """A pod whose deletion cost Tenure may write: a ReplicaSet controls it, and its cost is no user's."""

    namespace: str
    name: str
    version: str
    """The resourceVersion. A pod that changes in between keeps its annotations."""
    cost: int | None = None


class DrainPod(Value):
    uid: str
    namespace: str
    name: str
    waits: bool
    """A drain must wait for it (not finished, not mirror, does not tolerate the disrupted taint, not stuck)."""
    evictable: bool
    """The drain waits for it, it is not terminating, and no do-not-disrupt annotation applies."""
    group: int
    """0 non-critical, 1 non-critical DaemonSet, 2 critical, 3 critical DaemonSet; drained one after the other."""
    reschedulable: bool
    """It must run on another node, so its node is not empty."""
    protected: bool = False
    """Its do-not-disrupt annotation applies now, so no voluntary disruption may remove its node."""
    why_not: str = ""
    grace_seconds: int = 30
    deletion: datetime | None = None
    protected_until: datetime | None = None
    """When its do-not-disrupt annotation ends; None if there is no end time."""
    owner_kind: str = ""
    owner_name: str = ""
    labels: dict[str, str] = {}
    has_responders: bool = False
    """Its spec.evictionResponders names controllers that can move it gracefully."""
    ready: bool = True
    controller_set_not_ready: bool = False
    """The node lifecycle controller set Ready to False although the containers are ready. The kubelet resets it."""


class EvictionProgress(Value):
    """The EvictionRequest of a drain for one pod, and the responder that handles it."""

    created: datetime
    observed: bool = False
    """A controller has observed the current intent."""
    failed: str = ""
    """The reason of the condition Failed, while it is True."""
    responder: str = ""
    """The active responder; empty if there is none."""
    message: str = ""
    expected: datetime | None = None
    """When the responder expects to finish."""


class AttachedVolume(Value):
    """A VolumeAttachment for which a drain waits."""

    attachment: str
    driver: str
    volume: str
    """The PersistentVolume."""
    claim: str = ""
    """namespace/name of the PersistentVolumeClaim that it is bound to."""
    detaching: bool = False
    """The VolumeAttachment is deleted, and its driver has not confirmed it."""
    error: str = ""
    """The driver's last error while detaching."""


class Eviction(Value):
    pod: str
    """namespace/name."""
    accepted: bool
    blocked_by: str = ""
    multiple_budgets: bool = False
    """More than one PodDisruptionBudget selects the pod, so the Eviction API always rejects its eviction."""
    not_found: bool = False
    status: int = 0
    """HTTP status of the response; 0 if unknown."""


class ResolvedNodeClass(Value):
    """Result of resolving an EC2NodeClass: status fields (camelCase) and the derived conditions."""

    status: dict[str, object]
    """Absent fields keep their value."""
    conditions: tuple[ConditionPatch, ...]
    """Absent conditions keep their status, for example after a failed lookup."""
    failed_lookups: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    ca_bundle: str | None = ""
    """The cluster's CA bundle, which is part of the static hash; None if unknown."""
    retry_after: timedelta | None = None
    user_data_bytes: int = 0
    """Size of the boot user data of a node; zero if unknown."""
