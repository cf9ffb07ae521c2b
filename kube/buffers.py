"""CapacityBuffers: the workloads that they refer to, and what was found out about them written down."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from kube.client import KubeClient
from kube.errors import Json
from kube.objects import Objects, merge_patch
from kube.resources import CAPACITY_BUFFERS, WORKLOADS
from model.outcomes import ConditionPatch


class KubeBuffers:
    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._by_namespace: dict[str, Objects] = {}

    async def workload(self, namespace: str, kind: str, name: str) -> Json | None:
        """A Deployment, StatefulSet or ReplicaSet as it is now; None when it is not there."""
        return await self._client.get(WORKLOADS[kind].path(name, namespace=namespace))

    async def say(
        self,
        namespace: str,
        name: str,
        uid: str,
        *,
        status: Mapping[str, object],
        conditions: Sequence[ConditionPatch],
        now: datetime,
    ) -> bool:
        """Set these fields of the status (None removes one) and conditions; no write where nothing changes.

        False when the buffer is gone."""
        objects = self._by_namespace.setdefault(namespace, Objects(self._client, CAPACITY_BUFFERS, namespace))

        def decide(item: Json) -> Json | None:
            held = item.get("status") or {}
            generation = item["metadata"].get("generation", 0)
            said = _conditions(held.get("conditions") or (), conditions, generation, now)
            changes = merge_patch(held, {**status, "conditions": said})
            return {"status": changes} if changes else None

        return await objects.change(name, decide, uid=uid, sub="status") is not None


def _conditions(held: Sequence[Json], wanted: Sequence[ConditionPatch], generation: int, now: datetime) -> list[Json]:
    """In the order in which they stand; none of them feeds another. The time moves with the status alone."""
    found = {one["type"]: one for one in held}
    for one in wanted:
        before = found.get(one.type, {})
        moved = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        found[one.type] = {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message,
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == one.status else moved,
        }
    return list(found.values())
