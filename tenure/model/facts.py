"""Kubernetes objects reduced to the fields that planning and policy use.

`tenure/controller/` caches one per live object and sends changes to the planner process.
"""

from collections.abc import Mapping
from datetime import datetime

from tenure.apis.labels import DISRUPTED_TAINT_KEY, MAINTENANCE_PLANNED
from tenure.model.base import SparseValue, Value
from tenure.model.node_health import RepairDue


class Taint(Value):
    key: str
    value: str = ""
    effect: str

    @property
    def name(self) -> str:
        return f"{self.key}:{self.effect}"


class Toleration(Value):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class Expression(Value):
    """One requirement on a label: operator In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None


class PreferredTerm(Value):
    weight: int
    expressions: tuple[Expression, ...]


Selector = tuple[Expression, ...]
"""Requirements on labels that must all hold; empty selects everything."""


def matches_selector(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """A Kubernetes label selector: None selects nothing, an empty selector selects everything."""
    return selector is not None and all(_matches_expression(one, labels.get(one.key)) for one in selector)


def _matches_expression(one: Expression, value: str | None) -> bool:
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists":
            return value is not None
    return value is None


class SpreadConstraint(Value):
    """A topology spread constraint. The selector includes matchLabelKeys."""

    key: str
    max_skew: int
    hard: bool = True
    """True: DoNotSchedule. False: ScheduleAnyway, a preference."""
    selector: Selector | None = None
    """None selects nothing."""
    min_domains: int = 1
    honor_affinity: bool = True
    """nodeAffinityPolicy Honor: counts only nodes that match the pod's node selector and node affinity."""
    honor_taints: bool = False
    """nodeTaintsPolicy Honor."""
    is_default: bool = False
    """Of SCHEDULER_CONFIG, and not of the pod."""


class AffinityTerm(Value):
    """A term of pod affinity or anti-affinity. The selector includes matchLabelKeys."""

    key: str
    selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    """By name; the pod's own namespace if the term has neither names nor a namespace selector."""
    namespace_selector: Selector | None = None
    weight: int = 0
    """1 to 100 for a preference; 0 if required."""


class HostPort(Value):
    """An empty address means all addresses."""

    port: int
    protocol: str = "TCP"
    address: str = ""


class PodFact(SparseValue):
    """A pod with its effective requests: with init containers, overhead and one of the resource `pods`."""

    uid: str
    namespace: str
    name: str
    requests: dict[str, int]
    created: datetime
    node_name: str = ""
    nominated_node: str = ""
    expected_on: str = ""
    phase: str = "Pending"
    deleting: bool = False
    deletion_deadline: datetime | None = None
    """The deletionTimestamp: when the grace period of its deletion ends."""
    unschedulable: bool = False
    """kube-scheduler set PodScheduled=False with reason Unschedulable."""
    scheduler: str = ""
    """Its schedulerName; empty for the default scheduler."""
    scheduler_message: str = ""
    """Why its scheduler has not bound it: the message of PodScheduled=False. Empty for the default scheduler."""
    unscheduled_since: datetime | None = None
    """lastTransitionTime of its condition PodScheduled=False. None without one, and for a pod created with a gate."""
    untried: bool = False
    """kube-scheduler has not tried the pod yet, and the pod has no scheduling gate."""
    gated: bool = False
    """It has a scheduling gate."""
    owner_kind: str = ""
    owner_uid: str = ""
    daemonset: bool = False
    mirror: bool = False
    """The mirror pod of a static pod, owned by its Node."""
    priority: int = 0
    priority_class: str = ""
    node_selector: dict[str, str] = {}
    required_terms: tuple[tuple[Expression, ...], ...] = ()
    """Required node affinity: one term must match, with all its expressions."""
    preferred_terms: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    do_not_disrupt: str = ""
    """The value of the annotation karpenter.sh/do-not-disrupt."""
    started: datetime | None = None
    """status.startTime, from which a duration in do-not-disrupt counts."""
    bound: datetime | None = None
    """When the pod was bound: lastTransitionTime of its condition PodScheduled=True."""
    ready: bool | None = None
    deletion_cost: int = 0
    """Of the annotation karpenter.sh/disruption-cost, else of controller.kubernetes.io/pod-deletion-cost, unless Tenure
    wrote it."""
    written_cost: int | None = None
    """The deletion cost that Tenure wrote."""
    has_foreign_cost: bool = False
    """It has a deletion cost that Tenure did not write."""
    unplannable: str = ""
    """The field that Tenure cannot plan for, with its value and the reason; empty if Tenure can plan for the pod."""
    labels: dict[str, str] = {}
    spreads: tuple[SpreadConstraint, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    volumes: tuple[str, ...] = ()
    """Names of PersistentVolumeClaims in its namespace, including those of ephemeral volumes."""
    devices: tuple[tuple[str, int], ...] = ()
    """Amounts of DRA devices that its claims need. Nodes have amounts of the same names."""

    @property
    def demand(self) -> Mapping[str, int]:
        """Its requests and devices."""
        return {**self.requests, **dict(self.devices)} if self.devices else self.requests

    @property
    def has_pod_dependent_constraints(self) -> bool:
        """Whether the pod may run on a node depends on the other pods there."""
        topology_terms = (*self.affinity, *self.anti_affinity)
        return (
            bool(self.host_ports)
            or any(not one.weight for one in topology_terms)
            or any(one.hard for one in self.spreads)
        )

    @property
    def pending_since(self) -> datetime:
        """When its scheduler first failed to schedule it, if that is known."""
        return self.unscheduled_since or self.created

    @property
    def is_finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_alive(self) -> bool:
        """Neither finished nor already replaced. A StatefulSet creates the next pod only when this one is deleted."""
        return not self.is_finished and (not self.deleting or self.owner_kind == "StatefulSet")


class NamespaceFact(Value):
    name: str
    labels: dict[str, str] = {}


class NodeCondition(Value):
    type: str
    status: str
    reason: str = ""
    since: datetime | None = None


class NodeFact(SparseValue):
    name: str
    uid: str = ""
    provider_id: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tainted: dict[str, datetime] = {}
    """Start time of each taint by `key:effect`: `timeAdded`, or when it was first seen."""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    devices: tuple[tuple[str, int], ...] = ()
    """Amounts of free DRA devices."""
    missing: dict[str, datetime] = {}
    """By resource that the node has or had: when it was first seen as not allocatable."""
    ready: bool = False
    ready_changed: datetime | None = None
    conditions: tuple[NodeCondition, ...] = ()
    declared_features: tuple[str, ...] = ()
    """Features of its kubelet that some pods require, such as `VolumeBindMountOptions`."""
    maintenance: tuple[str, ...] = ()
    """Lifecycle conditions that another controller has set to True, such as `DrainInProgress`."""
    boot_id: str = ""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    registration_gaps: tuple[str, ...] = ()
    """What registration would add to the Node or remove from it, such as `finalizer karpenter.sh/termination`."""
    created: datetime | None = None

    @property
    def being_disrupted(self) -> bool:
        """The Node has Karpenter's taint `disrupted`."""
        return any(one.key == DISRUPTED_TAINT_KEY for one in self.taints)

    @property
    def maintained_by_others(self) -> str:
        """The lifecycle conditions by which another controller drains or maintains the node; empty without one.
        Planned maintenance does not count."""
        active = [one for one in self.maintenance if one != MAINTENANCE_PLANNED]
        return f"another controller has set the condition {', '.join(active)}" if active else ""


class NodeClaimFact(SparseValue):
    name: str
    uid: str
    created: datetime
    pool: str = ""
    node_class: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    requirements: tuple[Expression, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    requests: dict[str, int] = {}
    devices: tuple[tuple[str, int], ...] = ()
    """Amounts of DRA devices that the node will have, until their drivers publish them."""
    missing_drivers: tuple[str, ...] = ()
    """DRA drivers that initialization waits for."""
    dra_resources: tuple[str, ...] = ()
    """Requested resources that DeviceClasses provide. They are never allocatable."""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    provider_id: str = ""
    image_id: str = ""
    node_name: str = ""
    expire_after_seconds: int | None = None
    launched: bool = False
    launched_at: datetime | None = None
    capacity_error: str = ""
    """EC2's message while the launch lacks capacity."""
    registered: bool = False
    registered_at: datetime | None = None
    initialized: bool = False
    initialized_at: datetime | None = None
    rebooting: bool = False
    """A repair reboots its instance."""
    instance_terminating: bool = False
    consistent: str = ""
    """Status of the condition ConsistentStateFound; empty before the first check."""
    drifted: str = ""
    """The reason of the condition Drifted, while it is True."""
    drifted_message: str = ""
    drifted_at: datetime | None = None
    last_pod_event: datetime | None = None
    """When a pod was last bound to the node or left it; None if none has since initialization."""
    node_missing_since: datetime | None = None
    """When this process first saw that the registered Node is gone; None if it exists."""
    termination_grace_period: str = ""
    """Empty: a drain has no time limit."""
    attention_code: str = ""
    """The reason of the condition NeedsAttention, while it is True."""
    repair_due: RepairDue | None = None
    disruption: str = ""
    """The reason of the condition DisruptionReason, while it is True."""
    disrupted_by: str = ""
    """The workflow of the command whose candidate it is; empty if it is disrupted without a command."""
    drain_waits: bool = False
    deleting: bool = False
    deletion: datetime | None = None
    finalizers: tuple[str, ...] = ()


class NodePoolFact(Value):
    name: str
    uid: str
    generation: int = 0
    weight: int = 0
    ready: bool = False
    deleting: bool = False
    static: bool = False
    replicas: int = 0
    node_class: str
    node_class_group: str = "karpenter.k8s.aws"
    node_class_kind: str = "EC2NodeClass"
    template_labels: dict[str, str] = {}
    template_annotations: dict[str, str] = {}
    requirements: tuple[Expression, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    expire_after: str = "720h"
    termination_grace_period: str = ""
    consolidate_after: str = ""
    """Time without a pod event before a node may be consolidated, or `Never`. Empty if unknown: no consolidation."""
    consolidation_policy: str = ""
    """`WhenEmpty`, `WhenEmptyOrUnderutilized` or `Balanced`; empty if unknown."""
    limits: dict[str, int] = {}
    hash: str = ""
    hash_version: str = ""
    """The hash version on the NodePool, which another controller or an earlier version may have set."""


class DaemonSetFact(Value):
    uid: str
    namespace: str
    name: str
    pod: PodFact


class PodDisruptionBudgetFact(Value):
    namespace: str
    name: str
    selector: Selector | None = None
    """None selects nothing."""
    min_available: str = ""
    max_unavailable: str = ""
    expected: int = 0
    """expectedPods, desiredHealthy, currentHealthy and disruptionsAllowed of the budget's status."""
    desired: int = 0
    current: int = 0
    allowed: int = 0
    counted: bool = True
    """Whether the status is that of the current spec."""
    sync_failed: str = ""
    always_allow_unhealthy: bool = False
    """unhealthyPodEvictionPolicy AlwaysAllow: a pod that is not Ready may be evicted regardless of the budget."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def disruptions_allowed(self) -> int:
        """A budget with an outdated status allows no disruptions."""
        return self.allowed if self.counted and not self.sync_failed else 0

    def rejects_eviction(self, *, ready: bool) -> bool:
        """Whether the Eviction API rejects a pod for this budget now. `ready`: whether the pod is Ready."""
        return self.disruptions_allowed <= 0 and (ready or not self.always_allow_unhealthy)

    @property
    def never(self) -> bool:
        """maxUnavailable is 0 or 0%, or minAvailable is 100%: the budget never allows an eviction."""
        return self.max_unavailable in ("0", "0%") or self.min_available == "100%"

    @property
    def needs_all(self) -> bool:
        """It needs as many healthy pods as there are: it allows no eviction until the workload is scaled up."""
        return self.counted and not self.sync_failed and 0 < self.expected <= self.desired


Term = tuple[Expression, ...]
"""Requirements that must all hold; several terms are alternatives."""


class VolumeClaimFact(Value):
    namespace: str
    name: str
    volume: str = ""
    bound: bool = False
    lost: bool = False
    storage_class: str = ""
    deleting: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class VolumeFact(Value):
    name: str
    driver: str = ""
    """CSI driver, also of a migrated in-tree volume; empty for a volume that no driver attaches."""
    terms: tuple[Term, ...] | None = None
    """Required node affinity; None: any node."""
    local: bool = False
    deleting: bool = False
    released: bool = False
    """Its PersistentVolumeClaim was deleted, so no pod can use it."""
    unknown_field: str = ""
    """The field that Tenure does not know, with the reason for which it matters."""


class StorageClassFact(Value):
    name: str
    driver: str
    """Its provisioner; an in-tree provisioner is translated to its CSI driver."""
    waits: bool = False
    """True: WaitForFirstConsumer. False: Immediate."""
    topologies: tuple[Term, ...] = ()
    """allowedTopologies; empty: any node."""
    default: bool = False
    unknown_field: str = ""
    """As in VolumeFact."""


class CSINodeFact(Value):
    """The CSI drivers of the Node with the same name."""

    name: str
    limits: dict[str, int] = {}
    """Maximum number of attached volumes by driver."""
    unlimited_drivers: frozenset[str] = frozenset()


StorageFact = VolumeClaimFact | VolumeFact | StorageClassFact | CSINodeFact
