"""What is known of a node's health, by those of its Node's conditions that repair counts, and what was done for it.

The watch tells `Unhealthy`; `Health` is the NodeClaim workflow's own memory, and `policy/repair.py` decides with it.
"""

from datetime import datetime, timedelta
from typing import Literal

from model.base import Message

RepairStep = Literal["reboot", "replace"]


class Unhealthy(Message):
    """A condition of the Node as it is at present."""

    type: str
    status: str
    since: datetime
    """When it took this status, as the Node says."""


class Stretch(Message):
    """A time during which a condition had a status that counts."""

    type: str
    status: str
    since: datetime
    until: datetime | None = None
    """None: it has it still."""


class Health(Message):
    stretches: tuple[Stretch, ...] = ()
    """Oldest first. What is over is kept only where rules count it, and only for as long."""
    taken: int = 0
    """Steps of the ladder that were taken and have not helped, or not for long."""
    condition: str = ""
    """What the last one was taken for, such as `KernelReady=False`."""
    step_at: datetime | None = None
    """When the last one was taken; None while none is under way."""
    step_failed: bool = False
    """It could not be taken at all."""
    boot_id: str = ""
    """The machine's, before it was rebooted."""
    recovered_at: datetime | None = None
    """When a step was last seen to have helped."""
    held_until: datetime | None = None
    """The next step was refused for now: it is tried again then."""
    held_by: str = ""


class RepairAsked(Message):
    """A request to take one step. `conditions` are type and status of all that counts as unhealthy."""

    name: str
    uid: str
    pool: str = ""
    """Empty: a standalone NodeClaim, for which the whole cluster is counted."""
    node_name: str
    provider_id: str
    step: RepairStep
    rung: int = 0
    """The how manieth step of the ladder it is, from 0."""
    condition: str
    conditions: tuple[tuple[str, str], ...]
    max_unhealthy: str
    after_reboot: bool = False
    """A reboot did not help: a Node that is not Ready is not well, whatever counts otherwise."""
    graceful_for: timedelta | None = None
    """How long pods are evicted while the node answers; None: they are deleted at once."""


class Repaired(Message):
    """`held`: the breaker is open. `not now`: the Node is well. `gone`: there is no such NodeClaim or instance."""

    outcome: Literal["done", "held", "not now", "gone"]
    why: str = ""
