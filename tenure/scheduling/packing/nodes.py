"""All nodes of a pass as arrays: existing nodes, then new ones, with the attachment limits of CSI drivers.

A new node is filled up to the capacity of its target type. The limit of the EBS CSI driver on new nodes is a column of
the amounts; those of other drivers are unknown until they run. Existing nodes have `AttachmentLimits` instead.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from tenure.apis.labels import EBS_CSI_DRIVER, INSTANCE_TYPE
from tenure.model.facts import CSINodeFact, HostPort
from tenure.scheduling.existing_nodes import ExistingNodes
from tenure.scheduling.instance_type_table import EBS_ATTACHMENTS, MANY_ATTACHMENTS, Amounts, Indices, Mask
from tenure.scheduling.nodepool_template import Offer, Option, RejectionReason
from tenure.scheduling.packing.pod_requirements import NO_VOLUME_TERMS, VolumeTerms
from tenure.scheduling.packing.topology import UNLIMITED
from tenure.scheduling.pods import Variant
from tenure.scheduling.snapshot import ClusterFacts
from tenure.scheduling.taints import conflicting_addresses
from tenure.scheduling.volumes import Attachment, VolumeRequirements, volume_attachments


class AttachmentLimits:
    """Volume attachment limits of existing nodes, by index."""

    def __init__(
        self, node_count: int, limits: Mapping[int, Mapping[str, int]], attached: Mapping[int, Iterable[Attachment]]
    ):
        """`limits`: by node index and driver; `attached`: volumes of the node's pods, by node index."""
        self._node_count = node_count
        self._remaining: dict[str, Amounts] = {}
        self._nodes_by_attachment: dict[Attachment, set[int]] = {}
        for number, by_driver in limits.items():
            for driver, limit in by_driver.items():
                per_node = self._remaining.setdefault(driver, np.full(node_count, UNLIMITED, dtype=np.int64))
                per_node[number] = limit
        for number, attachments in attached.items():
            self._attach(number, attachments)

    def pod_caps(self, volumes: VolumeTerms, node_count: int) -> Amounts | None:
        """How many such pods each of the first `node_count` nodes accepts; None if no limit applies to them."""
        own = dict(volumes.own)
        drivers = {*own, *(driver for driver, _ in volumes.shared)} & self._remaining.keys()
        if not drivers:
            return None
        caps = np.full(node_count, UNLIMITED, dtype=np.int64)
        for driver in sorted(drivers):
            missing = self._count_unattached([one for one in volumes.shared if one[0] == driver])
            remaining, each = self._remaining[driver] - missing, own.get(driver, 0)
            # A node over its limit still accepts pods that need no further attachment.
            fits = (
                np.maximum(remaining, 0) // each if each else np.where((remaining >= 0) | (missing == 0), UNLIMITED, 0)
            )
            caps[: self._node_count] = np.minimum(caps[: self._node_count], fits)
        return caps

    def add_pods(self, node_index: int, volumes: VolumeTerms, pods: int) -> None:
        """Count the volumes of pods that are placed there."""
        if node_index >= self._node_count or volumes is NO_VOLUME_TERMS:
            return
        self._attach(node_index, volumes.shared)
        for driver, each in volumes.own:
            if driver in self._remaining:
                self._remaining[driver][node_index] -= each * pods

    def _attach(self, node_index: int, attachments: Iterable[Attachment]) -> None:
        for one in set(attachments):
            attached_nodes = self._nodes_by_attachment.setdefault(one, set())
            if node_index not in attached_nodes and one[0] in self._remaining:
                self._remaining[one[0]][node_index] -= 1
            attached_nodes.add(node_index)

    def _count_unattached(self, shared: Iterable[Attachment]) -> Amounts:
        """Per existing node, the number of these volumes that are not attached there."""
        missing = np.zeros(self._node_count, dtype=np.int64)
        for one in shared:
            missing += 1
            missing[list(self._nodes_by_attachment.get(one, ()))] -= 1
        return missing


def existing_volume_attachments(
    facts: ClusterFacts, existing_nodes: ExistingNodes, offers: Iterable[Offer]
) -> tuple[dict[int, Mapping[str, int]], dict[int, set[Attachment]]]:
    """Limits of the nodes that have any, and the volumes attached there for running or terminating pods.

    The limit of the instance type counts until the CSINode lists the EBS CSI driver.
    """
    limits, attached = dict[int, Mapping[str, int]](), dict[int, set[Attachment]]()
    if not facts.storage.claims:
        return limits, attached
    by_type = _ebs_attachments_by_type(offers)
    for number, node in enumerate(existing_nodes.nodes):
        known = facts.storage.csi_nodes.get(node.name) or CSINodeFact(name=node.name)
        by_driver = known.limits
        if EBS_CSI_DRIVER not in by_driver.keys() | known.unlimited_drivers:
            types = node.requirements.get(INSTANCE_TYPE)
            possible = (
                [] if types is None or types.complement else [by_type[one] for one in types.values & by_type.keys()]
            )
            by_driver = {**by_driver, EBS_CSI_DRIVER: min(possible)} if possible else by_driver
        if by_driver:
            limits[number] = by_driver
            attached[number] = {
                one for pod in facts.bound_to(node.name) for one in volume_attachments(pod, facts.storage)
            }
    return limits, attached


def _ebs_attachments_by_type(offers: Iterable[Offer]) -> dict[str, int]:
    """The lowest limit of each instance type."""
    found: dict[str, int] = {}
    for table in {id(offer.table): offer.table for offer in offers}.values():
        for one in table.types:
            if one.ebs_attachments is not None:
                found[one.name] = min(one.ebs_attachments, found.get(one.name, one.ebs_attachments))
    return found


def count_new_attachments(found: Mapping[str, VolumeRequirements]) -> dict[str, int]:
    """By pod UID, the volumes that the EBS CSI driver attaches to a new node. A volume of several pods counts for the
    first of them."""
    counts, counted = dict[str, int](), set[Attachment]()
    for uid in sorted(found):
        new = {one for one in found[uid].attachments if one[0] == EBS_CSI_DRIVER} - counted
        counted |= new
        counts[uid] = len(new)
    return counts


def merge_volume_requirements(
    found: Mapping[str, VolumeRequirements], attached: Iterable[set[Attachment]]
) -> dict[str, VolumeTerms]:
    """Volume requirements of pods by UID, so that pods with equal requirements are interchangeable."""
    users = Counter(one for needs in found.values() for one in needs.attachments)
    shared = {one for one, times in users.items() if times > 1} | set[Attachment]().union(*attached)
    return {
        uid: VolumeTerms(
            needs.alternatives,
            tuple(sorted(Counter(driver for driver, _ in needs.attachments - shared).items())),
            needs.attachments & shared,
        )
        for uid, needs in found.items()
    }


_INITIAL_CAPACITY: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class NodeSlot:
    """New nodes with equal requirements so far: a pool, restricted by the pods placed on them."""

    offer: Offer
    option: Option


@dataclass(slots=True)
class NewNode:
    """A node to launch. `rows`: the instance types that it must fit, the target type first."""

    slot: int
    rows: Indices
    headroom: Amounts
    pods: list[str] = field(default_factory=list)
    ports: list[HostPort] = field(default_factory=list)
    """Host ports of its pods."""
    allowed_types: Mask | None = None
    """The types whose DaemonSet pods the rules of its pods allow; None for all."""


class NodeArrays:
    def __init__(
        self,
        existing_nodes: ExistingNodes,
        resources: Sequence[str],
        attachment_limits: AttachmentLimits | None = None,
        free: Amounts | None = None,
    ) -> None:
        """`resources`: the columns of all amounts; `free`: the existing nodes' free amounts, if already known."""
        self.existing_nodes = existing_nodes
        self.attachment_limits = attachment_limits or AttachmentLimits(len(existing_nodes.nodes), {}, {})
        self.resources = tuple(resources)
        self.columns = {key: number for number, key in enumerate(self.resources)}
        self.existing_count = len(existing_nodes.nodes)
        """Also the index of the first new node."""
        self.count = self.existing_count
        self.free: Amounts = np.zeros((self.existing_count + _INITIAL_CAPACITY, len(self.resources)), dtype=np.int64)
        self.free[: self.existing_count] = free_amounts(existing_nodes, self.resources) if free is None else free
        self.new_nodes: list[NewNode] = []
        self.slots: list[NodeSlot] = []
        self._slot_ids: dict[tuple[int, int], int] = {}
        self._slot_by_node: Indices = np.zeros(_INITIAL_CAPACITY, dtype=np.intp)
        self._target_rows: Indices = np.zeros(_INITIAL_CAPACITY, dtype=np.intp)
        self._used_slots: dict[int, None] = {}
        """The slots that new nodes have or had, in their order. Others exist only as transitions."""
        self._slot_transitions: dict[Variant, dict[int, int]] = {}
        self._ports: dict[tuple[int, str], dict[str, set[int]]] = {}
        """By port and protocol, then by address: the nodes where it is in use."""

    def to_vector(self, requests: Mapping[str, int]) -> Amounts:
        return np.array([requests.get(key, 0) for key in self.resources], dtype=np.int64)

    def admitting(self, variant: Variant) -> Mask:
        """The nodes whose taints and labels allow the pods, and whose target type stays possible with them."""
        admitting: Mask = np.zeros(self.count, dtype=bool)
        admitting[: self.existing_count] = self.existing_nodes.admitting(variant)
        transitions = self._next_slots(variant)
        if transitions:
            joinable: Mask = np.zeros(len(self.slots), dtype=bool)
            joinable[[slot for slot, following in transitions.items() if following >= 0]] = True
            admitting[self.existing_count :] = joinable[self._slot_by_node[: self.count - self.existing_count]]
            for slot, following in transitions.items():
                if following >= 0 and following != slot:
                    self._check_targets(admitting, slot, following)
        return admitting

    def _check_targets(self, admitting: Mask, slot: int, following: int) -> None:
        numbers = np.flatnonzero(self._slot_by_node[: self.count - self.existing_count] == slot)
        types = self.slots[following].option.types
        admitting[self.existing_count + numbers] &= types[self._target_rows[numbers]]

    def pod_counts(self, vector: Amounts, chosen: Mask) -> Amounts:
        """How many pods of this size fit on each of the chosen nodes."""
        requested = np.flatnonzero(vector)
        if not len(requested):
            return np.where(chosen, UNLIMITED, 0)
        counts = np.zeros(self.count, dtype=np.int64)
        numbers = np.flatnonzero(chosen)
        counts[numbers] = (self.free[numbers][:, requested] // vector[requested]).min(axis=1)
        return counts

    def open_headroom(self, variant: Variant) -> Amounts:
        """Free capacity on the new nodes that such pods may join."""
        chosen = np.flatnonzero(self.admitting(variant)[self.existing_count :])
        return np.asarray(self.free[self.existing_count + chosen].sum(axis=0), dtype=np.int64)

    def assign_pods(self, node_index: int, vector: Amounts, pods: Sequence[str], variant: Variant) -> None:
        """Place pods there. Their requirements restrict a new node."""
        self.free[node_index] -= vector * len(pods)
        if node_index >= self.existing_count:
            number = node_index - self.existing_count
            new_node = self.new_nodes[number]
            new_node.pods += pods
            new_node.slot = self._slot_by_node[number] = self._next_slots(variant)[new_node.slot]
            self._used_slots[new_node.slot] = None

    def add_node(self, offer: Offer, option: Option, rows: Indices, headroom: Amounts) -> int:
        """Add a new node with this headroom that must fit all `rows`. Returns its node index."""
        number = self.count - self.existing_count
        if self.count == len(self.free):
            self.free = np.concatenate((self.free, np.zeros_like(self.free)))
        if number == len(self._slot_by_node):
            self._slot_by_node = np.concatenate((self._slot_by_node, np.zeros_like(self._slot_by_node)))
            self._target_rows = np.concatenate((self._target_rows, np.zeros_like(self._target_rows)))
        self.free[self.count] = headroom
        slot = self._slot_id(offer, option)
        self._slot_by_node[number], self._target_rows[number] = slot, rows[0]
        self._used_slots[slot] = None
        self.new_nodes.append(NewNode(slot, rows, headroom))
        for port in offer.template.daemon_ports_of(rows):
            self._use_port(port, self.count)
        self.count += 1
        return self.count - 1

    def slot_after_join(self, node_index: int, variant: Variant) -> NodeSlot | None:
        """The slot of a new node after such pods join it, with any type; None if they cannot."""
        slot = self._next_slots(variant)[self.new_nodes[node_index - self.existing_count].slot]
        return self.slots[slot] if slot >= 0 else None

    def restrict_types(self, node_index: int, allowed: Mask) -> None:
        """Leave only these types of a new node, if any of its target types is among them."""
        new_node = self.new_node_at(node_index)
        if allowed[new_node.rows].any():
            new_node.rows = new_node.rows[allowed[new_node.rows]]
            new_node.allowed_types = allowed if new_node.allowed_types is None else new_node.allowed_types & allowed
            self._target_rows[node_index - self.existing_count] = new_node.rows[0]

    def enlarge_node(self, node_index: int, rows: Indices, headroom: Amounts) -> None:
        """Give a new node a larger type."""
        new_node, number = self.new_nodes[node_index - self.existing_count], node_index - self.existing_count
        self.free[node_index] += headroom - new_node.headroom
        new_node.rows, new_node.headroom = rows, headroom
        self._target_rows[number] = rows[0]
        slot = self.slots[new_node.slot]
        for port in slot.offer.template.daemon_ports_of(rows):
            self._use_port(port, node_index)

    def used_amounts(self, number: int) -> Amounts:
        """Total requests of the pods on a new node."""
        return np.asarray(self.new_nodes[number].headroom - self.free[self.existing_count + number], dtype=np.int64)

    def new_node_at(self, node_index: int) -> NewNode:
        return self.new_nodes[node_index - self.existing_count]

    def slot_at(self, node_index: int) -> NodeSlot | None:
        """The slot of a new node; None for an existing node."""
        return (
            self.slots[self.new_nodes[node_index - self.existing_count].slot]
            if node_index >= self.existing_count
            else None
        )

    def domain_at(self, node_index: int, key: str) -> str | None:
        """The value of a label; None where it is absent or uncertain."""
        slot = self.slot_at(node_index)
        if slot is None:
            return self.existing_nodes.domains_by_node(key)[node_index]
        requirement = slot.option.requirements.get(key)
        return (
            next(iter(requirement.values))
            if requirement is not None and not requirement.complement and len(requirement.values) == 1
            else None
        )

    def with_free_ports(self, ports: Iterable[HostPort], chosen: Mask) -> Mask:
        """The chosen nodes where none of these ports is in use."""
        free = chosen.copy()
        for port in ports:
            used = self._ports.get((port.port, port.protocol), {})
            for address in conflicting_addresses(port.address, used.keys()):
                free[[node_index for node_index in used[address] if node_index < len(free)]] = False
        return free

    def reserve_ports(self, node_index: int, ports: Iterable[HostPort]) -> None:
        for port in ports:
            self._use_port(port, node_index)
            if node_index >= self.existing_count:
                self.new_nodes[node_index - self.existing_count].ports.append(port)

    def _use_port(self, port: HostPort, node_index: int) -> None:
        self._ports.setdefault((port.port, port.protocol), {}).setdefault(port.address, set()).add(node_index)

    def _slot_id(self, offer: Offer, option: Option) -> int:
        key = (id(offer), id(option))
        known = self._slot_ids.get(key)
        if known is None:
            known = self._slot_ids[key] = len(self.slots)
            self.slots.append(NodeSlot(offer, option))
        return known

    def _next_slots(self, variant: Variant) -> Mapping[int, int]:
        """By slot of a new node, the slot after such pods join it; -1 where they cannot."""
        transitions = self._slot_transitions.setdefault(variant, {})
        for number in [*islice(self._used_slots, len(transitions), None)]:
            slot = self.slots[number]
            option = slot.offer.restrict(slot.option, variant)
            transitions[number] = -1 if isinstance(option, RejectionReason) else self._slot_id(slot.offer, option)
        return transitions


def free_amounts(existing_nodes: ExistingNodes, resources: Sequence[str]) -> Amounts:
    """The free amounts of each existing node, in the order of these columns. Read-only, since attempts share them."""
    key = tuple(resources)
    known = existing_nodes.free_amounts.get(key)
    if known is None:
        known = existing_nodes.free_amounts[key] = _compute_free_amounts(existing_nodes, resources)
        known.setflags(write=False)
    return known


def _compute_free_amounts(existing_nodes: ExistingNodes, resources: Sequence[str]) -> Amounts:
    rows = [[max(0, node.headroom.get(key, 0)) for key in resources] for node in existing_nodes.nodes]
    amounts = np.array(rows, dtype=np.int64).reshape(len(rows), len(resources))
    if EBS_ATTACHMENTS in resources:
        amounts[:, resources.index(EBS_ATTACHMENTS)] = MANY_ATTACHMENTS
    return amounts


def distribute_pods(fitting: Amounts, count: int, *, one_node: bool) -> Amounts:
    """How many of `count` pods each node gets, in order. With `one_node`, only the first that fits most gets any."""
    if one_node:
        taken = np.zeros_like(fitting)
        if len(fitting) and fitting.max() > 0:
            best = int(np.minimum(fitting, count).argmax())
            taken[best] = min(int(fitting[best]), count)
        return taken
    before = np.concatenate(([0], np.cumsum(np.minimum(fitting, count))[:-1]))
    return np.asarray(np.minimum(np.maximum(count - before, 0), fitting), dtype=np.int64)
