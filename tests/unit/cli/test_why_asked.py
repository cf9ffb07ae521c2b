"""`tenure why` asks a worker that has just started again, and no other."""

from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowQueryFailedError

from tenure.cli.nodes import why
from tenure.cli.nodes.workflows import NodeLife
from tenure.model.nodeclaim_history import Told

LIFE = NodeLife(workflow_id="demo/nodeclaim/one/1", name="one", phase="Ready", since=None)


class Asked:
    """A workflow that refuses so often."""

    def __init__(self, *refusals: str) -> None:
        self.refusals, self.times = list(refusals), 0

    def get_workflow_handle(self, workflow_id: str) -> "Asked":
        return self

    async def query(self, name: str, result_type: type[Told]) -> Told:
        self.times += 1
        if self.refusals:
            raise WorkflowQueryFailedError(self.refusals.pop(0))
        return Told.model_construct()


async def told(asked: Asked) -> Told | str:
    return await why.told_by(cast(Client, cast(Any, asked)), LIFE)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "AGAIN_IN", (0.0, 0.0, 0.0))


async def test_one_that_is_asked_just_as_news_comes_is_asked_again() -> None:
    asked = Asked("events came with a query, before their workflow task: ask again")
    assert isinstance(await told(asked), Told) and asked.times == 2


async def test_one_that_does_not_know_the_question_is_asked_once() -> None:
    asked = Asked("unknown query told")
    said = await told(asked)
    assert isinstance(said, str) and "older version" in said and asked.times == 1


async def test_one_that_never_answers_is_given_up() -> None:
    asked = Asked(*["ask again"] * 9)
    assert isinstance(await told(asked), str) and asked.times == 4
