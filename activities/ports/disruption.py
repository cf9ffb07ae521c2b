"""What the activities of voluntary disruption need of the planner's host.

The doors that only drains need, as Protocols beside those of `ports.py`: `kube/` satisfies them.

The door that keeping a static pool's number needs beside those of `ports.py`.

The doors that only hooks need, as Protocols beside those of `ports.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from activities.ports.core import Claims, Events, Instances, Nodes, Pods
from tenure.model.disruption.commands import (
    DisruptionDecision,
    DisruptionDecisionRequest,
    ReplacementRequest,
    ReplacementResult,
)
from tenure.model.disruption.drain import BudgetFact, Rollout
from tenure.model.extra_capacity import NodeLoad
from tenure.model.hooks import CallResult, DesiredJob, JobFact
from tenure.model.provider_results import DrainPod


class DisruptionHost(Protocol):
    async def compute_disruption(self, request: DisruptionDecisionRequest) -> DisruptionDecision: ...

    async def create_replacements(self, replace_request: ReplacementRequest) -> ReplacementResult: ...


class Budgets(Protocol):
    """PodDisruptionBudgets."""

    async def in_namespace(self, namespace: str) -> Sequence[BudgetFact]:
        """From a live list."""
        ...


class Rollouts(Protocol):
    """Deployments, as far as a drain restarts them."""

    async def find_for_pod(self, pod: DrainPod) -> Rollout | None:
        """The Deployment behind a pod, live; None where there is none."""
        ...

    async def restart_deployment(self, found: Rollout, stamp: str) -> bool:
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


class Loads(Protocol):
    """What nodes carry."""

    async def on_nodes(self, names: Collection[str], *, now: datetime) -> Mapping[str, NodeLoad]:
        """From live lists; a node that is not there carries nothing. Raises only `model.faults`."""
        ...


class Jobs(Protocol):
    """Jobs that hooks make."""

    async def get(self, namespace: str, name: str) -> JobFact | None: ...

    async def create(self, desired: DesiredJob) -> JobFact:
        """The Job that has this name now: this one, or the one that was there already."""
        ...


class HookClient(Protocol):
    """Services that hooks call."""

    async def post(self, url: str, *, key: str, body: Mapping[str, Any], seconds: float) -> CallResult:
        """Whatever the answer is; no redirect is followed. Raises TryLater when there is none within `seconds`."""
        ...


@dataclass(frozen=True)
class HookPorts:
    jobs: Jobs
    calls: HookClient
