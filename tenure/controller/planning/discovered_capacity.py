"""Memory that live Nodes report for their instance type and image, signaled to Provisioning, which stores it.

The key is the image ID of the NodeClaim, so that no comparison of images can fail unnoticed."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from tenure.apis.ec2nodeclass import ResolvedAmi
from tenure.apis.labels import INSTANCE_TYPE, NODECLASS_HASH, REGISTERED
from tenure.apis.resources import MEMORY
from tenure.aws.amifamily.images import ImageMap
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.signals.digests import short_hash
from tenure.controller.signals.signaller import Signal, SignalQueue, Start
from tenure.model.discovered_capacity import MAX_ENTRIES, DiscoveredCapacity, ObservedCapacity, image_spec_key
from tenure.model.facts import NodeClaimFact, NodeFact
from tenure.scheduling.snapshot import Change
from workflows import ids

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class CapacityObservation:
    image_id: str
    instance_type: str
    memory: int
    """Bytes."""


class CapacityDiscovery:
    """Memory discovered on the cache's Nodes. A value outlives its Node."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._images: dict[str, tuple[tuple[ResolvedAmi, ...], ImageMap]] = {}
        self._mismatched: set[str] = set()
        self._stored = DiscoveredCapacity()
        self._digest: tuple[DiscoveredCapacity, dict[str, tuple[str, ...]], str] | None = None
        self.discovered = DiscoveredCapacity()
        """Values discovered by this host, and values that the workflow stores."""

    def discover(self, claims: Collection[str]) -> DiscoveredCapacity:
        """Discover memory from the Nodes of these NodeClaims. Returns values that are new or smaller than the known
        ones."""
        self._check_new_nodes(claims)
        images: dict[str, dict[str, int]] = {}
        for one in self._observations(claims):
            types = images.setdefault(one.image_id, {})
            types[one.instance_type] = min(one.memory, types.get(one.instance_type, one.memory))
        return self._merge(images)

    def discover_from_changes(self, changes: Iterable[Change]) -> DiscoveredCapacity:
        claims = {one.key for one in changes if one.kind == "claim"}
        claims |= {self._cache.nodeclaim_name_of(one.key) for one in changes if one.kind == "node"}
        return self.discover(sorted(claims - {""}))

    def _check_new_nodes(self, claims: Collection[str]) -> None:
        for claim in filter(None, map(self._cache.nodeclaims.get, claims)):
            nodes = self._cache.nodes_of(claim) if claim.initialized_at is None else ()
            if len(nodes) == 1:
                self.record_shortfall(claim, nodes[0])

    def record_shortfall(self, claim: NodeClaimFact, node: NodeFact) -> None:
        """A new Node has less allocatable memory than its NodeClaim promised. Others of its kind will have the same."""
        observation = observe_capacity(claim, node)
        spec_hash = claim.annotations.get(NODECLASS_HASH, "")
        overhead = claim.capacity.get(MEMORY, 0) - claim.allocatable.get(MEMORY, 0)
        if observation is None or not spec_hash or overhead <= 0 or not self._runs_expected_image(claim, node):
            return
        memory = node.allocatable.get(MEMORY, 0) + overhead
        if node.allocatable.get(MEMORY) and memory < observation.memory:
            self._merge({image_spec_key(observation.image_id, spec_hash): {observation.instance_type: memory}})

    def spec_hashes(self) -> Mapping[str, str]:
        known = self._cache.nodeclasses.values()
        return {one.name: one.metadata.annotations.get(NODECLASS_HASH, "") for one in known}

    def _merge(self, images: dict[str, dict[str, int]]) -> DiscoveredCapacity:
        added = DiscoveredCapacity(images=images).find_updates(self.discovered)
        if added.images:
            self.discovered = self.discovered.merge(added)
            log.info("memory discovered", images=added.images)
        return added

    def apply_stored(self, stored: DiscoveredCapacity) -> None:
        """Apply the values that the workflow stores. Values that it dropped are dropped here too, unless a NodeClass or
        a NodeClaim uses their image."""
        self._stored = stored
        if self._mismatched:
            self._mismatched &= {one.uid for one in self._cache.nodeclaims.values()}
        self._images = {name: one for name, one in self._images.items() if name in self._cache.nodeclasses}
        if not self.discovered.images.keys() <= stored.images.keys():
            live = {*self._in_use(), *(one.image_id for one in self._cache.nodeclaims.values())}
            self.discovered = self.discovered.restrict_to_images(live | stored.images.keys())
        self.discovered = self.discovered.merge(stored)

    def unreported(self) -> ObservedCapacity:
        """Values that the workflow may lack, and the images in use."""
        return ObservedCapacity(
            discovered=self.discovered.find_updates(self._stored),
            images=self._in_use(),
            images_by_class=self._images_by_class(),
        )

    def for_node_class(self, name: str) -> DiscoveredCapacity:
        return self.discovered.restrict_to_images(set(self._images_by_class().get(name, ())))

    @property
    def is_full(self) -> bool:
        """Whether the workflow stores the maximum number of values."""
        return self._stored.entry_count >= MAX_ENTRIES

    def digest(self) -> str:
        """Of all values that the workflow should have, and the images in use."""
        cached, images = self._digest, self._images_by_class()
        if cached is None or cached[0] is not self.discovered or cached[1] != images:
            entries = sorted((image, sorted(types.items())) for image, types in self.discovered.images.items())
            cached = self._digest = (self.discovered, images, short_hash(f"{entries} {sorted(images.items())}"))
        return cached[2]

    def _in_use(self) -> tuple[str, ...]:
        return tuple(sorted({image for images in self._images_by_class().values() for image in images}))

    def _images_by_class(self) -> dict[str, tuple[str, ...]]:
        classes = self._cache.nodeclasses.values()
        return {one.name: tuple(sorted(ami.id for ami in one.status.amis)) for one in classes}

    def _observations(self, claims: Iterable[str]) -> Iterator[CapacityObservation]:
        for claim in filter(None, map(self._cache.nodeclaims.get, claims)):
            nodes = self._cache.nodes_of(claim)
            observation = observe_capacity(claim, nodes[0]) if len(nodes) == 1 else None
            if observation is not None and self._is_new(observation) and self._runs_expected_image(claim, nodes[0]):
                yield observation

    def _is_new(self, observation: CapacityObservation) -> bool:
        known = self.discovered.get_memory(observation.image_id, observation.instance_type)
        return known is None or observation.memory < known

    def _runs_expected_image(self, claim: NodeClaimFact, node: NodeFact) -> bool:
        """False for a Node whose labels select another of its class's images than the one that it runs."""
        known = self._cache.nodeclasses.get(claim.node_class)
        amis = known.status.amis if known else ()
        if all(ami.id != claim.image_id for ami in amis):
            return True
        label_values = {key: (value,) for key, value in _node_labels(claim, node).items()}
        expected_image = self._image_map(claim.node_class, amis).image_for(label_values)
        if expected_image != claim.image_id and claim.uid not in self._mismatched:
            self._mismatched.add(claim.uid)
            log.warning("memory not discovered: labels are for another image", node=node.name, wanted=expected_image)
        return expected_image == claim.image_id

    def _image_map(self, node_class: str, amis: tuple[ResolvedAmi, ...]) -> ImageMap:
        cached = self._images.get(node_class)
        if cached is None or cached[0] != amis:
            cached = self._images[node_class] = (amis, ImageMap(amis))
        return cached[1]


def observe_capacity(claim: NodeClaimFact, node: NodeFact) -> CapacityObservation | None:
    """The capacity that a Node reports, even before registration: plans use its real capacity from then on."""
    instance_type, memory = _node_labels(claim, node).get(INSTANCE_TYPE, ""), node.capacity.get(MEMORY, 0)
    same = instance_type and instance_type == claim.labels.get(INSTANCE_TYPE)
    if not (same and claim.image_id and memory > 0):
        return None
    return CapacityObservation(claim.image_id, instance_type, memory)


def _node_labels(claim: NodeClaimFact, node: NodeFact) -> Mapping[str, str]:
    """Before registration, the NodeClaim has the labels that the Node will have."""
    registered = node.labels.get(REGISTERED) == "true"
    return node.labels if registered else {**node.labels, **claim.labels}


MIN_SIGNAL_INTERVAL: Final = timedelta(seconds=2)
"""Between two signals, so that one signal reports nodes that start together."""
TOPIC: Final = "capacity_discovered"


class DiscoveredCapacityNotifier:
    def __init__(self, cluster: str, discovery: CapacityDiscovery, signal_queue: SignalQueue) -> None:
        self._workflow_id = ids.provisioning(cluster)
        self._discovery, self._signal_queue = discovery, signal_queue
        self._notified_at: datetime | None = None
        self.next_attempt_at: datetime | None = None
        """When to call `notify` again without a change; None while nothing waits."""

    def notify(self, start: Start, now: datetime) -> None:
        """Send discovered memory that the workflow may lack. No signal is sent before the first discovery."""
        self.next_attempt_at = None
        digest = self._discovery.digest()
        if not self._discovery.discovered.images or digest == self._signal_queue.last_digest(self._signal_key):
            return
        if self._notified_at is not None and now < self._notified_at + MIN_SIGNAL_INTERVAL:
            self.next_attempt_at = self._notified_at + MIN_SIGNAL_INTERVAL
            return
        signal = Signal(self._workflow_id, TOPIC, self._discovery.unreported(), digest, start, topic=TOPIC)
        if self._signal_queue.enqueue(signal):
            self._notified_at = now

    def discard_if_lost(self) -> bool:
        """Call it after a plan, whose request has the workflow's values. True if the workflow lost values, which are
        then signaled again.

        To a full workflow, lost values are not signaled again."""
        lacks = bool(self._discovery.unreported().discovered.images) and not self._discovery.is_full
        if lacks:
            self._signal_queue.discard(self._signal_key)
        return lacks

    @property
    def _signal_key(self) -> str:
        return f"{self._workflow_id}#{TOPIC}"
