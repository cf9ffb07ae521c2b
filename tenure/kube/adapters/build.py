"""All Kubernetes adapters on one client; `worker.py` makes them and hands them to activities and the watch."""

from dataclasses import dataclass

from tenure.kube.adapters.cluster import KubeLeases, KubeNamespaces
from tenure.kube.adapters.garbage_collection import KubeInventory
from tenure.kube.adapters.karpenter_objects import KubeBuffers, KubeNodeClasses, KubeOverlays, KubePools
from tenure.kube.adapters.lifecycle_policies import KubeLifecyclePolicies
from tenure.kube.adapters.nodeclaims import KubeClaims
from tenure.kube.adapters.nodes import KubeLoads, KubeNodes
from tenure.kube.adapters.pod_disruption_budgets import KubeBudgets
from tenure.kube.adapters.pods import KubePods
from tenure.kube.adapters.workloads import KubeJobs, KubeRollouts
from tenure.kube.client.client import KubeClient, connect
from tenure.kube.client.events import KubeEvents
from tenure.kube.client.rate_limiter import Pace


@dataclass(frozen=True)
class KubeAdapters:
    client: KubeClient
    claims: KubeClaims
    nodes: KubeNodes
    pods: KubePods
    loads: KubeLoads
    events: KubeEvents
    pools: KubePools
    node_classes: KubeNodeClasses
    leases: KubeLeases
    overlays: KubeOverlays
    lifecycle_policies: KubeLifecyclePolicies
    buffers: KubeBuffers
    inventory: KubeInventory
    budgets: KubeBudgets
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
        claims=KubeClaims(client, events),
        nodes=KubeNodes(client),
        pods=KubePods(client),
        loads=KubeLoads(client),
        events=events,
        pools=KubePools(client, events),
        node_classes=KubeNodeClasses(client, events),
        leases=KubeLeases(client),
        overlays=KubeOverlays(client, events),
        lifecycle_policies=KubeLifecyclePolicies(client, events),
        buffers=KubeBuffers(client),
        inventory=KubeInventory(client),
        budgets=KubeBudgets(client),
        rollouts=KubeRollouts(client),
        namespaces=KubeNamespaces(client),
        jobs=KubeJobs(client),
    )


async def connect_all(kubeconfig: str = "", context: str = "", *, pace: Pace | None = None) -> KubeAdapters:
    """Connect and build. Raises BadInput when no cluster is configured."""
    return build(await connect(kubeconfig, context, pace=pace))
