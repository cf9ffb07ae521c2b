"""The objects that determine whether a new node can help a pod: the NodePools that accept it, and their NodeClasses,
DaemonSets and NodeOverlays.

A change of any other object is not relevant for the pod: teams change their own NodePools and DaemonSets at any time.
"""

from functools import cached_property

from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.planning.pod_groups import hash_constraints, hash_texts
from tenure.model.facts import NodePoolFact, PodFact
from tenure.model.nodeoverlays import OverlayFact, OverlayReach
from tenure.model.requirements import RequirementError, Requirements
from tenure.scheduling.nodepool_requirements import nodepool_labels, nodepool_requirements
from tenure.scheduling.pods import constraints_of, node_requirement_alternatives
from tenure.scheduling.taints import first_untolerated


class RelevantObjects:
    """The objects in the cache at the first use."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    def hash_for(self, pod: PodFact) -> str:
        """A hash of the specs of the objects that are relevant for this pod. Equal in any process."""
        pools = sorted(text for pool, text in self._pools if pool.may_run(pod))
        claims = self._cache.storage.claims
        return hash_texts(*pools, *(repr(claims.get(f"{pod.namespace}/{name}")) for name in pod.volumes))

    @cached_property
    def _pools(self) -> list[tuple["_NodesOfPool", str]]:
        pools = [_NodesOfPool(view.fact) for view in self._cache.nodepools.values()]
        return [(pool, "\n".join(self._describe(pool))) for pool in pools]

    def _describe(self, nodes: "_NodesOfPool") -> list[str]:
        pool = nodes.pool
        node_class = self._cache.nodeclasses.get(pool.node_class)
        daemons = [one for one in self._cache.daemonsets.values() if nodes.may_run(one.pod)]
        overlays = [one for one in self._cache.overlays.values() if _may_apply(one, pool)]
        return [
            repr(pool.model_copy(update={"ready": True})),
            f"{pool.node_class} {node_class.metadata.generation if node_class else ''}",
            *sorted(f"{one.uid} {hash_constraints(one.pod)}" for one in daemons),
            *sorted(map(repr, overlays)),
        ]


class _NodesOfPool:
    """Labels and taints of the nodes of a NodePool."""

    def __init__(self, pool: NodePoolFact) -> None:
        self.pool = pool
        try:
            self._requirements: Requirements | None = nodepool_requirements(pool)
        except RequirementError:
            self._requirements = None

    def may_run(self, pod: PodFact) -> bool:
        """Whether labels and taints allow the pod. True if requirements cannot be read."""
        if first_untolerated(pod.tolerations, self.pool.taints, tolerate_preferences=True) is not None:
            return False
        if self._requirements is None:
            return True
        try:
            alternatives = node_requirement_alternatives(constraints_of(pod))
        except RequirementError:
            return True
        return any(map(self._requirements.is_compatible, alternatives))


def _may_apply(overlay: OverlayFact, pool: NodePoolFact) -> bool:
    """Whether the labels of the pool allow the overlay. True if its requirements cannot be read."""
    try:
        return OverlayReach(overlay, nodepool_labels(pool)).possible
    except RequirementError:
        return True
