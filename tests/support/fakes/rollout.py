"""Activities of a rollout as fakes, and a NodePool workflow that uses them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tenure.model.observations import ObservedNodePool
from tenure.model.rollout import (
    GateResult,
    HealthGate,
    ObservedRollout,
    PinRequest,
    RolloutNotification,
    RolloutRequest,
)
from tenure.model.signals import PermitRequest
from tenure.model.workflow_states import NodePoolState
from tests.support.fakes.rollout_workflow import RolloutOnlyWorkflow
from workflows.runner import OrderedWorkflowRunner

QUEUE = "rolling"


@dataclass
class FakeRolloutActivities:
    """Returns prepared observations, and records notifications and pins."""

    observed: ObservedRollout = field(default_factory=ObservedRollout)
    gate_result: GateResult = field(default_factory=lambda: GateResult(outcome="passed", value=0))
    notifications: list[RolloutNotification] = field(default_factory=list)
    pin_requests: list[PinRequest] = field(default_factory=list)
    observe_count: int = 0
    queried_gates: list[str] = field(default_factory=list)
    fails_to_observe: bool = False
    """Observations fail."""
    fails_to_publish: bool = False
    """Notifications fail."""
    observe_gate: asyncio.Event | None = None
    """If set, observations wait for it."""
    publish_gate: asyncio.Event | None = None
    """If set, notifications wait for it."""

    @activity.defn
    async def observe_rollout(self, request: RolloutRequest) -> ObservedRollout:
        self.observe_count += 1
        if self.observe_gate:
            await self.observe_gate.wait()
        if self.fails_to_observe:
            raise ApplicationError("the API server is away", non_retryable=True)
        return self.observed.model_copy(
            update={"stored_state": self.notifications[-1].stored_state if self.notifications else ""}
        )

    @activity.defn
    async def query_health_gate(self, gate: HealthGate) -> GateResult:
        self.queried_gates.append(gate.name)
        return self.gate_result

    @activity.defn
    async def publish_rollout_status(self, notification: RolloutNotification) -> None:
        if self.fails_to_publish:
            raise ApplicationError("denied by a webhook", non_retryable=True)
        self.notifications.append(notification)
        if self.publish_gate:
            await self.publish_gate.wait()

    @activity.defn
    async def pin_amis(self, request: PinRequest) -> bool:
        self.pin_requests.append(request)
        return True

    def set_observed(self, **fields: object) -> None:
        self.observed = self.observed.model_copy(update=fields)

    def replace_drifted(self, *uids: str) -> None:
        """The nodes with these UIDs are replaced by new ones."""
        remaining = tuple(one for one in self.observed.drifted if one not in uids)
        new = self.observed.updated_nodes + len(uids)
        self.set_observed(drifted=remaining, updated_nodes=new, ready=new)

    def event_reasons(self) -> list[str]:
        return [event.reason for notification in self.notifications for event in notification.events]


@dataclass
class RolloutHarness:
    """A running NodePool workflow with its fake activities."""

    activities: FakeRolloutActivities
    handle: WorkflowHandle[RolloutOnlyWorkflow, None]

    async def state(self) -> NodePoolState:
        return await self.handle.query(RolloutOnlyWorkflow.state)

    async def description(self) -> str:
        return await self.handle.query(RolloutOnlyWorkflow.description)

    async def request_permits(self, *uids: str, since: datetime) -> None:
        for uid in uids:
            request = PermitRequest(claim_name=uid, claim_uid=uid, workflow_id="w", reason="Drifted", since=since)
            await self.handle.signal(RolloutOnlyWorkflow.request_permit, request)

    async def has_permits(self, count: int) -> bool:
        return len((await self.state()).permits) == count

    async def describes(self, text: str) -> bool:
        return text in await self.description()

    async def has_event(self, reason: str) -> bool:
        return reason in self.activities.event_reasons()


@asynccontextmanager
async def rollout_harness(
    client: Client, observed: ObservedNodePool, fake_activities: FakeRolloutActivities
) -> AsyncIterator[RolloutHarness]:
    activities: list[Callable[..., Any]] = [
        fake_activities.observe_rollout,
        fake_activities.query_health_gate,
        fake_activities.publish_rollout_status,
        fake_activities.pin_amis,
    ]
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[RolloutOnlyWorkflow],
        activities=activities,
        workflow_runner=OrderedWorkflowRunner(),
    ):
        state = NodePoolState(cluster="c", name="web", observed=observed)
        handle = await client.start_workflow(RolloutOnlyWorkflow.run, state, id="c/nodepool/web", task_queue=QUEUE)
        yield RolloutHarness(fake_activities, handle)
