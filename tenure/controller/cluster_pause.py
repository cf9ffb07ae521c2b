"""The pause of the whole cluster: an annotation of the worker's namespace.

Every NodePool's signal contains it, so that it applies even if the Cluster workflow does not run. The Cluster workflow
ends the pause when it expires."""

from collections.abc import Iterable
from typing import Final

from tenure.apis.labels import PAUSE
from tenure.controller.cache.changes import CacheChanged, ChangeSet
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.signals.signaller import Signal, SignalQueue
from tenure.kube.client.list_watch import Delta
from tenure.model.operator_requests import ObservedPause
from workflows import ids

_TOPIC: Final = "pause"
_NONE: Final = "-"


class ClusterPause:
    def __init__(self, namespace: str, cache: ClusterCache) -> None:
        self._namespace, self._cache = namespace, cache
        self.text = ""
        """The annotation; empty without one."""
        self._changed = False

    def on_deltas(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            metadata = delta.object["metadata"]
            if metadata["name"] == self._namespace:
                text = "" if delta.is_deleted else (metadata.get("annotations") or {}).get(PAUSE, "")
                self._changed = self._changed or text != self.text
                self.text = text
        if self._changed:
            self._cache.publish(CacheChanged())

    def requeue_nodepools(self, changes: ChangeSet) -> None:
        if self._changed:
            self._changed = False
            changes.nodepools |= self._cache.nodepools.keys()

    def notify(self, cluster: str, signal_queue: SignalQueue, number: int) -> None:
        """Signal the pause to the Cluster workflow if it runs. An unchanged pause is not signaled again."""
        workflow_id = ids.cluster(cluster)
        digest = self.text or _NONE
        notified = signal_queue.last_digest(f"{workflow_id}#{_TOPIC}")
        if self.text or notified:
            observed_pause = ObservedPause(number=number, text=self.text)
            signal_queue.enqueue(Signal(workflow_id, "observe_pause", observed_pause, digest, topic=_TOPIC))
