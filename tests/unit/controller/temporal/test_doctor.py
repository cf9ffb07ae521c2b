"""Findings of `tenure doctor` about Temporal: the service, rejected requests, and the worker's AWS sources."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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
    check_builds,
    check_invalid_objects,
    check_reading,
    check_temporal,
)
from tenure.controller.temporal.worker_versioning import Builds
from tenure.model.errors import Finding, InvalidObject, InvalidObjectReport
from tenure.model.interruption.records import InterruptionState, SourceState
from tenure.sandbox.controlplane import tools
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Plan
from tests.support.cli.remedies import find_faulty_remedies
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

    return await check_reading(cast(Client, SimpleNamespace(get_workflow_handle=handle)), "c", queue, "eu-west-1")


async def test_denied_queue_is_reported_with_the_missing_permission() -> None:
    problem, healthy = await findings(InterruptionState(cluster="c", queue="demo", messages=FAILING))
    assert (problem.level, problem.subject) == ("problem", "reading queue demo")
    assert DENIED in problem.message and "2026-01-01 12:00" in problem.message and "interruption.json" in problem.todo
    assert find_faulty_remedies([problem]) == []
    assert (healthy.level, healthy.subject) == ("ok", "reading instance status")


@pytest.mark.parametrize("responds", (True, False))
async def test_each_invalid_object_is_a_problem_if_a_worker_responds(responds: bool) -> None:
    invalid = InvalidObject(kind="Pod", name="default/a", reason="InvalidField", message="spec: expected an object")

    async def query(name: str, **_: Any) -> InvalidObjectReport:
        assert name == "invalid_objects"
        if not responds:
            raise RPCError("no worker", RPCStatusCode.DEADLINE_EXCEEDED, b"")
        return InvalidObjectReport(objects=(invalid,))

    def handle(workflow_id: str) -> Any:
        assert workflow_id == ids.watch("c")
        return SimpleNamespace(query=query)

    found = await check_invalid_objects(cast(Client, SimpleNamespace(get_workflow_handle=handle)), "c")
    problems = [(one.level, one.subject, one.message) for one in found]
    assert problems == [("problem", "Pod default/a", "spec: expected an object")] * responds
    assert all(one.todo.startswith("kubectl edit pod a -n default") for one in found)


async def test_denied_instance_status_is_reported_with_the_missing_permission() -> None:
    [problem] = [
        one
        for one in await findings(InterruptionState(cluster="c", queue="demo", statuses=FAILING))
        if one.level != "ok"
    ]
    assert problem.subject == "reading instance status" and "resource-discovery.json" in problem.todo


@pytest.mark.parametrize(("worker", "here"), [("other", "demo"), ("", "demo"), ("demo", "")])
async def test_queue_that_differs_from_the_settings_is_reported(worker: str, here: str) -> None:
    [one] = await findings(InterruptionState(cluster="c", queue=worker), here)
    assert one.level == "advice" and (worker or "none") in one.message and (here or "not set") in one.message
    assert find_faulty_remedies([one]) == []


async def test_only_instance_status_is_reported_without_a_queue() -> None:
    assert [one.subject for one in await findings(InterruptionState(cluster="c"), "")] == ["reading instance status"]


@pytest.mark.parametrize("status", [RPCStatusCode.NOT_FOUND, RPCStatusCode.DEADLINE_EXCEEDED])
async def test_missing_worker_is_no_finding_of_this_check(status: RPCStatusCode) -> None:
    assert await findings(RPCError("no", status, b"")) == []


class FailingTemporal:
    """A Temporal service that answers every request about a namespace with one error."""

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


async def test_missing_namespace_is_one_problem_with_the_create_command() -> None:
    absent = RPCError("Namespace prod is not found.", RPCStatusCode.NOT_FOUND, b"")
    [found] = await check_temporal(cast(Client, FailingTemporal(absent)), "c", region="eu-west-1")
    assert (found.level, found.subject) == ("problem", "namespace prod")
    assert "temporal operator namespace create --namespace prod --retention 30d" in found.todo


async def test_denied_credentials_leave_each_check_unknown() -> None:
    denied = RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")
    found = await check_temporal(cast(Client, FailingTemporal(denied)), "c", region="eu-west-1")
    assert [one.subject for one in found] == ["service", "namespace", "attributes", "workers"]
    assert {one.level for one in found} == {"unknown"}


async def test_dev_server_has_no_problem_but_advice(tmp_path: Path) -> None:
    with Sandbox(tmp_path, plan=Plan(parts=("temporal",), manifests=())) as sandbox:
        client = await Client.connect(sandbox.temporal_address)
        found = {one.subject: one for one in await check_temporal(client, "c", region="eu-west-1")}
    assert {"server", "updates", "search attributes"} <= {name for name, one in found.items() if one.level == "ok"}
    assert found[f"task queue {ids.task_queue('c')}"].level == "advice"
    assert find_faulty_remedies([*found.values()]) == []


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_only_the_current_build_is_reported_during_a_rollout() -> None:
    builds = Builds(
        current="0.2.0",
        ramping="0.3.0",
        ramp_percentage=10,
        ramp_started=NOON,
        workers={"0.2.0": 2, "0.3.0": 1},
        without_tasks_since={"0.3.0": NOON},
    )
    found = check_builds(builds, NOON + timedelta(minutes=2))
    assert [(one.level, one.message) for one in found] == [
        ("ok", "0.2.0 is current"),
        ("ok", "0.3.0 gets 10 % of the workflows"),
    ]
    late = check_builds(builds, NOON + timedelta(minutes=20))
    assert [one.level for one in late] == ["ok", "advice"] and "tenure build rollback" in late[1].todo


def test_workers_that_wait_longer_than_a_rollout_are_reported() -> None:
    builds = Builds(current="0.2.0", workers={"0.2.0": 2, "0.3.0": 1}, without_tasks_since={"0.3.0": NOON})
    assert [one.level for one in check_builds(builds, NOON + timedelta(minutes=2))] == ["ok"]
    _, found = check_builds(builds, NOON + timedelta(hours=1))
    assert (found.level, found.todo.partition(",")[0]) == ("advice", "run `tenure build promote --build 0.3.0`")


def test_current_build_without_workers_is_a_problem_with_the_rollback_command() -> None:
    [found] = check_builds(Builds(current="0.3.0", workers={"0.2.0": 1}), NOON)
    assert found.level == "problem" and "tenure build rollback --build 0.2.0" in found.todo
    assert check_builds(Builds(), NOON) == []


@pytest.mark.parametrize(
    ("version", "level"), [("1.27.2", "advice"), ("1.28.0", "ok"), ("1.31.0-alpha", "ok"), ("", "ok"), ("cloud", "ok")]
)
def test_old_server_version_is_advised_to_upgrade(version: str, level: str) -> None:
    assert _check_version(version, "")[0].level == level


def test_server_without_worker_versioning_is_a_problem_for_a_build_id() -> None:
    [found] = _check_version("1.27.2", "v2")
    assert found.level == "problem" and "TEMPORAL_WORKER_BUILD_ID='v2'" in found.message
    assert "1.28" in found.todo and "--set workerVersioning=false" in found.todo
    assert _check_version("1.28.0", "v2")[0].level == "ok"


def test_tested_versions_are_those_of_the_sandbox() -> None:
    assert TESTED_VERSIONS == (tools.TEMPORAL_BEFORE, tools.TEMPORAL)


def test_namespace_without_updates_is_a_problem_with_the_setting() -> None:
    [found] = _check_updates("n", True, updates=False)
    assert found.level == "problem" and "enableUpdateWorkflowExecution" in found.todo
    assert _check_updates("n", False, updates=False) == [], "an older server does not report it"


def test_small_payload_limit_is_reported_with_the_setting() -> None:
    [found] = _check_limits("n", 2**19)
    assert found.level == "advice" and "0.5 MiB" in found.message and "limit.blobSize.error" in found.todo
    assert _check_limits("n", 2**21)[0].level == "ok" and _check_limits("n", 0) == []


def test_plain_connection_is_reported_unless_local() -> None:
    assert "TEMPORAL_TLS" in _check_encryption("temporal.example:7233", secure=False)[0].todo
    assert (
        _check_encryption("127.0.0.1:7233", secure=False)
        == _check_encryption("temporal.example:7233", secure=True)
        == []
    )


FINDINGS = {
    "old server": lambda: _check_version("1.27.2", ""),
    "old server with a build": lambda: _check_version("1.27.2", "v2"),
    "no updates": lambda: _check_updates("n", True, updates=False),
    "small payloads": lambda: _check_limits("n", 2**19),
    "plain connection": lambda: _check_encryption("temporal.example:7233", secure=False),
    "no worker of the build": lambda: check_builds(Builds(current="0.3.0", workers={"0.2.0": 1}), NOON),
    "build without tasks": lambda: check_builds(
        Builds(current="0.2.0", workers={"0.2.0": 2, "0.3.0": 1}, without_tasks_since={"0.3.0": NOON}),
        NOON + timedelta(hours=1),
    )[1:],
}


@pytest.mark.parametrize("check", FINDINGS.values(), ids=list(FINDINGS))
def test_each_remedy_has_a_command(check: Callable[[], list[Finding]]) -> None:
    (found,) = check()
    assert found.level in ("problem", "advice") and find_faulty_remedies([found]) == []


def test_exhausted_search_attribute_type_is_named() -> None:
    kinds = dict.fromkeys(search_attributes.ALL, 2)
    assert _exhausted_types(kinds) == ""
    assert "Keyword" in _exhausted_types(kinds | {f"Others{number}": 2 for number in range(3)})


def test_own_search_attributes_fit_into_a_sql_store() -> None:
    assert _exhausted_types({}) == ""
