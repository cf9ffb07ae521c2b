"""Constructs the Kubernetes adapters with a shared client, for the activities and the controller."""

from tenure.endpoints import Endpoints
from tenure.kube.adapters.cluster import KubeLeases, KubeNamespaces
from tenure.kube.adapters.eviction_requests import KubeEvictionRequests
from tenure.kube.adapters.garbage_collection import KubeInventory
from tenure.kube.adapters.karpenter_objects import (
    KubeCapacityBuffers,
    KubeLifecyclePolicies,
    KubeNodeClasses,
    KubeNodeOverlays,
    KubeNodePools,
)
from tenure.kube.adapters.nodeclaims import KubeNodeClaims, PageUrl
from tenure.kube.adapters.nodes import KubeNodeLoads, KubeNodes
from tenure.kube.adapters.pods import KubePodDisruptionBudgets, KubePods
from tenure.kube.adapters.workloads import KubeJobs, KubeRollouts
from tenure.kube.client.client import KubeClient, connect
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.rate_limiter import RateLimiter


class KubeAdapters:
    def __init__(self, client: KubeClient, page_url: PageUrl | None = None, *, plans_devices: bool = False) -> None:
        """`plans_devices`: IGNORE_DRA_REQUESTS=false."""
        self.client = client
        self.events = KubeEvents(client)
        self.claims = KubeNodeClaims(client, self.events, page_url)
        self.nodes = KubeNodes(client, plans_devices=plans_devices)
        self.pods = KubePods(client)
        self.loads = KubeNodeLoads(client)
        self.pools = KubeNodePools(client, self.events)
        self.node_classes = KubeNodeClasses(client, self.events)
        self.leases = KubeLeases(client)
        self.overlays = KubeNodeOverlays(client, self.events)
        self.lifecycle_policies = KubeLifecyclePolicies(client, self.events)
        self.buffers = KubeCapacityBuffers(client)
        self.inventory = KubeInventory(client)
        self.budgets = KubePodDisruptionBudgets(client)
        self.eviction_requests = KubeEvictionRequests(client)
        self.rollouts = KubeRollouts(client)
        self.namespaces = KubeNamespaces(client)
        self.jobs = KubeJobs(client)

    async def close(self) -> None:
        """Send queued events for a limited time, then close the session."""
        await self.events.close()
        await self.client.close()


async def connect_all(
    kubeconfig: str,
    *,
    rate_limiter: RateLimiter | None = None,
    endpoints: Endpoints | None = None,
    page_url: PageUrl | None = None,
    plans_devices: bool = False,
) -> KubeAdapters:
    """Raises BadInput if no cluster is configured."""
    client = await connect(kubeconfig, rate_limiter=rate_limiter, endpoints=endpoints)
    return KubeAdapters(client, page_url, plans_devices=plans_devices)
