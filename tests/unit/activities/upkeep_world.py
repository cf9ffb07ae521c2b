"""A small world to tidy up, and the tasks of upkeep over it, run as Temporal runs them but without a server."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from temporalio.testing import ActivityEnvironment

from activities.garbage_collection.aws import TEMPLATE_TAG, InstanceUpkeep, LaunchUpkeep, TagUpkeep
from activities.garbage_collection.base import Lists
from activities.garbage_collection.kubernetes import ClaimUpkeep
from tenure.apis import labels
from tenure.model.garbage_collection import UpkeepAsked, UpkeepDone
from tenure.model.provider_results import InstanceFacts
from tests.support.fakes.cloud import FakeInstances
from tests.support.fakes.kubernetes import FakeClaims, FakeEvents, FakeNodeClasses, FakeNodes
from tests.support.fakes.upkeep import FakeGroups, FakeInventory, FakeLeftovers

CLUSTER = "demo"


@dataclass
class Tidied:
    claims: FakeClaims = field(default_factory=FakeClaims)
    nodes: FakeNodes = field(default_factory=FakeNodes)
    node_classes: FakeNodeClasses = field(default_factory=FakeNodeClasses)
    events: FakeEvents = field(default_factory=FakeEvents)
    found: FakeInstances = field(default_factory=FakeInstances)
    leftovers: FakeLeftovers = field(default_factory=FakeLeftovers)
    groups: FakeGroups = field(default_factory=FakeGroups)

    def __post_init__(self) -> None:
        self.inventory = FakeInventory(self.claims, self.nodes, self.node_classes)

    def instance(self, instance_id: str, *, age: float = 3600, cluster: str = CLUSTER, **tags: str) -> str:
        """One that runs, `age` seconds old: its provider id. Tags `group`, `claim`, `template` by what they say."""
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

    def claim(self, name: str, provider_id: str = "", *, node: str = "", **conditions: str) -> None:
        self.claims.add(name)
        self.claims.give(name, provider_id=provider_id, deleting=False, **conditions)
        if node:
            self.claims.found[name]["status"]["nodeName"] = node

    @property
    def lists(self) -> Lists:
        """Minutes lie between two runs of a task."""
        return Lists(instances=self.found, inventory=self.inventory)

    @property
    def instances(self) -> InstanceUpkeep:
        return InstanceUpkeep(
            instances=self.found,
            inventory=self.inventory,
            lists=self.lists,
            groups=self.groups,
            events=self.events,
        )

    @property
    def objects(self) -> ClaimUpkeep:
        return ClaimUpkeep(
            claims=self.claims, instances=self.found, inventory=self.inventory, lists=self.lists, events=self.events
        )

    @property
    def launches(self) -> LaunchUpkeep:
        return LaunchUpkeep(instances=self.found, inventory=self.inventory, leftovers=self.leftovers)

    @property
    def tags(self) -> TagUpkeep:
        return TagUpkeep(
            claims=self.claims,
            instances=self.found,
            lists=self.lists,
            leftovers=self.leftovers,
            events=self.events,
        )


async def run(task: Callable[[UpkeepAsked], Awaitable[UpkeepDone]], suspects: Sequence[str] = ()) -> UpkeepDone:
    asked = UpkeepAsked(cluster=CLUSTER, task="any", suspects=tuple(suspects))
    return await ActivityEnvironment().run(task, asked)


async def run_twice(task: Callable[[UpkeepAsked], Awaitable[UpkeepDone]]) -> UpkeepDone:
    """The second look at what the first one suspects."""
    first = await run(task)
    assert first.collected == 0
    return await run(task, first.suspects)
