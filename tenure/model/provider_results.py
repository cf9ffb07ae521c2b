"""Results of the ports in `activities/ports/core.py`: live instances, nodes, pods and evictions.

`kube/` and `aws/` create these values, activities read them. They are here so that an adapter need not import the
ports.
"""

from datetime import datetime, timedelta
from typing import Literal

from tenure.apis.labels import DISRUPTED_TAINT_KEY
from tenure.model.base import Value
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
    """Of its capacity reservation: empty unless it was launched into that one alone, and the gate is on."""
    reservation_type: Literal["", "default", "capacity-block"] = ""
    interruptible: bool = False
    placement_group: str = ""
    partition: str = ""
    tags: dict[str, str] = {}
    launched_at: datetime | None = None
    instance_profile: str = ""
    root: str = ""
    """Root device type: `ebs` outlives a stop, `instance-store` does not."""

    @property
    def market(self) -> Market:
        return "interruptible" if self.interruptible else self.reservation_type


class LaunchFacts(Value):
    """Status of a launched instance's NodeClaim: single-valued labels, capacity and allocatable by type."""

    provider_id: str
    image_id: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    capacity: dict[str, int]
    allocatable: dict[str, int]


class ConditionPatch(Value):
    """A condition to set; `True` without a reason takes the type's name as reason."""

    type: str
    status: str
    """Empty removes a condition that does not feed `Ready`."""
    reason: str = ""
    message: str = ""


class NodeState(Value):
    name: str
    uid: str
    provider_id: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[tuple[str, str, str], ...] = ()
    """key, value, effect."""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    ready: bool = False
    conditions: tuple[tuple[str, str], ...] = ()
    """type, status."""
    boot_id: str = ""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def being_disrupted(self) -> bool:
        """Taken out of service, to be drained: be it that its NodeClaim is not deleted before the pods are gone."""
        return any(key == DISRUPTED_TAINT_KEY for key, _, _ in self.taints)


class DrainPod(Value):
    uid: str
    namespace: str
    name: str
    waits: bool
    """A drain must wait for it (not finished, not mirror, does not tolerate the disrupted taint, not stuck)."""
    evictable: bool
    """It may be evicted: waits, is not terminating, and has no active do-not-disrupt."""
    group: int
    """0 non-critical, 1 non-critical DaemonSet, 2 critical, 3 critical DaemonSet: each gone before the next."""
    reschedulable: bool
    """It would need a place elsewhere: counts against emptiness."""
    protected: bool = False
    """Its do-not-disrupt annotation holds now, whatever else is true of it: no voluntary step may take its node."""
    why_not: str = ""
    grace_seconds: int = 30
    deletion: datetime | None = None
    protected_until: datetime | None = None
    """When its do-not-disrupt ends; None while that is not in sight."""
    owner_kind: str = ""
    owner_name: str = ""
    labels: dict[str, str] = {}
    ready: bool = True
    controller_set_not_ready: bool = False
    """The node lifecycle controller set Ready to False; the containers are ready. The kubelet sets Ready again."""


class Eviction(Value):
    pod: str
    """namespace/name."""
    accepted: bool
    blocked_by: str = ""
    multiple_budgets: bool = False
    """More than one PodDisruptionBudget selects the pod, which the Eviction API refuses for good."""
    not_found: bool = False


class ResolvedNodeClass(Value):
    """Current result of resolving an EC2NodeClass: status fields (camelCase) and the derived conditions."""

    status: dict[str, object]
    """Fields that are absent keep their value."""
    conditions: tuple[ConditionPatch, ...]
    """The same: a part that could not be asked keeps its last condition."""
    failed_lookups: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    ca_bundle: str | None = ""
    """The cluster's, which is part of the class's static hash; None while it is not known."""
    retry_after: timedelta | None = None
    user_data_bytes: int = 0
    """Size of the boot user data of a node; zero if unknown."""
