"""The disruption status of a node comes from the process that hosts the planner; without one it is an error."""

from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError

from tenure.cli.nodes.why import query_disruption_status
from tenure.model.operator_requests import DisruptionPreviewRequest
from tests.support.fakes.worker import WorkerHarness
from workflows import ids
from workflows.activity_options import PLAN
from workflows.cluster_watch import DisruptionPreviewWorkflow


async def test_status_is_returned(fake: WorkerHarness) -> None:
    async with fake.running_planner():
        found = await query_disruption_status(fake.client, fake.cluster, "node-1")
    assert found.messages == ("asked for node-1",) and not found.blocked


async def test_status_without_host_fails_with_message(fake: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLAN, "schedule_to_start_timeout", timedelta(seconds=0.4))
    with pytest.raises(WorkflowFailureError):
        await fake.client.execute_workflow(
            DisruptionPreviewWorkflow.run,
            DisruptionPreviewRequest(cluster=fake.cluster),
            id=ids.disruption_preview(fake.cluster, "1"),
            task_queue=ids.task_queue(fake.cluster),
        )
    assert (await query_disruption_status(fake.client, fake.cluster)).blocked.startswith("no worker responded: ")
