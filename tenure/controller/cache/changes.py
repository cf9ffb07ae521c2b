"""Events that the cluster cache publishes, the changes that one batch of them names, and their delivery.

An error of a subscriber affects only the object that caused it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog

from tenure.kube.client.resources import EC2_NODE_CLASSES, NODE_CLAIMS, NODE_POOLS, PERSISTENT_VOLUME_CLAIMS, PODS
from tenure.model.facts import NodeClaimFact, PodFact
from tenure.model.invalid_objects import InvalidObjects, ObjectKey

log = structlog.get_logger(__name__)


@dataclass
class ChangeSet:
    nodeclaims: set[str] = field(default_factory=set)
    nodepools: set[str] = field(default_factory=set)
    nodeclasses: set[str] = field(default_factory=set)
    pods: bool = False
    """Whether the pods that need a node, or the time of the next check, may have changed."""
    volume_claims: set[str] = field(default_factory=set)
    """PersistentVolumeClaims as `namespace/name`: pods that wait for them may be planned now."""
    deleted_nodeclaims: dict[str, NodeClaimFact] = field(default_factory=dict)
    """By UID: NodeClaims that no longer exist in the API server."""
    deleted_nodepools: set[str] = field(default_factory=set)
    deleted_nodeclasses: set[str] = field(default_factory=set)

    def split(self) -> Iterator[tuple[str, str, "ChangeSet"]]:
        """Kind and name of each object, with the changes of this object alone. Changed pods come last, as one."""
        for uid, claim in self.deleted_nodeclaims.items():
            yield NODE_CLAIMS.kind, claim.name, ChangeSet(deleted_nodeclaims={uid: claim})
        for attribute, kind in _KINDS.items():
            for name in sorted(getattr(self, attribute)):
                changes = ChangeSet()
                getattr(changes, attribute).add(name)
                yield kind, name, changes
        if self.pods:
            yield PODS.kind, "", ChangeSet(pods=True)

    def merge(self, other: "ChangeSet") -> None:
        for attribute in (*_KINDS, "deleted_nodeclaims"):
            getattr(self, attribute).update(getattr(other, attribute))
        self.pods |= other.pods

    def has_object(self, kind: str, name: str) -> bool:
        return any((kind, name) == (one_kind, one_name) for one_kind, one_name, _ in self.split())


_KINDS: Final[Mapping[str, str]] = {
    "nodeclaims": NODE_CLAIMS.kind,
    "nodepools": NODE_POOLS.kind,
    "nodeclasses": EC2_NODE_CLASSES.kind,
    "volume_claims": PERSISTENT_VOLUME_CLAIMS.kind,
    "deleted_nodepools": NODE_POOLS.kind,
    "deleted_nodeclasses": EC2_NODE_CLASSES.kind,
}


@dataclass(frozen=True)
class SyncedKinds:
    """Which kinds are synced, and for how long pods may still be expected on nodes that look empty."""

    nodeclaims: bool
    nodes: bool
    pods: bool
    nodepools: bool
    nodeclasses: bool
    warm_up_until: datetime | None
    """Set on a new host while pending pods or buffers wait for their first plan, which will nominate nodes to them."""
    policies: bool = True
    """LifecyclePolicies, and the NodePools that they select."""
    drains: bool = True
    """PodDisruptionBudgets, VolumeAttachments and PersistentVolumes."""
    plans: bool = True
    """Everything that a plan reads."""
    pauses: bool = True
    """Namespaces; an annotation of the worker's namespace pauses the whole cluster."""


@dataclass(frozen=True, slots=True)
class CacheChanged:
    """Published after every change: a `ChangeBatch` is due."""


@dataclass(frozen=True, slots=True)
class PendingPodChanged:
    """A pod became pending, changed while it was, or is no longer pending."""

    uid: str
    new: PodFact | None
    """None: it is no longer pending."""


@dataclass(frozen=True, slots=True)
class PodBound:
    """A pending pod was bound to a node."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodReady:
    """A pod became Ready."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod was deleted, or is no longer alive (`PodFact.is_alive`)."""

    pod: PodFact


@dataclass(frozen=True, slots=True)
class NodeClaimDeleted:
    """A NodeClaim no longer exists."""

    claim: NodeClaimFact
    was_interrupted: bool
    """AWS had announced the end of its instance."""


@dataclass(frozen=True, slots=True)
class CapacityLacking:
    """EC2 has no capacity for a NodeClaim; `capacity_error` has its message."""

    claim: NodeClaimFact


@dataclass(frozen=True, slots=True)
class OfferingsAvailable:
    """Offerings may be available or cheaper than for the last plan, for example after a zonal shift."""


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """A burst of changes. Subscribers receive it in the order of subscription; later ones see additions that earlier
    ones made to `changes`."""

    changes: ChangeSet
    known: SyncedKinds
    now: datetime


CacheEvent = (
    CacheChanged
    | PendingPodChanged
    | PodBound
    | PodReady
    | PodDeleted
    | NodeClaimDeleted
    | CapacityLacking
    | OfferingsAvailable
    | ChangeBatch
)

E = TypeVar("E", bound=CacheEvent)


class ChangeDispatcher:
    """Calls the subscribers of an event in the order of subscription."""

    def __init__(self) -> None:
        self._handlers: dict[type[Any], list[Callable[[Any], None]]] = {}
        self.invalid_objects = InvalidObjects(lambda: self.publish(CacheChanged()))

    def subscribe(self, event: type[E], handler: Callable[[E], None]) -> None:
        self._handlers.setdefault(event, []).append(handler)

    def publish(self, event: CacheEvent) -> None:
        for position, handler in enumerate(self._handlers.get(type(event), ())):
            if isinstance(event, ChangeBatch):
                self._publish_batch(handler, event, f"handle/{position}/{handler.__qualname__}")
            else:
                handler(event)

    def _publish_batch(self, handler: Callable[[ChangeBatch], None], batch: ChangeBatch, step: str) -> None:
        """An error of one object affects neither the other objects of the batch nor the other handlers."""
        try:
            handler(batch)
        except Exception as error:
            log.exception("changes are handled one by one", handler=handler.__qualname__, error=str(error))
            for kind, name, changes in tuple(batch.changes.split()):
                with self.invalid_objects.guard(ObjectKey(kind, name, step=step)):
                    handler(replace(batch, changes=changes))
                batch.changes.merge(changes)
            return
        for key in [one for one in self.invalid_objects.items() if one.step == step]:
            if batch.changes.has_object(key.kind, key.name):
                with self.invalid_objects.guard(key):
                    """The object succeeded with the others."""
