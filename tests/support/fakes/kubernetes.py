"""NodeClaims, Nodes, pods and events in memory, with the API server's rules for finalizers and UIDs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.model.facts import NodeCondition, NodeFact, Taint
from tenure.model.provider_results import AttachedVolume, ConditionPatch, DrainPod, Eviction
from tests.support.fakes.faulty import FaultInjectable
from tests.support.fakes.karpenter_events import assert_phrase_of_karpenter

BORN = datetime(2026, 1, 1, tzinfo=UTC)
NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
TEMPLATE = {"spec": {"nodeClassRef": NODE_CLASS}}


REBOOTING_TAINT = Taint(key=labels.REBOOTING_TAINT_KEY, effect=labels.NO_SCHEDULE)
DISRUPTED = Taint(key=labels.DISRUPTED_TAINT_KEY, effect=labels.NO_SCHEDULE)


def node_conditions(**statuses: str) -> tuple[NodeCondition, ...]:
    """Conditions of a Node, by type."""
    return tuple(NodeCondition(type=kind, status=status) for kind, status in statuses.items())


def condition_statuses(node: NodeFact) -> dict[str, str]:
    """The status of each lifecycle condition of a Node."""
    return {one.type: one.status for one in node.conditions if one.type in labels.NODE_LIFECYCLE_CONDITIONS}


def matches(labels: Mapping[str, str], selector: Mapping[str, str] | None) -> bool:
    return all(labels.get(key) == value for key, value in (selector or {}).items())


def merge_labels(current: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The current labels with these changes; None removes a label."""
    return {key: value for key, value in {**current, **changes}.items() if value is not None}


@dataclass
class FakeAnnotated(FaultInjectable, ABC):
    """Implements `Annotated` of `activities.ports`."""

    async def patch_annotations(
        self, name: str, annotations: Mapping[str, str | None], *, uid: str = "", only: Mapping[str, str] | None = None
    ) -> str:
        found = self._annotations(name)
        if found is None or uid not in ("", found[0]):
            return ""
        if matches(found[1], only):
            self._write(name, merge_labels(found[1], annotations))
        return found[0]

    @abstractmethod
    def _annotations(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        """UID and annotations; None if the object does not exist."""

    @abstractmethod
    def _write(self, name: str, annotations: dict[str, str]) -> None: ...


@dataclass
class FakeNodeClaims(FakeAnnotated):
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, *, uid: str = "", born: datetime = BORN, **spec: Any) -> NodeClaim:
        self.found[name] = {
            "metadata": {
                "name": name,
                "uid": uid or f"uid-{name}",
                "creationTimestamp": born.isoformat(),
                "labels": spec.pop("labels", {labels.NODEPOOL: "default"}),
                "annotations": spec.pop("annotations", {}),
                "finalizers": [],
            },
            "spec": {"nodeClassRef": NODE_CLASS, **spec},
            "status": {"conditions": []},
        }
        return self._read(name)

    def _read(self, name: str) -> NodeClaim:
        return NodeClaim.model_validate(self.found[name])

    def _find(self, name: str, uid: str) -> dict[str, Any] | None:
        claim = self.found.get(name)
        return claim if claim and claim["metadata"]["uid"] == uid else None

    async def get(self, name: str) -> NodeClaim | None:
        return self._read(name) if name in self.found else None

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[NodeClaim]:
        return [self._read(one) for one, got in self.found.items() if matches(got["metadata"]["labels"], labels)]

    async def create(self, claim: NodeClaim) -> NodeClaim:
        """Completes the object as the API server does; an existing object stays unchanged."""
        name, created = claim.metadata.name, claim.to_object()
        created["metadata"] = {"uid": f"uid-{name}", "creationTimestamp": BORN.isoformat(), **created["metadata"]}
        self.found.setdefault(name, {"status": {"conditions": []}, **created})
        return self._read(name)

    async def ensure_finalizer(self, name: str, uid: str) -> bool:
        claim = self._find(name, uid)
        if claim is not None:
            claim["metadata"]["finalizers"] = [labels.TERMINATION_FINALIZER]
        return claim is not None

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
        claim = self._find(name, uid)
        if claim is None:
            return None
        claim["metadata"]["labels"] = {**(default_labels or {}), **claim["metadata"]["labels"]}
        claim["metadata"]["annotations"].update(annotations or {})
        claim["status"].update(status or {})
        for one in conditions:
            others = [old for old in claim["status"]["conditions"] if old["type"] != one.type]
            written = {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            claim["status"]["conditions"] = [*others, *([written] if one.status else [])]
        return self._read(name)

    async def patch_labels(self, name: str, uid: str, labels: Mapping[str, str | None]) -> bool:
        claim = self._find(name, uid)
        if claim is not None:
            claim["metadata"]["labels"] = merge_labels(claim["metadata"]["labels"], labels)
        return claim is not None

    def _annotations(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        meta = self.found[name]["metadata"] if name in self.found else None
        return (meta["uid"], meta["annotations"]) if meta else None

    def _write(self, name: str, annotations: dict[str, str]) -> None:
        self.found[name]["metadata"]["annotations"] = annotations

    async def delete(self, name: str, uid: str) -> bool:
        claim = self._find(name, uid)
        if claim is None:
            return False
        claim["metadata"].setdefault("deletionTimestamp", BORN.isoformat())
        if not claim["metadata"]["finalizers"]:
            del self.found[name]
        return True

    async def release(self, name: str, uid: str) -> bool:
        claim = self._find(name, uid)
        if claim is None:
            return False
        claim["metadata"]["finalizers"] = []
        if "deletionTimestamp" in claim["metadata"]:
            del self.found[name]
        return True

    def set_status(self, name: str, *, provider_id: str = "", deleting: bool = False, **conditions: str) -> None:
        """Set provider ID, deletion or conditions, as at a later point of the lifecycle."""
        claim = self.found[name]
        if provider_id:
            claim["status"]["providerID"] = provider_id
        if deleting:
            claim["metadata"]["deletionTimestamp"] = datetime.now(UTC).isoformat()
        claim["status"]["conditions"] += [
            {"type": kind, "status": status, "reason": ""} for kind, status in conditions.items()
        ]

    def condition_message(self, name: str, kind: str) -> str:
        """Message of a condition; empty if it does not exist."""
        conditions = self.found[name]["status"]["conditions"]
        return next((one.get("message", "") for one in conditions if one["type"] == kind), "")

    def condition_text(self, name: str, kind: str) -> str:
        conditions = self.found[name]["status"]["conditions"]
        return next((f"{one['status']} {one['reason']}".strip() for one in conditions if one["type"] == kind), "")


@dataclass
class FakeNodes(FakeAnnotated):
    found: dict[str, NodeFact] = field(default_factory=dict)
    published_drivers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """DRA drivers with complete ResourceSlices, by Node."""
    dra_resources: tuple[str, ...] = ()
    """Resources that DeviceClasses provide."""

    def join(self, name: str, provider_id: str, **fields: Any) -> NodeFact:
        self.found[name] = NodeFact(
            name=name,
            uid=f"uid-{name}",
            provider_id=provider_id,
            taints=(Taint(key=labels.UNREGISTERED_TAINT_KEY, effect=labels.NO_EXECUTE),),
            **{"ready": True, "boot_id": "boot-1", "allocatable": {"cpu": 4000}, **fields},
        )
        return self.found[name]

    def update_node(self, name: str, **fields: Any) -> NodeFact | None:
        if name in self.found:
            self.found[name] = self.found[name].model_copy(update=fields)
        return self.found.get(name)

    async def get(self, name: str) -> NodeFact | None:
        return self.found.get(name)

    async def find_by_provider_id(self, provider_id: str) -> Sequence[NodeFact]:
        return [node for node in self.found.values() if node.provider_id == provider_id]

    async def list(self, *, labels: Mapping[str, str] | None = None) -> Sequence[NodeFact]:
        return [node for node in self.found.values() if matches(node.labels, labels)]

    async def patch_labels(self, name: str, uid: str, labels: Mapping[str, str | None]) -> bool:
        node = self.found.get(name)
        if node is None or node.uid != uid:
            return False
        self.found[name] = node.model_copy(update={"labels": merge_labels(node.labels, labels)})
        return True

    def _annotations(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        node = self.found.get(name)
        return (node.uid, node.annotations) if node else None

    def _write(self, name: str, annotations: dict[str, str]) -> None:
        self.update_node(name, annotations=annotations)

    async def register(self, name: str, claim: NodeClaim) -> NodeFact | None:
        node = self.found.get(name)
        if node is None:
            return None
        taints = tuple(one for one in node.taints if one.key != labels.UNREGISTERED_TAINT_KEY)
        node_labels = {**node.labels, **claim.metadata.labels, labels.REGISTERED: "true"}
        return self.update_node(name, taints=taints, labels=node_labels, finalizers=(labels.TERMINATION_FINALIZER,))

    async def list_missing_drivers(self, name: str, drivers: Collection[str]) -> tuple[str, ...]:
        return tuple(one for one in drivers if one not in self.published_drivers.get(name, ()))

    async def list_dra_resources(self, requested: Collection[str]) -> tuple[str, ...]:
        return tuple(one for one in requested if one in self.dra_resources)

    async def mark_initialized(self, name: str) -> bool:
        node = self.found.get(name)
        return node is not None and bool(self.update_node(name, labels={**node.labels, labels.INITIALIZED: "true"}))

    async def mark_disrupted(self, name: str) -> NodeFact | None:
        node = self.found.get(name)
        if node is None:
            return None
        others = tuple(one for one in node.taints if one.key != labels.DISRUPTED_TAINT_KEY)
        return self.update_node(name, taints=(*others, DISRUPTED))

    async def mark_early_evicted(self, name: str, uid: str, *, tainted: bool, at: datetime) -> bool:
        node = self.found.get(name)
        return node is not None and node.uid == uid and await self.mark_disrupted(name) is not None

    async def unmark_disrupted(self, name: str) -> bool:
        node = self.found.get(name)
        if node is None:
            return False
        self.update_node(name, taints=tuple(one for one in node.taints if one.key != labels.DISRUPTED_TAINT_KEY))
        return True

    async def mark_rebooting(self, name: str) -> bool:
        return await self._set_rebooting(name, REBOOTING_TAINT)

    async def unmark_rebooting(self, name: str) -> bool:
        return await self._set_rebooting(name)

    async def _set_rebooting(self, name: str, *taints: Taint) -> bool:
        node = self.found.get(name)
        if node is None:
            return False
        others = tuple(one for one in node.taints if one.key != labels.REBOOTING_TAINT_KEY)
        return self.update_node(name, taints=(*others, *taints)) is not None

    async def set_conditions(self, name: str, conditions: Sequence[ConditionPatch], *, now: datetime) -> bool:
        node = self.found.get(name)
        if node is None:
            return False
        types = {one.type for one in conditions}
        others = tuple(one for one in node.conditions if one.type not in types)
        new = tuple(NodeCondition(type=one.type, status=one.status, since=now) for one in conditions if one.status)
        return self.update_node(name, conditions=(*others, *new)) is not None

    async def delete(self, name: str, uid: str) -> bool:
        return self._has(name, uid) and self.update_node(name, deleting=True) is not None

    async def release(self, name: str, uid: str) -> bool:
        return self._has(name, uid) and self.found.pop(name, None) is not None

    def _has(self, name: str, uid: str) -> bool:
        return name in self.found and self.found[name].uid == uid


@dataclass
class FakePods(FaultInjectable):
    by_node: dict[str, list[DrainPod]] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    """PodDisruptionBudget that blocks the eviction, by pod name."""
    evicted: list[str] = field(default_factory=list)
    forced: list[tuple[str, int]] = field(default_factory=list)
    """Force-deleted pods, and the grace period of each in seconds."""
    volumes: list[AttachedVolume] = field(default_factory=list)
    after_listing: Callable[[], object] | None = None
    """Called once, when the pods of a node have been listed."""

    def add(self, node: str, name: str, **fields: Any) -> None:
        pod = DrainPod(
            uid=f"uid-{name}",
            namespace="default",
            name=name,
            **{"waits": True, "evictable": True, "group": 0, "reschedulable": True, **fields},
        )
        self.by_node.setdefault(node, []).append(pod)

    async def on_node(self, node_name: str, *, now: datetime) -> Sequence[DrainPod]:
        found = list(self.by_node.get(node_name, ()))
        change, self.after_listing = self.after_listing, None
        if change is not None:
            change()
        return found

    def attach(self, attachment: str = "csi-1", **fields: Any) -> AttachedVolume:
        volume = AttachedVolume(attachment=attachment, driver="ebs.csi.aws.com", volume="pvc-1", **fields)
        self.volumes.append(volume)
        return volume

    async def evict(self, pod: DrainPod) -> Eviction:
        name = f"{pod.namespace}/{pod.name}"
        if pod.name in self.blocked:
            return Eviction(pod=name, accepted=False, blocked_by=self.blocked[pod.name], status=429)
        self.evicted.append(pod.name)
        self._remove(pod)
        return Eviction(pod=name, accepted=True, status=201)

    async def force_delete(self, pod: DrainPod, *, grace_seconds: int) -> bool:
        self.forced.append((pod.name, grace_seconds))
        self._remove(pod)
        return True

    async def attached_volumes(self, node_name: str) -> Sequence[AttachedVolume]:
        return tuple(self.volumes)

    def _remove(self, pod: DrainPod) -> None:
        for pods in self.by_node.values():
            pods[:] = [one for one in pods if one.uid != pod.uid]


@dataclass
class FakeEvents(FaultInjectable):
    published: list[tuple[str, str, str]] = field(default_factory=list)

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
        assert_phrase_of_karpenter(reason, message)
        self.published.append((name, reason, message))

    def reasons_for(self, name: str) -> list[str]:
        return [reason for one, reason, _ in self.published if one == name]

    def messages(self, reason: str) -> list[str]:
        return [message for _, one, message in self.published if one == reason]


@dataclass
class FakeNodePools(FakeAnnotated):
    found: dict[str, NodePool] = field(default_factory=dict)
    statuses: dict[str, dict[str, object]] = field(default_factory=dict)

    def add(self, name: str, **spec: Any) -> None:
        self.found[name] = NodePool.model_validate(
            {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"template": TEMPLATE, **spec}}
        )

    def set_annotations(self, name: str, annotations: Mapping[str, str]) -> None:
        """Replace all annotations."""
        self._write(name, dict(annotations))

    async def get(self, name: str) -> NodePool | None:
        return self.found.get(name)

    async def list(self) -> Sequence[NodePool]:
        return list(self.found.values())

    def _annotations(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        pool = self.found.get(name)
        return (pool.metadata.uid, pool.metadata.annotations) if pool else None

    def _write(self, name: str, annotations: dict[str, str]) -> None:
        pool = self.found[name]
        metadata = pool.metadata.model_copy(update={"annotations": annotations})
        self.found[name] = pool.model_copy(update={"metadata": metadata})

    async def patch_status(
        self,
        name: str,
        *,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        annotations: Mapping[str, str] | None = None,
        now: datetime,
    ) -> bool:
        condition_texts = {one.type: f"{one.status} {one.reason}".strip() for one in conditions}
        self.statuses[name] = {**(status or {}), **condition_texts}
        if name in self.found and annotations:
            raw = self.found[name].to_object()
            existing = raw["metadata"].get("annotations") or {}
            raw["metadata"] = {**raw["metadata"], "annotations": {**existing, **annotations}}
            self.found[name] = NodePool.model_validate(raw)
        return name in self.found


@dataclass
class FakeNodeClasses(FaultInjectable):
    found: dict[str, EC2NodeClass] = field(default_factory=dict)
    statuses: dict[str, dict[str, object]] = field(default_factory=dict)
    finalizers: set[str] = field(default_factory=set)

    def add(self, name: str, *, ready: str = "True", deleting: bool = False, **others: str) -> None:
        """`others`: conditions as `status reason`."""
        meta: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "generation": 1}
        if deleting:
            meta["deletionTimestamp"] = BORN.isoformat()
        conditions = [{"type": "Ready", "status": ready, "reason": "Ready"}] if ready else []
        split = {kind: parts.partition(" ") for kind, parts in others.items()}
        conditions += [{"type": kind, "status": parts[0], "reason": parts[2]} for kind, parts in split.items()]
        self.found[name] = EC2NodeClass.model_validate(
            {"metadata": meta, "spec": {}, "status": {"conditions": conditions}}
        )

    async def get(self, name: str) -> EC2NodeClass | None:
        return self.found.get(name)

    async def list(self) -> Sequence[EC2NodeClass]:
        return list(self.found.values())

    async def ensure_finalizer(self, name: str) -> bool:
        self.finalizers.add(name)
        return name in self.found

    async def patch_status(
        self,
        name: str,
        *,
        status: Mapping[str, object] | None = None,
        conditions: Sequence[ConditionPatch] = (),
        annotations: Mapping[str, str] | None = None,
        now: datetime,
    ) -> bool:
        self.statuses[name] = {**(status or {}), **{one.type: one.status for one in conditions}}
        if name in self.found and annotations:
            raw = self.found[name].to_object()
            existing = raw["metadata"].get("annotations") or {}
            raw["metadata"] = {**raw["metadata"], "annotations": {**existing, **annotations}}
            self.found[name] = EC2NodeClass.model_validate(raw)
        return name in self.found

    async def release(self, name: str) -> bool:
        self.finalizers.discard(name)
        return self.found.pop(name, None) is not None


@dataclass
class FakeNamespaces(FakeAnnotated):
    """Annotations by namespace; only the worker's own namespace exists."""

    found: dict[str, dict[str, str]] = field(default_factory=lambda: {"tenure": {}})

    def _annotations(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        return (f"uid-{name}", self.found[name]) if name in self.found else None

    def _write(self, name: str, annotations: dict[str, str]) -> None:
        self.found[name] = annotations
