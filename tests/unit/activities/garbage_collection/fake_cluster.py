"""A small world to tidy up, and the tasks of upkeep over it, run as Temporal runs them but without a server."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from temporalio.testing import ActivityEnvironment

from activities.garbage_collection.aws import TEMPLATE_TAG, InstanceCollector, InstanceTagger, LaunchResourceCollector
from activities.garbage_collection.base import SharedLists
from activities.garbage_collection.kubernetes import NodeClaimCollector
from tenure.apis import labels
from tenure.model.garbage_collection import GarbageCollectionRequest, GarbageCollectionResult
from tenure.model.provider_results import InstanceFacts
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.garbage_collection import FakeInventory, FakeOpenGroups, FakeOrphanedResources
from tests.support.fakes.kubernetes import FakeEvents, FakeNodeClaims, FakeNodeClasses, FakeNodes

CLUSTER = "demo"


@dataclass
class GarbageCollectionCluster:
    claims: FakeNodeClaims = field(default_factory=FakeNodeClaims)
    nodes: FakeNodes = field(default_factory=FakeNodes)
    node_classes: FakeNodeClasses = field(default_factory=FakeNodeClasses)
    events: FakeEvents = field(default_factory=FakeEvents)
    found: FakeInstances = field(default_factory=FakeInstances)
    orphaned_resources: FakeOrphanedResources = field(default_factory=FakeOrphanedResources)
    groups: FakeOpenGroups = field(default_factory=FakeOpenGroups)

    def __post_init__(self) -> None:
        self.inventory = FakeInventory(self.claims, self.nodes, self.node_classes)

    def add_instance(self, instance_id: str, *, age: float = 3600, cluster: str = CLUSTER, **tags: str) -> str:
        """One that runs, `age` seconds old: its provider id. Tags `group`, `add_nodeclaim`, `template` by what they
        say."""
        known = {"group": labels.LAUNCH_GROUP, "claim": labels.TAG_NODECLAIM, "template": TEMPLATE_TAG}
        basic = {labels.TAG_NODEPOOL: "pool", labels.TAG_NODECLASS: "class", labels.TAG_EKS_CLUSTER_NAME: cluster}
        self.found.running[instance_id] = InstanceFacts(
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
        """Minutes lie between two runs of a task."""
        return SharedLists(instances=self.found, inventory=self.inventory)

    @property
    def instances(self) -> InstanceCollector:
        return InstanceCollector(
            instances=self.found,
            inventory=self.inventory,
            lists=self.lists,
            groups=self.groups,
            events=self.events,
        )

    @property
    def objects(self) -> NodeClaimCollector:
        return NodeClaimCollector(
            claims=self.claims, instances=self.found, inventory=self.inventory, lists=self.lists, events=self.events
        )

    @property
    def launches(self) -> LaunchResourceCollector:
        return LaunchResourceCollector(
            instances=self.found, inventory=self.inventory, orphaned_resources=self.orphaned_resources
        )

    @property
    def tags(self) -> InstanceTagger:
        return InstanceTagger(
            claims=self.claims,
            instances=self.found,
            lists=self.lists,
            orphaned_resources=self.orphaned_resources,
            events=self.events,
        )


async def run_collection(
    task: Callable[[GarbageCollectionRequest], Awaitable[GarbageCollectionResult]], suspects: Sequence[str] = ()
) -> GarbageCollectionResult:
    request = GarbageCollectionRequest(cluster=CLUSTER, task="any", suspects=tuple(suspects))
    return await ActivityEnvironment().run(task, request)


async def run_collection_twice(
    task: Callable[[GarbageCollectionRequest], Awaitable[GarbageCollectionResult]],
) -> GarbageCollectionResult:
    """The second look at what the first one suspects."""
    first = await run_collection(task)
    assert first.collected == 0
    return await run_collection(task, first.suspects)
