"""What a pass of voluntary disruption thinks of a node, and what keeps it.

Light on purpose: the command line reads it, and need not load what the planner is asked (`model/disruption.py`).
"""

from datetime import datetime
from typing import Final, Literal

from model.base import Value

Method = Literal["Empty", "Drifted", "Underutilized"]
"""Karpenter's reasons, by which budgets tell disruptions apart."""
METHODS: Final[tuple[Method, ...]] = ("Empty", "Drifted", "Underutilized")
Cause = Literal[
    "NoNode",
    "NotInitialized",
    "Deleting",
    "InProgress",
    "Nominated",
    "NoPool",
    "StaticPool",
    "PoolClosed",
    "NodeDoNotDisrupt",
    "PodDoNotDisrupt",
    "PodDisruptionBudget",
    "Never",
    "Resting",
    "PolicyUnknown",
    "Policy",
    "CapacityBuffer",
    "TooYoung",
    "NoInstanceType",
    "NoCapacityType",
    "NoZone",
    "NoPrice",
    "Paused",
    "Bounced",
]


class Exclusion(Value):
    """Something that keeps a node from being disrupted."""

    cause: Cause
    words: str
    methods: tuple[Method, ...] = METHODS
    """From which methods it keeps the node."""
    until: datetime | None = None
    """When it ends by itself; None: only when something changes."""


class NodeVerdict(Value):
    """What voluntary disruption thinks of one NodeClaim."""

    claim: str
    node: str = ""
    pool: str = ""
    capacity_type: str = ""
    zone: str = ""
    price: float = 0.0
    """US dollars an hour; 0: not known."""
    cost: float = 1.0
    """Of moving its pods (reference 4.3): 1 for an empty node."""
    pods: int = 0
    """Those that would have to go elsewhere."""
    eligible: tuple[Method, ...] = ()
    excluded: tuple[Exclusion, ...] = ()
    """All causes, of the methods that would concern it."""
    rejected: tuple[str, ...] = ()
    """What simulations of its removal found, in words; empty where there was none, or where it goes."""
