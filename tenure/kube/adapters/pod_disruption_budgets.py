"""PodDisruptionBudgets: read live after a rejected eviction, and watched for voluntary disruption."""

from collections.abc import Sequence

from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import POD_DISRUPTION_BUDGETS
from tenure.kube.facts.pod_disruption_budgets import budget_fact
from tenure.model.disruption.drain import EvictionBudget


class KubePodDisruptionBudgets:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def in_namespace(self, namespace: str) -> Sequence[EvictionBudget]:
        response = await self._client.request("GET", POD_DISRUPTION_BUDGETS.path(namespace=namespace))
        return [budget_fact(one) for one in response.get("items") or ()]
