"""A worker for one test: real workflows and activities, fake ports, and its own task queues."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker, WorkflowRunner

from activities.ports.core import Ports
from activities.registry import list_activities, list_drain_activities, list_launch_activities, list_planner_activities
from activities.workflow_client import WorkflowClient
from tenure.apis.nodeclaim import NodeClaim
from tenure.model.discovered_capacity import NO_DISCOVERED_CAPACITY, DiscoveredCapacity
from tenure.model.nodeclaim.state import Deadlines, NodeClaimOutcome, NodeClaimState
from tenure.model.observations import ObservedNodeClaim
from tenure.model.plan import ExpectedDurations
from tests.support.fakes.disruption_host import FakeDisruption
from tests.support.fakes.permit_granter import PermitGranterWorkflow
from tests.support.fakes.permit_requester import PermitRequesterWorkflow
from tests.support.fakes.planner_host import FakeHost
from tests.support.fakes.ports import FakePorts
from tests.support.workflows.eventually import POLL_INTERVAL_SECONDS, wait_until_idle, wait_until_tasks_complete
from workflows import ids
from workflows.nodeclaim import NodeClaimWorkflow
from workflows.runner import WORKFLOWS, OrderedWorkflowRunner
from workflows.visibility import WorkflowNames, claim_start

IDLE_TIMEOUT_SECONDS = 20.0
SIGNAL_ATTEMPTS = 5
"""Real seconds. The wait is short, since no worker may be running."""


HEARTBEAT_INTERVAL = timedelta(seconds=0.2)
"""An activity learns of its cancellation with its next heartbeat, so a short interval saves time."""


@dataclass
class WorkerHarness(FakePorts):
    """Fake ports of the activities, and a client of the workflows."""

    client: Client
    cluster: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:8]}")
    deadlines: Deadlines = field(default_factory=Deadlines)
    environment: WorkflowEnvironment | None = None
    """The time-skipping server of `client`."""
    number: int = 0
    max_cached_workflows: int = 1000
    """Size of the worker's workflow cache; 0 if the server must not wait for a stopped worker."""
    runner: WorkflowRunner = field(default_factory=OrderedWorkflowRunner)
    running_workers: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.workflows = WorkflowClient(self.client, self.cluster, WorkflowNames(self.cluster), self.deadlines)
        self.node_classes.add("default")
        self.host = FakeHost(FakeDisruption(self.claims))
        self.disruption = self.host.disruption

    async def now(self) -> datetime:
        assert self.environment
        return await self.environment.get_current_time()

    async def sleep(self, duration: timedelta = timedelta(0), **parts: float) -> None:
        """Skip a duration, or one given in parts such as `hours=1`, and wait for the workflow tasks of its timers."""
        assert self.environment
        await self.environment.sleep(duration + timedelta(**parts))
        if self.running_workers:
            await wait_until_tasks_complete(self.client, f"{self.cluster}/")

    @classmethod
    def on(cls, environment: WorkflowEnvironment, **fields: Any) -> "WorkerHarness":
        """A harness on a time-skipping server."""
        return cls(environment.client, environment=environment, **fields)

    async def start(
        self,
        claim: NodeClaim,
        *,
        alike: str = "",
        expected: ExpectedDurations | None = None,
        discovered: DiscoveredCapacity = NO_DISCOVERED_CAPACITY,
        **observed: object,
    ) -> WorkflowHandle[NodeClaimWorkflow, NodeClaimOutcome]:
        """`alike`: launch hash of a NodeClaim without a plan; `expected`: durations of its type; `observed`: sent
        with signal-with-start, as by the watch.
        """
        identity = self.workflows.build_identity(claim).model_copy(update={"launch_hash": alike})
        return await self.client.start_workflow(
            NodeClaimWorkflow.run,
            NodeClaimState(identity=identity, deadlines=self.deadlines, expected=expected, discovered=discovered),
            id=ids.nodeclaim(self.cluster, identity.name, identity.uid),
            task_queue=ids.task_queue(self.cluster),
            search_attributes=claim_start(identity),
            start_signal="observe",
            start_signal_args=[self.make_observation(**observed)],
        )

    def workflow_handle(self, claim: NodeClaim) -> WorkflowHandle[NodeClaimWorkflow, NodeClaimOutcome]:
        """The workflow of a NodeClaim that was started elsewhere."""
        identity = self.workflows.build_identity(claim)
        name = ids.nodeclaim(self.cluster, identity.name, identity.uid)
        return self.client.get_workflow_handle(name, result_type=NodeClaimOutcome)

    def make_observation(self, **observed: object) -> ObservedNodeClaim:
        self.number += 1
        return ObservedNodeClaim.model_validate({"number": self.number, **observed})

    async def signal_observed(
        self, handle: WorkflowHandle[NodeClaimWorkflow, NodeClaimOutcome], **observed: object
    ) -> None:
        """Signal an observation as the watch does, but not while the run continues as new: see `wait_until_idle`.

        The time-skipping server rejects signals between two runs; a real server has no such gap. So they are repeated.
        """
        await wait_until_idle(handle, timeout=IDLE_TIMEOUT_SECONDS)
        observation = self.make_observation(**observed)
        for _ in range(SIGNAL_ATTEMPTS - 1):
            try:
                return await handle.signal(NodeClaimWorkflow.observe, observation)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        return await handle.signal(NodeClaimWorkflow.observe, observation)

    def activities(self) -> list[Callable[..., Any]]:
        return list_activities(self.ports())

    def ports(self) -> Ports:
        return self.build_ports(self.workflows)

    @asynccontextmanager
    async def running_worker(self) -> AsyncIterator["WorkerHarness"]:
        """A worker replica that polls the cluster's task queues."""
        launches = Worker(
            self.client, task_queue=ids.launch_queue(self.cluster), activities=list_launch_activities(self.ports())
        )
        drains = Worker(
            self.client,
            task_queue=ids.drain_queue(self.cluster),
            activities=list_drain_activities(self.ports()),
            max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
        )
        async with (
            launches,
            drains,
            Worker(
                self.client,
                task_queue=ids.task_queue(self.cluster),
                workflows=[*WORKFLOWS, PermitRequesterWorkflow, PermitGranterWorkflow],
                activities=self.activities(),
                workflow_runner=self.runner,
                max_concurrent_workflow_tasks=4,
                max_cached_workflows=self.max_cached_workflows,
                max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
            ),
        ):
            self.running_workers += 1
            try:
                yield self
            finally:
                self.running_workers -= 1

    @asynccontextmanager
    async def running_coordinators(self) -> AsyncIterator[None]:
        """A worker of the queue on which `start_singletons` starts workflows."""
        async with Worker(
            self.client,
            task_queue=ids.coordinator_queue(self.cluster),
            workflows=WORKFLOWS,
            activities=self.activities(),
            workflow_runner=self.runner,
        ):
            yield

    @asynccontextmanager
    async def running_planner(self) -> AsyncIterator["WorkerHarness"]:
        """A process that hosts the watch, which also polls the plan queue."""
        async with Worker(
            self.client,
            task_queue=ids.plan_queue(self.cluster),
            activities=list_planner_activities(self.host),
            graceful_shutdown_timeout=timedelta(seconds=1),
            max_heartbeat_throttle_interval=timedelta(seconds=0.5),
        ):
            yield self
