"""Published events: deduplication per reason, rate limit of nominations, and retries."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tenure.kube.client.events import KubeEvents
from tenure.model.errors import Conflict, Fault, Forbidden, Throttled, TryLater


class RecordingClient:
    """A client that records the events it is asked to create."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.faults: list[Fault] = []
        """Raised one by one by the next requests."""

    async def request(self, method: str, path: str, *, body: dict[str, Any]) -> dict[str, Any]:
        if self.faults:
            raise self.faults.pop(0)
        self.events.append({"path": path, **json.loads(json.dumps(body))})
        return {}

    @property
    def reasons_and_messages(self) -> list[tuple[str, str]]:
        return [(event["reason"], event["message"]) for event in self.events]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def sent() -> RecordingClient:
    return RecordingClient()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def events(sent: RecordingClient, clock: Clock) -> AsyncIterator[KubeEvents]:
    found = KubeEvents(sent, clock=clock, sleep=clock.sleep)  # type: ignore[arg-type]
    yield found
    await found.close()


async def publish_and_flush(
    events: KubeEvents, reason: str, message: str = "m", uid: str = "u", kind: str = "NodeClaim"
) -> None:
    await events.publish(kind=kind, name="c", uid=uid, reason=reason, message=message)
    await events.flush()


async def test_same_event_is_repeated_after_its_deduplication_period(
    events: KubeEvents, sent: RecordingClient, clock: Clock
) -> None:
    for at in (0.0, 119.0, 121.0):
        clock.now = at
        await publish_and_flush(events, "DisruptionBlocked")
    assert len(sent.events) == 2
    for at in (200.0, 450.0, 501.0):
        clock.now = at
        await publish_and_flush(events, "FailedScheduling")
    assert len(sent.events) == 4


async def test_event_with_a_changed_message_is_sent_soon(
    events: KubeEvents, sent: RecordingClient, clock: Clock
) -> None:
    await publish_and_flush(events, "DisruptionBlocked", "pod a")
    clock.now = 5
    await publish_and_flush(events, "DisruptionBlocked", "pod b")
    clock.now = 11
    await publish_and_flush(events, "DisruptionBlocked", "pod b")
    assert [message for _, message in sent.reasons_and_messages] == ["pod a", "pod b"]


async def test_events_are_deduplicated_per_object(events: KubeEvents, sent: RecordingClient) -> None:
    await publish_and_flush(events, "Evicted", uid="a")
    await publish_and_flush(events, "Evicted", uid="b")
    assert len(sent.events) == 2


@pytest.mark.parametrize("reason", ["Nominated", "InsufficientCapacityError"])
async def test_events_about_pods_of_plans_are_limited_to_ten_at_once_and_five_per_second(
    events: KubeEvents, sent: RecordingClient, clock: Clock, reason: str
) -> None:
    for clock.now, numbers, total in ((0.0, range(30), 10), (1.0, range(30, 60), 15)):
        for number in numbers:
            await publish_and_flush(events, reason, uid=f"pod-{number}", kind="Pod")
        assert len(sent.events) == total


async def test_events_about_tens_of_thousands_of_pods_take_little_time(events: KubeEvents) -> None:
    began = time.process_time()
    for number in range(30_000):
        await events.publish(kind="Pod", name="p", uid=str(number), reason="Nominated", message="m", namespace="web")
    assert time.process_time() - began < 5


async def test_limit_of_one_reason_leaves_the_others(events: KubeEvents, sent: RecordingClient) -> None:
    for number in range(30):
        await publish_and_flush(events, "Nominated", uid=f"pod-{number}", kind="Pod")
        await publish_and_flush(events, "InsufficientCapacityError", uid=f"claim-{number}")
    await publish_and_flush(events, "InsufficientCapacityError", uid="pod-30", kind="Pod")
    assert len(sent.events) == 10 + 30 + 1


async def test_event_of_a_cluster_object_is_in_the_default_namespace(events: KubeEvents, sent: RecordingClient) -> None:
    await publish_and_flush(events, "Evicted")
    event = sent.events[0]
    assert event["path"] == "/api/v1/namespaces/default/events"
    assert event["involvedObject"] == {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "u"}


@pytest.mark.parametrize(
    ("kind", "api_version"), [("StorageClass", "storage.k8s.io/v1"), ("Pod", "v1"), ("Unlisted", "v1")]
)
async def test_event_has_the_api_version_of_its_object(
    events: KubeEvents, sent: RecordingClient, kind: str, api_version: str
) -> None:
    await events.publish(kind=kind, name="c", uid="u", reason="InvalidObject", message="m")
    await events.flush()
    assert sent.events[0]["involvedObject"]["apiVersion"] == api_version


async def test_unreachable_server_raises_no_error(events: KubeEvents, sent: RecordingClient, clock: Clock) -> None:
    sent.faults = [TryLater("down")] * 5
    await publish_and_flush(events, "Evicted")
    assert not sent.faults and 30 < clock.now < 120
    await publish_and_flush(events, "Disrupted")
    assert sent.reasons_and_messages == [("Disrupted", "m")]


@pytest.mark.parametrize("fault", [TryLater("cut off"), Throttled("too many")])
async def test_failed_event_is_retried(events: KubeEvents, sent: RecordingClient, fault: Fault) -> None:
    sent.faults = [fault, fault]
    await publish_and_flush(events, "SpotInterrupted")
    assert sent.reasons_and_messages == [("SpotInterrupted", "m")]


async def test_conflict_on_retry_means_that_the_event_exists(
    events: KubeEvents, sent: RecordingClient, clock: Clock
) -> None:
    sent.faults = [TryLater("cut off"), Conflict("already exists")]
    await publish_and_flush(events, "SpotInterrupted")
    assert not sent.faults and not sent.reasons_and_messages
    await publish_and_flush(events, "Disrupted")
    assert sent.reasons_and_messages == [("Disrupted", "m")]


async def test_events_are_sent_after_many_lost_responses(events: KubeEvents, sent: RecordingClient) -> None:
    async with asyncio.timeout(5):
        for number in range(8):
            sent.faults = [TryLater("cut off"), Conflict("already exists")]
            await publish_and_flush(events, "SpotInterrupted", uid=f"u-{number}")
        await publish_and_flush(events, "Disrupted")
    assert sent.reasons_and_messages == [("Disrupted", "m")]


async def test_rejected_event_is_not_retried(events: KubeEvents, sent: RecordingClient, clock: Clock) -> None:
    sent.faults = [Forbidden("the namespace is being terminated")]
    await publish_and_flush(events, "Evicted")
    assert clock.now == 0.0 and not sent.reasons_and_messages


@pytest.mark.parametrize(
    ("reason", "warning", "expected"),
    [
        ("LaunchFailed", None, "Warning"),
        ("Evicted", None, "Normal"),
        ("AMIDrift", None, "Normal"),
        ("DisruptionPaused", True, "Warning"),
        ("GarbageCollected", False, "Normal"),
    ],
)
async def test_event_type_is_that_of_the_reason_unless_given(
    events: KubeEvents, sent: RecordingClient, reason: str, warning: bool | None, expected: str
) -> None:
    await events.publish(kind="NodeClaim", name="c", uid="u", reason=reason, message="m", warning=warning)
    await events.flush()
    assert [one["type"] for one in sent.events] == [expected]
