"""Messages of static NodePools, and the virtual pods of a CapacityBuffer, which exist only in memory."""

from datetime import datetime
from typing import Final

from tenure.model.base import Message, Value
from tenure.model.facts import PodFact


class MovedPod(Value):
    priority: int = 0
    deletion_cost: int = 0
    """The annotation controller.kubernetes.io/pod-deletion-cost."""


class NodeLoad(Value):
    """The pods on a node, as far as they affect which node of a static NodePool is deleted first."""

    moved: tuple[MovedPod, ...] = ()
    protected: bool = False
    """A pod on the node has a do-not-disrupt annotation that applies now."""


class ReplicasRequest(Message):
    pool: str
    plan_id: str
    deletion_blocked_by: str = ""
    """Why no NodeClaim may be deleted now; empty if deletions are allowed."""


class ReplicasResult(Message):
    desired: int = 0
    existing: int = 0
    created: int = 0
    deleted: int = 0
    waits_for: str = ""
    """Why the number of NodeClaims differs from `desired`, if it cannot be changed now."""
    more: bool = False


class ReplicasState(Message):
    plan_id: str = ""
    """Of a pass without a successful result so far; it is repeated under the same ID."""
    made_at: datetime | None = None
    made_for: str = ""
    """Generation and readiness of the NodePool for which NodeClaims were last created."""
    in_a_row: int = 0
    """Number of creations for the same `made_for`, each soon after the last one, since the NodeClaims did not last."""
    waits_for: str = ""


LOWEST_PRIORITY: Final = -(1 << 31)
"""Virtual pods give way to all other pods."""
VIRTUAL_PREFIX: Final = "capacity-buffer-"
"""Prefix of the names of virtual pods, before the buffer's name and a number."""


class BufferFact(Value):
    uid: str
    namespace: str
    name: str
    replicas: int
    pod: PodFact


def build_virtual_pods(buffer: BufferFact) -> tuple[PodFact, ...]:
    """Names and numbers are the same as Karpenter's (reference 2.20)."""
    common = {"namespace": buffer.namespace, "priority": LOWEST_PRIORITY, "unschedulable": True, "volumes": ()}
    return tuple(
        buffer.pod.model_copy(
            update={**common, "uid": f"{buffer.uid}-{number}", "name": f"{VIRTUAL_PREFIX}{buffer.name}-{number}"}
        )
        for number in range(buffer.replicas)
    )
