"""Long-lived workflows continue after a cancellation request, and their details state how to stop them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.workflowservice.v1 import ListOpenWorkflowExecutionsRequest

from tenure.controller.temporal.client import restart_missing_singletons, start_singletons
from tenure.model.workflow_states import BatchWindow
from tests.support.fakes.worker import WorkerHarness
from tests.support.workflows.eventually import wait_until
from tests.support.workflows.nodeclaim_workflows import ready_nodeclaim, start_nodeclass, start_nodepool
from workflows import ids
from workflows.cancellation import IgnoresCancellation
from workflows.runner import WORKFLOWS

SINGLETONS = (ids.watch, ids.provisioning, ids.cluster, ids.interruption)
COORDINATORS: tuple[Callable[[WorkerHarness], Awaitable[Any]], ...] = (ready_nodeclaim, start_nodepool, start_nodeclass)


@pytest.mark.parametrize("start", COORDINATORS)
async def test_workflow_of_an_object_ignores_cancellation(
    fake: WorkerHarness, start: Callable[[WorkerHarness], Awaitable[Any]]
) -> None:
    workflow_id = (await start(fake)).id
    await assert_cancellation_ignored(fake, workflow_id)
    await fake.sleep(minutes=5)
    assert await is_open(fake, workflow_id)


@pytest.mark.parametrize("workflow_id", SINGLETONS)
async def test_singleton_ignores_cancellation(planning: WorkerHarness, workflow_id: Callable[[str], str]) -> None:
    await start_singletons(planning.client, planning.cluster, BatchWindow())
    await assert_cancellation_ignored(planning, workflow_id(planning.cluster))


async def assert_cancellation_ignored(fake: WorkerHarness, workflow_id: str) -> None:
    """It runs, and its details name the request and the remedy."""
    handle = fake.client.get_workflow_handle(workflow_id)
    await handle.cancel()

    async def explains() -> bool:
        text = str(await handle.query("__temporal_workflow_metadata"))
        return "Cancellation requested at" in text and "To stop it, " in text

    await wait_until(explains)
    assert await is_open(fake, workflow_id)


async def is_open(fake: WorkerHarness, workflow_id: str) -> bool:
    request = ListOpenWorkflowExecutionsRequest(namespace=fake.client.namespace, maximum_page_size=100)
    opened = await fake.client.workflow_service.list_open_workflow_executions(request)
    return workflow_id in {one.execution.workflow_id for one in opened.executions}


def test_only_short_workflows_follow_cancellation() -> None:
    following = {one.__name__ for one in WORKFLOWS if not issubclass(one, IgnoresCancellation)}
    assert following == {"DisruptionWorkflow", "DisruptionPreviewWorkflow", "GarbageCollectionWorkflow"}


async def test_terminated_singleton_is_started_again(planning: WorkerHarness) -> None:
    window, every = BatchWindow(), timedelta(seconds=0.1)
    await start_singletons(planning.client, planning.cluster, window)
    terminated = ids.provisioning(planning.cluster)
    with patch("tenure.controller.temporal.client.is_open", lambda _, workflow_id: is_open(planning, workflow_id)):
        check = asyncio.create_task(restart_missing_singletons(planning.client, planning.cluster, window, every=every))
        await planning.client.get_workflow_handle(terminated).terminate("a person did it")
        await wait_until(lambda: is_open(planning, terminated))
        check.cancel()
