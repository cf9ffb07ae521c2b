"""Room that a CapacityBuffer asks for, and the virtual pods that stand for it in plans.

`controller/buffers.py` resolves buffers to these; no API server ever sees the pods.
"""

from typing import Final

from model.base import Value
from model.facts import PodFact

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


def virtual_pods(buffer: BufferFact) -> tuple[PodFact, ...]:
    """Named and numbered as Karpenter does (reference 2.20)."""
    common = {"namespace": buffer.namespace, "priority": LOWEST_PRIORITY, "unschedulable": True, "volumes": ()}
    return tuple(
        buffer.pod.model_copy(
            update={**common, "uid": f"{buffer.uid}-{number}", "name": f"{VIRTUAL_PREFIX}{buffer.name}-{number}"}
        )
        for number in range(buffer.replicas)
    )
