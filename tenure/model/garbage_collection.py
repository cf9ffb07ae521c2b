"""Upkeep: what its tasks are told and answer, and what they see of a world that they only tidy.

The marks of objects hold no more than a task decides on, so that an object that is odd elsewhere is still tidied.
"""

from datetime import datetime

from tenure.model.base import Message, Value


class RunRef(Message):
    workflow_id: str
    run_id: str


class GarbageCollectionRequest(Message):
    cluster: str
    task: str
    suspects: tuple[str, ...] = ()
    """What the run before could not be sure of; see `GarbageCollectionResult.suspects`."""


class GarbageCollectionResult(Message):
    """What one run of a task did. A failure is told here, and never ends a run in any other way."""

    task: str = ""
    checked: int = 0
    collected: int = 0
    failed: int = 0
    notes: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    """UIDs of what looks left over and may be in somebody's hands yet: it goes if the next run finds it as it is."""
    fault: str = ""
    run: RunRef | None = None

    @property
    def is_uneventful(self) -> bool:
        return not (self.collected or self.failed or self.suspects or self.fault)


class InventoryLease(Value):
    """A Lease of kube-node-lease: the heartbeat of the Node of that name."""

    name: str
    uid: str
    version: str = ""
    """resourceVersion: a Lease that was renewed since is not the one that was judged."""
    owners: tuple[str, ...] = ()
    deleting: bool = False
    alive_until: datetime
    """When its holder would have had to renew it."""


class InventoryNode(Value):
    name: str
    uid: str
    provider_id: str = ""
    pool: str = ""
    ready: bool = False
    ready_changed: datetime | None = None
    finalizers: tuple[str, ...] = ()
    created: datetime

    @property
    def instance_id(self) -> str:
        return self.provider_id.rpartition("/")[2]


class InventoryNodeClaim(Value):
    name: str
    uid: str
    created: datetime
    pool: str = ""
    node_class: str = ""
    group_id: str = ""
    provider_id: str = ""
    node_name: str = ""
    registered: bool = False
    deleting: bool = False
    annotations: dict[str, str] = {}

    @property
    def instance_id(self) -> str:
        """By its id alone, however the rest of the provider id is written."""
        return self.provider_id.rpartition("/")[2]


class InventoryLaunchTemplate(Value):
    id: str
    name: str
    created: datetime
    pool: str = ""
    node_class: str = ""
    used_lately: bool = False
    """By a launch of this very process: a hint, since other processes launch too."""


class InventoryInstanceProfile(Value):
    name: str
    node_class_uid: str
    created: datetime
    roles: tuple[str, ...] = ()


class InventoryNodeClass(Value):
    name: str
    uid: str
    profiles: tuple[str, ...] = ()
