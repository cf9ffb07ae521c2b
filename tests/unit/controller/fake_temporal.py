"""A Temporal client that records signals and fails on request."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
    ResetStickyTaskQueueRequest,
)
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.signals.signaller import Signal, SignalQueue
from tenure.model.base import Message


@dataclass
class Sent:
    workflow_id: str
    signal: str
    argument: Message
    workflow: str = ""
    options: dict[str, Any] = field(default_factory=dict)


class FakeTemporal:
    namespace = "default"
    identity = "7@tenure-a"
    service_client = SimpleNamespace(config=SimpleNamespace(runtime=None))

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.reset_workflow_ids: list[str] = []
        self.failures: list[RPCStatusCode] = []
        self.gate: asyncio.Event | None = None
        """Calls wait until this event is set."""
        self.waiting = 0
        self.max_in_flight = 0
        self.open_workflows: set[str] = set()
        self.executions: list[WorkflowExecutionInfo] = []
        """That a list of workflows returns."""
        self.query_results: dict[str, Message] = {}
        """By workflow ID. Without a result, no worker responds."""

    @property
    def client(self) -> Client:
        return cast(Client, self)

    @property
    def workflow_service(self) -> "FakeTemporal":
        return self

    async def reset_sticky_task_queue(
        self, request: ResetStickyTaskQueueRequest, *, timeout: timedelta | None = None
    ) -> None:
        self.reset_workflow_ids.append(request.execution.workflow_id)

    async def list_workflow_executions(
        self, request: ListWorkflowExecutionsRequest, *, retry: bool = False
    ) -> ListWorkflowExecutionsResponse:
        return ListWorkflowExecutionsResponse(executions=self.executions)

    async def start_workflow(self, workflow: str, state: Message, **options: Any) -> None:
        argument = options["start_signal_args"][0]
        await self._take(Sent(options["id"], options["start_signal"], argument, workflow, {**options, "state": state}))

    def get_workflow_handle(self, workflow_id: str) -> "FakeHandle":
        return FakeHandle(self, workflow_id)

    async def _take(self, sent: Sent) -> None:
        self.waiting += 1
        self.max_in_flight = max(self.max_in_flight, self.waiting)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.failures:
                raise RPCError("told to fail", self.failures.pop(0), b"")
            self.sent.append(sent)
        finally:
            self.waiting -= 1

    def arguments_to(self, workflow_id: str) -> list[Message]:
        return [one.argument for one in self.sent if one.workflow_id == workflow_id]


@dataclass
class FakeHandle:
    temporal: FakeTemporal
    workflow_id: str

    async def signal(self, name: str, argument: Message, **_: Any) -> None:
        await self.temporal._take(Sent(self.workflow_id, name, argument))

    async def query(self, name: str, **_: Any) -> Message:
        if self.workflow_id not in self.temporal.query_results:
            raise RPCError("no worker", RPCStatusCode.DEADLINE_EXCEEDED, b"")
        return self.temporal.query_results[self.workflow_id]

    async def describe(self) -> SimpleNamespace:
        if self.workflow_id not in self.temporal.open_workflows:
            raise RPCError("not found", RPCStatusCode.NOT_FOUND, b"")
        return SimpleNamespace(status=WorkflowExecutionStatus.RUNNING)


class RecordingSignalQueue(SignalQueue):
    """Records every new signal and counts it as sent."""

    def __init__(self, sent: dict[str, str] | None = None) -> None:
        super().__init__(FakeTemporal().client, "queue")
        self.sent |= sent or {}
        self.signals: list[Signal] = []

    def enqueue(self, signal: Signal) -> bool:
        if self.sent.get(signal.key) == signal.digest:
            return False
        self.sent[signal.key] = signal.digest
        self.signals.append(signal)
        return True

    def arguments_to(self, workflow_id: str) -> list[Any]:
        return [one.argument for one in self.signals if one.workflow_id == workflow_id]
