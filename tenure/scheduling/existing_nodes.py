"""Nodes, launched NodeClaims and NodeClaims before their launch: free capacity and labels for pods (reference 2.16)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal, TypeVar

import numpy as np

from tenure.apis.labels import (
    DECLARED_FEATURE,
    HOSTNAME,
    INITIALIZED,
    NO_SCHEDULE,
    NODE_NAME_FIELD,
    NODEPOOL,
    REBOOTING_TAINT_KEY,
    REGISTERED,
)
from tenure.apis.resources import add, elementwise_max, subtract, sum_resources
from tenure.model.facts import DaemonSetFact, HostPort, NodeClaimFact, NodeFact, PodFact, Taint, Toleration
from tenure.model.invalid_objects import Guard, no_guard
from tenure.model.requirements import Requirement, Requirements
from tenure.scheduling.daemonsets import DaemonDemand, pending_daemon_pods
from tenure.scheduling.instance_type_table import Amounts, Mask
from tenure.scheduling.not_ready_grace import NodePresence, NotReadyGrace, has_grace
from tenure.scheduling.pods import Variant
from tenure.scheduling.snapshot import ClusterFacts
from tenure.scheduling.taints import first_untolerated, ports_conflict, without_startup_taints, without_transient

T = TypeVar("T")
_REBOOTING: Final = Taint(key=REBOOTING_TAINT_KEY, effect=NO_SCHEDULE)


@dataclass(frozen=True, slots=True)
class ExistingNode:
    """A node, or a NodeClaim without one yet, on which pods can run without a new launch."""

    name: str
    requirements: Requirements
    """Its labels; for an unlaunched claim, all label values that it may get."""
    taints: tuple[Taint, ...]
    headroom: Mapping[str, int]
    initialized: bool = False
    is_launched: bool = True
    """False: not launched, so it offers only capacity that every launch outcome has."""
    nodeclaim: str = ""
    """The NodeClaim behind it, if there is one."""
    pending_ports: tuple[HostPort, ...] = ()
    """Host ports of the DaemonSet pods that it awaits."""
    pending_daemons: frozenset[str] = frozenset()
    """UIDs of the DaemonSets whose pods it awaits, except those whose host ports running pods use."""

    def satisfies(self, variant: Variant) -> bool:
        """Whether the labels satisfy the pod. Taints and headroom are checked separately."""
        if self.is_launched:
            return self.requirements.is_strictly_compatible(variant.requirements)
        return self.requirements.implies(variant.requirements)

    def could_satisfy(self, requirements: Requirements) -> bool:
        """Whether the labels satisfy the requirements, or may do so after the launch."""
        return (
            self.requirements.is_strictly_compatible(requirements)
            if self.is_launched
            else self.requirements.is_compatible(requirements)
        )


class ExistingNodes:
    """All existing nodes as arrays, initialized ones first, then by name: the order in which pods fill them."""

    def __init__(self, nodes: Iterable[ExistingNode]) -> None:
        self.nodes = sorted(nodes, key=lambda node: (not node.initialized, node.name))
        self.index = {node.name: number for number, node in enumerate(self.nodes)}
        self.resources = {key for node in self.nodes for key, amount in node.headroom.items() if amount > 0}
        self._taint_ids = _number_distinct(node.taints for node in self.nodes)
        self._launched: Mask = np.array([node.is_launched for node in self.nodes], dtype=bool)
        self._by_key: dict[str, tuple[list[str | None], Amounts]] = {}
        self._admitting: dict[Variant, Mask] = {}
        self._domains: dict[str, list[str | None]] = {}
        self._matching: dict[tuple[object, object], Mask] = {}
        self._closed: Mask | None = None
        self._label_keys: frozenset[str] | None = None
        self.free_amounts: dict[tuple[str, ...], Amounts] = {}
        """Known arrays by columns, for `packing/nodes.py`."""
        self.present: Sequence[int] = range(len(self.nodes))
        """Indices of the remaining nodes; removed nodes provide no topology domains."""

    @property
    def taints(self) -> set[Taint]:
        return {taint for taints in self._taint_ids[0] for taint in taints}

    @property
    def label_keys(self) -> frozenset[str]:
        """The keys of all labels that the nodes have or may get."""
        if self._label_keys is None:
            self._label_keys = frozenset[str]().union(*(node.requirements for node in self.nodes))
        return self._label_keys

    def without(self, removed: Mask, closed: Mask) -> "ExistingNodes":
        """The same nodes under the same indices, with some removed and some closed to new pods.

        Cached results about them are shared.
        """
        copied = copy(self)
        copied._closed = removed | closed
        copied.present = np.flatnonzero(~removed).tolist()
        return copied

    def domains_by_node(self, key: str) -> list[str | None]:
        """The value of a label for each node; None where it is absent or uncertain."""
        known = self._domains.get(key)
        if known is None:
            known = self._domains[key] = [_single_value(node.requirements.get(key)) for node in self.nodes]
        return known

    def matching(self, alternatives: Sequence[Requirements], tolerations: tuple[Toleration, ...] | None) -> Mask:
        """The nodes that satisfy, or may satisfy, one of the alternatives (none: all nodes), and whose taints are
        tolerated (`tolerations` None: taints are ignored)."""
        key = tuple(alternatives), tolerations
        known = self._matching.get(key)
        if known is None:
            matches = (
                (not alternatives or any(node.could_satisfy(one) for one in alternatives))
                and (
                    tolerations is None
                    or first_untolerated(tolerations, node.taints, tolerate_preferences=True) is None
                )
                for node in self.nodes
            )
            known = self._matching[key] = np.fromiter(matches, dtype=bool, count=len(self.nodes))
        return known

    def admitting(self, variant: Variant) -> Mask:
        """The nodes whose taints and labels allow the pod, except closed ones."""
        known = self._admitting.get(variant)
        if known is None:
            known = self._admitting[variant] = self._tolerating(variant) & self._label_matching(variant)
        return known if self._closed is None else known & ~self._closed

    def _tolerating(self, variant: Variant) -> Mask:
        distinct, numbers = self._taint_ids
        tolerated = [
            first_untolerated(variant.tolerations, taints, tolerate_preferences=variant.tolerate_preferences) is None
            for taints in distinct
        ]
        return np.array(tolerated, dtype=bool)[numbers]

    def _label_matching(self, variant: Variant) -> Mask:
        mask: Mask = self._launched.copy()
        for requirement in variant.requirements.values():
            if not mask.any():
                break
            mask &= self._satisfying_requirement(requirement)
        for number in np.flatnonzero(~self._launched):
            mask[number] = self.nodes[number].satisfies(variant)
        return mask

    def _satisfying_requirement(self, requirement: Requirement) -> Mask:
        if requirement.key not in self.label_keys:  # A pod may name thousands, and each would take an array.
            return np.full(len(self.nodes), not requirement.present)
        values, numbers = self._label_values(requirement.key)
        satisfying = [not requirement.present if value is None else requirement.has(value) for value in values]
        return np.array(satisfying, dtype=bool)[numbers]

    def _label_values(self, key: str) -> tuple[list[str | None], Amounts]:
        known = self._by_key.get(key)
        if known is None:
            known = self._by_key[key] = _number_distinct(_label_value(node, key) for node in self.nodes)
        return known


def node_requirements(name: str, labels: Mapping[str, str], features: Iterable[str] = ()) -> Requirements:
    """A node's labels, its declared features, and its name for `matchFields`. The name also stands in for a missing
    hostname label."""
    declared = {DECLARED_FEATURE.format(one): "true" for one in features}
    return Requirements.from_labels({HOSTNAME: name, **labels, **declared, NODE_NAME_FIELD: name})


def _single_value(one: Requirement | None) -> str | None:
    return next(iter(one.values)) if one is not None and not one.complement and len(one.values) == 1 else None


def _label_value(node: ExistingNode, key: str) -> str | None:
    one = node.requirements.get(key)
    return next(iter(one.values), None) if one is not None and node.is_launched else None


def _number_distinct(items: Iterable[T]) -> tuple[list[T], Amounts]:
    ids: dict[T, int] = {}
    numbers = [ids.setdefault(item, len(ids)) for item in items]
    return list(ids), np.array(numbers, dtype=np.int64)


class NodeCache:
    """The nodes of the last pass. A node is built again only if its facts have changed: thousands take most of the time
    of a plan of few pods."""

    def __init__(self) -> None:
        self._daemons: tuple[DaemonSetFact, ...] = ()
        self._previous: dict[str, tuple[object, ExistingNode]] = {}
        self._current: dict[str, tuple[object, ExistingNode]] = {}

    def start_pass(self, daemons: tuple[DaemonSetFact, ...]) -> None:
        """Nodes that the last pass did not use are forgotten, and all nodes if a DaemonSet has changed."""
        self._previous = self._current if daemons == self._daemons else {}
        self._current, self._daemons = {}, daemons

    def get_or_build(self, name: str, facts: object, build: Callable[[], ExistingNode]) -> ExistingNode:
        """The node of the last pass if it was built from equal facts. `facts`: all that `build` reads, without
        DaemonSets."""
        known = self._previous.get(name)
        if known is None or known[0] != facts:
            known = facts, build()
        self._current[name] = known
        return known[1]


def build_existing_nodes(
    facts: ClusterFacts,
    nodeclaims: Iterable[NodeClaimFact],
    unlaunched_demand: Mapping[str, DaemonDemand],
    *,
    now: datetime,
    not_ready_grace: timedelta,
    pool_graces: Mapping[str, timedelta] | None = None,
    guard: Guard = no_guard,
    cache: NodeCache | None = None,
) -> Iterator[ExistingNode]:
    """Every node and NodeClaim that is not terminating. `nodeclaims`: those of `facts`, and those that it does not have
    yet.

    `unlaunched_demand`: by name of the NodeClaim. `pool_graces`: NodePools whose grace differs from `not_ready_grace`.
    """
    graces = pool_graces or {}
    daemons, known_nodes = facts.daemons, cache or NodeCache()
    known_nodes.start_pass(daemons)
    owned: set[str] = set()

    def of_nodeclaim(nodeclaim: NodeClaimFact, node: NodeFact | None) -> Iterable[ExistingNode]:
        grace = graces.get(nodeclaim.pool, not_ready_grace)
        presence = NotReadyGrace(node, grace, nodeclaim).presence(now) if has_grace(nodeclaim) else "starting"
        is_ready = node is not None and node.ready and not node.deleting
        if (node and node.deleting) or (presence == "lost" and not is_ready):
            return []
        if node is None:
            return [
                _build_launched_node(nodeclaim, daemons)
                if nodeclaim.launched
                else _build_unlaunched_node(nodeclaim, unlaunched_demand.get(nodeclaim.name, DaemonDemand()))
            ]
        inputs = (nodeclaim, node, presence, tuple(facts.bound_to(node.name)))
        return [
            known_nodes.get_or_build(
                node.name, inputs, lambda: build_running_node(nodeclaim, node, facts, daemons, presence)
            )
        ]

    def of_node(node: NodeFact) -> Iterable[ExistingNode]:
        presence = NotReadyGrace(node, graces.get(node.labels.get(NODEPOOL, ""), not_ready_grace)).presence(now)
        if presence == "lost" and not node.ready:
            return []
        taints = without_transient(node.taints) if presence == "expected" else node.taints
        return [
            known_nodes.get_or_build(
                node.name,
                (node, taints, tuple(facts.bound_to(node.name))),
                lambda: _build_present_node(
                    node, node.labels, taints, node.allocatable, facts, daemons, initialized=True
                ),
            )
        ]

    for nodeclaim in nodeclaims:
        node = facts.node_of(nodeclaim)
        owned |= {node.name} if node else set()
        if not (nodeclaim.deleting or nodeclaim.instance_terminating):
            with guard(nodeclaim, "node"):
                yield from of_nodeclaim(nodeclaim, node)
    owned |= facts.strangers()
    for node in facts.nodes.values():
        if node.name not in owned and not node.deleting and not _lacks_provider_id(node):
            with guard(node, "node"):
                yield from of_node(node)


def _lacks_provider_id(node: NodeFact) -> bool:
    """Whether a pool's Node has no provider ID yet. Its NodeClaim counts until the Node can be assigned to it."""
    return NODEPOOL in node.labels and not node.provider_id


def build_running_node(
    nodeclaim: NodeClaimFact,
    node: NodeFact,
    facts: ClusterFacts,
    daemons: Sequence[DaemonSetFact],
    presence: NodePresence | Literal["starting"],
) -> ExistingNode:
    """A NodeClaim with its node. Labels and resources that are still expected count as present."""
    labels = node.labels if nodeclaim.registered else {**node.labels, **nodeclaim.labels}
    if node.registration_gaps:  # Registration restores them.
        labels = {**nodeclaim.labels, **labels}
    taints, allocatable = node.taints, node.allocatable
    match presence:
        case "starting":
            labels, taints = _initialized_labels(labels), _starting_taints(nodeclaim, node)
        case "expected":
            taints = without_transient(taints, nodeclaim.startup_taints)
    if presence in ("starting", "expected"):
        known = {key: amount for key, amount in node.allocatable.items() if amount}
        allocatable = {**nodeclaim.allocatable, **known}
    existing_node = _build_present_node(
        node, labels, taints, allocatable, facts, daemons, initialized=nodeclaim.initialized
    )
    headroom = add(existing_node.headroom, dict(nodeclaim.devices)) if nodeclaim.devices else existing_node.headroom
    return replace(existing_node, nodeclaim=nodeclaim.name, headroom=headroom)


def _starting_taints(nodeclaim: NodeClaimFact, node: NodeFact) -> tuple[Taint, ...]:
    """Before registration, the taints of the NodeClaim count. Before initialization and during a reboot, temporary
    taints are ignored without a time limit, since both have a deadline."""
    taints = without_transient(node.taints if nodeclaim.registered else nodeclaim.taints, (_REBOOTING,))
    return without_startup_taints(taints, nodeclaim.startup_taints)


def _build_present_node(
    node: NodeFact,
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
    allocatable: Mapping[str, int],
    facts: ClusterFacts,
    daemons: Sequence[DaemonSetFact],
    *,
    initialized: bool,
) -> ExistingNode:
    pods = tuple(facts.bound_to(node.name))
    present = frozenset(pod.owner_uid for pod in pods if pod.daemonset)
    requirements = node_requirements(node.name, labels, node.declared_features)
    pending_daemons = pending_daemon_pods(daemons, present, requirements, taints, allocatable)
    headroom = subtract(allocatable, _sum_requests((*pods, *pending_daemons))) | dict(node.devices)
    ports, used_ports = _host_ports(pending_daemons), _host_ports(pods)
    uids = frozenset(one.uid for one in pending_daemons if not ports_conflict(one.host_ports, used_ports))
    return ExistingNode(
        node.name, requirements, taints, headroom, initialized, pending_ports=ports, pending_daemons=uids
    )


def _build_launched_node(nodeclaim: NodeClaimFact, daemons: Sequence[DaemonSetFact]) -> ExistingNode:
    """A launched NodeClaim without a Node. Until its capacity is known, it offers the requested amounts."""
    requirements = Requirements.from_labels(_initialized_labels(nodeclaim.labels))
    pending_daemons = pending_daemon_pods(daemons, frozenset(), requirements, nodeclaim.taints, nodeclaim.allocatable)
    offered = subtract(nodeclaim.allocatable or nodeclaim.requests, _sum_requests(pending_daemons))
    headroom = offered | dict(nodeclaim.devices)
    return ExistingNode(
        nodeclaim.name,
        requirements,
        nodeclaim.taints,
        headroom,
        nodeclaim=nodeclaim.name,
        pending_ports=_host_ports(pending_daemons),
        pending_daemons=frozenset(one.uid for one in pending_daemons),
    )


def _build_unlaunched_node(nodeclaim: NodeClaimFact, daemons: DaemonDemand) -> ExistingNode:
    """An unlaunched NodeClaim. It offers its requests, or what every possible instance type has, to pods that every
    possible launch satisfies."""
    offered = elementwise_max(subtract(nodeclaim.requests, daemons.requests), daemons.remaining)
    requirements = Requirements.from_expressions(nodeclaim.requirements).intersection(
        Requirements.from_labels(_initialized_labels(nodeclaim.labels))
    )
    return ExistingNode(
        nodeclaim.name,
        requirements,
        nodeclaim.taints,
        offered | dict(nodeclaim.devices),
        is_launched=False,
        nodeclaim=nodeclaim.name,
        pending_ports=daemons.host_ports,
        pending_daemons=daemons.uids,
    )


def _initialized_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels after initialization: DaemonSets may select them."""
    return {**labels, REGISTERED: "true", INITIALIZED: "true"}


def _sum_requests(pods: Iterable[PodFact]) -> dict[str, int]:
    return sum_resources(pod.requests for pod in pods)


def _host_ports(pods: Iterable[PodFact]) -> tuple[HostPort, ...]:
    return tuple(port for pod in pods for port in pod.host_ports)
