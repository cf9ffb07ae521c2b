"""Interruption messages of one node: repeats, reschedules, withdrawals, and two sources of one event."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.model.interruption.messages import InterruptionMessage
from tenure.policy.interruption.events import (
    MAX_TRACKED,
    end_stopping_events,
    events_of,
    format_annotation,
    parse_annotation,
    record_approval,
    record_messages,
    restore_messages,
)
from tests.unit.policy.builders import NOW, after, before
from tests.unit.policy.interruption_builders import NO, YES, interruption_message

SOON = interruption_message(starts=after(hours=48))
MOVED = interruption_message(starts=after(hours=72), at=NOW)
WITHDRAWN = interruption_message(starts=None, at=NOW, status="withdrawn")
STATUS = interruption_message(
    id="instance-event-1", source="status", at=before(minutes=4), starts=after(hours=48, seconds=20)
)


def statuses(*messages: InterruptionMessage) -> list[str]:
    return [one.status for one in events_of(record_messages((), messages, NOW))]


def test_repeated_message_changes_nothing() -> None:
    known = record_messages((), (SOON,), NOW)
    assert record_messages(known, (SOON, SOON.model_copy(update={"at": NOW})), after(hours=1)) == known


def test_maintenance_reported_by_both_sources_is_one_event() -> None:
    (event,) = events_of(record_messages((), (SOON, STATUS), NOW))
    assert event.reason == "event_status" and event.code == "instance-retirement"


def test_maintenance_at_two_times_is_two_events() -> None:
    assert (
        len(events_of(record_messages((), (SOON, interruption_message(id="other", starts=after(hours=50))), NOW))) == 2
    )


EC2_WITHDRAWN = STATUS.model_copy(update={"status": "withdrawn", "at": NOW})


@pytest.mark.parametrize(
    ("messages", "last"),
    [
        ((SOON, WITHDRAWN), "withdrawn"),
        ((WITHDRAWN, SOON), "withdrawn"),
        ((SOON, WITHDRAWN, SOON), "withdrawn"),
        ((SOON, STATUS, EC2_WITHDRAWN), "withdrawn"),
        ((SOON, STATUS, EC2_WITHDRAWN, SOON), "withdrawn"),
        ((SOON, WITHDRAWN, interruption_message(starts=after(hours=48), at=after(minutes=1))), "announced"),
    ],
)
def test_withdrawn_event_stays_withdrawn_until_announced_again(
    messages: tuple[InterruptionMessage, ...], last: str
) -> None:
    found = statuses(*messages)
    assert found[-1] == last
    assert len(found) == 1 or messages[0] == WITHDRAWN


def test_rescheduled_event_loses_its_decision_and_keeps_its_old_time() -> None:
    assert SOON.starts is not None
    key = "scheduledChange@" + SOON.starts.isoformat("T", "minutes")
    known = record_approval(record_messages((), (SOON,), NOW), [key], NO)
    assert events_of(known)[0].decision == NO
    (event,) = events_of(record_messages(known, (MOVED,), NOW))
    assert (event.starts, event.moved_from, event.decision) == (MOVED.starts, SOON.starts, None)


def test_older_message_does_not_reschedule_the_event_back() -> None:
    (event,) = events_of(record_messages((), (MOVED, SOON), NOW))
    assert event.starts == MOVED.starts


def test_stop_ends_when_the_node_is_ready_again() -> None:
    stopped = record_messages((), (interruption_message("instanceStopping"), SOON), NOW)
    assert end_stopping_events(stopped, None) == end_stopping_events(stopped, before(minutes=5)) == stopped
    back = end_stopping_events(stopped, before(minutes=4))
    assert [one.status for one in events_of(back)] == ["over", "announced"]
    assert record_messages(back, (interruption_message("instanceStopping"),), NOW) == back, "a repeat changes nothing"


def test_second_stop_starts_at_its_receipt() -> None:
    back = end_stopping_events(
        record_messages((), (interruption_message("instanceStopping"),), before(minutes=5)), before(minutes=4)
    )
    (event,) = events_of(
        record_messages(back, (interruption_message("instanceStopping", id="again", at=before(minutes=1)),), NOW)
    )
    assert (event.status, event.received_at) == ("announced", NOW)


def test_check_that_fails_again_is_a_new_event() -> None:
    first = interruption_message("instanceStatus", source="status", at=before(hours=1))
    over = first.model_copy(update={"status": "over", "at": before(minutes=30)})
    second = first.model_copy(update={"at": NOW})
    (event,) = events_of(record_messages(record_messages((), (first, over), before(minutes=30)), (second,), NOW))
    assert (event.status, event.received_at) == ("announced", NOW)


def test_withdrawn_messages_are_dropped_before_announced_ones() -> None:
    known = record_messages((), (SOON, interruption_message(id="old", starts=after(hours=1), status="withdrawn")), NOW)
    many = [interruption_message(id=f"n-{number}", starts=after(days=number)) for number in range(3, MAX_TRACKED + 2)]
    retained = record_messages(known, many, NOW)
    assert len(retained) == MAX_TRACKED
    assert "old" not in {one.message.id for one in retained} and SOON in {one.message for one in retained}


def test_oldest_announced_message_is_dropped_first() -> None:
    many = [interruption_message(id=f"n-{number}", starts=after(days=number)) for number in range(3, MAX_TRACKED + 5)]
    assert [one.message for one in record_messages((), many, NOW)] == many[-MAX_TRACKED:]


def test_annotation_restores_events_without_their_text() -> None:
    known = record_approval(record_messages((), (SOON.model_copy(update={"text": "Dear customer"}),), NOW), [], YES)
    assert "Dear" not in format_annotation(known)
    assert events_of(parse_annotation(format_annotation(known))) == events_of(record_messages((), (SOON,), NOW))


def test_withdrawn_event_is_not_written_to_the_annotation() -> None:
    assert format_annotation(record_messages((), (SOON, WITHDRAWN), NOW)) == ""


WITHOUT_ZONE = '[{"message": {"kind": "rebalanceRecommendation", "id": "r", "at": "%s"}, "received_at": "%s"}]'
AWARE, NAIVE = "2026-06-01T12:00:00Z", "2026-06-01T12:00:00"


def test_annotation_has_times_with_a_zone() -> None:
    assert len(parse_annotation(WITHOUT_ZONE % (AWARE, AWARE))) == 1


@pytest.mark.parametrize(
    "text", ["", "soon", "{}", '[{"message": 1}]', WITHOUT_ZONE % (NAIVE, AWARE), WITHOUT_ZONE % (AWARE, NAIVE)]
)
def test_invalid_annotation_is_empty(text: str) -> None:
    assert parse_annotation(text) == ()


def test_restored_workflow_merges_annotation_and_new_messages() -> None:
    earlier = record_messages((), (SOON,), before(hours=3))
    (event,) = events_of(restore_messages(format_annotation(earlier), record_messages((), (MOVED,), NOW)))
    assert (event.starts, event.received_at) == (MOVED.starts, before(hours=3))


def test_withdrawal_without_start_keeps_the_known_start() -> None:
    (event,) = events_of(record_messages(record_messages((), (SOON,), NOW), (WITHDRAWN,), NOW + timedelta(hours=1)))
    assert event.starts == SOON.starts


# --- AWS reschedules an event, and one source reports it before the other ---

OLD, NEW, THIRD = after(hours=48), after(days=14), after(days=20)


def health(starts: datetime | None = OLD, minutes: float = -5, **more: Any) -> InterruptionMessage:
    """A message of AWS Health. `minutes` is its time relative to NOW."""
    return interruption_message(id="arn", at=after(minutes=minutes), starts=starts, **more)


def ec2(starts: datetime | None = OLD, minutes: float = -4, **more: Any) -> InterruptionMessage:
    return interruption_message(
        id="instance-event-1", source="status", at=after(minutes=minutes), starts=starts, **more
    )


MOVES: dict[str, tuple[tuple[InterruptionMessage, ...], dict[datetime, str]]] = {
    "EC2 first": ((health(), ec2(), ec2(NEW, 1)), {NEW: "announced"}),
    "Health first": ((health(), ec2(), health(NEW, 1)), {NEW: "announced"}),
    "to an earlier time": ((health(NEW), ec2(NEW), ec2(OLD, 1)), {OLD: "announced"}),
    "EC2, repeat of Health": ((health(), ec2(), ec2(NEW, 1), health()), {NEW: "announced"}),
    "EC2, later repeat of Health": ((health(), ec2(), ec2(NEW, 1), health(OLD, 9)), {NEW: "announced"}),
    "EC2, later repeat of Health with another text": (
        (health(), ec2(), ec2(NEW, 1), health(OLD, 9, text="!")),
        {NEW: "announced"},
    ),
    "Health, EC2 still lists the old time": ((health(), ec2(), health(NEW, 1), ec2(OLD, 9)), {NEW: "announced"}),
    "EC2, then Health": ((health(), ec2(), ec2(NEW, 1), health(NEW, 9)), {NEW: "announced"}),
    "EC2, then Health, then Health again": (
        (health(), ec2(), ec2(NEW, 1), health(NEW, 9), health(THIRD, 10)),
        {THIRD: "announced"},
    ),
    "both, then EC2 back to the old time": (
        (health(), ec2(), ec2(NEW, 1), health(NEW, 9), ec2(OLD, 10)),
        {OLD: "announced"},
    ),
    "EC2 twice before Health": ((health(), ec2(), ec2(NEW, 1), ec2(THIRD, 2)), {THIRD: "announced"}),
    "different times, later message counts": ((health(), ec2(), ec2(NEW, 1), health(THIRD, 2)), {THIRD: "announced"}),
    "different times, later message received first": (
        (health(), ec2(), ec2(NEW, 3), health(THIRD, 2)),
        {NEW: "announced"},
    ),
    "EC2, first message of Health received late": ((ec2(), ec2(NEW, 1), health()), {NEW: "announced"}),
    "EC2, first message of Health is later": (
        (ec2(), ec2(NEW, 1), health(OLD, 2)),
        {NEW: "announced", OLD: "announced"},
    ),
    "Health before EC2 reported the old time": (
        (health(), ec2(OLD, 3), health(NEW, 1)),
        {NEW: "announced", OLD: "announced"},
    ),
    "old time withdrawn": (
        (health(), ec2(), ec2(NEW, 1), health(OLD, 9, status="withdrawn")),
        {NEW: "announced", OLD: "withdrawn"},
    ),
    "old time no longer listed": (
        (health(), ec2(), health(NEW, 1), ec2(None, 9, status="over")),
        {NEW: "announced", OLD: "over"},
    ),
    "new time withdrawn by the same source": (
        (health(), ec2(), ec2(NEW, 1), ec2(NEW, 9, status="withdrawn")),
        {NEW: "withdrawn"},
    ),
    "new time withdrawn by the other source": (
        (health(), ec2(), ec2(NEW, 1), health(NEW, 9, status="withdrawn")),
        {NEW: "withdrawn"},
    ),
    "one of two events at the same time": (
        (health(), ec2(), ec2().model_copy(update={"id": "instance-event-2"}), health(NEW, 1)),
        {NEW: "announced", OLD: "announced"},
    ),
    "another event at another time": ((health(THIRD), ec2(), ec2(NEW, 1)), {NEW: "announced", THIRD: "announced"}),
}


@pytest.mark.parametrize("case", MOVES)
def test_reschedule_by_one_source_applies_to_both(case: str) -> None:
    messages, expected = MOVES[case]
    tracked = record_messages((), (), NOW)
    for one in messages:
        tracked = record_messages(tracked, (one,), NOW)
    assert {event.starts: event.status for event in events_of(tracked)} == expected
    assert {event.starts: event.status for event in events_of(record_messages((), messages, NOW))} == expected
    assert record_messages(tracked, messages[-1:], after(hours=1)) == tracked


def test_restored_workflow_ignores_the_old_time_of_the_slow_source() -> None:
    moved = record_messages((), (health(text="Dear customer"), ec2(), ec2(NEW, 1)), NOW)
    assert "Dear" not in format_annotation(moved)
    for restored in (
        restore_messages(format_annotation(moved), ()),
        restore_messages("", moved),
        restore_messages(format_annotation(record_messages((), (health(), ec2()), NOW)), moved),
    ):
        assert {event.starts for event in events_of(record_messages(restored, (health(OLD, 9), ec2(NEW, 9)), NOW))} == {
            NEW
        }


def test_moved_is_the_first_receipt_of_the_new_time() -> None:
    known = record_messages((), (health(), ec2()), before(minutes=4))
    moved = record_messages(known, (ec2(NEW, 1),), after(minutes=1))
    for tracked in (
        moved,
        record_messages(moved, (health(NEW, 9), ec2(NEW, 9)), after(minutes=9)),
        restore_messages("", moved),
    ):
        (event,) = events_of(tracked)
        assert event.moved == after(minutes=1)
    (event,) = events_of(record_messages(moved, (health(THIRD, 10),), after(minutes=10)))
    assert (event.moved, event.moved_from, event.received_at) == (after(minutes=10), NEW, before(minutes=4))
    (event,) = events_of(known)
    assert event.moved is None
