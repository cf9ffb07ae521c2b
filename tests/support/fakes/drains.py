"""PodDisruptionBudgets and Deployments in memory, as far as drains look at them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure.model.disruption.drain import BudgetFact, Rollout
from tenure.model.provider_results import DrainPod
from tests.support.fakes.faulty import FaultInjectable


@dataclass
class FakeBudgets(FaultInjectable):
    found: list[BudgetFact] = field(default_factory=list)

    def add(self, name: str, **fields: Any) -> None:
        """One that selects every pod of its namespace."""
        self.found.append(BudgetFact(namespace="default", name=name, **{"selector": (), **fields}))

    async def in_namespace(self, namespace: str) -> Sequence[BudgetFact]:
        return [one for one in self.found if one.namespace == namespace]


@dataclass
class FakeRollouts(FaultInjectable):
    found: dict[str, Rollout] = field(default_factory=dict)
    """By the pod's name."""
    restarts: list[str] = field(default_factory=list)
    """The stamps of restarts that did something."""

    def add(self, pod: str, **fields: Any) -> None:
        made = {"namespace": "default", "name": pod, "uid": f"uid-deployment-{pod}", "replicas": 1, "surges": True}
        self.found[pod] = Rollout.model_validate({**made, **fields})

    async def find_for_pod(self, pod: DrainPod) -> Rollout | None:
        return self.found.get(pod.name)

    async def restart_deployment(self, found: Rollout, stamp: str) -> bool:
        if self.found[found.name].restarted_at != stamp:
            self.restarts.append(stamp)
        self.found[found.name] = found.model_copy(update={"restarted_at": stamp})
        return True
