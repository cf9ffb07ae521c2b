"""Events on the pods of a NodeClaim for which EC2 has no capacity (reference 1.15, 7.5).

The NodeClaim has the same event. `KubeEvents` limits the rate.
"""

import asyncio
from typing import Final

from activities.ports.core import Events
from tenure.controller.cache.changes import CapacityLacking
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import Nominations
from tenure.kube.client.resources import PODS
from tenure.model.invalid_objects import pod_key

REASON: Final = "InsufficientCapacityError"
_STEP: Final = "capacity event"


class CapacityEvents:
    """Run `run` in a task. Pods are read when the change arrives, since the NodeClaim may be deleted soon."""

    def __init__(self, cache: ClusterCache, nominations: Nominations, events: Events) -> None:
        self._cache, self._nominations, self._events = cache, nominations, events
        self._due: dict[str, str] = {}
        """Messages by UID of the pod."""
        self._wake = asyncio.Event()
        cache.subscribe(CapacityLacking, self._on_capacity_lacking)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.publish()

    async def publish(self) -> None:
        """Pods that were bound, finished or deleted in the meantime get no event."""
        due, self._due = self._due, {}
        self._cache.invalid_objects.retain(_STEP, self._cache.pending)
        for uid, message in due.items():
            pod = self._cache.pending.get(uid)
            if pod is None or pod.deleting:
                continue
            with self._cache.invalid_objects.guard(pod_key(pod, _STEP)):
                await self._events.publish(
                    kind=PODS.kind, name=pod.name, namespace=pod.namespace, uid=uid, reason=REASON, message=message
                )

    def _on_capacity_lacking(self, event: CapacityLacking) -> None:
        message = f"NodeClaim {event.claim.name} event: {event.claim.capacity_error}"
        self._due |= dict.fromkeys(self._nominations.pods_expected_on(event.claim.name), message)
        self._wake.set()
