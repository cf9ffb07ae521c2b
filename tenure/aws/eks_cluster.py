"""Reads the facts about the cluster that nodes need to join, from the settings and from eks:DescribeCluster."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from cachetools import TTLCache

from tenure.aws.client.cache import MAX_ENTRIES, get_or_load
from tenure.aws.client.client import AwsClients
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.settings import AwsSettings
from tenure.model.errors import Throttled, TryLater

_log = structlog.get_logger(__name__)

_FRESH_SECONDS: Final = 300.0


class Clusters:
    """Raises model.faults if a query fails and no earlier one has succeeded."""

    def __init__(
        self, clients: AwsClients, settings: AwsSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clients, self._settings = clients, settings
        self._cache: TTLCache[str, Mapping[str, Any]] = TTLCache(MAX_ENTRIES, _FRESH_SECONDS, timer=clock)
        self._last: Mapping[str, Any] = {}

    async def describe(self) -> Mapping[str, Any]:
        """The cluster in EKS's response. While EKS does not respond, in its last one: launches do not depend on it."""
        try:
            self._last = await get_or_load(self._cache, "", self._load)
        except (Throttled, TryLater) as fault:
            if not self._last:
                raise
            self._cache[""] = self._last
            _log.warning("failed to describe cluster, using the last known description", reason=fault.message)
        return self._last

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
