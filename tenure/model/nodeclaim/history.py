"""The story of a node: the phases of its life in their order, how it came from one to the next, and how it ended.

Light on purpose: the command line reads it, and need not load the whole of a workflow's state
(`tenure/model/nodeclaim/state.py`).
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

from tenure.model.base import Message


class Phase(StrEnum):
    LAUNCH = "Launch"
    REGISTRATION = "Registration"
    INITIALIZATION = "Initialization"
    READY = "Ready"
    DRAIN = "Drain"
    TERMINATION = "Termination"
    DELETED = "Gone"


TERMINATING_PHASES: Final = (Phase.DRAIN, Phase.TERMINATION, Phase.DELETED)


class Step(Message):
    """One line of a node's story, kept for `tenure why` and the demo's timeline."""

    phase: Phase
    at: datetime
    cause: str = ""


class NodeClaimExplanation(Message):
    bought_for: str = ""
    events: tuple[str, ...] = ()
    blocked_by: str = ""
    paused: str = ""
    drain: tuple[str, ...] = ()
    drift: str = ""
    not_ready: str = ""
    expires: datetime | None = None
    evicted_pods: tuple[str, ...] = ()
    """Pods that had to go, as `namespace/name`."""
    steps: tuple[Step, ...] = ()


class NodeClaimOutcome(Message):
    name: str
    uid: str
    reason: str
    provider_id: str = ""
    instance_type: str = ""
    history: tuple[Step, ...] = ()
    why: str = ""
    events: tuple[str, ...] = ()
    drift: str = ""
    evicted_pods: tuple[str, ...] = ()
