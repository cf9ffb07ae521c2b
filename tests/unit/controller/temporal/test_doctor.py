"""The doctor's findings of Temporal: the service, its refusals, and what the worker itself reads."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tenure.controller.temporal.doctor import (
    TESTED_VERSIONS,
    _check_encryption,
    _check_limits,
    _check_updates,
    _check_version,
    _exhausted_types,
    check_invalid_objects,
    check_reading,
    check_temporal,
)
from tenure.model.errors import Finding, InvalidObject, InvalidObjectReport
from tenure.model.interruption.records import InterruptionState, SourceState
from tenure.sandbox.controlplane import tools
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Plan
from workflows import ids, search_attributes

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


@pytest.mark.parametrize("answers", (True, False))
async def test_each_invalid_object_is_a_problem(answers: bool) -> None:
    invalid = InvalidObject(kind="Pod", name="default/a", reason="InvalidField", message="spec: expected an object")

    async def query(name: str, **_: Any) -> InvalidObjectReport:
        assert name == "invalid_objects"
        if not answers:
            raise RPCError("no worker", RPCStatusCode.DEADLINE_EXCEEDED, b"")
        return InvalidObjectReport(objects=(invalid,))

    def handle(workflow_id: str) -> Any:
        assert workflow_id == ids.watch("c")
        return SimpleNamespace(query=query)

    found = await check_invalid_objects(cast(Client, SimpleNamespace(get_workflow_handle=handle)), "c")
    problems = [(one.level, one.subject, one.message) for one in found]
    assert problems == [("problem", "Pod default/a", "spec: expected an object")] * answers


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


async def test_a_dev_server_is_well_but_for_its_retention_and_that_no_worker_runs(tmp_path: Path) -> None:
    with Sandbox(tmp_path, plan=Plan(parts=("temporal",), manifests=())) as sandbox:
        client = await Client.connect(sandbox.temporal_address)
        found = {one.subject: one for one in await check_temporal(client, "c")}
    assert {"server", "updates", "search attributes"} <= {name for name, one in found.items() if one.level == "ok"}
    assert found[f"task queue {ids.task_queue('c')}"].level == "advice"
    assert all(one.todo for one in found.values() if one.level != "ok")


@pytest.mark.parametrize(
    ("version", "level"), [("1.27.2", "advice"), ("1.28.0", "ok"), ("1.31.0-alpha", "ok"), ("", "ok"), ("cloud", "ok")]
)
def test_an_old_server_is_advised_to_be_upgraded(version: str, level: str) -> None:
    assert _check_version(version, "")[0].level == level


def test_a_server_too_old_for_builds_is_a_problem_for_a_worker_that_has_one() -> None:
    [found] = _check_version("1.27.2", "v2")
    assert found.level == "problem" and "TEMPORAL_WORKER_BUILD_ID='v2'" in found.message
    assert "1.28" in found.todo and "workerVersioning: false" in found.todo
    assert _check_version("1.28.0", "v2")[0].level == "ok"


def test_the_versions_that_are_called_tested_are_those_of_the_sandbox() -> None:
    assert TESTED_VERSIONS == (tools.TEMPORAL_BEFORE, tools.TEMPORAL)


def test_a_namespace_without_updates_is_a_problem_with_the_setting_to_change() -> None:
    [found] = _check_updates("n", True, updates=False)
    assert found.level == "problem" and "enableUpdateWorkflowExecution" in found.todo
    assert _check_updates("n", False, updates=False) == [], "an older server does not say"


def test_a_small_limit_of_payloads_is_told_with_what_to_raise() -> None:
    [found] = _check_limits("n", 2**19)
    assert found.level == "advice" and "0.5 MiB" in found.message and "limit.blobSize.error" in found.todo
    assert _check_limits("n", 2**21)[0].level == "ok" and _check_limits("n", 0) == []


def test_a_connection_in_the_open_is_told_unless_it_stays_on_this_machine() -> None:
    assert "TEMPORAL_TLS" in _check_encryption("temporal.example:7233", secure=False)[0].todo
    assert (
        _check_encryption("127.0.0.1:7233", secure=False)
        == _check_encryption("temporal.example:7233", secure=True)
        == []
    )


def test_where_others_attributes_leave_no_room_the_type_is_named() -> None:
    kinds = dict.fromkeys(search_attributes.ALL, 2)
    assert _exhausted_types(kinds) == ""
    assert "Keyword" in _exhausted_types(kinds | {f"Others{number}": 2 for number in range(3)})


def test_ours_alone_fit_into_a_sql_store() -> None:
    assert _exhausted_types({}) == ""
