"""Messages of static pools, and the room that a CapacityBuffer asks for as virtual pods that no API server sees."""

from datetime import datetime
from typing import Final

from tenure.model.base import Message, Value
from tenure.model.facts import PodFact


class MovedPod(Value):
    priority: int = 0
    deletion_cost: int = 0
    """Of the annotation controller.kubernetes.io/pod-deletion-cost."""


class NodeLoad(Value):
    """The pods on a node, as far as they say whether it goes before another."""

    moved: tuple[MovedPod, ...] = ()
    protected: bool = False
    """A pod on it has a do-not-disrupt annotation that holds now."""


class ReplicasRequest(Message):
    pool: str
    plan_id: str
    deletion_blocked_by: str = ""
    """Why none may be deleted now; empty when it may."""


class ReplicasResult(Message):
    desired: int = 0
    existing: int = 0
    created: int = 0
    deleted: int = 0
    waits_for: str = ""
    """Why the number differs from the desired one, if nothing can be done about it now."""
    more: bool = False


class ReplicasState(Message):
    plan_id: str = ""
    """Of the step that was not answered yet, or not well: it is asked again under the same id."""
    made_at: datetime | None = None
    made_for: str = ""
    """Generation and readiness for which NodeClaims were last created."""
    in_a_row: int = 0
    """Creations for the same, each soon after the one before: the NodeClaims did not last."""
    waits_for: str = ""


LOWEST_PRIORITY: Final = -(1 << 31)
"""Room is for whatever else there is none for."""
VIRTUAL_PREFIX: Final = "capacity-buffer-"
"""Of the names of virtual pods; the buffer's name and a number follow."""


class BufferFact(Value):
    uid: str
    namespace: str
    name: str
    replicas: int
    pod: PodFact


def build_virtual_pods(buffer: BufferFact) -> tuple[PodFact, ...]:
    """Named and numbered as Karpenter does (reference 2.20)."""
    common = {"namespace": buffer.namespace, "priority": LOWEST_PRIORITY, "unschedulable": True, "volumes": ()}
    return tuple(
        buffer.pod.model_copy(
            update={**common, "uid": f"{buffer.uid}-{number}", "name": f"{VIRTUAL_PREFIX}{buffer.name}-{number}"}
        )
        for number in range(buffer.replicas)
    )
