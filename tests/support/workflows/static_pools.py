"""A static pool and a watch of it that says what it sees when it is asked to."""

from dataclasses import dataclass
from typing import Any

from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

from tenure.apis.labels import PLAN
from tenure.model.observations import PoolSeen
from tenure.model.workflow_states import PoolState
from tests.support.fakes.worker import SHORTLY, World
from tests.support.workflows.eventually import eventually, idle
from workflows import ids
from workflows.nodepool import NodePoolWorkflow


@dataclass
class Static:
    """The NodePool `default` and its workflow."""

    fake: World
    handle: WorkflowHandle[NodePoolWorkflow, None]
    number: int = 0
    generation: int = 0
    gate: str = "on"

    async def scale(self, replicas: int, **spec: Any) -> None:
        """As with `kubectl scale`."""
        self.fake.pools.add("default", replicas=replicas, **spec)
        self.generation += 1
        await self.see()

    async def see(self, **more: Any) -> None:
        """Not while a run may just be being continued: see `idle`."""
        await idle(self.handle, patience=SHORTLY)
        self.number += 1
        found = self.fake.claims.found.values()
        going = sum("deletionTimestamp" in one["metadata"] for one in found)
        seen = {
            "generation": self.generation,
            "static": self.gate,
            "node_class_ready": "True",
            "replicas": self.fake.pools.found["default"].spec.replicas,
            "standing": len(found) - going,
            "going": going,
        }
        await self.handle.signal(
            NodePoolWorkflow.seen, PoolSeen.model_validate({"number": self.number, **seen, **more})
        )

    async def state(self) -> PoolState:
        return await self.handle.query(NodePoolWorkflow.state)

    async def details(self) -> str:
        """As the Temporal UI asks for them."""
        told = await self.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        return str(told.current_details)

    async def says(self, *words: str) -> bool:
        return all([word in await self.details() for word in words])

    async def stand(self, count: int) -> bool:
        return len(self.standing()) == count

    def standing(self) -> list[str]:
        found = self.fake.claims.found.items()
        return sorted(name for name, one in found if "deletionTimestamp" not in one["metadata"])

    def plans(self) -> set[str]:
        return {one["metadata"]["annotations"][PLAN] for one in self.fake.claims.found.values()}

    async def waits(self, words: str) -> bool:
        return words in (await self.state()).replicas.waits_for


async def static(fake: World, replicas: int, *, gate: str = "on", **spec: Any) -> Static:
    handle = await fake.client.start_workflow(
        NodePoolWorkflow.run,
        PoolState(cluster=fake.cluster, name="default"),
        id=ids.nodepool(fake.cluster, "default"),
        task_queue=ids.task_queue(fake.cluster),
    )
    pool = Static(fake, handle, gate=gate)
    await pool.scale(replicas, **spec)
    return pool


async def kept(fake: World, replicas: int, **spec: Any) -> Static:
    """One that has all its NodeClaims, which the watch has seen."""
    pool = await static(fake, replicas, **spec)
    await eventually(lambda: pool.stand(replicas))
    await pool.see()
    await eventually(lambda: pool.says(f"{replicas} desired, **{replicas}** running"))
    return pool
