"""PodDisruptionBudgets and Deployments in memory, as far as drains read them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.model.disruption.drain import DeploymentRollout
from tenure.model.facts import PodDisruptionBudgetFact
from tenure.model.provider_results import DrainPod, EvictionProgress
from tests.support.fakes.faulty import FaultInjectable


@dataclass
class FakeBudgets(FaultInjectable):
    found: list[PodDisruptionBudgetFact] = field(default_factory=list)

    def add(self, name: str, **fields: Any) -> None:
        """A budget that selects every pod of its namespace by default."""
        self.found.append(PodDisruptionBudgetFact(name=name, **{"namespace": "default", "selector": (), **fields}))

    async def in_namespace(self, namespace: str) -> Sequence[PodDisruptionBudgetFact]:
        return [one for one in self.found if one.namespace == namespace]


@dataclass
class FakeEvictionRequests(FaultInjectable):
    """Without progress, the API server serves no EvictionRequests."""

    progress: EvictionProgress | None = None
    requested: list[str] = field(default_factory=list)
    """Names of pods, once for each pass."""
    withdrawn: list[str] = field(default_factory=list)

    async def request(self, pod: DrainPod) -> EvictionProgress | None:
        self.requested.append(pod.name)
        return self.progress

    async def withdraw(self, pod: DrainPod) -> bool:
        self.withdrawn.append(pod.name)
        return True


@dataclass
class FakeRollouts(FaultInjectable):
    found: dict[str, DeploymentRollout] = field(default_factory=dict)
    """By pod name."""
    restarts: list[str] = field(default_factory=list)
    """Timestamps of restarts that had an effect."""

    def add(self, pod: str, **fields: Any) -> None:
        rollout = {
            "namespace": "default",
            "name": pod,
            "uid": f"uid-deployment-{pod}",
            "replicas": 1,
            "surges": True,
        }
        self.found[pod] = DeploymentRollout.model_validate({**rollout, **fields})

    async def find_for_pod(self, pod: DrainPod) -> DeploymentRollout | None:
        return self.found.get(pod.name)

    async def restart_deployment(self, found: DeploymentRollout, stamp: str) -> bool:
        if self.found[found.name].restarted_at != stamp:
            self.restarts.append(stamp)
        self.found[found.name] = found.model_copy(update={"restarted_at": stamp})
        return True
