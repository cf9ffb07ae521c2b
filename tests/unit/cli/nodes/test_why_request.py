"""`tenure why` asks a worker that has just started again, and no other."""

from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowQueryFailedError

from tenure.cli.nodes import why
from tenure.cli.nodes.workflows import NodeClaimSummary
from tenure.model.nodeclaim.history import NodeClaimExplanation

NODECLAIM = NodeClaimSummary(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=None)


class FakeWorkflow:
    """A workflow that refuses so often."""

    def __init__(self, *errors: str) -> None:
        self.errors, self.query_count = list(errors), 0

    def get_workflow_handle(self, workflow_id: str) -> "FakeWorkflow":
        return self

    async def query(self, name: str, result_type: type[NodeClaimExplanation]) -> NodeClaimExplanation:
        self.query_count += 1
        if self.errors:
            raise WorkflowQueryFailedError(self.errors.pop(0))
        return NodeClaimExplanation.model_construct()


async def explain(workflow: FakeWorkflow) -> NodeClaimExplanation | str:
    return await why.query_explanation(cast(Client, cast(Any, workflow)), NODECLAIM)


@pytest.fixture(autouse=True)
def retry_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "RETRY_DELAYS_SECONDS", (0.0, 0.0, 0.0))


async def test_one_that_is_asked_just_as_news_comes_is_asked_again() -> None:
    workflow = FakeWorkflow("events came with a query, before their workflow task: ask again")
    assert isinstance(await explain(workflow), NodeClaimExplanation) and workflow.query_count == 2


async def test_one_that_does_not_know_the_question_is_asked_once() -> None:
    workflow = FakeWorkflow("unknown query told")
    response = await explain(workflow)
    assert isinstance(response, str) and "older version" in response and workflow.query_count == 1


async def test_one_that_never_answers_is_given_up() -> None:
    workflow = FakeWorkflow(*["ask again"] * 9)
    assert isinstance(await explain(workflow), str) and workflow.query_count == 4
