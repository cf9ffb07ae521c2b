"""The objects that determine whether a new node can help a pod: the NodePools that accept it, and their NodeClasses,
DaemonSets and NodeOverlays.

A change of any other object is not relevant for the pod: teams change their own NodePools and DaemonSets at any time.
"""

from functools import cached_property

from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.planning.pod_groups import hash_constraints, hash_texts
from tenure.model.facts import NodePoolFact, PodFact
from tenure.model.nodeoverlays import OverlayFact, OverlayReach
from tenure.model.requirements import RequirementError
from tenure.scheduling.nodepool_requirements import may_run_on, nodepool_labels


class RelevantObjects:
    """The objects in the cache at the first use."""

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache

    def hash_for(self, pod: PodFact) -> str:
        """A hash of the specs of the objects that are relevant for this pod. Equal in any process."""
        pools = sorted(text for pool, text in self._pools if may_run_on(pod, pool))
        claims = self._cache.storage.claims
        return hash_texts(*pools, *(repr(claims.get(f"{pod.namespace}/{name}")) for name in pod.volumes))

    @cached_property
    def _pools(self) -> list[tuple[NodePoolFact, str]]:
        pools = [view.fact for view in self._cache.nodepools.values()]
        return [(pool, "\n".join(self._describe(pool))) for pool in pools]

    def _describe(self, pool: NodePoolFact) -> list[str]:
        node_class = self._cache.nodeclasses.get(pool.node_class)
        daemons = [one for one in self._cache.daemonsets.values() if may_run_on(one.pod, pool)]
        overlays = [one for one in self._cache.overlays.values() if _may_apply(one, pool)]
        return [
            repr(pool.model_copy(update={"ready": True})),
            f"{pool.node_class} {node_class.metadata.generation if node_class else ''}",
            *sorted(f"{one.uid} {hash_constraints(one.pod)}" for one in daemons),
            *sorted(map(repr, overlays)),
        ]


def _may_apply(overlay: OverlayFact, pool: NodePoolFact) -> bool:
    """Whether the labels of the pool allow the overlay. True if its requirements cannot be read."""
    try:
        return OverlayReach(overlay, nodepool_labels(pool)).possible
    except RequirementError:
        return True
