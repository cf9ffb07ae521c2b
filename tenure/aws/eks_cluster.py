"""Reads the facts about the cluster that nodes need to join, from the settings and from eks:DescribeCluster."""

from collections.abc import Mapping
from typing import Any, Final

from cachetools import TTLCache

from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.settings import AwsSettings

_FRESH_SECONDS: Final = 300.0


class Clusters:
    """Raises model.faults if a query to EKS is needed and fails."""

    def __init__(self, clients: AwsClients, settings: AwsSettings) -> None:
        self._clients, self._settings = clients, settings
        self._cache: TTLCache[str, Mapping[str, Any]] = TTLCache(MAX_ENTRIES, _FRESH_SECONDS)

    async def describe(self) -> Mapping[str, Any]:
        """The cluster in EKS's response."""
        return await get_or_load(self._cache, "", self._load)

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
