"""Builders for activity tests: fake ports, and activities that run as in Temporal but without a server."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio.testing import ActivityEnvironment

from activities.disruption import DisruptionActivities
from activities.garbage_collection.aws import TEMPLATE_TAG, AwsCollector
from activities.garbage_collection.base import SharedLists
from activities.garbage_collection.kubernetes import KubernetesCollector
from activities.nodeclaim.drain import DrainActivities
from activities.nodeclaim.instance import InstanceActivities
from activities.nodeclaim.launch import LaunchActivities
from activities.nodeclaim.registration import RegistrationActivities
from activities.nodeclaim.repair import RebootActivities, RepairActivities
from activities.nodeclass import NodeClassActivities
from activities.nodepool.allowed_disruptions import AllowedDisruptionsActivities
from activities.nodepool.static_capacity import ReplicaActivities
from activities.nodepool.status import NodePoolActivities
from tenure.apis import labels
from tenure.apis.labels import TERMINATION_FINALIZER
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult
from tenure.model.nodeclaim.requests import NodeClaimRef
from tenure.model.provider_results import InstanceFacts
from tests.support.fakes.ports import FakePorts, FakeWorkflowClient

A = TypeVar("A")
R = TypeVar("R")
CLUSTER = "demo"
PROVIDER = "aws:///us-west-2a/i-0000"
REF = NodeClaimRef(name="a", uid="uid-a", node_name="node-a", provider_id=PROVIDER)


class FakeCluster(FakePorts):
    """Fake ports with activities of every class on them."""

    def __init__(self) -> None:
        super().__init__()
        self.workflows = FakeWorkflowClient()
        self.node_classes.add("default")
        self.made = self.build_ports(self.workflows)
        self.launching = LaunchActivities(self.made)
        self.joining = RegistrationActivities(self.made)
        self.disruption = DisruptionActivities(self.made)
        self.draining = DrainActivities(self.made)
        self.repairing = RepairActivities(self.made)
        self.rebooting = RebootActivities(self.made)
        self.ending = InstanceActivities(self.made)
        self.pool_status = NodePoolActivities(self.made)
        self.allowed_disruptions = AllowedDisruptionsActivities(self.made)
        self.replicas = ReplicaActivities(self.made)
        self.classes = NodeClassActivities(self.made)

    def add_running_node(self, name: str = "a", *, spec: dict[str, Any] | None = None, **node: Any) -> None:
        """Add a NodeClaim with its finalizer, instance and Node."""
        self.claims.add(name, **(spec or {}))
        self.claims.found[name]["metadata"]["finalizers"] = [TERMINATION_FINALIZER]
        self.claims.set_status(name, provider_id=PROVIDER)
        self.instances.running["i-0000"] = InstanceFacts(instance_id="i-0000", state="running")
        self.nodes.join(f"node-{name}", PROVIDER, **node)

    def add_instance(self, instance_id: str, *, age: float = 3600, cluster: str = CLUSTER, **tags: str) -> str:
        """Add a running instance, `age` seconds old, and return its provider ID.

        The tags `group`, `claim` and `template` become the tag keys of a launch group, NodeClaim and launch template.
        """
        known = {"group": labels.LAUNCH_GROUP, "claim": labels.TAG_NODECLAIM, "template": TEMPLATE_TAG}
        basic = {labels.TAG_NODEPOOL: "pool", labels.TAG_NODECLASS: "class", labels.TAG_EKS_CLUSTER_NAME: cluster}
        self.instances.running[instance_id] = InstanceFacts(
            instance_id=instance_id,
            state="running",
            instance_type="m5.large",
            zone="us-west-2a",
            tags=basic | {known.get(key, key): value for key, value in tags.items()},
            launched_at=datetime.now(UTC) - timedelta(seconds=age),
        )
        return f"aws:///us-west-2a/{instance_id}"

    def add_nodeclaim(self, name: str, provider_id: str = "", *, node: str = "", **conditions: str) -> None:
        self.claims.add(name)
        self.claims.set_status(name, provider_id=provider_id, deleting=False, **conditions)
        if node:
            self.claims.found[name]["status"]["nodeName"] = node

    @property
    def lists(self) -> SharedLists:
        """New lists for each use, because minutes pass between two runs of a task."""
        return SharedLists(self.build_ports())

    @property
    def aws(self) -> AwsCollector:
        return AwsCollector(self.build_ports(self.workflows), self.lists)

    @property
    def kubernetes(self) -> KubernetesCollector:
        return KubernetesCollector(self.build_ports(), self.lists)

    def is_disrupted(self, node: str = "node-a") -> bool:
        return self.nodes.found[node].being_disrupted


async def run_activity(call: Callable[[A], Awaitable[R]], request: A, *, attempt: int = 1) -> R:
    """Run an activity without delivering its heartbeats."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    return await environment.run(call, request)


async def run_collection(
    task: Callable[[GarbageCollectionRequest], Awaitable[GarbageCollectionResult]], suspects: Sequence[str] = ()
) -> GarbageCollectionResult:
    request = GarbageCollectionRequest(cluster=CLUSTER, task="any", suspects=tuple(suspects))
    return await run_activity(task, request)


async def run_collection_twice(
    task: Callable[[GarbageCollectionRequest], Awaitable[GarbageCollectionResult]],
) -> GarbageCollectionResult:
    """Run a task, and run it again with the suspects of the first run."""
    first = await run_collection(task)
    assert first.collected == 0
    return await run_collection(task, first.suspects)
