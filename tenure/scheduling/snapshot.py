"""The facts of the cluster, updated by changes and indexed for planning.

Planned NodeClaims that the caches do not show yet count, too. Otherwise two passes would launch nodes for the same
pods.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar

from tenure.apis.labels import INSTANCE_TYPE, NODECLASS_HASH
from tenure.apis.resources import MEMORY
from tenure.model.base import Value
from tenure.model.discovered_capacity import DiscoveredCapacity
from tenure.model.extra_capacity import BufferFact, build_virtual_pods
from tenure.model.facts import (
    CSINodeFact,
    DaemonSetFact,
    NamespaceFact,
    NodeClaimFact,
    NodeFact,
    NodePoolFact,
    PodDisruptionBudgetFact,
    PodFact,
    StorageClassFact,
    StorageFact,
    VolumeClaimFact,
    VolumeFact,
)
from tenure.model.nodeclaim.node_identity import NodeIdentity, identify_node
from tenure.model.nodeoverlays import OverlayFact
from tenure.model.plan import PlannedNodeClaim
from tenure.scheduling.daemon_pods import DaemonPods
from tenure.scheduling.pods import StartingPods

# How long plans count a created claim that the caches do not show.
UNOBSERVED_TTL: Final = timedelta(seconds=60)


class CommittedNodeClaims:
    def __init__(self) -> None:
        self._unobserved: dict[str, NodeClaimFact] = {}
        self._promised_nodeclaims: dict[str, str] = {}

    def add(self, nodeclaims: Mapping[str, PlannedNodeClaim], now: datetime) -> None:
        """Add claims by name, which were or will be created."""
        for name, planned in nodeclaims.items():
            self._unobserved[name] = _to_nodeclaim_fact(name, planned, now)
            self._promised_nodeclaims.update(dict.fromkeys(planned.pods, name))

    def observe(self, name: str, nodeclaim: NodeClaimFact | None) -> None:
        """The caches have this claim now. If it is gone or terminating, its pods lose their promise."""
        self._unobserved.pop(name, None)
        if nodeclaim is None or nodeclaim.deleting:
            self._promised_nodeclaims = {
                pod: node_name for pod, node_name in self._promised_nodeclaims.items() if node_name != name
            }

    def forget_pod(self, uid: str) -> None:
        self._promised_nodeclaims.pop(uid, None)

    def unobserved(self, now: datetime) -> Iterable[NodeClaimFact]:
        """Committed claims younger than UNOBSERVED_TTL that the caches do not have yet."""
        return [nodeclaim for nodeclaim in self._unobserved.values() if now - nodeclaim.created < UNOBSERVED_TTL]

    @property
    def promised_nodeclaims(self) -> Mapping[str, str]:
        """Pod UID to the name of the claim that was created for the pod."""
        return self._promised_nodeclaims


def _to_nodeclaim_fact(name: str, planned: PlannedNodeClaim, now: datetime) -> NodeClaimFact:
    return NodeClaimFact(
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
        devices=tuple(sorted(planned.devices.items())),
    )


StorageKind = Literal["volume_claim", "volume", "storage_class", "csi_node"]


class Storage:
    """PersistentVolumeClaims by `namespace/name`, the others by name."""

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

    def set_fact(self, kind: StorageKind, key: str, fact: object) -> bool:
        """Store the fact; None removes it. False if nothing changed. Raises TypeError for a fact of another kind."""
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

    def iterate_facts(self) -> Iterator[tuple[StorageKind, str, StorageFact]]:
        for kind, (_, table) in self._tables.items():
            yield from ((kind, key, fact) for key, fact in table.items())


T = TypeVar("T")
FactKind = (
    Literal["pod", "node", "claim", "pool", "daemonset", "namespace", "overlay", "buffer", "pod_budget"] | StorageKind
)
Fact = (
    PodFact
    | NodeFact
    | NodeClaimFact
    | NodePoolFact
    | DaemonSetFact
    | NamespaceFact
    | StorageFact
    | OverlayFact
    | BufferFact
    | PodDisruptionBudgetFact
)


class Change(Value):
    """One object that is new, different, or gone (`fact` is None).

    The key is the UID of a pod, DaemonSet or buffer, `namespace/name` of a PersistentVolumeClaim or a
    PodDisruptionBudget, else the name.
    """

    kind: FactKind
    key: str
    fact: Fact | None


class ClusterFacts:
    """Every object by its key; pods also by the node that they are bound to, nodes also by provider ID."""

    def __init__(self) -> None:
        self.pods: dict[str, PodFact] = {}
        self.nodes: dict[str, NodeFact] = {}
        self.nodeclaims: dict[str, NodeClaimFact] = {}
        self.pools: dict[str, NodePoolFact] = {}
        self._daemonsets: dict[str, DaemonSetFact] = {}
        self.daemon_pods = DaemonPods()
        self.namespaces: dict[str, NamespaceFact] = {}
        self.storage = Storage()
        self.overlays: dict[str, OverlayFact] = {}
        self.pod_budgets: dict[str, PodDisruptionBudgetFact] = {}
        self.unbound_pods: dict[str, PodFact] = {}
        self.starting_pods = StartingPods()
        self.virtual: dict[str, tuple[PodFact, ...]] = {}
        """By CapacityBuffer, its virtual pods."""
        self._bound: dict[str, dict[str, PodFact]] = {}
        self._by_provider: dict[str, set[str]] = {}
        self._identities: dict[str, tuple[NodeClaimFact, NodeIdentity]] = {}
        """By NodeClaim, until a Node changes."""

    def apply(self, change: Change) -> None:
        """Apply one change. Raises TypeError for a fact of another kind."""
        match change.kind, change.fact:
            case "pod", PodFact() | None:
                self._apply_pod(change.key, change.fact)
            case "node", NodeFact() | None:
                self._apply_node(change.key, change.fact)
            case "claim", NodeClaimFact() | None:
                _set_or_delete(self.nodeclaims, change.key, change.fact)
            case "pool", NodePoolFact() | None:
                _set_or_delete(self.pools, change.key, change.fact)
            case "daemonset", DaemonSetFact() | None:
                _set_or_delete(self._daemonsets, change.key, change.fact)
            case "namespace", NamespaceFact() | None:
                _set_or_delete(self.namespaces, change.key, change.fact)
            case ("volume_claim" | "volume" | "storage_class" | "csi_node") as kind, fact:
                self.storage.set_fact(kind, change.key, fact)
            case "overlay", OverlayFact() | None:
                _set_or_delete(self.overlays, change.key, change.fact)
            case "buffer", BufferFact() | None:
                _set_or_delete(self.virtual, change.key, build_virtual_pods(change.fact) if change.fact else None)
            case "pod_budget", PodDisruptionBudgetFact() | None:
                _set_or_delete(self.pod_budgets, change.key, change.fact)
            case _:
                raise TypeError(f"a {change.kind} was announced and a {type(change.fact).__name__} given")

    @property
    def daemons(self) -> tuple[DaemonSetFact, ...]:
        """DaemonSets with the requests and host ports of their newest pod, since admission and resizes change them. A
        DaemonSet without a pod has those of its template."""
        return tuple(self.daemon_pods.apply_requests(one) for one in self._daemonsets.values())

    def bound_to(self, node_name: str) -> Iterable[PodFact]:
        """Unfinished pods that are bound to this node."""
        return self._bound.get(node_name, {}).values()

    def node_of(self, nodeclaim: NodeClaimFact) -> NodeFact | None:
        return self._identify_node(nodeclaim).node

    def strangers(self) -> set[str]:
        """The names of Nodes that belong to no NodeClaim, although they have the provider ID of one."""
        shared = {provider_id for provider_id, names in self._by_provider.items() if len(names) > 1}
        claims = (one for one in self.nodeclaims.values() if one.provider_id in shared)
        return {node.name for claim in claims for node in self._identify_node(claim).strangers}

    def _identify_node(self, nodeclaim: NodeClaimFact) -> NodeIdentity:
        known = self._identities.get(nodeclaim.name)
        if known is None or known[0] is not nodeclaim:
            names = self._by_provider.get(nodeclaim.provider_id, ()) if nodeclaim.provider_id else ()
            nodes = [self.nodes[name] for name in names]
            known = nodeclaim, identify_node(nodeclaim, nodes, self.nodes.get(nodeclaim.node_name))
            self._identities[nodeclaim.name] = known
        return known[1]

    def _apply_pod(self, uid: str, pod: PodFact | None) -> None:
        before = self.pods.get(uid)
        if before is not None and before.node_name:
            self._unbind(before)
        self.unbound_pods.pop(uid, None)
        self.starting_pods.update(before, pod)
        _set_or_delete(self.pods, uid, pod)
        if (known := pod or before) is not None and known.daemonset:
            self.daemon_pods.update(known.owner_uid, uid, pod)
        if pod is None or pod.is_finished:
            return
        if pod.node_name:
            self._bound.setdefault(pod.node_name, {})[uid] = pod
        else:
            self.unbound_pods[uid] = pod

    def _unbind(self, pod: PodFact) -> None:
        bound = self._bound.get(pod.node_name, {})
        bound.pop(pod.uid, None)
        if not bound:
            self._bound.pop(pod.node_name, None)

    def _apply_node(self, name: str, node: NodeFact | None) -> None:
        before = self.nodes.get(name)
        self._identities.clear()
        if before is not None and before.provider_id:
            names = self._by_provider[before.provider_id]
            names.discard(name)
            if not names:
                del self._by_provider[before.provider_id]
        _set_or_delete(self.nodes, name, node)
        if node is not None and node.provider_id:
            self._by_provider.setdefault(node.provider_id, set()).add(name)


def _set_or_delete(table: dict[str, T], key: str, fact: T | None) -> None:
    if fact is None:
        table.pop(key, None)
    else:
        table[key] = fact


def with_discovered_memory(nodeclaim: NodeClaimFact, discovered: DiscoveredCapacity) -> NodeClaimFact:
    """A launched, unregistered claim with its memory reduced to the value discovered for its type and image."""
    if nodeclaim.registered or not nodeclaim.launched:
        return nodeclaim
    spec_hash = nodeclaim.annotations.get(NODECLASS_HASH, "")
    discovered_memory = discovered.get_memory(nodeclaim.image_id, nodeclaim.labels.get(INSTANCE_TYPE, ""), spec_hash)
    missing = 0 if discovered_memory is None else nodeclaim.capacity.get(MEMORY, 0) - discovered_memory
    if missing <= 0:
        return nodeclaim
    remaining = max(0, nodeclaim.allocatable.get(MEMORY, 0) - missing)
    return nodeclaim.model_copy(update={"allocatable": {**nodeclaim.allocatable, MEMORY: remaining}})
