"""The doors that only drains need, as Protocols beside those of `ports.py`: `kube/` satisfies them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from activities.ports import Claims, Events, Instances, Nodes, Pods
from model.drains import BudgetFact, Rollout
from model.outcomes import DrainPod


class Budgets(Protocol):
    """PodDisruptionBudgets."""

    async def in_namespace(self, namespace: str) -> Sequence[BudgetFact]:
        """From a live list."""
        ...


class Rollouts(Protocol):
    """Deployments, as far as a drain restarts them."""

    async def of(self, pod: DrainPod) -> Rollout | None:
        """The Deployment behind a pod, live; None where there is none."""
        ...

    async def restart(self, found: Rollout, stamp: str) -> bool:
        """Write the stamp that makes the Deployment roll; the same stamp does nothing twice. False when it is gone."""
        ...


@dataclass(frozen=True)
class DrainPorts:
    """All that a drain touches."""

    claims: Claims
    nodes: Nodes
    pods: Pods
    instances: Instances
    events: Events
    budgets: Budgets
    rollouts: Rollouts
