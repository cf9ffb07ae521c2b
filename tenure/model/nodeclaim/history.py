"""History of a node: its phases in order, the reason for each transition, and the ending.

The command line reads this module without loading the workflow state (`tenure/model/nodeclaim/state.py`).
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

from tenure.model.base import Message
from tenure.model.blockers import Verdict


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
    """One entry of a node's history, for `tenure why` and the demo's timeline."""

    phase: Phase
    at: datetime
    cause: str = ""


class NodeClaimExplanation(Message):
    bought_for: str = ""
    events: tuple[str, ...] = ()
    verdict: Verdict | None = None
    paused: str = ""
    drain: tuple[str, ...] = ()
    drift: str = ""
    not_ready: str = ""
    expires: datetime | None = None
    evicted_pods: tuple[str, ...] = ()
    """Evicted pods as `namespace/name`."""
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
