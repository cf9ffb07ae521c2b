"""Interruption messages of one node: repeats, changes, withdrawals, two sources of one event."""

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


def test_the_same_notice_again_changes_nothing() -> None:
    known = record_messages((), (SOON,), NOW)
    assert record_messages(known, (SOON, SOON.model_copy(update={"at": NOW})), after(hours=1)) == known


def test_one_maintenance_that_both_sources_tell_of_is_one_event() -> None:
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
def test_what_aws_withdrew_stays_so_until_it_is_announced_anew(
    messages: tuple[InterruptionMessage, ...], last: str
) -> None:
    found = statuses(*messages)
    assert found[-1] == last
    assert len(found) == 1 or messages[0] == WITHDRAWN


def test_an_event_that_aws_moves_is_another_and_remembers_when_it_was() -> None:
    assert SOON.starts is not None
    key = "scheduledChange@" + SOON.starts.isoformat("T", "minutes")
    known = record_approval(record_messages((), (SOON,), NOW), [key], NO)
    assert events_of(known)[0].decision == NO
    (event,) = events_of(record_messages(known, (MOVED,), NOW))
    assert (event.starts, event.moved_from, event.decision) == (MOVED.starts, SOON.starts, None)


def test_an_older_word_does_not_move_it_back() -> None:
    (event,) = events_of(record_messages((), (MOVED, SOON), NOW))
    assert event.starts == MOVED.starts


def test_a_node_that_is_ready_since_it_was_stopped_is_stopped_no_more() -> None:
    stopped = record_messages((), (interruption_message("instanceStopping"), SOON), NOW)
    assert end_stopping_events(stopped, None) == end_stopping_events(stopped, before(minutes=5)) == stopped
    back = end_stopping_events(stopped, before(minutes=4))
    assert [one.status for one in events_of(back)] == ["over", "announced"]
    assert record_messages(back, (interruption_message("instanceStopping"),), NOW) == back, "a repeat changes nothing"


def test_a_second_stop_is_counted_from_when_it_was_heard_of() -> None:
    back = end_stopping_events(
        record_messages((), (interruption_message("instanceStopping"),), before(minutes=5)), before(minutes=4)
    )
    (event,) = events_of(
        record_messages(back, (interruption_message("instanceStopping", id="again", at=before(minutes=1)),), NOW)
    )
    assert (event.status, event.received_at) == ("announced", NOW)


def test_a_check_that_fails_again_is_another_event() -> None:
    first = interruption_message("instanceStatus", source="status", at=before(hours=1))
    over = first.model_copy(update={"status": "over", "at": before(minutes=30)})
    second = first.model_copy(update={"at": NOW})
    (event,) = events_of(record_messages(record_messages((), (first, over), before(minutes=30)), (second,), NOW))
    assert (event.status, event.received_at) == ("announced", NOW)


def test_what_aws_took_back_is_forgotten_before_what_still_holds() -> None:
    known = record_messages((), (SOON, interruption_message(id="old", starts=after(hours=1), status="withdrawn")), NOW)
    many = [interruption_message(id=f"n-{number}", starts=after(days=number)) for number in range(3, MAX_TRACKED + 2)]
    retained = record_messages(known, many, NOW)
    assert len(retained) == MAX_TRACKED
    assert "old" not in {one.message.id for one in retained} and SOON in {one.message for one in retained}


def test_of_announced_notices_the_oldest_is_forgotten_first() -> None:
    many = [interruption_message(id=f"n-{number}", starts=after(days=number)) for number in range(3, MAX_TRACKED + 5)]
    assert [one.message for one in record_messages((), many, NOW)] == many[-MAX_TRACKED:]


def test_what_is_written_down_is_read_again_without_aws_s_prose() -> None:
    known = record_approval(record_messages((), (SOON.model_copy(update={"text": "Dear customer"}),), NOW), [], YES)
    assert "Dear" not in format_annotation(known)
    assert events_of(parse_annotation(format_annotation(known))) == events_of(record_messages((), (SOON,), NOW))


def test_what_is_over_is_not_written_down() -> None:
    assert format_annotation(record_messages((), (SOON, WITHDRAWN), NOW)) == ""


@pytest.mark.parametrize("text", ["", "soon", "{}", '[{"message": 1}]'])
def test_an_annotation_that_nobody_wrote_tells_of_nothing(text: str) -> None:
    assert parse_annotation(text) == ()


def test_a_life_begun_anew_joins_what_was_written_with_what_it_heard_since() -> None:
    before_ = record_messages((), (SOON,), before(hours=3))
    (event,) = events_of(restore_messages(format_annotation(before_), record_messages((), (MOVED,), NOW)))
    assert (event.starts, event.received_at) == (MOVED.starts, before(hours=3))


def test_a_withdrawal_without_a_time_is_of_the_time_that_was_known() -> None:
    (event,) = events_of(record_messages(record_messages((), (SOON,), NOW), (WITHDRAWN,), NOW + timedelta(hours=1)))
    assert event.starts == SOON.starts


# --- AWS moves an event, and one source says so before the other ---

OLD, NEW, THIRD = after(hours=48), after(days=14), after(days=20)


def health(starts: datetime | None = OLD, minutes: float = -5, **more: Any) -> InterruptionMessage:
    """`minutes`: when AWS said it."""
    return interruption_message(id="arn", at=after(minutes=minutes), starts=starts, **more)


def ec2(starts: datetime | None = OLD, minutes: float = -4, **more: Any) -> InterruptionMessage:
    return interruption_message(
        id="instance-event-1", source="status", at=after(minutes=minutes), starts=starts, **more
    )


MOVES: dict[str, tuple[tuple[InterruptionMessage, ...], dict[datetime, str]]] = {
    "EC2 says so first": ((health(), ec2(), ec2(NEW, 1)), {NEW: "announced"}),
    "Health says so first": ((health(), ec2(), health(NEW, 1)), {NEW: "announced"}),
    "to an earlier time": ((health(NEW), ec2(NEW), ec2(OLD, 1)), {OLD: "announced"}),
    "EC2, and Health repeats itself": ((health(), ec2(), ec2(NEW, 1), health()), {NEW: "announced"}),
    "EC2, and Health repeats itself later": ((health(), ec2(), ec2(NEW, 1), health(OLD, 9)), {NEW: "announced"}),
    "the same in other words": ((health(), ec2(), ec2(NEW, 1), health(OLD, 9, text="!")), {NEW: "announced"}),
    "Health, and EC2 still lists the old time": ((health(), ec2(), health(NEW, 1), ec2(OLD, 9)), {NEW: "announced"}),
    "EC2, then Health too": ((health(), ec2(), ec2(NEW, 1), health(NEW, 9)), {NEW: "announced"}),
    "EC2, then Health too, then Health again": (
        (health(), ec2(), ec2(NEW, 1), health(NEW, 9), health(THIRD, 10)),
        {THIRD: "announced"},
    ),
    "both, and one back again": ((health(), ec2(), ec2(NEW, 1), health(NEW, 9), ec2(OLD, 10)), {OLD: "announced"}),
    "EC2 twice before Health does": ((health(), ec2(), ec2(NEW, 1), ec2(THIRD, 2)), {THIRD: "announced"}),
    "each to another time: the later word": ((health(), ec2(), ec2(NEW, 1), health(THIRD, 2)), {THIRD: "announced"}),
    "each to another time, the later word first": (
        (health(), ec2(), ec2(NEW, 3), health(THIRD, 2)),
        {NEW: "announced"},
    ),
    "EC2, and Health's first word comes late": ((ec2(), ec2(NEW, 1), health()), {NEW: "announced"}),
    "EC2, and Health's first word is later": (
        (ec2(), ec2(NEW, 1), health(OLD, 2)),
        {NEW: "announced", OLD: "announced"},
    ),
    "Health before EC2 had the old time": (
        (health(), ec2(OLD, 3), health(NEW, 1)),
        {NEW: "announced", OLD: "announced"},
    ),
    "what it was is closed": (
        (health(), ec2(), ec2(NEW, 1), health(OLD, 9, status="withdrawn")),
        {NEW: "announced", OLD: "withdrawn"},
    ),
    "what it was is not listed any more": (
        (health(), ec2(), health(NEW, 1), ec2(None, 9, status="over")),
        {NEW: "announced", OLD: "over"},
    ),
    "what it is now is withdrawn by who moved it": (
        (health(), ec2(), ec2(NEW, 1), ec2(NEW, 9, status="withdrawn")),
        {NEW: "withdrawn"},
    ),
    "what it is now is withdrawn by the other": (
        (health(), ec2(), ec2(NEW, 1), health(NEW, 9, status="withdrawn")),
        {NEW: "withdrawn"},
    ),
    "one of two at the same time": (
        (health(), ec2(), ec2().model_copy(update={"id": "instance-event-2"}), health(NEW, 1)),
        {NEW: "announced", OLD: "announced"},
    ),
    "another at another time": ((health(THIRD), ec2(), ec2(NEW, 1)), {NEW: "announced", THIRD: "announced"}),
}


@pytest.mark.parametrize("case", MOVES)
def test_what_one_source_says_of_another_time_holds_for_both(case: str) -> None:
    messages, expected = MOVES[case]
    tracked = record_messages((), (), NOW)
    for one in messages:
        tracked = record_messages(tracked, (one,), NOW)
    assert {event.starts: event.status for event in events_of(tracked)} == expected
    assert {event.starts: event.status for event in events_of(record_messages((), messages, NOW))} == expected
    assert record_messages(tracked, messages[-1:], after(hours=1)) == tracked


def test_what_both_had_and_was_moved_is_not_approved_any_more() -> None:
    known = record_approval(
        record_messages((), (health(), ec2()), NOW), ["scheduledChange@" + OLD.isoformat("T", "minutes")], YES
    )
    assert [one.decision for one in events_of(known)] == [YES]
    (event,) = events_of(record_messages(known, (ec2(NEW, 1),), NOW))
    assert (event.decision, event.moved_from) == (None, OLD)


def test_a_life_begun_anew_still_knows_which_source_is_slow() -> None:
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


def test_when_it_was_moved_is_when_the_node_was_told_first_of_the_new_time() -> None:
    known = record_messages((), (health(), ec2()), before(minutes=4))
    moved = record_messages(known, (ec2(NEW, 1),), after(minutes=1))
    for memory in (
        moved,
        record_messages(moved, (health(NEW, 9), ec2(NEW, 9)), after(minutes=9)),
        restore_messages("", moved),
    ):
        (event,) = events_of(memory)
        assert event.moved == after(minutes=1)
    (event,) = events_of(record_messages(moved, (health(THIRD, 10),), after(minutes=10)))
    assert (event.moved, event.moved_from, event.received_at) == (after(minutes=10), NEW, before(minutes=4))
    (event,) = events_of(known)
    assert event.moved is None
