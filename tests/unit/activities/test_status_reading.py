"""Instances' status is read every minute: what is new is told, what is open is remembered, what is over as well."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.interruption.instance_status import StatusReading
from tenure.model.errors import Forbidden, NotFound, TryLater
from tenure.model.interruption.notices import FailedCheck, Notice, OpenNotice, StatusReport
from tenure.model.interruption.records import QueueAsked, ReadingEnded, StatusAsked
from tests.support.fakes.interruptions import FakeInterruptions
from tests.unit.activities.builders import performed

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Scene(FakeInterruptions):
    """A clock that goes on as it is slept, and EC2 that says something else at some minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.script: dict[int, list[StatusReport]] = {}
        """By minutes from the beginning."""
        self.reading = self.another()

    def another(self) -> StatusReading:
        """That of another process."""
        return StatusReading(
            statuses=self.statuses, nodes=self.nodes, metrics=self.metrics, now=lambda: self.now, sleep=self.sleep
        )

    async def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        minute = round((self.now - NOW).total_seconds() / 60)
        if minute > 20:
            raise asyncio.CancelledError
        self.statuses.reports = self.script.get(minute, self.statuses.reports)

    async def read(self, **asked: Any) -> ReadingEnded:
        return await self.reading.run(StatusAsked.model_validate(asked))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def failing(instance: str, seconds: float | None = 300) -> StatusReport:
    since = None if seconds is None else NOW - timedelta(seconds=seconds)
    return StatusReport(instance_id=instance, failed=(FailedCheck(kind="systemStatus", since=since),))


def event(instance: str, status: str = "announced") -> StatusReport:
    fields = {"kind": "scheduledChange", "id": "e-1", "source": "status", "at": NOW, "status": status}
    return StatusReport(instance_id=instance, events=(Notice.model_validate(fields),))


async def test_what_is_wrong_is_told_and_remembered(scene: Scene) -> None:
    scene.statuses.reports = [failing("i-a"), event("i-b"), failing("x-1")]
    ended = await scene.read()
    assert scene.nodes.heard("i-a") == ["systemStatus announced"]
    assert scene.nodes.heard("i-b") == ["scheduledChange announced"]
    assert [one.instance_id for one in ended.told] == ["i-a", "i-b"]
    counts = {key: n for key, n in scene.metrics.counts.items() if key.startswith("unhealthy")}
    assert counts == {"unhealthy system_status": 1, "unhealthy event_status": 1}


async def test_the_same_every_minute_is_one_thing(scene: Scene) -> None:
    """And nothing to come back with: a workflow that waits grows no history."""
    scene.statuses.reports = [failing("i-a"), event("i-b")]
    ended = await scene.read()
    with pytest.raises(asyncio.CancelledError):
        await scene.read(told=ended.told, last=ended.last)
    assert scene.statuses.reads == 21
    assert len(scene.nodes.told) == 2
    assert scene.metrics.counts["unhealthy system_status"] == 1


async def test_what_is_well_again_is_over(scene: Scene) -> None:
    scene.statuses.reports = [failing("i-a")]
    ended = await scene.read()
    scene.script = {7: []}
    ended = await scene.read(told=ended.told, last=ended.last)
    assert ended.told == ()
    assert scene.nodes.heard("i-a") == ["systemStatus announced", "systemStatus over"]
    assert ended.last == NOW + timedelta(minutes=7)


async def test_it_is_read_once_a_minute_whoever_reads(scene: Scene) -> None:
    scene.script = {1: [failing("i-a")]}
    ended = await scene.read(last=NOW - timedelta(seconds=10))
    assert ended.last == NOW + timedelta(seconds=50)
    assert scene.statuses.reads == 1


async def test_a_successor_says_what_is_over_that_it_never_saw(scene: Scene) -> None:
    told = OpenNotice(instance_id="i-a", notice=Notice(kind="instanceStatus", id="then", source="status", at=NOW))
    assert (await scene.read(told=(told,))).told == ()
    assert scene.nodes.heard("i-a") == ["instanceStatus over"]


async def test_a_check_of_unknown_age_counts_two_minutes_after_it_was_seen(scene: Scene) -> None:
    scene.statuses.reports = [failing("i-a", None)]
    ended = await scene.read()
    assert ended.last == NOW + timedelta(minutes=2)
    assert scene.nodes.heard("i-a") == ["systemStatus announced"]


async def test_a_node_that_cannot_be_told_is_told_the_next_time(scene: Scene) -> None:
    scene.nodes.standings = {"i-a": ["later", "not yet"]}
    scene.statuses.reports = [failing("i-a")]
    ended = await scene.read()
    assert ended.last == NOW + timedelta(minutes=2)
    assert len(ended.told) == 1


async def test_one_that_cannot_be_told_keeps_no_other_from_being_told(scene: Scene) -> None:
    scene.nodes.failing = {"i-a"}
    scene.statuses.reports = [failing("i-a"), failing("i-b")]
    assert [one.instance_id for one in (await scene.read()).told] == ["i-b"]


async def test_a_node_that_is_gone_is_forgotten(scene: Scene) -> None:
    scene.statuses.reports = [failing("i-a")]
    ended = await scene.read()
    scene.nodes.standings = {"i-a": ["over"]}
    scene.script = {1: []}
    assert (await scene.read(told=ended.told, last=ended.last)).told == ()


async def test_a_fault_is_a_value_and_what_is_open_stays(scene: Scene) -> None:
    scene.statuses.faults = {"read": [Forbidden("not allowed", code="UnauthorizedOperation")]}
    told = OpenNotice(instance_id="i-a", notice=Notice(kind="instanceStatus", id="1", source="status", at=NOW))
    asked = StatusAsked(told=(told,), last=None)
    ended = await performed(scene.activities().read_instance_status, asked)
    assert ended == ReadingEnded(fault="UnauthorizedOperation: not allowed", told=(told,))


async def test_a_queue_that_is_not_there_is_a_value(scene: Scene) -> None:
    scene.queue.faults = {"receive": [NotFound("no such queue", code="QueueDoesNotExist")]}
    ended = await performed(scene.activities().read_queue, QueueAsked(queue="demo"))
    assert ended.fault == "QueueDoesNotExist: no such queue"


async def test_a_reader_that_stops_hands_on(scene: Scene) -> None:
    """With Temporal's retry, which costs no history."""
    scene.queue.faults = {"receive": [TryLater("503")] * 3}
    environment = ActivityEnvironment()
    running = asyncio.ensure_future(environment.run(scene.activities().read_queue, QueueAsked(queue="demo")))
    await asyncio.sleep(0.05)
    environment.worker_shutdown()
    with pytest.raises(Exception, match="this worker stops"):
        await asyncio.wait_for(running, 60)
    assert scene.queue.polling == 0
