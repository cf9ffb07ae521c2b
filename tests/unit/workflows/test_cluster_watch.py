"""ClusterWatch: its details show the host of the watch and invalid objects, and it costs nothing while idle."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

import workflows.activity_options
from tenure.model.errors import InvalidObject, InvalidObjectReport
from tenure.model.workflow_states import WatchHost
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.coordinators import ClusterWatch, start_cluster_watch
from tests.support.workflows.eventually import has_continued_as_new, wait_until
from workflows.cluster_watch import ClusterWatchWorkflow

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
INVALID = InvalidObject(kind="Pod", name="default/a", reason="InvalidField", message="spec: expected an object")


async def read_details(handle: WorkflowHandle[Any, Any]) -> str:
    return str((await handle.query("__temporal_workflow_metadata")).current_details)


async def test_details_show_the_host_or_its_fault(fake: WorkerHarness) -> None:
    handle = await start_cluster_watch(fake)
    assert "Waiting for a worker" in await read_details(handle)
    await handle.signal(ClusterWatchWorkflow.report_host, WatchHost(identity="1@tenure-a", at=AT))
    assert "Worker `1@tenure-a` hosts the watch" in await read_details(handle)
    await handle.signal(
        ClusterWatchWorkflow.report_host, WatchHost(identity="1@tenure-a", at=AT, fault="no API server")
    )
    assert "cannot host the watch" in await read_details(handle) and "no API server" in await read_details(handle)


async def test_idle_watch_adds_no_events(fake: WorkerHarness) -> None:
    handle = await start_cluster_watch(fake)
    await read_details(handle)
    before = (await handle.describe()).history_length
    await fake.sleep(timedelta(days=1))
    assert (await handle.describe()).history_length == before


async def test_invalid_objects_survive_continue_as_new(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.activity_options, "CONTINUE_AS_NEW_AT_EVENTS", 10)
    handle = await start_cluster_watch(fake)
    await handle.signal(ClusterWatchWorkflow.report_invalid_objects, InvalidObjectReport(objects=(INVALID,)))
    for number in range(10):
        await handle.signal(ClusterWatchWorkflow.report_host, WatchHost(identity=f"{number}@tenure-a", at=AT))
    await wait_until(lambda: has_continued_as_new(fake.client, handle))
    current: ClusterWatch = fake.client.get_workflow_handle(handle.id)
    assert (await current.query(ClusterWatchWorkflow.invalid_objects)).objects == (INVALID,)
    assert "spec: expected an object" in await read_details(current)
