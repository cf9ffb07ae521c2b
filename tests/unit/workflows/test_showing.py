"""A question about voluntary disruption: answered by the planner's host, and over soon where there is none."""

from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError

from tenure.cli.nodes.why import ask
from tenure.model.operator_requests import ShowAsked
from tests.support.fakes.worker import World
from workflows import ids
from workflows.activity_options import PLAN
from workflows.cluster_watch import ShowWorkflow


async def test_a_question_is_answered(fake: World) -> None:
    async with fake.planning():
        found = await ask(fake.client, fake.cluster, "node-1")
    assert found.said == ("asked for node-1",) and not found.blocked


async def test_without_a_host_it_ends_and_says_so(fake: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLAN, "schedule_to_start_timeout", timedelta(seconds=0.4))
    with pytest.raises(WorkflowFailureError):
        await fake.client.execute_workflow(
            ShowWorkflow.run,
            ShowAsked(cluster=fake.cluster),
            id=ids.show(fake.cluster, "1"),
            task_queue=ids.task_queue(fake.cluster),
        )
    assert (await ask(fake.client, fake.cluster)).blocked.startswith("no worker answers: ")
