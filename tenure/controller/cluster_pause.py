"""The pause of the whole cluster, as the annotation of the worker's own namespace says it.

NodePools are told of it with what else they are told, so that it counts for each of them, whatever becomes of the
Cluster workflow; and that is told too, which ends it when its time is over.
"""

from collections.abc import Callable, Iterable
from typing import Final

from tenure.apis.labels import PAUSE
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.dirty import Dirty
from tenure.controller.signals.signaller import Signal, Signaller
from tenure.kube.client.list_watch import Delta
from tenure.model.operator_requests import PauseSeen
from workflows import ids

_TOPIC: Final = "pause"
_NONE: Final = "-"


class ClusterBrake:
    def __init__(self, namespace: str, caches: Caches, woken: Callable[[], None] = lambda: None) -> None:
        self._namespace, self._caches, self._woken = namespace, caches, woken
        self.text = ""
        """The annotation; empty where there is none."""
        self._changed = False

    def hear(self, deltas: Iterable[Delta]) -> None:
        """What the list-watch of Namespaces delivers."""
        for delta in deltas:
            metadata = delta.object["metadata"]
            if metadata["name"] == self._namespace:
                text = "" if delta.gone else (metadata.get("annotations") or {}).get(PAUSE, "")
                self._changed = self._changed or text != self.text
                self.text = text
        if self._changed:
            self._woken()

    def look(self, dirty: Dirty) -> None:
        """Every NodePool is due when it changed."""
        if self._changed:
            self._changed = False
            dirty.pools |= self._caches.pools.keys()

    def tell(self, cluster: str, signaller: Signaller, number: int) -> None:
        """Tell the Cluster workflow, if it runs; what it has been told is not told again."""
        workflow_id = ids.cluster(cluster)
        digest = self.text or _NONE
        told = signaller.told(f"{workflow_id}#{_TOPIC}")
        if self.text or told:
            seen = PauseSeen(number=number, text=self.text)
            signaller.offer(Signal(workflow_id, "pause_seen", seen, digest, topic=_TOPIC))
