"""All Kubernetes adapters on one client; `worker.py` makes them and hands them to activities and the watch."""

from dataclasses import dataclass

from tenure.kube.adapters.cluster import KubeLeases, KubeNamespaces
from tenure.kube.adapters.garbage_collection import KubeInventory
from tenure.kube.adapters.karpenter_objects import KubeCapacityBuffers, KubeNodeClasses, KubeNodeOverlays, KubeNodePools
from tenure.kube.adapters.lifecycle_policies import KubeLifecyclePolicies
from tenure.kube.adapters.nodeclaims import KubeNodeClaims
from tenure.kube.adapters.nodes import KubeNodeLoads, KubeNodes
from tenure.kube.adapters.pod_disruption_budgets import KubePodDisruptionBudgets
from tenure.kube.adapters.pods import KubePods
from tenure.kube.adapters.workloads import KubeJobs, KubeRollouts
from tenure.kube.client.client import KubeClient, connect
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.rate_limiter import RateLimiter


@dataclass(frozen=True)
class KubeAdapters:
    client: KubeClient
    claims: KubeNodeClaims
    nodes: KubeNodes
    pods: KubePods
    loads: KubeNodeLoads
    events: KubeEvents
    pools: KubeNodePools
    node_classes: KubeNodeClasses
    leases: KubeLeases
    overlays: KubeNodeOverlays
    lifecycle_policies: KubeLifecyclePolicies
    buffers: KubeCapacityBuffers
    inventory: KubeInventory
    budgets: KubePodDisruptionBudgets
    rollouts: KubeRollouts
    namespaces: KubeNamespaces
    jobs: KubeJobs

    async def close(self) -> None:
        """Send the events that wait, for a moment, and end the session."""
        await self.events.close()
        await self.client.close()


def build(client: KubeClient) -> KubeAdapters:
    """The adapters on a client that exists."""
    events = KubeEvents(client)
    return KubeAdapters(
        client=client,
        claims=KubeNodeClaims(client, events),
        nodes=KubeNodes(client),
        pods=KubePods(client),
        loads=KubeNodeLoads(client),
        events=events,
        pools=KubeNodePools(client, events),
        node_classes=KubeNodeClasses(client, events),
        leases=KubeLeases(client),
        overlays=KubeNodeOverlays(client, events),
        lifecycle_policies=KubeLifecyclePolicies(client, events),
        buffers=KubeCapacityBuffers(client),
        inventory=KubeInventory(client),
        budgets=KubePodDisruptionBudgets(client),
        rollouts=KubeRollouts(client),
        namespaces=KubeNamespaces(client),
        jobs=KubeJobs(client),
    )


async def connect_all(
    kubeconfig: str = "", context: str = "", *, rate_limiter: RateLimiter | None = None
) -> KubeAdapters:
    """Connect and build. Raises BadInput when no cluster is configured."""
    return build(await connect(kubeconfig, context, rate_limiter=rate_limiter))
