"""Invalid objects are counted, signaled to the ClusterWatch workflow, and published as one event per object."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from temporalio.common import MetricMeter

from tenure.controller.cache.changes import ChangeBatch
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.invalid_object_reporter import REPEAT_AFTER, InvalidObjectReporter
from tenure.controller.settings import ControllerSettings
from tenure.model.errors import InvalidObjectReport
from tenure.model.invalid_objects import MAX_REPORTED, ObjectKey
from tests.unit.controller.fake_temporal import RecordingSignalQueue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BATCH = cast(ChangeBatch, None)
POD = ObjectKey("Pod", "default/a", "uid-a")
SETTINGS = ControllerSettings(cluster="c")


class FakeEvents:
    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []

    async def publish(self, **event: Any) -> None:
        if event["name"] == "bad":
            raise ZeroDivisionError("injected")
        self.published.append(event)


class Harness:
    def __init__(self) -> None:
        self.now = NOW
        self.cache, self.events, self.signals = ClusterCache(lambda: self.now), FakeEvents(), RecordingSignalQueue()
        self.reporter = InvalidObjectReporter(
            SETTINGS, self.cache, self.events, self.signals, MetricMeter.noop, lambda: self.now
        )

    def fail(self, key: ObjectKey, message: str = "bad") -> None:
        with self.cache.invalid_objects.guard(key):
            raise ValueError(message)

    async def report(self) -> None:
        self.reporter.on_changes(BATCH)
        await self.reporter.publish_events()


async def test_event_is_published_per_error_and_repeated_after_an_hour() -> None:
    harness = Harness()
    harness.fail(POD)
    for _ in range(2):
        await harness.report()
    [event] = harness.events.published
    about = [event[field] for field in ("kind", "namespace", "name", "uid", "reason")]
    assert about == ["Pod", "default", "a", "uid-a", "InvalidObject"]
    assert event["message"].startswith("bad; no node is planned for it, and its node is protected")
    harness.now += REPEAT_AFTER + timedelta(seconds=1)
    await harness.report()
    harness.fail(POD, "worse")
    await harness.report()
    assert [one["message"][:5] for one in harness.events.published] == ["bad; ", "bad; ", "worse"]


async def test_event_that_cannot_be_published_affects_no_other() -> None:
    harness = Harness()
    harness.fail(ObjectKey("Pod", "default/bad", "uid-bad"))
    harness.fail(POD)
    for _ in range(3):
        await harness.report()
    assert [one["name"] for one in harness.events.published] == ["a"]
    assert harness.cache.invalid_objects.count() == {("Pod", "InvalidValue"): 2, ("Pod", "ZeroDivisionError"): 1}


async def test_watch_workflow_receives_the_list_and_its_end() -> None:
    harness = Harness()
    await harness.report()
    assert harness.signals.signals == []
    harness.fail(POD)
    await harness.report()
    with harness.cache.invalid_objects.guard(POD):
        pass
    await harness.report()
    reports = [cast(InvalidObjectReport, one.argument) for one in harness.signals.signals]
    assert [[one.name for one in report.objects] for report in reports] == [["default/a"], []]
    assert {(one.workflow_id, one.name) for one in harness.signals.signals} == {("c/watch", "report_invalid_objects")}


def test_object_stays_invalid_while_it_is_processed_again() -> None:
    harness = Harness()
    harness.fail(POD)
    with harness.cache.invalid_objects.guard(POD):
        assert harness.cache.invalid_objects.items().keys() == {POD}
    assert not harness.cache.invalid_objects.items()


def test_long_report_is_truncated_with_a_count() -> None:
    harness = Harness()
    for number in range(MAX_REPORTED + 3):
        harness.fail(ObjectKey("Pod", f"default/{number}"), "x" * 10_000)
    report = harness.cache.invalid_objects.report()
    assert (len(report.objects), report.omitted) == (MAX_REPORTED, 3)
    assert len(report.model_dump_json()) < 25_000
