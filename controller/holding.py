"""What people hold up by the annotation tenure.sh/pause: the cluster, NodePools and nodes, as the caches have it."""

from collections.abc import Iterator
from datetime import datetime

from controller.brake import ClusterBrake
from controller.caches import Caches
from model.disrupting import Hold
from model.labels import PAUSE
from policy.pauses import hold_of


class Holding:
    def __init__(self, caches: Caches, brake: ClusterBrake) -> None:
        self._caches, self._brake = caches, brake

    def __call__(self, now: datetime) -> tuple[Hold, ...]:
        """Those that hold at this moment. One that nobody can read holds too (docs/pause.md)."""
        return tuple(one for one in self._all(now) if one is not None)

    def _all(self, now: datetime) -> Iterator[Hold | None]:
        yield hold_of("cluster", "", self._brake.text, now)
        for name, pool in self._caches.pools.items():
            yield hold_of("pool", name, pool.pause, now)
        for claim in self._caches.claims.values():
            nodes = self._caches.nodes_of(claim)
            for marks in (claim.annotations, *(node.annotations for node in nodes)):
                yield hold_of("node", claim.name, marks.get(PAUSE, ""), now)
