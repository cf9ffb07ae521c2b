"""The ports: Protocols of what activities need of Kubernetes, AWS and Temporal. `tenure/kube` and `tenure/aws` satisfy
them.

Every method raises only the faults of `tenure/model/errors.py`. An object that does not exist is None or False where
the signature says so. Every write is idempotent.
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
from tenure.model.disruption.drain import DeploymentRollout, EvictionBudget
from tenure.model.extra_capacity import NodeLoad
from tenure.model.hooks import CallResult, DesiredJob, JobFact
from tenure.model.instance_types import Catalogue, InstanceType, ReservationHeadroom, UnavailableOffering
from tenure.model.launch import FleetResult, LaunchGroup, LaunchPreparation
from tenure.model.provider_results import ConditionPatch as ConditionPatch
from tenure.model.provider_results import DrainPod as DrainPod
from tenure.model.provider_results import Eviction as Eviction
from tenure.model.provider_results import InstanceFacts as InstanceFacts
from tenure.model.provider_results import LaunchFacts as LaunchFacts
from tenure.model.provider_results import NodeState as NodeState
from tenure.model.provider_results import ResolvedNodeClass as ResolvedNodeClass


class Annotated(Protocol):
    """Objects of a kind that carry annotations."""

    async def patch_annotations(
        self, name: str, annotations: Mapping[str, str | None], *, uid: str = "", only: Mapping[str, str] | None = None
    ) -> str:
        """Set annotations; None takes one off. Nothing changes where an annotation differs from `only`. Returns the
        UID of the object, empty when none with this name and UID is there."""


class Labelled(Annotated, Protocol):
    async def patch_labels(self, name: str, uid: str, labels: Mapping[str, str | None]) -> bool:
        """Set labels; None takes one off. False when no object with this UID is there."""


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
    """NodeClaims."""

    async def get(self, name: str) -> NodeClaim | None: ...

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[NodeClaim]: ...

    async def create(self, claim: NodeClaim) -> NodeClaim:
        """The NodeClaim that now has this name: a new one, or that of an earlier try."""

    async def ensure_finalizer(self, name: str, uid: str) -> bool:
        """False when no NodeClaim with this UID is there."""

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
        """Merge metadata and status (camelCase keys) and set conditions with Karpenter's semantics.

        Of `default_labels` only those are added that the claim has not. Nothing is written where nothing changes.
        None when no NodeClaim with this UID is there.
        """

    async def delete(self, name: str, uid: str) -> bool:
        """Ask for deletion with a UID precondition; False when it is gone."""

    async def release(self, name: str, uid: str) -> bool:
        """Remove the termination finalizer; False when it is gone."""


class Nodes(Labelled, Protocol):
    """Nodes."""

    async def get(self, name: str) -> NodeState | None: ...

    async def find_by_provider_id(self, provider_id: str) -> Sequence[NodeState]:
        """Every Node with this spec.providerID, from a live list."""

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[NodeState]: ...

    async def register(self, name: str, claim: NodeClaim) -> NodeState | None:
        """One patch: finalizer, owner reference, the claim's labels, annotations and (unless the Node says
        do-not-sync-taints) taints; unregistered taint off, label registered=true. None when the Node is gone."""

    async def mark_initialized(self, name: str) -> bool: ...

    async def mark_disrupted(self, name: str) -> NodeState | None:
        """Taint karpenter.sh/disrupted:NoSchedule and keep load balancers off. None when the Node is gone."""

    async def mark_early_evicted(self, name: str, uid: str, *, tainted: bool, at: datetime) -> bool:
        """The same in one request, with the time of the eviction. `tainted`: the Node has the taint already. False when
        no Node with this UID is there."""

    async def unmark_disrupted(self, name: str) -> bool: ...

    async def delete(self, name: str) -> bool:
        """Ask for deletion; False when it is gone."""

    async def release(self, name: str) -> bool:
        """Remove the termination finalizer; False when it is gone."""


class Pods(Protocol):
    """Pods of a node, and their eviction."""

    async def on_node(self, node_name: str, *, now: datetime) -> Sequence[DrainPod]: ...

    async def evict(self, pod: DrainPod) -> Eviction:
        """Through the Eviction API with a UID precondition; gone already counts as accepted."""

    async def force_delete(self, pod: DrainPod, *, grace_seconds: int) -> bool: ...

    async def attached_volumes(self, node_name: str) -> Sequence[str]:
        """Names of VolumeAttachments that a drained node still has to wait for."""


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
        """`warning`: None takes the type that `tenure/kube/client/event_reasons.toml` has for the reason."""


class Pools(Annotated, WithStatus, Protocol):
    """NodePools."""

    async def get(self, name: str) -> NodePool | None: ...

    async def list(self) -> Sequence[NodePool]: ...


class NodeClasses(WithStatus, Protocol):
    """EC2NodeClasses."""

    async def get(self, name: str) -> EC2NodeClass | None: ...

    async def list(self) -> Sequence[EC2NodeClass]: ...

    async def ensure_finalizer(self, name: str) -> bool: ...

    async def release(self, name: str) -> bool: ...


class Leases(Protocol):
    """Leases of other controllers."""

    async def find_holder(self, namespace: str, name: str, *, now: datetime) -> str:
        """The holder of this lease; empty when it has none. An empty namespace looks everywhere."""


class Fleet(Protocol):
    """Launching instances."""

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
        """Choose offerings, ensure launch templates, freeze the request. Changes nothing that costs money.

        `discovered` replaces estimates; `unavailable` is left out. `is_retry`: an attempt failed before, so that
        nothing is taken to be there unseen."""

    async def create(self, group: LaunchGroup) -> FleetResult:
        """CreateFleet with the group's token: a pure function of its input, so repeating it repeats the answer.

        A call that is refused is an answer too. A fault says that it is not known what the call did."""

    async def find(self, group: LaunchGroup) -> FleetResult:
        """What carries the group's token and runs, without calling for anything."""

    async def describe(
        self,
        result: FleetResult,
        node_class: EC2NodeClass,
        claim: NodeClaim,
        *,
        discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY,
    ) -> Sequence[LaunchFacts]:
        """What each instance's NodeClaim will show, in the order of `result.instances`."""


class Instances(Protocol):
    """Instances that run."""

    async def get(self, instance_id: str) -> InstanceFacts | None:
        """None once EC2 no longer lists it (terminated counts as gone). Batched across callers."""

    async def list_managed(self) -> Sequence[InstanceFacts]:
        """All instances that carry this cluster's three discovery tags."""

    async def find_by_nodeclaim(self, claim: str) -> Sequence[InstanceFacts]:
        """Those of this cluster that are tagged with a NodeClaim's name and run or are about to."""

    async def terminate(self, instance_id: str) -> bool:
        """Ask for termination; False when it is gone already. Batched across callers."""

    async def reboot(self, instance_id: str) -> bool:
        """Ask for a reboot; False when it is gone. EC2 takes a few minutes to force one that does not obey."""

    async def stop(self, instance_id: str) -> bool:
        """Ask for a stop; False when it is gone."""

    async def start(self, instance_id: str) -> bool:
        """Ask for the start of one that is stopped; False when it is gone."""


class Reservations(Protocol):
    """Capacity reservations, as far as they concern nodes that run."""

    enabled: bool
    """The gate ReservedCapacity."""

    async def find_ending(self, reservation_ids: Collection[str]) -> Mapping[str, datetime]:
        """Capacity blocks among them whose instances EC2 will end soon, with their ends; asked of EC2 now."""


class NodeClassResolver(Protocol):
    """Subnets, security groups, images and instance profile of an EC2NodeClass."""

    async def resolve(self, node_class: EC2NodeClass, pools: Sequence[NodePool] = ()) -> ResolvedNodeClass:
        """`pools` are those that use the class: a trial is made with what they ask for."""

    async def clean_up(self, node_class: EC2NodeClass) -> None:
        """Delete the launch templates and instance profiles that Tenure made for this class."""


class Offerings(Protocol):
    """Instance types, their offerings and prices."""

    async def refresh(self) -> None:
        """Read types, offerings and prices again where they are due."""

    async def fetch_shifted_zones(self) -> frozenset[str]:
        """Ids of zones in which nothing is to be bought for now, whatever they offer."""

    async def reservation_capacities(self, node_classes: Sequence[EC2NodeClass]) -> Mapping[str, ReservationHeadroom]:
        """By id, how much room there is in the capacity reservations of these classes. Never raises."""

    async def instance_types(self, node_class: EC2NodeClass) -> Sequence[InstanceType]: ...

    async def catalogue(self, node_classes: Sequence[EC2NodeClass]) -> Catalogue: ...


class PodDisruptionBudgets(Protocol):
    """PodDisruptionBudgets."""

    async def in_namespace(self, namespace: str) -> Sequence[EvictionBudget]:
        """From a live list."""


class Deployments(Protocol):
    """Deployments, as far as a drain restarts them."""

    async def find_for_pod(self, pod: DrainPod) -> DeploymentRollout | None:
        """The Deployment behind a pod, live; None where there is none."""

    async def restart_deployment(self, found: DeploymentRollout, stamp: str) -> bool:
        """Write the stamp that makes the Deployment roll; the same stamp does nothing twice. False when it is gone."""


class Loads(Protocol):
    """What nodes carry."""

    async def on_nodes(self, names: Collection[str], *, now: datetime) -> Mapping[str, NodeLoad]:
        """From live lists; a node that is not there carries nothing. Raises only `model.faults`."""


class Jobs(Protocol):
    """Jobs that hooks make."""

    async def get(self, namespace: str, name: str) -> JobFact | None: ...

    async def create(self, desired: DesiredJob) -> JobFact:
        """The Job that has this name now: this one, or the one that was there already."""


class HookClient(Protocol):
    """Services that hooks call."""

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallResult:
        """Whatever the answer is; no redirect is followed. Raises TryLater when there is none within `seconds`, and
        BadInput for an address that hooks may not call."""


@dataclass(frozen=True)
class Ports:
    """The outside world as activities see it. Where it is made from adapters, mypy proves that they fit."""

    claims: Claims
    nodes: Nodes
    pods: Pods
    events: Events
    pools: Pools
    node_classes: NodeClasses
    namespaces: Annotated
    pod_disruption_budgets: PodDisruptionBudgets
    deployments: Deployments | None
    """None while SURGE_SINGLE_REPLICAS is off: the worker has no right to restart them."""
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
    """The worker's own, which carries a pause of the whole cluster."""
    prometheus_url: str = ""
    """Such as http://prometheus.monitoring:9090; empty when there is none."""
    qps: float = 200.0
    """Requests a second that the API server may be sent."""


async def find_nodeclaim(claims: Claims, name: str, uid: str) -> NodeClaim | None:
    """Read the NodeClaim, including one that is being deleted; None when it is gone."""
    found = await claims.get(name)
    return found if found is not None and found.uid == uid else None


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
