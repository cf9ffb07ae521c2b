"""All Kubernetes adapters on one client; `worker.py` makes them and hands them to activities and the watch."""

from dataclasses import dataclass

from kube.budgets import KubeBudgets
from kube.buffers import KubeBuffers
from kube.claims import KubeClaims
from kube.client import KubeClient, connect
from kube.events import KubeEvents
from kube.inventory import KubeInventory
from kube.jobs import KubeJobs
from kube.leases import KubeLeases
from kube.lifecycle_policies import KubeLifecyclePolicies
from kube.loads import KubeLoads
from kube.namespaces import KubeNamespaces
from kube.node_classes import KubeNodeClasses
from kube.nodes import KubeNodes
from kube.overlays import KubeOverlays
from kube.pace import Pace
from kube.pods import KubePods
from kube.pools import KubePools
from kube.rollouts import KubeRollouts


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
