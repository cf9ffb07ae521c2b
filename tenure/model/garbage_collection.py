"""Garbage collection: its state, the input and result of its tasks, and the objects that they read.

The objects have only the fields that a task needs, so an otherwise invalid object is still collected.
"""

from datetime import datetime

from tenure.model.base import Message, Value, instance_id_of


class GarbageCollectionRequest(Message):
    """One task of a sweep."""

    cluster: str
    task: str
    suspects: tuple[str, ...] = ()
    """Uncertain objects of the previous run; see `GarbageCollectionResult.suspects`."""


class GarbageCollectionResult(Message):
    """Result of one run of a task. A failure is reported here; it fails neither the activity nor the workflow."""

    task: str = ""
    checked: int = 0
    collected: int = 0
    failed: int = 0
    notes: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    """UIDs of objects that look orphaned but may be in use. The next run deletes them if they have not changed."""
    fault: str = ""


class TaskSelection(Message):
    """The task that an operator runs, pauses or resumes."""

    task: str


class SweepRequest(Message):
    """The tasks that are due."""

    tasks: tuple[GarbageCollectionRequest, ...]


class SweepResult(Message):
    results: tuple[GarbageCollectionResult, ...] = ()


class TaskState(Message):
    runs: int = 0
    last_run: datetime | None = None
    next_run: datetime | None = None
    """None: due."""
    paused: bool = False
    result: GarbageCollectionResult = GarbageCollectionResult()
    """Of the last run."""


class GarbageCollectorState(Message):
    cluster: str
    tasks: dict[str, TaskState] = {}


class InventoryLease(Value):
    """A Lease in kube-node-lease: the heartbeat of the Node with the same name."""

    name: str
    uid: str
    version: str = ""
    """resourceVersion, so that a Lease renewed since the decision is not deleted."""
    owners: tuple[str, ...] = ()
    deleting: bool = False
    alive_until: datetime
    """When the holder must have renewed it."""


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
        return instance_id_of(self.provider_id)


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
    has_owner: bool = True
    """A NodePool is among its ownerReferences."""

    @property
    def instance_id(self) -> str:
        return instance_id_of(self.provider_id)


class InventoryLaunchTemplate(Value):
    id: str
    name: str
    created: datetime
    pool: str = ""
    node_class: str = ""
    used_lately: bool = False
    """By a launch of this process. Only a hint, since other processes launch too."""


class InventoryInstanceProfile(Value):
    name: str
    node_class_uid: str
    created: datetime
    roles: tuple[str, ...] = ()


class InventoryNodeClass(Value):
    name: str
    uid: str
    profiles: tuple[str, ...] = ()
