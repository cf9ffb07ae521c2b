"""What the doctor hears from the worker's own reading of events: the fault that it names, or another queue."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from controller.doctor import check_reading
from model.findings import Finding
from model.reading import InterruptionState, SourceState
from workflows import ids

DENIED = "AccessDenied: user tenure is not authorized to perform sqs:receivemessage"
FAILING = SourceState(failing_since=datetime(2026, 1, 1, 12, tzinfo=UTC), tries=3, fault=DENIED)


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
    wrong, right = await findings(InterruptionState(cluster="c", queue="demo", messages=FAILING))
    assert (wrong.level, wrong.subject) == ("problem", "reading of queue demo")
    assert DENIED in wrong.said and "2026-01-01 12:00" in wrong.said and "interruption.json" in wrong.todo
    assert (right.level, right.subject) == ("ok", "reading of status of instances")


async def test_a_status_that_the_worker_may_not_read_is_named() -> None:
    [wrong] = [
        one
        for one in await findings(InterruptionState(cluster="c", queue="demo", statuses=FAILING))
        if one.level != "ok"
    ]
    assert wrong.subject == "reading of status of instances" and "resource-discovery.json" in wrong.todo


@pytest.mark.parametrize(("worker", "here"), [("other", "demo"), ("", "demo"), ("demo", "")])
async def test_another_queue_than_the_settings_is_told(worker: str, here: str) -> None:
    [one] = await findings(InterruptionState(cluster="c", queue=worker), here)
    assert one.level == "advice" and (worker or "none") in one.said and (here or "not set") in one.said


async def test_without_a_queue_only_the_status_is_spoken_of() -> None:
    assert [one.subject for one in await findings(InterruptionState(cluster="c"), "")] == [
        "reading of status of instances"
    ]


@pytest.mark.parametrize("status", [RPCStatusCode.NOT_FOUND, RPCStatusCode.DEADLINE_EXCEEDED])
async def test_a_worker_that_never_ran_or_does_not_answer_is_another_finding_s_matter(status: RPCStatusCode) -> None:
    assert await findings(RPCError("no", status, b"")) == []
