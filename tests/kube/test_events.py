"""Which events are sent: the same one not twice in two minutes, and not too many nominations."""

import json
from typing import Any

import pytest

from kube.events import KubeEvents
from model.faults import TryLater


class Sent:
    """Stands in for the client: remembers the events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.broken = False

    async def request(self, method: str, path: str, *, body: dict[str, Any]) -> dict[str, Any]:
        if self.broken:
            raise TryLater("down")
        self.events.append({"path": path, **json.loads(json.dumps(body))})
        return {}

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(event["reason"], event["message"]) for event in self.events]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def events(sent: Sent, clock: Clock) -> KubeEvents:
    return KubeEvents(sent, clock=clock)  # type: ignore[arg-type]


async def say(events: KubeEvents, reason: str, message: str = "m", uid: str = "u") -> None:
    await events.publish(kind="NodeClaim", name="c", uid=uid, reason=reason, message=message)
    await events.flush()


async def test_the_same_event_is_repeated_after_its_quiet_time(events: KubeEvents, sent: Sent, clock: Clock) -> None:
    for moment in (0.0, 119.0, 121.0):
        clock.now = moment
        await say(events, "DisruptionBlocked")
    assert len(sent.events) == 2
    for moment in (200.0, 450.0, 501.0):
        clock.now = moment
        await say(events, "FailedScheduling")
    assert len(sent.events) == 4
    await events.close()


async def test_a_changed_reason_is_not_hidden_for_long(events: KubeEvents, sent: Sent, clock: Clock) -> None:
    await say(events, "DisruptionBlocked", "pod a")
    clock.now = 5
    await say(events, "DisruptionBlocked", "pod b")
    clock.now = 11
    await say(events, "DisruptionBlocked", "pod b")
    assert [message for _, message in sent.said] == ["pod a", "pod b"]
    await events.close()


async def test_objects_do_not_silence_each_other(events: KubeEvents, sent: Sent) -> None:
    await say(events, "Evicted", uid="a")
    await say(events, "Evicted", uid="b")
    assert len(sent.events) == 2
    await events.close()


async def test_nominations_come_in_a_burst_of_ten_and_five_a_second(
    events: KubeEvents, sent: Sent, clock: Clock
) -> None:
    for number in range(30):
        await say(events, "Nominated", uid=f"pod-{number}")
    assert len(sent.events) == 10
    clock.now = 1.0
    for number in range(30, 60):
        await say(events, "Nominated", uid=f"pod-{number}")
    assert len(sent.events) == 15
    await events.close()


async def test_a_cluster_object_is_spoken_of_in_the_default_namespace(events: KubeEvents, sent: Sent) -> None:
    await say(events, "Evicted")
    event = sent.events[0]
    assert event["path"] == "/api/v1/namespaces/default/events"
    assert event["involvedObject"] == {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "u"}
    await events.close()


async def test_a_server_that_is_down_fails_nobody(events: KubeEvents, sent: Sent) -> None:
    sent.broken = True
    await say(events, "Evicted")
    sent.broken = False
    await say(events, "Disrupted")
    assert sent.said == [("Disrupted", "m")]
    await events.close()
