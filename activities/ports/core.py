"""The ports: Protocols for Kubernetes, AWS and Temporal as activities use them. `tenure/kube` and `tenure/aws`
implement them.

All methods raise only the faults of `tenure/model/errors.py`. Where the signature allows it, None or False means that
the object does not exist. All writes are idempotent.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from activities.ports.garbage_collection import Inventory, OrphanedResources
from activities.workflow_client import WorkflowClient
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY, DiscoveredCapacity
from tenure.model.disruption.drain import DeploymentRollout
from tenure.model.extra_capacity import NodeLoad
from tenure.model.facts import NodeFact as NodeFact
from tenure.model.facts import PodDisruptionBudgetFact
from tenure.model.hooks import CallResult, DesiredJob, JobFact
from tenure.model.instance_types import Catalogue, InstanceType, ReservationHeadroom, UnavailableOffering
from tenure.model.launch import FleetResult, LaunchGroup, LaunchPreparation
from tenure.model.provider_results import AttachedVolume as AttachedVolume
from tenure.model.provider_results import ConditionPatch as ConditionPatch
from tenure.model.provider_results import DrainPod as DrainPod
from tenure.model.provider_results import Eviction as Eviction
from tenure.model.provider_results import EvictionProgress as EvictionProgress
from tenure.model.provider_results import InstanceFacts as InstanceFacts
from tenure.model.provider_results import LaunchFacts as LaunchFacts
from tenure.model.provider_results import ResolvedNodeClass as ResolvedNodeClass


class Annotated(Protocol):
    """A kind of objects whose annotations can be changed."""

    async def patch_annotations(
        self, name: str, annotations: Mapping[str, str | None], *, uid: str = "", only: Mapping[str, str] | None = None
    ) -> str:
        """Set annotations; None removes one. Changes nothing if an annotation differs from `only`. Returns the object's
        UID; empty if no object with this name and UID exists."""


class Labelled(Annotated, Protocol):
    async def patch_labels(self, name: str, uid: str, labels: Mapping[str, str | None]) -> bool:
        """Set labels; None removes one. False if no object with this UID exists."""


class WithStatus(Protocol):
    async def patch_status(
        self,
        name: str,
        *,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        annotations: Mapping[str, str] | None = None,
        now: datetime,
    ) -> bool: ...


class Claims(Labelled, Protocol):
    async def get(self, name: str) -> NodeClaim | None: ...

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[NodeClaim]: ...

    async def create(self, claim: NodeClaim) -> NodeClaim:
        """The NodeClaim with this name: a new one, or the one of an earlier attempt."""

    async def ensure_finalizer(self, name: str, uid: str) -> bool:
        """False if no NodeClaim with this UID exists."""

    async def patch(
        self,
        name: str,
        uid: str,
        *,
        default_labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        now: datetime,
    ) -> NodeClaim | None:
        """Merge metadata and status (camelCase keys), and set conditions with Karpenter's semantics.

        `default_labels`: added only if missing. Writes nothing without a change. None if no NodeClaim with this UID
        exists.
        """

    async def delete(self, name: str, uid: str) -> bool:
        """Request deletion with a UID precondition; False if it is gone."""

    async def release(self, name: str, uid: str) -> bool:
        """Remove the termination finalizer; False if it is gone."""


class Nodes(Labelled, Protocol):
    async def get(self, name: str) -> NodeFact | None: ...

    async def find_by_provider_id(self, provider_id: str) -> Sequence[NodeFact]:
        """All Nodes with this spec.providerID, from a live list."""

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[NodeFact]: ...

    async def register(self, name: str, claim: NodeClaim) -> NodeFact | None:
        """One patch: finalizer, owner reference, the NodeClaim's labels, annotations and taints (unless the Node has
        do-not-sync-taints), label registered=true, without the taint `unregistered`. None if the Node is gone."""

    async def list_missing_drivers(self, name: str, drivers: Collection[str]) -> tuple[str, ...]:
        """The DRA drivers among these that have published no complete pool of the Node. Empty if
        IGNORE_DRA_REQUESTS=true."""

    async def list_dra_resources(self, requested: Collection[str]) -> tuple[str, ...]:
        """The requested resources that DeviceClasses provide.

        If DeviceClasses cannot be read, only resources with the prefix of DeviceClasses."""

    async def mark_initialized(self, name: str) -> bool: ...

    async def mark_disrupted(self, name: str) -> NodeFact | None:
        """Taint karpenter.sh/disrupted:NoSchedule, and exclude the Node from load balancers. None if it is gone."""

    async def mark_early_evicted(self, name: str, uid: str, *, tainted: bool, at: datetime) -> bool:
        """`mark_disrupted` in one request, with the time of the eviction. `tainted`: the Node already has the taint.
        False if no Node with this UID exists."""

    async def unmark_disrupted(self, name: str) -> bool: ...

    async def mark_rebooting(self, name: str) -> bool:
        """Taint karpenter.sh/rebooting:NoSchedule; False if the Node is gone."""

    async def unmark_rebooting(self, name: str) -> bool: ...

    async def set_conditions(self, name: str, conditions: Sequence[ConditionPatch], *, now: datetime) -> bool:
        """Set or remove conditions without a change of the others; False if the Node is gone. A lifecycle condition
        that another controller has set stays."""

    async def delete(self, name: str, uid: str) -> bool:
        """Request deletion with a UID precondition; False if it is gone."""

    async def release(self, name: str, uid: str) -> bool:
        """Remove the termination finalizer; False if it is gone."""


class Pods(Protocol):
    """Pods of a node, and their eviction."""

    async def on_node(self, node_name: str, *, now: datetime) -> Sequence[DrainPod]: ...

    async def evict(self, pod: DrainPod) -> Eviction:
        """Call the Eviction API with a UID precondition. A pod that is gone counts as accepted."""

    async def force_delete(self, pod: DrainPod, *, grace_seconds: int) -> bool: ...

    async def attached_volumes(self, node_name: str) -> Sequence[AttachedVolume]:
        """Volumes for which a drain must wait."""


class Events(Protocol):
    """Kubernetes events, deduplicated and best effort: a lost event never fails an activity."""

    async def publish(
        self,
        *,
        kind: str,
        name: str,
        uid: str,
        reason: str,
        message: str,
        warning: bool | None = None,
        namespace: str = "",
    ) -> None:
        """`warning`: None uses the type of the reason in `tenure/kube/client/event_reasons.toml`."""


class Pools(Annotated, WithStatus, Protocol):
    async def get(self, name: str) -> NodePool | None: ...

    async def list(self) -> Sequence[NodePool]: ...


class NodeClasses(WithStatus, Protocol):
    async def get(self, name: str) -> EC2NodeClass | None: ...

    async def list(self) -> Sequence[EC2NodeClass]: ...

    async def ensure_finalizer(self, name: str) -> bool: ...

    async def release(self, name: str) -> bool: ...


class Leases(Protocol):
    """Leases of other controllers."""

    async def find_holder(self, namespace: str, name: str, *, now: datetime) -> str:
        """The holder of this Lease; empty without one. `namespace`: empty searches all namespaces."""


class Fleet(Protocol):
    """Launches of instances."""

    async def prepare(
        self,
        claim: NodeClaim,
        node_class: EC2NodeClass,
        *,
        discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY,
        now: datetime,
        unavailable: Sequence[UnavailableOffering] = (),
        is_retry: bool = False,
    ) -> LaunchPreparation:
        """Choose offerings, ensure launch templates, and build the request. Creates nothing that costs money.

        `discovered`: replaces estimates. `unavailable`: excluded offerings. `is_retry`: an attempt has failed before,
        so resources must be checked instead of assumed to exist.
        """

    async def create(self, group: LaunchGroup) -> FleetResult:
        """CreateFleet with the group's client token. A repeated call has the same input and the same result.

        A rejected call is a result too. After a fault, the effect of the call is unknown.
        """

    async def find(self, group: LaunchGroup) -> FleetResult:
        """Existing instances with the group's token. Launches nothing."""

    async def describe(
        self,
        result: FleetResult,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        *,
        discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY,
    ) -> Sequence[LaunchFacts]:
        """Status fields for each instance's NodeClaim, in the order of `result.instances`."""


class Instances(Protocol):
    """Existing instances."""

    async def get(self, instance_id: str) -> InstanceFacts | None:
        """None if EC2 no longer lists it, or it is terminated. Calls are batched across callers."""

    async def list_managed(self) -> Sequence[InstanceFacts]:
        """All instances with this cluster's three discovery tags."""

    async def find_by_nodeclaim(self, claim: str) -> Sequence[InstanceFacts]:
        """Pending and running instances of this cluster that are tagged with the NodeClaim's name."""

    async def terminate(self, instance_id: str) -> bool:
        """Request termination; False if it is already gone. Calls are batched across callers."""

    async def reboot(self, instance_id: str) -> bool:
        """Request a reboot; False if it is gone. EC2 forces the reboot after a few minutes."""

    async def is_zone_shifted(self, zone_id: str) -> bool:
        """Whether a zonal shift moves the cluster away from this zone."""

    async def stop(self, instance_id: str) -> bool:
        """Request a stop; False if it is gone."""

    async def start(self, instance_id: str) -> bool:
        """Request the start of a stopped instance; False if it is gone."""


class Reservations(Protocol):
    """Capacity reservations of existing nodes."""

    enabled: bool
    """The gate ReservedCapacity."""

    async def find_ending(self, reservation_ids: Collection[str]) -> Mapping[str, datetime]:
        """End times of those capacity blocks whose instances EC2 will terminate soon, from a live read."""


class NodeClassResolver(Protocol):
    """Subnets, security groups, images and instance profile of an EC2NodeClass."""

    async def resolve(self, node_class: EC2NodeClass, pools: Sequence[NodePool] = ()) -> ResolvedNodeClass:
        """`pools`: the NodePools that use the EC2NodeClass. A dry run uses their requirements."""

    async def clean_up(self, node_class: EC2NodeClass) -> None:
        """Delete the launch templates and instance profiles that Tenure created for this EC2NodeClass."""


class Offerings(Protocol):
    """Instance types, their offerings and prices."""

    async def refresh(self) -> None:
        """Read types, offerings and prices again if they are due."""

    async def fetch_shifted_zones(self) -> frozenset[str]:
        """IDs of zones in which nothing may be launched now, because of a zonal shift."""

    async def reservation_capacities(self, node_classes: Sequence[EC2NodeClass]) -> Mapping[str, ReservationHeadroom]:
        """Remaining capacity of the capacity reservations of these EC2NodeClasses, by ID. Never raises."""

    async def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]: ...

    async def catalogue(self, node_classes: Sequence[EC2NodeClass]) -> Catalogue: ...


class EvictionRequests(Protocol):
    """Requests to the responders of pods (Kubernetes 1.37)."""

    async def request(self, pod: DrainPod) -> EvictionProgress | None:
        """Ask for the eviction of the pod, if not yet done. None if the API server does not serve EvictionRequests, or
        the pod is gone."""

    async def withdraw(self, pod: DrainPod) -> bool:
        """Withdraw the request; False if there is none."""


class PodDisruptionBudgets(Protocol):
    async def in_namespace(self, namespace: str) -> Sequence[PodDisruptionBudgetFact]:
        """From a live list."""


class Deployments(Protocol):
    """Deployments that a drain may restart."""

    async def find_for_pod(self, pod: DrainPod) -> DeploymentRollout | None:
        """The Deployment of a pod, from a live read; None without one."""

    async def restart_deployment(self, found: DeploymentRollout, stamp: str) -> bool:
        """Restart the Deployment with this value of `restartedAt`; the same value has no effect again. False if it is
        gone."""


class Loads(Protocol):
    """Pods on nodes of static NodePools."""

    async def on_nodes(self, names: Collection[str], *, now: datetime) -> Mapping[str, NodeLoad]:
        """From live lists. A node that does not exist has no load."""


class Jobs(Protocol):
    """Jobs of hooks."""

    async def get(self, namespace: str, name: str) -> JobFact | None: ...

    async def create(self, desired: DesiredJob) -> JobFact:
        """The Job with this name: the new one, or one that already existed."""


class HookClient(Protocol):
    """Services that hooks call."""

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallResult:
        """Returns any response; redirects are not followed. Raises TryLater without a response within `seconds`, and
        BadInput for an address that hooks may not call."""


@dataclass(frozen=True)
class Ports:
    """All ports of the activities. mypy checks the adapters where an instance is created."""

    claims: Claims
    nodes: Nodes
    pods: Pods
    events: Events
    pools: Pools
    node_classes: NodeClasses
    namespaces: Annotated
    pod_disruption_budgets: PodDisruptionBudgets
    deployments: Deployments | None
    """None while SURGE_SINGLE_REPLICAS is off, since the worker then has no permission to restart them."""
    eviction_requests: EvictionRequests | None
    """None while EVICTION_REQUESTS is off, since the worker then has no permission to create them."""
    loads: Loads
    jobs: Jobs
    inventory: Inventory
    fleet: Fleet
    instances: Instances
    resolver: NodeClassResolver
    reservations: Reservations
    orphaned_resources: OrphanedResources
    hook_client: HookClient
    workflows: WorkflowClient
    system_namespace: str = "tenure"
    """The worker's namespace, whose annotation pauses the whole cluster."""
    prometheus_url: str = ""
    """Such as http://prometheus.monitoring:9090; empty without Prometheus."""
    qps: float = 200.0
    """Maximum requests per second to the API server."""


async def find_nodeclaim(claims: Claims, name: str, uid: str) -> NodeClaim | None:
    """Read the NodeClaim, including one that is being deleted; None if it is gone."""
    found = await claims.get(name)
    return found if found is not None and found.uid == uid else None


async def find_node(nodes: Nodes, name: str, provider_id: str) -> NodeFact | None:
    """Read the Node of this instance; None if it is gone. Names derived from an address are reused."""
    found = await nodes.get(name) if name else None
    return found if found is not None and found.provider_id == provider_id else None


class Named(Protocol):
    """An object or a reference to one."""

    @property
    def name(self) -> str: ...

    @property
    def uid(self) -> str: ...


async def publish_event_on(
    events: Events, kind: str, about: Named, reason: str, message: str, *, warning: bool | None = None
) -> None:
    await events.publish(kind=kind, name=about.name, uid=about.uid, reason=reason, message=message, warning=warning)
