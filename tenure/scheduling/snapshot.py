"""The cluster's facts, kept up to date by changes and indexed for planning.

`controller/` sends the changes; `tenure/scheduling/cluster_state.py` plans on what stands here.

NodeClaims that earlier plans bought and the caches do not show yet, and the pods they were bought for.

Without it two passes in a row would buy for the same pods, or use the same room twice.

Every fact of storage by its key: PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes.

The planner has one in its `Facts`, the controller one in its caches; `tenure/scheduling/volumes.py` decides on it.

NodeClaims as what was learnt of machines of their kind says they will be.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar

from tenure.apis.labels import INSTANCE_TYPE, NODECLASS_HASH
from tenure.apis.resources import MEMORY
from tenure.model.base import Value
from tenure.model.discovered_capacity import Learnt
from tenure.model.extra_capacity import BufferFact, virtual_pods
from tenure.model.facts import (
    ClaimFact,
    CSINodeFact,
    DaemonSetFact,
    NamespaceFact,
    NodeFact,
    PodBudgetFact,
    PodFact,
    PoolFact,
    StorageClassFact,
    StorageFact,
    VolumeClaimFact,
    VolumeFact,
)
from tenure.model.nodeoverlays import OverlayFact
from tenure.model.provisioning import PlannedClaim

# How long a claim that was created may stay invisible before the plan no longer counts on it.
BLIND: Final = timedelta(seconds=60)


class Ledger:
    def __init__(self) -> None:
        self._unseen: dict[str, ClaimFact] = {}
        self._promises: dict[str, str] = {}

    def commit(self, claims: Mapping[str, PlannedClaim], now: datetime) -> None:
        """Claims by their names, created or about to be."""
        for name, planned in claims.items():
            self._unseen[name] = _as_fact(name, planned, now)
            self._promises.update(dict.fromkeys(planned.pods, name))

    def seen(self, name: str, claim: ClaimFact | None) -> None:
        """The caches now know this claim, or that it is gone or going: then its pods are promised nothing."""
        self._unseen.pop(name, None)
        if claim is None or claim.deleting:
            self._promises = {pod: home for pod, home in self._promises.items() if home != name}

    def forget_pod(self, uid: str) -> None:
        self._promises.pop(uid, None)

    def unseen(self, now: datetime) -> Iterable[ClaimFact]:
        """Committed claims that are not too old to be believed in."""
        return [claim for claim in self._unseen.values() if now - claim.created < BLIND]

    @property
    def promises(self) -> Mapping[str, str]:
        """Pod UID to the name of the claim it was bought with."""
        return self._promises


def _as_fact(name: str, planned: PlannedClaim, now: datetime) -> ClaimFact:
    return ClaimFact(
        name=name,
        uid="",
        created=now,
        pool=planned.pool,
        node_class=planned.node_class,
        labels=planned.labels,
        annotations=planned.annotations,
        requirements=planned.requirements,
        taints=planned.taints,
        startup_taints=planned.startup_taints,
        requests=planned.requests,
    )


StorageKind = Literal["volume_claim", "volume", "storage_class", "csi_node"]


class Storage:
    """Claims by `namespace/name`, the others by name."""

    def __init__(self) -> None:
        self.claims: dict[str, VolumeClaimFact] = {}
        self.volumes: dict[str, VolumeFact] = {}
        self.classes: dict[str, StorageClassFact] = {}
        self.csi_nodes: dict[str, CSINodeFact] = {}
        self._tables: Final[dict[StorageKind, tuple[type, dict[str, Any]]]] = {
            "volume_claim": (VolumeClaimFact, self.claims),
            "volume": (VolumeFact, self.volumes),
            "storage_class": (StorageClassFact, self.classes),
            "csi_node": (CSINodeFact, self.csi_nodes),
        }

    def put(self, kind: StorageKind, key: str, fact: object) -> bool:
        """Whether it makes a difference; None takes it out. Raises TypeError when the fact is not of the kind."""
        expected, table = self._tables[kind]
        if fact is not None and not isinstance(fact, expected):
            raise TypeError(f"a {kind} was announced and a {type(fact).__name__} given")
        if table.get(key) == fact:
            return False
        if fact is None:
            del table[key]
        else:
            table[key] = fact
        return True

    def everything(self) -> Iterator[tuple[StorageKind, str, StorageFact]]:
        for kind, (_, table) in self._tables.items():
            yield from ((kind, key, fact) for key, fact in table.items())


T = TypeVar("T")
Kind = (
    Literal["pod", "node", "claim", "pool", "daemonset", "namespace", "overlay", "buffer", "pod_budget"] | StorageKind
)
Fact = (
    PodFact
    | NodeFact
    | ClaimFact
    | PoolFact
    | DaemonSetFact
    | NamespaceFact
    | StorageFact
    | OverlayFact
    | BufferFact
    | PodBudgetFact
)


class Change(Value):
    """One object that is new, different, or gone (`fact` is None).

    The key is the UID of a pod, DaemonSet or buffer, `namespace/name` of a PersistentVolumeClaim or a
    PodDisruptionBudget, else the name.
    """

    kind: Kind
    key: str
    fact: Fact | None


class Facts:
    """Every object by its key, pods also by the node they are bound to, nodes by provider id."""

    def __init__(self) -> None:
        self.pods: dict[str, PodFact] = {}
        self.nodes: dict[str, NodeFact] = {}
        self.claims: dict[str, ClaimFact] = {}
        self.pools: dict[str, PoolFact] = {}
        self.daemons: dict[str, DaemonSetFact] = {}
        self.namespaces: dict[str, NamespaceFact] = {}
        self.storage = Storage()
        self.overlays: dict[str, OverlayFact] = {}
        self.pod_budgets: dict[str, PodBudgetFact] = {}
        self.homeless: dict[str, PodFact] = {}
        self.virtual: dict[str, tuple[PodFact, ...]] = {}
        """By CapacityBuffer the pods for which it wants room."""
        self._bound: dict[str, dict[str, PodFact]] = {}
        self._by_provider: dict[str, str] = {}

    def apply(self, change: Change) -> None:
        """Take one change in. Raises TypeError when the fact is not of the kind that is named."""
        match change.kind, change.fact:
            case "pod", PodFact() | None:
                self._apply_pod(change.key, change.fact)
            case "node", NodeFact() | None:
                self._apply_node(change.key, change.fact)
            case "claim", ClaimFact() | None:
                _put(self.claims, change.key, change.fact)
            case "pool", PoolFact() | None:
                _put(self.pools, change.key, change.fact)
            case "daemonset", DaemonSetFact() | None:
                _put(self.daemons, change.key, change.fact)
            case "namespace", NamespaceFact() | None:
                _put(self.namespaces, change.key, change.fact)
            case ("volume_claim" | "volume" | "storage_class" | "csi_node") as kind, fact:
                self.storage.put(kind, change.key, fact)
            case "overlay", OverlayFact() | None:
                _put(self.overlays, change.key, change.fact)
            case "buffer", BufferFact() | None:
                _put(self.virtual, change.key, virtual_pods(change.fact) if change.fact else None)
            case "pod_budget", PodBudgetFact() | None:
                _put(self.pod_budgets, change.key, change.fact)
            case _:
                raise TypeError(f"a {change.kind} was announced and a {type(change.fact).__name__} given")

    def bound_to(self, node_name: str) -> Iterable[PodFact]:
        """Pods on a node that have not finished."""
        return self._bound.get(node_name, {}).values()

    def node_of(self, claim: ClaimFact) -> NodeFact | None:
        """The Node of a claim: by provider id, else by the name in its status."""
        by_provider = self._by_provider.get(claim.provider_id, "") if claim.provider_id else ""
        return self.nodes.get(by_provider or claim.node_name)

    def _apply_pod(self, uid: str, pod: PodFact | None) -> None:
        before = self.pods.get(uid)
        if before is not None and before.node_name:
            self._bound.get(before.node_name, {}).pop(uid, None)
        self.homeless.pop(uid, None)
        _put(self.pods, uid, pod)
        if pod is None or pod.finished:
            return
        if pod.node_name:
            self._bound.setdefault(pod.node_name, {})[uid] = pod
        else:
            self.homeless[uid] = pod

    def _apply_node(self, name: str, node: NodeFact | None) -> None:
        before = self.nodes.get(name)
        if before is not None and self._by_provider.get(before.provider_id) == name:
            del self._by_provider[before.provider_id]
        _put(self.nodes, name, node)
        if node is not None and node.provider_id:
            self._by_provider[node.provider_id] = name


def _put(table: dict[str, T], key: str, fact: T | None) -> None:
    if fact is None:
        table.pop(key, None)
    else:
        table[key] = fact


def claim_as_learnt(claim: ClaimFact, learnt: Learnt) -> ClaimFact:
    """A claim whose Node is not there yet, with no more memory than such machines have shown since it was launched."""
    if claim.registered or not claim.launched:
        return claim
    spec_hash = claim.annotations.get(NODECLASS_HASH, "")
    shown = learnt.memory(claim.image_id, claim.labels.get(INSTANCE_TYPE, ""), spec_hash)
    missing = 0 if shown is None else claim.capacity.get(MEMORY, 0) - shown
    if missing <= 0:
        return claim
    left = max(0, claim.allocatable.get(MEMORY, 0) - missing)
    return claim.model_copy(update={"allocatable": {**claim.allocatable, MEMORY: left}})
