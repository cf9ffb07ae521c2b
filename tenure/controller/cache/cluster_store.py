"""Facts of the cluster by kind, with their indexes, for everything that reads them. `ClusterCache` changes them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.controller.cache.nodepools import NodePoolView
from tenure.controller.cache.occupancy import Occupancy
from tenure.controller.cache.planner_changes import all_changes, make_change, with_last_pod_event
from tenure.model.base import instance_id_of
from tenure.model.disruption.pod_budgets import PodBudgetIndex
from tenure.model.extra_capacity import BufferFact
from tenure.model.facts import DaemonSetFact, NamespaceFact, NodeClaimFact, NodeFact, PodDisruptionBudgetFact, PodFact
from tenure.model.nodeclaim.node_identity import NodeIdentity, identify_node, is_named
from tenure.model.nodeoverlays import OverlayFact
from tenure.model.plan import MAX_RELEASED_PODS, ReleasedPod
from tenure.scheduling.pods import StartingPods
from tenure.scheduling.snapshot import Change, Fact, FactKind, Storage


class ClusterStore:
    def __init__(self) -> None:
        self.pods: dict[str, PodFact] = {}
        self.nodes: dict[str, NodeFact] = {}
        self.nodeclaims: dict[str, NodeClaimFact] = {}
        self.nodepools: dict[str, NodePoolView] = {}
        self.nodeclasses: dict[str, EC2NodeClass] = {}
        self.daemonsets: dict[str, DaemonSetFact] = {}
        self.namespaces: dict[str, NamespaceFact] = {}
        self.storage = Storage()
        self.overlays: dict[str, OverlayFact] = {}
        self.buffers: dict[str, BufferFact] = {}
        self.pod_budgets: dict[str, PodDisruptionBudgetFact] = {}
        """By `namespace/name`."""
        self._budget_index: PodBudgetIndex | None = None
        """None after a change."""
        self._plain: Mapping[FactKind, dict[str, Any]] = {
            "daemonset": self.daemonsets,
            "namespace": self.namespaces,
            "overlay": self.overlays,
            "pod_budget": self.pod_budgets,
            "buffer": self.buffers,
            "node": self.nodes,
        }
        """The tables whose facts the planner receives as they are."""
        self.pending: dict[str, PodFact] = {}
        """Pods that are neither bound nor finished."""
        self.starting_pods = StartingPods()
        self.occupancy = Occupancy()
        self.interrupted: set[str] = set()
        """NodeClaims whose instance AWS interrupts: plans treat them as deleting."""
        self.early_evicted: set[str] = set()
        """NodeClaims whose pods this process evicts for an interruption before their workflows receive it."""
        self._released: dict[str, ReleasedPod] = {}
        """By UID."""
        self._attachments: dict[str, dict[str, tuple[str, bool, str]]] = {}
        """By Node: names of VolumeAttachments, the volume of each, whether it is being deleted, and its driver's last
        error."""
        self._nodes_by_provider: dict[str, set[str]] = {}
        self._nodeclaim_by_instance: dict[str, str] = {}
        self._nodeclaims_by_nodepool: dict[str, set[str]] = {}
        self._node_missing_since: dict[str, datetime] = {}
        """By NodeClaim whose registered Node is gone."""

    def identify_node(self, claim: NodeClaimFact) -> NodeIdentity:
        names = self._nodes_by_provider.get(claim.provider_id, ()) if claim.provider_id else ()
        return identify_node(claim, [self.nodes[name] for name in names], self.nodes.get(claim.node_name))

    def nodes_of(self, claim: NodeClaimFact) -> tuple[NodeFact, ...]:
        """Its Node. Before registration, all Nodes with its provider ID, sorted by name."""
        identity = self.identify_node(claim)
        own = (identity.node,) if identity.node else ()
        return own if is_named(claim) else (*own, *identity.strangers)

    def node_missing_since(self, claim: NodeClaimFact) -> datetime | None:
        """When this process first saw that the registered Node is gone."""
        return self._node_missing_since.get(claim.name)

    def nodeclaim_name_of(self, node: str) -> str:
        """The name of the Node's NodeClaim; empty for a Node that belongs to none."""
        fact = self.nodes.get(node)
        name = self._nodeclaim_by_instance.get(instance_id_of(fact.provider_id), "") if fact else ""
        claim = self.nodeclaims.get(name)
        if claim is None or claim.node_name in ("", node) or fact in self.nodes_of(claim):
            return name
        return ""

    def nomination_target(self, target: str) -> str:
        """The NodeClaim of a Node that a plan names. Nominations use its name, which does not change."""
        return self.nodeclaim_name_of(target) or target

    def owner_of(self, uid: str) -> str:
        """The UID of the pod's owner; empty if unknown."""
        pod = self.pods.get(uid)
        return pod.owner_uid if pod else ""

    def nodeclaim_of_instance(self, instance_id: str) -> NodeClaimFact | None:
        return self.nodeclaims.get(self._nodeclaim_by_instance.get(instance_id, ""))

    def nodeclaims_of_nodepool(self, pool: str) -> tuple[NodeClaimFact, ...]:
        return tuple(self.nodeclaims[name] for name in sorted(self._nodeclaims_by_nodepool.get(pool, ())))

    def selecting_budgets(self, pod: PodFact) -> tuple[PodDisruptionBudgetFact, ...]:
        """The PodDisruptionBudgets of the pod, sorted by name."""
        if self._budget_index is None:
            self._budget_index = PodBudgetIndex(self.pod_budgets.values())
        return self._budget_index.selecting_budgets(pod)

    def attachments_of(self, node: str) -> Sequence[tuple[str, bool, str, bool]]:
        """VolumeAttachments: the name, whether it is being deleted, its driver's last error, and whether its volume
        exists and is not released."""
        volumes = self.storage.volumes
        return sorted(
            (name, is_deleting, error, volume in volumes and not volumes[volume].released)
            for name, (volume, is_deleting, error) in self._attachments.get(node, {}).items()
        )

    def find_released(self, uid: str) -> ReleasedPod | None:
        """None for a pod that plans include."""
        return self._released.get(uid)

    def list_released(self) -> tuple[ReleasedPod, ...]:
        """The latest, at most MAX_RELEASED_PODS."""
        return tuple(sorted(self._released.values(), key=lambda one: (one.since, one.uid))[-MAX_RELEASED_PODS:])

    def planner_fact(self, name: str) -> NodeClaimFact:
        claim = self.nodeclaims[name]
        found = with_last_pod_event(claim, self.occupancy.last_pod_event(node.name for node in self.nodes_of(claim)))
        updates: dict[str, object] = {}
        if name in self.interrupted:
            updates |= {"deleting": True, "instance_terminating": True}
        if name in self._node_missing_since:
            updates["node_missing_since"] = self._node_missing_since[name]
        return found.model_copy(update=updates) if updates else found

    def list_facts(self) -> tuple[Change, ...]:
        """All facts, in the form that the planner receives."""
        pools = {name: view.fact for name, view in self.nodepools.items()}
        claims = {name: self.planner_fact(name) for name in self.nodeclaims}
        tables: Mapping[FactKind, Mapping[str, Fact]] = {
            **self._plain,
            "pool": pools,
            "claim": claims,
            "pod": self.pods,
        }
        return (*(make_change(*one) for one in self.storage.iterate_facts()), *all_changes(tables))
