"""What the doctor hears from the worker's own reading of events: the fault that it names, or another queue; and what it
says where Temporal says no."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.temporal.doctor import check_reading, check_temporal
from tenure.model.errors import Finding
from tenure.model.interruption.records import InterruptionState, SourceState
from workflows import ids

DENIED = "AccessDenied: user tenure is not authorized to perform sqs:receivemessage"
FAILING = SourceState(failing_since=datetime(2026, 1, 1, 12, tzinfo=UTC), failed_attempts=3, fault=DENIED)


async def findings(state: InterruptionState | RPCError, queue: str = "demo") -> list[Finding]:
    async def query(name: str, **_: Any) -> InterruptionState:
        if isinstance(state, RPCError):
            raise state
        return state

    def handle(workflow_id: str) -> Any:
        assert workflow_id == ids.interruption("c")
        return SimpleNamespace(query=query)

    return await check_reading(cast(Client, SimpleNamespace(get_workflow_handle=handle)), "c", queue)


async def test_a_queue_that_the_worker_may_not_read_is_named_with_the_permission() -> None:
    problem, healthy = await findings(InterruptionState(cluster="c", queue="demo", messages=FAILING))
    assert (problem.level, problem.subject) == ("problem", "reading of queue demo")
    assert DENIED in problem.message and "2026-01-01 12:00" in problem.message and "interruption.json" in problem.todo
    assert (healthy.level, healthy.subject) == ("ok", "reading of status of instances")


async def test_a_status_that_the_worker_may_not_read_is_named() -> None:
    [problem] = [
        one
        for one in await findings(InterruptionState(cluster="c", queue="demo", statuses=FAILING))
        if one.level != "ok"
    ]
    assert problem.subject == "reading of status of instances" and "resource-discovery.json" in problem.todo


@pytest.mark.parametrize(("worker", "here"), [("other", "demo"), ("", "demo"), ("demo", "")])
async def test_another_queue_than_the_settings_is_told(worker: str, here: str) -> None:
    [one] = await findings(InterruptionState(cluster="c", queue=worker), here)
    assert one.level == "advice" and (worker or "none") in one.message and (here or "not set") in one.message


async def test_without_a_queue_only_the_status_is_spoken_of() -> None:
    assert [one.subject for one in await findings(InterruptionState(cluster="c"), "")] == [
        "reading of status of instances"
    ]


@pytest.mark.parametrize("status", [RPCStatusCode.NOT_FOUND, RPCStatusCode.DEADLINE_EXCEEDED])
async def test_a_worker_that_never_ran_or_does_not_answer_is_another_finding_s_matter(status: RPCStatusCode) -> None:
    assert await findings(RPCError("no", status, b"")) == []


class FailingTemporal:
    """A Temporal that says the same to whatever is asked of a namespace."""

    namespace = "prod"

    def __init__(self, error: RPCError) -> None:
        self._error = error

    @property
    def workflow_service(self) -> "FailingTemporal":
        return self

    operator_service = workflow_service

    async def get_system_info(self, _: Any) -> None:
        pass

    async def raise_error(self, *_: Any, **__: Any) -> None:
        raise self._error

    describe_namespace = list_search_attributes = describe_task_queue = query = raise_error

    def get_workflow_handle(self, _: str) -> "FailingTemporal":
        return self


async def test_a_namespace_that_is_not_there_is_one_problem_with_the_command_that_makes_it() -> None:
    absent = RPCError("Namespace prod is not found.", RPCStatusCode.NOT_FOUND, b"")
    [found] = await check_temporal(cast(Client, FailingTemporal(absent)), "c")
    assert (found.level, found.subject) == ("problem", "namespace prod")
    assert "temporal operator namespace create --namespace prod --retention 30d" in found.todo


async def test_credentials_that_may_not_look_leave_each_check_open() -> None:
    denied = RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")
    found = await check_temporal(cast(Client, FailingTemporal(denied)), "c")
    assert [one.subject for one in found] == ["service", "namespace", "attributes", "workers"]
    assert {one.level for one in found} == {"unknown"}
