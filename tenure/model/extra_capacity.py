"""What is said of static pools: what keeping their number is asked and answers, and what a node carries.

Room that a CapacityBuffer asks for, and the virtual pods that stand for it in plans.

`tenure/controller/capacity_buffers.py` resolves buffers to these; no API server ever sees the pods.
"""

from datetime import datetime
from typing import Final

from tenure.model.base import Message, Value
from tenure.model.facts import PodFact


class MovedPod(Value):
    """A pod that would need a place elsewhere, by what its eviction costs."""

    priority: int = 0
    deletion_cost: int = 0
    """Of the annotation controller.kubernetes.io/pod-deletion-cost."""


class NodeLoad(Value):
    """The pods on a node, as far as they say whether it goes before another."""

    moved: tuple[MovedPod, ...] = ()
    protected: bool = False
    """A pod on it has a do-not-disrupt annotation that holds now."""


class ReplicasRequest(Message):
    """The number of NodeClaims of a static pool is to be what its spec says."""

    pool: str
    plan_id: str
    """The names of what is created are made of it: asked twice under one id, nothing is made twice."""
    deletion_blocked_by: str = ""
    """Why none may be deleted now; empty when it may."""


class ReplicasResult(Message):
    """What one step did."""

    desired: int = 0
    existing: int = 0
    """NodeClaims that are not being deleted, after the step."""
    created: int = 0
    deleted: int = 0
    waits_for: str = ""
    """Why the number is not what is desired, where nothing can be done about it now."""
    more: bool = False
    """Something is left to do at once."""


class ReplicasState(Message):
    """What the NodePool workflow remembers of keeping the number."""

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
    """A CapacityBuffer whose wishes are known."""

    uid: str
    namespace: str
    name: str
    replicas: int
    """So many pods there is to be room for."""
    pod: PodFact
    """What each of them is like."""


def build_virtual_pods(buffer: BufferFact) -> tuple[PodFact, ...]:
    """Named and numbered as Karpenter does (reference 2.20)."""
    common = {"namespace": buffer.namespace, "priority": LOWEST_PRIORITY, "unschedulable": True, "volumes": ()}
    return tuple(
        buffer.pod.model_copy(
            update={**common, "uid": f"{buffer.uid}-{number}", "name": f"{VIRTUAL_PREFIX}{buffer.name}-{number}"}
        )
        for number in range(buffer.replicas)
    )
