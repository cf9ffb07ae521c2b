"""A LifecyclePolicy as the watch keeps it: whom it selects, what it says, and why it cannot be read.

`kube/lifecycle_policies.py` reads it from the API server's object; `policy/selection.py` decides what holds for whom.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from model.base import Value
from model.kinds import LifecycleRules


class Unread(Value):
    """What LifecyclePolicies say and nobody can read: it holds what it would have narrowed."""

    disruption: str = ""
    """Which policy and field, what stands there, what to write; empty when all can be read."""
    rollout: str = ""
    """Likewise of roll-outs."""
    hooks: str = ""
    """Likewise of hooks, which a node would go without."""
    interruption: str = ""
    """Likewise of AWS's events: it holds those that leave time."""

    def words(self, reason: str) -> str:
        """Why no node goes for this reason; empty when nothing keeps them."""
        return self.disruption or self.hooks or (self.rollout if reason == "Drifted" else "")


ALL_READ: Final = Unread()


class PolicyFact(Value):
    name: str
    uid: str = ""
    generation: int = 0
    created: datetime
    names: tuple[str, ...] = ()
    match_labels: dict[str, str] = {}
    rules: LifecycleRules = LifecycleRules()
    problem: str = ""
    """Why it cannot be read; the user is told on the object."""
    unread: Unread = Unread()
    """Fields of these sections that are not what the CRD asks for."""

    @property
    def precision(self) -> int:
        """Names before labels before all."""
        return 2 if self.names else 1 if self.match_labels else 0

    def selects(self, pool: str, labels: Mapping[str, str]) -> bool:
        """`labels` are the NodePool's own."""
        if self.names:
            return pool in self.names
        return all(labels.get(key) == value for key, value in self.match_labels.items())


class PolicyVerdict(Value):
    """What its status says."""

    refused: bool = False
    """It, or a part of it, is not heeded."""
    reason: str = ""
    message: str = ""
    node_pools: tuple[str, ...] = ()
    """For which it counts, in order."""
