"""The cluster's facts, kept up to date by changes and indexed for planning.

`controller/` sends the changes; `scheduling/state.py` plans on what stands here.
"""

from collections.abc import Iterable
from typing import Literal, TypeVar

from model.base import Value
from model.buffers import BufferFact, virtual_pods
from model.facts import ClaimFact, DaemonSetFact, NamespaceFact, NodeFact, PodBudgetFact, PodFact, PoolFact
from model.overlays import OverlayFact
from model.volume_facts import StorageFact
from scheduling.storage import Storage, StorageKind

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
