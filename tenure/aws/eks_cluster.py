"""Reads the facts about the cluster that nodes need to join, from the settings and from eks:DescribeCluster."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from tenure.aws.client.cache import LastKnown
from tenure.aws.client.client import AwsClients
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.settings import AwsSettings
from tenure.model.errors import Throttled, TryLater

_FRESH_SECONDS: Final = 300.0


class Clusters:
    """Raises model.faults if a query fails and no earlier one has succeeded."""

    def __init__(
        self, clients: AwsClients, settings: AwsSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clients, self._settings = clients, settings
        faults = (Throttled, TryLater)
        self._cluster = LastKnown("the EKS cluster", self._load, _FRESH_SECONDS, faults=faults, clock=clock)

    async def describe(self) -> Mapping[str, Any]:
        """The cluster in EKS's response. While EKS does not respond, in its last one: launches do not depend on it."""
        return await self._cluster.read()

    async def _load(self) -> Mapping[str, Any]:
        response = await self._clients.call(self._clients.eks.describe_cluster, name=self._settings.cluster_name)
        return dict(response.get("cluster", {}))

    async def facts(self) -> ClusterFacts:
        settings, found = self._settings, await self.describe()
        network = found.get("kubernetesNetworkConfig") or {}
        return ClusterFacts(
            name=settings.cluster_name,
            version=settings.kubernetes_version or found.get("version", ""),
            endpoint=settings.cluster_endpoint or found.get("endpoint", ""),
            ca_bundle=settings.cluster_ca_bundle or (found.get("certificateAuthority") or {}).get("data", ""),
            cidr=network.get("serviceIpv6Cidr" if settings.is_ipv6 else "serviceIpv4Cidr", ""),
            dns=settings.cluster_dns,
        )
