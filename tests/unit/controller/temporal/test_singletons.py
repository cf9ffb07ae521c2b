"""The first state of the workflows of a cluster, also when a terminated one starts again while the watch continues."""

from typing import Any, cast

from tenure.controller.temporal.client import Installation, list_singletons, start_singletons
from tenure.model.base import Message
from tenure.policy.disruption.commands import next_pass
from tests.support.controller.builders import NOW
from tests.unit.controller.fake_temporal import FakeTemporal
from workflows import ids


class RecordingClient(FakeTemporal):
    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, Message] = {}

    async def start_workflow(self, workflow: str, state: Message, **options: Any) -> None:
        assert options["id"] in self.reset_workflow_ids, "the signal must not wait for a killed worker"
        self.states[options["id"]] = state


async def test_signals_to_singletons_do_not_wait_for_a_killed_worker() -> None:
    temporal = RecordingClient()
    await start_singletons(temporal.client, Installation("demo"))
    assert temporal.states.keys() == list_singletons("demo").keys()


async def test_new_cluster_workflow_runs_a_pass_without_a_change() -> None:
    temporal = RecordingClient()
    await start_singletons(temporal.client, Installation("demo"))
    assert next_pass(cast(Any, temporal.states[ids.cluster("demo")]), NOW) == NOW
