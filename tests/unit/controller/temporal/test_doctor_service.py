"""What the doctor says of the Temporal service: a dev server is well, and whatever is not has its advice."""

from pathlib import Path

import pytest
from temporalio.client import Client

from tenure.controller.temporal.doctor import (
    TESTED_VERSIONS,
    _check_encryption,
    _check_limits,
    _check_updates,
    _check_version,
    _exhausted_types,
    check_temporal,
)
from tenure.sandbox.controlplane import tools
from tenure.sandbox.environment import Sandbox
from tenure.sandbox.spec import Plan
from workflows import ids, search_attributes


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
