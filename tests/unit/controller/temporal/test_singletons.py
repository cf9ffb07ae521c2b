"""The first state of the workflows of a cluster, also when a terminated one starts again while the watch continues."""

from typing import Any, cast

from temporalio.client import Client

from tenure.controller.temporal.client import Installation, start_singletons
from tenure.model.base import Message
from tenure.policy.disruption.commands import next_pass
from tests.support.controller.builders import NOW
from workflows import ids


class RecordingClient:
    def __init__(self) -> None:
        self.states: dict[str, Message] = {}

    async def start_workflow(self, workflow: str, state: Message, **options: Any) -> None:
        self.states[options["id"]] = state


async def test_new_cluster_workflow_runs_a_pass_without_a_change() -> None:
    temporal = RecordingClient()
    await start_singletons(cast(Client, temporal), Installation("demo"))
    assert next_pass(cast(Any, temporal.states[ids.cluster("demo")]), NOW) == NOW
