"""Instance status reported by EC2: when its node is signaled, and when the status is over."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.model.interruption.messages import FailedCheck, InterruptionMessage, OpenInterruption, StatusReport
from tenure.policy.interruption.due_times import StatusMessages, decide_status, update_open_messages

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ONE, OTHER = "i-one", "i-other"


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def failing(*, seconds: float | None, kind: Any = "instanceStatus", instance: str = ONE) -> StatusReport:
    since = None if seconds is None else at(-seconds)
    return StatusReport(instance_id=instance, failed_checks=(FailedCheck(kind=kind, since=since),))


def event(status: str = "announced", *, starts: float = 86400, instance: str = ONE) -> StatusReport:
    message = InterruptionMessage.model_validate(
        {
            "kind": "scheduledChange",
            "id": "instance-event-1",
            "source": "status",
            "at": NOW,
            "starts": at(starts),
            "code": "instance-retirement",
            "status": status,
        }
    )
    return StatusReport(instance_id=instance, events=(message,))


def decide(
    *reports: StatusReport,
    open_messages: Sequence[OpenInterruption] = (),
    failing_since: Any = None,
    now: datetime = NOW,
) -> StatusMessages:
    return decide_status(reports, open_messages=open_messages, failing_since=failing_since or {}, now=now)


def open_messages_after(*reports: StatusReport) -> tuple[OpenInterruption, ...]:
    """The open messages after these reports."""
    open_messages: tuple[OpenInterruption, ...] = ()
    for instance, messages in decide(*reports).by_instance.items():
        open_messages = update_open_messages(open_messages, instance, messages)
    return open_messages


def test_failed_check_counts_after_two_minutes() -> None:
    assert decide(failing(seconds=119)).by_instance == {}
    (message,) = decide(failing(seconds=120)).by_instance[ONE]
    assert (message.kind, message.source, message.status, message.code) == (
        "instanceStatus",
        "status",
        "announced",
        "impaired",
    )
    assert decide(failing(seconds=120, kind="systemStatus")).by_instance[ONE][0].kind == "systemStatus"


def test_check_without_start_time_counts_from_its_first_report() -> None:
    """Karpenter assumes that it failed since the year one and terminates the node at once (Q9)."""
    first = decide(failing(seconds=None))
    assert first.by_instance == {}
    second = decide(failing(seconds=None), failing_since=first.failing_since, now=at(119))
    assert second.by_instance == {}
    last = decide(failing(seconds=None), failing_since=second.failing_since, now=at(120))
    assert last.by_instance[ONE][0].id == NOW.isoformat()


def test_recovered_check_restarts_its_age() -> None:
    first = decide(failing(seconds=None))
    well = decide(failing_since=first.failing_since, now=at(60))
    assert well.failing_since == {}
    assert decide(failing(seconds=None), failing_since=well.failing_since, now=at(180)).by_instance == {}


def test_open_check_without_start_time_is_not_over_after_a_failover() -> None:
    first = decide(failing(seconds=None))
    open_messages = update_open_messages(
        (), ONE, decide(failing(seconds=None), failing_since=first.failing_since, now=at(120)).by_instance[ONE]
    )
    result = decide(failing(seconds=None), open_messages=open_messages, now=at(130))
    assert [one.status for one in result.by_instance[ONE]] == ["announced"]
    assert update_open_messages(open_messages, ONE, result.by_instance[ONE]) == open_messages


def test_scheduled_event_counts_at_once() -> None:
    (message,) = decide(event(starts=14 * 86400)).by_instance[ONE]
    assert message.starts == at(14 * 86400)


def test_check_that_passes_again_is_over() -> None:
    open_messages = open_messages_after(failing(seconds=200), failing(seconds=200, instance=OTHER))
    result = decide(failing(seconds=260, instance=OTHER), open_messages=open_messages, now=at(60))
    (over,) = result.by_instance[ONE]
    assert (over.status, over.kind, over.at, over.id) == ("over", "instanceStatus", at(60), open_messages[0].message.id)
    assert update_open_messages(open_messages, ONE, result.by_instance[ONE]) == open_messages[1:]


def test_completed_or_withdrawn_event_is_closed() -> None:
    open_messages = open_messages_after(event())
    for status in ("over", "withdrawn"):
        result = decide(event(status), open_messages=open_messages)
        assert [one.status for one in result.by_instance[ONE]] == [status]
        assert update_open_messages(open_messages, ONE, result.by_instance[ONE]) == ()


def test_event_that_is_no_longer_listed_is_over() -> None:
    assert [one.status for one in decide(open_messages=open_messages_after(event())).by_instance[ONE]] == ["over"]


def test_repeated_report_keeps_open_messages() -> None:
    """Otherwise the stored open messages would change every minute."""
    open_messages = open_messages_after(event(), failing(seconds=200, instance=OTHER))
    result = decide(event(), failing(seconds=200, instance=OTHER), open_messages=open_messages, now=at(60))
    after = open_messages
    for instance, messages in result.by_instance.items():
        after = update_open_messages(after, instance, messages)
    assert after == open_messages


def test_rescheduled_event_is_open_at_its_new_time() -> None:
    open_messages = open_messages_after(event())
    moved = decide(event(starts=3 * 86400), open_messages=open_messages).by_instance[ONE]
    assert [one.message.starts for one in update_open_messages(open_messages, ONE, moved)] == [at(3 * 86400)]
