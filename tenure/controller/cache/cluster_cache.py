"""The cluster as this process sees it: facts by name, updated by list-watches and reduced to the fields in use.

The planner process receives the same changes in the same order."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import structlog

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import NODECLASS_HASH_VERSION, REQUESTED_DRA_DRIVERS
from tenure.controller.cache import decoders
from tenure.controller.cache.changes import (
    CacheChanged,
    CacheEvent,
    CapacityLacking,
    ChangeDispatcher,
    ChangeSet,
    NodeClaimDeleted,
    OfferingsAvailable,
    PendingPodChanged,
    PodBound,
    PodDeleted,
    PodReady,
)
from tenure.controller.cache.cluster_store import ClusterStore
from tenure.controller.cache.decoders import DaemonTemplates
from tenure.controller.cache.devices import Devices
from tenure.controller.cache.nodepools import read_nodepool_view
from tenure.controller.cache.occupancy import concerns_pods
from tenure.controller.cache.occupancy import with_observed_times as with_times
from tenure.controller.cache.planner_changes import (
    PlannerChanges,
    budget_state,
    changes_disruption,
    has_foreign_changes,
)
from tenure.controller.cache.tables import discard_member, set_or_remove
from tenure.controller.settings import DEVICE_KINDS
from tenure.kube.client.errors import Json
from tenure.kube.client.list_watch import Delta
from tenure.kube.client.resources import DEVICE_CLASSES, KINDS, NODES, PODS
from tenure.kube.facts import default_spread as spread_kinds
from tenure.kube.facts.default_spread import DefaultSpread
from tenure.kube.facts.device_classes import DeviceClasses
from tenure.kube.facts.objects import check_durations, is_ours, node_fact, nodeclaim_fact, pod_budget_fact
from tenure.kube.facts.pod_admission import PodAdmission
from tenure.kube.facts.pods import AnnotationError, read_pod
from tenure.model.base import instance_id_of
from tenure.model.extra_capacity import BufferFact
from tenure.model.facts import NodeClaimFact, PodFact
from tenure.model.instance_types import Catalogue, DevicesByNodeClass
from tenure.model.invalid_objects import ObjectKey, object_key, pod_key
from tenure.model.nodeclaim.node_identity import DuplicateProviderIdError, NodeStatus, describe_stranger, is_named
from tenure.model.plan import ReleasedPod
from tenure.scheduling.pods import CACHES
from tenure.scheduling.snapshot import Change, Fact, FactKind

F = TypeVar("F", bound=Fact)
E = TypeVar("E", bound=CacheEvent)

log = structlog.get_logger(__name__)

_RECENT_DELETIONS: Final = 2000
_DEVICE_KINDS: Final = frozenset(one.plural for one in DEVICE_KINDS)
_IDENTITY: Final = "identity"
"""The step that assigns Nodes to NodeClaims."""
_DERIVE: Final = "derive"
"""The step that adds facts of other objects to a pod."""


class ClusterCache(ClusterStore):
    """Applies list-watch deltas and changes of this process, and publishes events. `now` is the wall clock."""

    def __init__(
        self, now: Callable[[], datetime], default_spread: DefaultSpread | None = None, devices: Devices | None = None
    ) -> None:
        """`devices`: None if pods with ResourceClaims are refused."""
        super().__init__()
        self._dispatcher = ChangeDispatcher()
        self.invalid_objects = self._dispatcher.invalid_objects
        self._devices = devices or Devices()
        self._now, self.default_spread = now, default_spread or DefaultSpread()
        self.pod_admission = PodAdmission()
        self._device_classes = DeviceClasses()
        self._daemon_templates = DaemonTemplates(self.pod_admission, self._device_classes, self.invalid_objects)
        self._awaiting_devices: set[str] = set()
        """NodeClaims that wait for DRA drivers."""
        self._blocked_drains: set[str] = set()
        """NodeClaims whose drain has published blockers."""
        self._assumed: dict[str, datetime] = {}
        """Times at which `assume_nodeclaim` added NodeClaims that no list or watch has shown yet."""
        self._deleted: deque[str] = deque(maxlen=_RECENT_DELETIONS)
        self._changes = ChangeSet()
        self.planner_changes = PlannerChanges()

    def subscribe(self, event: type[E], handler: Callable[[E], None]) -> None:
        self._dispatcher.subscribe(event, handler)

    def publish(self, event: CacheEvent) -> None:
        self._dispatcher.publish(event)

    # --- list-watch deltas ---

    def on_deltas(self, kind: str, deltas: Iterable[Delta]) -> None:
        """Apply the deltas of one kind. An object that cannot be read keeps its last known fact."""
        handler = self._handlers.get(kind)
        for delta in deltas:
            with self.invalid_objects.guard_change(delta.object, KINDS.get(kind, kind), is_deleted=delta.is_deleted):
                handler(self, delta) if handler else self._on_other(kind, delta)
                self._report_annotation(kind, delta)
        self._update_devices()
        for pod in self.default_spread.drain_concerned(self.pods.values()):
            self._update_pod(pod.uid, self.default_spread.apply)
        self.publish(CacheChanged())

    def _on_pod(self, delta: Delta) -> None:
        uid = delta.object["metadata"]["uid"]
        if delta.is_deleted:
            self._devices.forget_pod(uid)
        self._store_pod(uid, None if delta.is_deleted else self._read_pod(delta.object))

    def _update_pod(self, uid: str, derive: Callable[[PodFact], PodFact]) -> None:
        """After a change of another object. If it raises an error, the pod keeps its last known fact."""
        with self.invalid_objects.guard(pod_key(self.pods[uid], _DERIVE)):
            self._store_pod(uid, derive(self.pods[uid]))

    def _store_pod(self, uid: str, new: PodFact | None) -> None:
        old = self.pods.get(uid)
        if new is None:
            self._released.pop(uid, None)
        if new == old:
            return
        set_or_remove(self.pods, uid, new)
        self.starting_pods.update(old, new)
        waiting = new if new is not None and not new.node_name and not new.is_finished else None
        if waiting != self.pending.get(uid):
            set_or_remove(self.pending, uid, waiting)
            self._changes.pods = True
            self.publish(PendingPodChanged(uid, waiting))
            if new is not None and new.node_name:
                self.publish(PodBound(uid))
        if new is not None and new.ready and not (old and old.ready):
            self.publish(PodReady(uid))
        last = new or old
        if last is not None and (new is None or not new.is_alive):
            self.publish(PodDeleted(last))
        for node in self.occupancy.update_pod(old, new, self._now()):
            self._requeue_node(node)
        if new is None and last is not None and last.node_name not in self.nodes:
            self.occupancy.forget_nodes([last.node_name])
        for one in (old, new):
            self._record_pod_event(one.node_name if one else "")
        self.planner_changes.record("pod", uid, new, affects_disruption=changes_disruption(old, new))

    def _read_pod(self, raw: Json) -> PodFact:
        pod: Mapping[str, Any] = raw
        if self._devices.has_claims(raw):
            pod = self._devices.observe_pod(raw)
            self._update_devices()
        found = read_pod(pod, lambda error: self.invalid_objects.record(object_key(raw, PODS.kind), error))
        CACHES.add_pod(found)
        released = self._released.get(found.uid)
        if released and (found.node_name or found.scheduler_message != released.scheduler_message):
            del self._released[found.uid]
        elif released:
            return found.model_copy(update={"unplannable": released.why})
        return self.default_spread.apply(self._check_devices(found))

    def _check_devices(self, pod: PodFact) -> PodFact:
        return self._devices.apply_to_pod(self._device_classes.check_pod(pod))

    def _update_devices(self) -> None:
        """Store the pods and Nodes whose devices changed."""
        pods, nodes = self._devices.drain()
        for uid in pods:
            if uid in self.pods:
                self._update_pod(uid, self._check_devices)
        for name in nodes:
            old = self.nodes.get(name)
            if old is not None and (new := self._devices.apply_to_node(old)) != old:
                self.nodes[name] = new
                self._changes.pods = True
                self.planner_changes.record("node", name, new)
        for name in tuple(self._awaiting_devices):
            self._store_nodeclaim(self.nodeclaims[name])

    @property
    def devices_of_types(self) -> DevicesByNodeClass:
        """The DRA devices that pods request and that new nodes will have."""
        return self._devices.devices_of_types

    def set_catalogue(self, catalogue: Catalogue) -> None:
        """Use the device templates of these instance types."""
        if self._devices.set_catalogue(catalogue):
            self._update_devices()
            self.publish(CacheChanged())

    def stop_planning(self, uid: str, why: str, since: datetime) -> None:
        """The pod without a node is unplannable until it is bound, or its scheduler's message changes."""
        message = self.pods[uid].scheduler_message
        self.restore_released([ReleasedPod(uid=uid, scheduler_message=message, why=why, since=since)])

    def restore_released(self, released: Iterable[ReleasedPod]) -> None:
        """Leave these pods out of plans, unless the messages of their schedulers changed."""
        for one in released:
            pod = self.pending.get(one.uid)
            if pod is not None and pod.scheduler_message == one.scheduler_message:
                self._released[one.uid] = one
                self._store_pod(one.uid, pod.model_copy(update={"unplannable": one.why}))

    def _on_device_class(self, delta: Delta) -> None:
        self._devices.on_delta(DEVICE_CLASSES.plural, delta)
        changed = self._device_classes.update(delta.object, is_deleted=delta.is_deleted)
        for uid, pod in tuple(self.pods.items()) if changed else ():
            if not changed.isdisjoint(pod.requests):
                self._update_pod(uid, self._check_devices)
        for claim in tuple(self.nodeclaims.values()) if changed else ():
            if not changed.isdisjoint(claim.requests):
                self._store_nodeclaim(claim)
        for uid, daemonset in self._daemon_templates.decode_all() if changed else ():
            self._replace_fact(self.daemonsets, "daemonset", uid, daemonset)

    def _report_annotation(self, kind: str, delta: Delta) -> None:
        problem = "" if delta.is_deleted else decoders.find_annotation_problem(kind, delta.object)
        if problem:
            self.invalid_objects.record(object_key(delta.object, KINDS[kind]), AnnotationError(problem))

    def _on_node(self, delta: Delta) -> None:
        name = delta.object["metadata"]["name"]
        old = self.nodes.get(name)
        new = None if delta.is_deleted else with_times(node_fact(delta.object), old, self._now())
        if new is not None:
            self._devices.observe_node(name)
            if old is not None and old.uid == new.uid and old.devices:
                new = new.model_copy(update={"devices": old.devices})
        if old is not None and new is None and old.uid != delta.object["metadata"]["uid"]:
            return
        if new == old:
            return
        if old is not None:
            self._requeue_node(name)
            discard_member(self._nodes_by_provider, old.provider_id, name)
        set_or_remove(self.nodes, name, new)
        if new is not None and new.provider_id:
            self._nodes_by_provider.setdefault(new.provider_id, set()).add(name)
        if old is not None and new is not None and old.provider_id != new.provider_id:
            self.invalid_objects.forget_object(NODES.kind, new.uid)
        for provider_id in {one.provider_id for one in (old, new) if one is not None}:
            self._check_node_identity(self.nodeclaim_of_instance(instance_id_of(provider_id)))
        if new is None:
            self.occupancy.forget_nodes([name])
        elif old is None:
            self._record_pod_event(name)
        self._requeue_node(name)
        self._changes.pods = self._changes.pods or concerns_pods(old, new)
        self.planner_changes.record("node", name, new)

    def _on_nodeclaim(self, delta: Delta) -> None:
        metadata = delta.object["metadata"]
        self._assumed.pop(metadata["name"], None)
        if delta.is_deleted:
            self._delete_nodeclaim(metadata["name"], metadata["uid"])
        elif is_ours(delta.object["spec"]["nodeClassRef"]):
            self._store_nodeclaim(nodeclaim_fact(delta.object))
            check_durations(delta.object)

    def _store_nodeclaim(self, new: NodeClaimFact) -> None:
        new = self._check_nodeclaim_devices(new)
        old = self.nodeclaims.get(new.name)
        if new == old:
            return
        if old is not None and old.uid != new.uid:
            self._delete_nodeclaim(old.name, old.uid)
            old = None
        self.nodeclaims[new.name] = new
        if new.provider_id:
            self._nodeclaim_by_instance[instance_id_of(new.provider_id)] = new.name
        self._nodeclaims_by_nodepool.setdefault(new.pool, set()).add(new.name)
        self._changes.nodeclaims.add(new.name)
        self._changes.nodepools.add(new.pool)
        if old is None or (new.deleting, new.instance_terminating, new.initialized_at, new.devices) != (
            old.deleting,
            old.instance_terminating,
            old.initialized_at,
            old.devices,
        ):
            self._changes.nodeclasses.add(new.node_class)
            self._changes.pods = True
        elif new.annotations.get(NODECLASS_HASH_VERSION) != old.annotations.get(NODECLASS_HASH_VERSION):
            self._changes.nodeclasses.add(new.node_class)
        (self._blocked_drains.add if new.drain_waits else self._blocked_drains.discard)(new.name)
        (self._awaiting_devices.add if new.missing_drivers else self._awaiting_devices.discard)(new.name)
        self._check_node_identity(new)
        if new.capacity_error and (old is None or new.capacity_error != old.capacity_error):
            self.publish(CapacityLacking(new))
        self.planner_changes.record("claim", new.name, new, affects_disruption=has_foreign_changes(old, new))

    def _check_nodeclaim_devices(self, nodeclaim: NodeClaimFact) -> NodeClaimFact:
        dra_resources = self._device_classes.find_requested(nodeclaim.requests)
        if dra_resources != nodeclaim.dra_resources:
            nodeclaim = nodeclaim.model_copy(update={"dra_resources": dra_resources})
        node = self.identify_node(nodeclaim).node if REQUESTED_DRA_DRIVERS in nodeclaim.annotations else None
        return self._devices.apply_to_nodeclaim(nodeclaim, node.name if node else "")

    def _delete_nodeclaim(self, name: str, uid: str) -> None:
        self._deleted.append(uid)
        old = self.nodeclaims.get(name)
        if old is None or old.uid != uid:
            return
        del self.nodeclaims[name]
        self.publish(NodeClaimDeleted(old, was_interrupted=name in self.interrupted))
        for names in (self.interrupted, self.early_evicted, self._blocked_drains, self._awaiting_devices):
            names.discard(name)
        self._node_missing_since.pop(name, None)
        if self._nodeclaim_by_instance.get(instance_id_of(old.provider_id)) == name:
            del self._nodeclaim_by_instance[instance_id_of(old.provider_id)]
        discard_member(self._nodeclaims_by_nodepool, old.pool, name)
        self._changes.deleted_nodeclaims[uid] = old
        self._changes.nodeclaims.discard(name)
        self._changes.nodepools.add(old.pool)
        self._changes.nodeclasses.add(old.node_class)
        self._changes.pods = True
        self.planner_changes.record("claim", name, None)

    def _check_node_identity(self, claim: NodeClaimFact | None) -> None:
        """Record that its Node is missing, and report other Nodes with its provider ID."""
        if claim is None:
            return
        identity = self.identify_node(claim)
        was_missing = claim.name in self._node_missing_since
        if identity.status is NodeStatus.MISSING:
            self._node_missing_since.setdefault(claim.name, self._now())
        else:
            self._node_missing_since.pop(claim.name, None)
        if was_missing != (claim.name in self._node_missing_since):
            self.planner_changes.record("claim", claim.name, claim)
            self.requeue_pods()
        for node in (*identity.strangers, *((identity.node,) if identity.node else ())):
            key = ObjectKey(NODES.kind, node.name, node.uid, step=_IDENTITY)
            if node in identity.strangers and is_named(claim):
                with self.invalid_objects.guard(key):
                    raise DuplicateProviderIdError(describe_stranger(node, claim))
            elif self.invalid_objects.get(key):
                self.invalid_objects.forget_object(NODES.kind, node.uid)

    def _on_nodepool(self, delta: Delta) -> None:
        name = delta.object["metadata"]["name"]
        if delta.is_deleted or not is_ours(delta.object["spec"]["template"]["spec"]["nodeClassRef"]):
            if self.nodepools.pop(name, None) is not None:
                self._changes.deleted_nodepools.add(name)
                self.planner_changes.record("pool", name, None)
            return
        view = read_nodepool_view(delta.object)
        old = self.nodepools.get(name)
        if view == old:
            return
        self.nodepools[name] = view
        self._changes.nodepools.add(name)
        if old is None or old.consolidation != view.consolidation:
            self._changes.nodeclaims |= self._nodeclaims_by_nodepool.get(name, set())
        if old is None or old.fact != view.fact:
            self.planner_changes.record("pool", name, view.fact)
            self.publish(OfferingsAvailable())

    def _on_nodeclass(self, delta: Delta) -> None:
        name = delta.object["metadata"]["name"]
        if delta.is_deleted:
            if self.nodeclasses.pop(name, None) is not None:
                self._changes.deleted_nodeclasses.add(name)
        else:
            self.nodeclasses[name] = EC2NodeClass.from_object(delta.object)
            self._changes.nodeclasses.add(name)
        self._changes.nodepools |= {pool for pool, view in self.nodepools.items() if view.fact.node_class == name}

    def _on_pod_budget(self, delta: Delta) -> None:
        budget = pod_budget_fact(delta.object)
        old, new = self.pod_budgets.get(budget.key), None if delta.is_deleted else budget
        if new != old:
            set_or_remove(self.pod_budgets, budget.key, new)
            self._budget_index = None
            self._changes.nodeclaims |= self._blocked_drains
            is_for_plans = budget_state(old) != budget_state(new)
            self.planner_changes.record("pod_budget", budget.key, new, affects_disruption=is_for_plans)

    def _on_volume_attachment(self, delta: Delta) -> None:
        metadata, spec = delta.object["metadata"], delta.object.get("spec") or {}
        # A deletion that a list reveals has no spec.
        known = (node for node, here in self._attachments.items() if metadata["name"] in here)
        node = spec.get("nodeName", "") if spec else next(known, "")
        volume = (spec.get("source") or {}).get("persistentVolumeName", "")
        error = ((delta.object.get("status") or {}).get("detachError") or {}).get("message", "")
        here = self._attachments.setdefault(node, {})
        is_deleting = "deletionTimestamp" in metadata
        set_or_remove(here, metadata["name"], None if delta.is_deleted else (volume, is_deleting, error))
        if not here:
            del self._attachments[node]
        self._changes.nodeclaims |= self._blocked_drains & {self.nodeclaim_name_of(node)}

    def _on_other(self, plural: str, delta: Delta) -> None:
        if KINDS.get(plural) in spread_kinds.KINDS:
            self.default_spread.update(KINDS[plural], delta.object, is_deleted=delta.is_deleted)
            return
        if plural in decoders.TEMPLATE_KINDS:
            for uid, daemonset in self._daemon_templates.update(plural, delta):
                self._replace_fact(self.daemonsets, "daemonset", uid, daemonset)
            return
        if plural in decoders.KINDS:
            kind, key, fact = decoders.decode_object(plural, delta)
            if self._replace_fact(self._plain[kind], kind, key, fact) and kind == "overlay":
                self.publish(OfferingsAvailable())
            return
        if plural in _DEVICE_KINDS:
            self._devices.on_delta(plural, delta)
            return
        stored, key, storage_fact = decoders.decode_storage(plural, delta)
        if self.storage.set_fact(stored, key, storage_fact):
            self._changes.pods = True
            if stored == "volume_claim":
                self._changes.volume_claims.add(key)
            elif stored == "volume":
                self._changes.nodeclaims |= self._blocked_drains
            self.planner_changes.record(stored, key, storage_fact)

    _handlers: Final[Mapping[str, Callable[["ClusterCache", Delta], None]]] = {
        "pods": _on_pod,
        "nodes": _on_node,
        "nodeclaims": _on_nodeclaim,
        "nodepools": _on_nodepool,
        "ec2nodeclasses": _on_nodeclass,
        "deviceclasses": _on_device_class,
        "poddisruptionbudgets": _on_pod_budget,
        "volumeattachments": _on_volume_attachment,
    }

    # --- changes by this process ---

    def assume_nodeclaim(self, claim: NodeClaimFact) -> None:
        """Add a created NodeClaim before the watch shows it, unless its deletion was already observed."""
        if claim.uid not in self._deleted and claim.name not in self.nodeclaims:
            self._assumed[claim.name] = self._now()
            self._store_nodeclaim(claim)

    def forget_unobserved_nodeclaims(self, before: datetime) -> None:
        """Delete assumed NodeClaims that no list or watch has shown since: they were deleted while no watch ran."""
        for name in [name for name, at in self._assumed.items() if at < before]:
            del self._assumed[name]
            self._delete_nodeclaim(name, self.nodeclaims[name].uid)

    def set_buffer(self, uid: str, fact: BufferFact | None) -> bool:
        """Set the request of a CapacityBuffer; None removes it. False if nothing changed."""
        return self._replace_fact(self.buffers, "buffer", uid, fact)

    def requeue_nodeclaim(self, name: str) -> None:
        """Recompute its digest after a change outside this cache."""
        if name in self.nodeclaims:
            self._changes.nodeclaims.add(name)
            self.publish(CacheChanged())

    def set_interrupted(self, name: str, *, interrupted: bool) -> None:
        """Record that AWS reclaims its instance. With False, AWS did not reclaim it in time."""
        claim = self.nodeclaims.get(name)
        if claim is None or interrupted == (name in self.interrupted):
            return
        self.interrupted ^= {name}
        self.planner_changes.record("claim", name, claim)
        self.requeue_pods()

    def set_early_evicted(self, name: str, *, early_evicted: bool) -> None:
        """Mark the NodeClaim's pods as evicted early. With False, AWS did not reclaim the instance in time."""
        self.early_evicted = self.early_evicted | {name} if early_evicted else self.early_evicted - {name}
        self._changes.nodeclaims.add(name)
        self.publish(CacheChanged())

    def requeue_pods(self) -> None:
        """Recompute which pods need a node after a change outside this cache."""
        self._changes.pods = True
        self.publish(CacheChanged())

    def drain_changes(self) -> ChangeSet:
        changes, self._changes = self._changes, ChangeSet()
        return changes

    def drain_planner_changes(self) -> tuple[Change, ...]:
        """The latest form of every object that changed since the last call, for the planner."""
        return self.planner_changes.drain(self.planner_fact)

    def snapshot_changes(self) -> tuple[Change, ...]:
        """All facts, for a planner that starts empty. Clears the pending changes, which they include."""
        self.planner_changes.drain(self.planner_fact)
        return self.list_facts()

    def _requeue_node(self, node: str) -> None:
        self._changes.nodeclaims |= {self.nodeclaim_name_of(node)} - {""}

    def _record_pod_event(self, node: str) -> None:
        for name in {self.nodeclaim_name_of(node)} - {""}:
            self.planner_changes.record_pod_event(self.nodeclaims[name])
            self._changes.nodeclaims |= self._blocked_drains & {name}

    def _replace_fact(self, table: dict[str, F], kind: FactKind, key: str, new: F | None) -> bool:
        """False if the fact is unchanged."""
        if new == table.get(key):
            return False
        set_or_remove(table, key, new)
        self.planner_changes.record(kind, key, new)
        return True
