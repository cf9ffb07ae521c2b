"""A host of the watch on a real API server and a real Temporal server, and the signals that it sent."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.service import RPCError

from tenure.apis.nodeclaim import NodeClaim
from tenure.controller.host import ClusterController
from tenure.controller.settings import ControllerSettings
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.resources import NODES, PODS
from tenure.model.observations import ObservedDemand, ObservedNodeClaim
from tenure.model.provider_results import ConditionPatch
from tests.support.fakes.cloud import FakeInstances
from tests.support.kube.builders import pod_json
from tests.support.product.eventually import wait_until
from tests.unit.controller.planning.provisioner_harness import FakeOfferings

Names = Callable[[str], str]


@dataclass
class HostHarness:
    """A running host, and the signals that Temporal received from it."""

    kube: KubeAdapters
    temporal: Client
    cluster: str
    host: ClusterController
    planning: bool = False

    async def signal_payloads(self, workflow_id: str, signal: str) -> list[bytes]:
        """The arguments of the signals in a workflow's history."""
        try:
            history = await self.temporal.get_workflow_handle(workflow_id).fetch_history()
        except RPCError:
            return []
        signaled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
        signals = [
            one.workflow_execution_signaled_event_attributes for one in history.events if one.event_type == signaled
        ]
        return [one.input.payloads[0].data for one in signals if one.signal_name == signal]

    async def nodeclaim_observations(self, claim: NodeClaim) -> list[ObservedNodeClaim]:
        payloads = await self.signal_payloads(nodeclaim_workflow_id(self, claim), "observe")
        return [ObservedNodeClaim.model_validate_json(one) for one in payloads]

    async def pending_pods_signals(self) -> list[ObservedDemand]:
        payloads = await self.signal_payloads(f"{self.cluster}/provisioning", "pending_pods")
        return [ObservedDemand.model_validate_json(one) for one in payloads]

    async def wait_until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async def assert_holds() -> None:
            assert await condition(), "condition is not true"

        await wait_until(assert_holds, poll_interval=0.05)


@asynccontextmanager
async def running_host(
    kube: KubeAdapters, temporal: Client, *, cluster: str = "", lease: str = ""
) -> AsyncIterator[HostHarness]:
    name = cluster or f"test-{uuid.uuid4().hex[:8]}"

    @asynccontextmanager
    async def plan_worker() -> AsyncIterator[None]:
        harness.planning = True
        try:
            yield
        finally:
            harness.planning = False

    host = ClusterController(
        settings=ControllerSettings(cluster=name, karpenter_lease=lease),
        kube=kube,
        temporal=temporal,
        offerings=FakeOfferings(),
        instances=FakeInstances(),
        plan_worker=plan_worker,
    )
    harness = HostHarness(kube, temporal, name, host)
    task = asyncio.create_task(host.run())
    try:
        yield harness
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert not harness.planning
        if not cluster:
            await terminate_workflows(temporal, name)


async def terminate_workflows(temporal: Client, cluster: str) -> None:
    """Terminate the cluster's workflows, since no worker runs them."""
    async for one in temporal.list_workflows(f"WorkflowId STARTS_WITH '{cluster}/' AND ExecutionStatus = 'Running'"):
        with suppress(RPCError):
            await temporal.get_workflow_handle(one.id).terminate()


async def set_conditions(kube: KubeAdapters, claim: NodeClaim, *types: str, provider_id: str = "") -> None:
    await kube.claims.patch(
        claim.name,
        claim.uid,
        status={"providerID": provider_id} if provider_id else None,
        conditions=[ConditionPatch(type=one, status="True") for one in types],
        now=datetime.now(UTC),
    )


async def set_ready(kube: KubeAdapters, node: str) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": datetime.now(UTC).isoformat()}
    status = {"conditions": [ready], "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}}
    await kube.client.merge(NODES.path(node, sub="status"), {"status": status})
    await kube.client.merge(NODES.path(node), {"spec": {"taints": None}})


async def sees_pod(watch: HostHarness, node: str) -> bool:
    session = watch.host._session
    return session is not None and any(one.node_name == node for one in session.cluster.cache.pods.values())


async def sees_initialized(watch: HostHarness, claim: NodeClaim) -> bool:
    session = watch.host._session
    return session is not None and session.cluster.cache.nodeclaims[claim.name].initialized


async def has_observations(watch: HostHarness, claim: NodeClaim, count: int) -> bool:
    return len(await watch.nodeclaim_observations(claim)) >= count


async def run_pod(kube: KubeAdapters, name: str, node: str) -> None:
    await kube.client.request("POST", PODS.path(namespace="default"), body=pod_json(name, node=node))


def nodeclaim_workflow_id(watch: HostHarness, claim: NodeClaim) -> str:
    return f"{watch.cluster}/nodeclaim/{claim.name}/{claim.uid[:8]}"
