"""A static NodePool, and observations of the watch on request."""

from dataclasses import dataclass
from typing import Any

from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

from tenure.apis.labels import PLAN
from tenure.model.observations import ObservedNodePool
from tenure.model.workflow_states import NodePoolState
from tests.support.fakes.worker import IDLE_TIMEOUT_SECONDS, WorkerHarness
from tests.support.workflows.coordinators import start_nodepool_workflow
from tests.support.workflows.eventually import wait_until, wait_until_idle
from workflows.nodepool import NodePoolWorkflow


@dataclass
class StaticNodePool:
    """The NodePool `default` and its workflow."""

    fake: WorkerHarness
    handle: WorkflowHandle[NodePoolWorkflow, None]
    number: int = 0
    generation: int = 0
    gate: str = "on"

    async def scale(self, replicas: int, **spec: Any) -> None:
        """As `kubectl scale` does."""
        self.fake.pools.add("default", replicas=replicas, **spec)
        self.generation += 1
        await self.signal_observed()

    async def signal_observed(self, **more: Any) -> None:
        """Signal an observation, but not while the run continues as new: see `wait_until_idle`."""
        await wait_until_idle(self.handle, timeout=IDLE_TIMEOUT_SECONDS)
        self.number += 1
        found = self.fake.claims.found.values()
        terminating = sum("deletionTimestamp" in one["metadata"] for one in found)
        observed_fields = {
            "generation": self.generation,
            "static": self.gate,
            "node_class_ready": "True",
            "replicas": self.fake.pools.found["default"].spec.replicas,
            "existing": len(found) - terminating,
            "terminating": terminating,
        }
        await self.handle.signal(
            NodePoolWorkflow.observe,
            ObservedNodePool.model_validate({"number": self.number, **observed_fields, **more}),
        )

    async def state(self) -> NodePoolState:
        return await self.handle.query(NodePoolWorkflow.state)

    async def current_details(self) -> str:
        """As the Temporal UI requests them."""
        metadata = await self.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        return str(metadata.current_details)

    async def details_mention(self, *texts: str) -> bool:
        return all([text in await self.current_details() for text in texts])

    async def has_existing(self, count: int) -> bool:
        return len(self.existing_names()) == count

    def existing_names(self) -> list[str]:
        found = self.fake.claims.found.items()
        return sorted(name for name, one in found if "deletionTimestamp" not in one["metadata"])

    def plan_ids(self) -> set[str]:
        return {one["metadata"]["annotations"][PLAN] for one in self.fake.claims.found.values()}

    async def waits_for(self, text: str) -> bool:
        return text in (await self.state()).replicas.waits_for


async def start_static_nodepool(fake: WorkerHarness, replicas: int, *, gate: str = "on", **spec: Any) -> StaticNodePool:
    handle = await start_nodepool_workflow(fake)
    pool = StaticNodePool(fake, handle, gate=gate)
    await pool.scale(replicas, **spec)
    return pool


async def static_nodepool(fake: WorkerHarness, replicas: int, **spec: Any) -> StaticNodePool:
    """A static NodePool with all its NodeClaims, which the watch has observed."""
    pool = await start_static_nodepool(fake, replicas, **spec)
    await wait_until(lambda: pool.has_existing(replicas))
    await pool.signal_observed()
    await wait_until(lambda: pool.details_mention(f"{replicas} desired, **{replicas}** running"))
    return pool
