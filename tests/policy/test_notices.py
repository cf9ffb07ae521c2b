"""What a node remembers of AWS's notices: repeats, changes, withdrawals, two sources of one event."""

from datetime import timedelta

import pytest

from model.interruptions import Notice
from policy.notices import MOST, answered, events_of, noted, read, recalled, settled, written
from tests.policy.builders import NOW, after, before
from tests.policy.interrupting import NO, YES, notice

SOON = notice(starts=after(hours=48))
MOVED = notice(starts=after(hours=72), at=NOW)
GONE = notice(starts=None, at=NOW, status="withdrawn")
STATUS = notice(id="instance-event-1", source="status", at=before(minutes=4), starts=after(hours=48, seconds=20))


def statuses(*notices: Notice) -> list[str]:
    return [one.status for one in events_of(noted((), notices, NOW))]


def test_the_same_notice_again_changes_nothing() -> None:
    known = noted((), (SOON,), NOW)
    assert noted(known, (SOON, SOON.model_copy(update={"at": NOW})), after(hours=1)) == known


def test_one_maintenance_that_both_sources_tell_of_is_one_event() -> None:
    (event,) = events_of(noted((), (SOON, STATUS), NOW))
    assert event.reason == "event_status" and event.code == "instance-retirement"


def test_maintenance_at_two_times_is_two_events() -> None:
    assert len(events_of(noted((), (SOON, notice(id="other", starts=after(hours=50))), NOW))) == 2


@pytest.mark.parametrize("order", [(SOON, GONE), (GONE, SOON), (SOON, GONE, SOON)])
def test_what_aws_withdrew_stays_so_in_any_order(order: tuple[Notice, ...]) -> None:
    assert statuses(*order)[-1:] == ["withdrawn"]


def test_what_one_source_withdrew_the_other_s_older_word_does_not_bring_back() -> None:
    withdrawn = STATUS.model_copy(update={"status": "withdrawn", "at": NOW})
    assert statuses(SOON, STATUS, withdrawn) == ["withdrawn"]
    assert statuses(SOON, STATUS, withdrawn, SOON) == ["withdrawn"]


def test_what_is_announced_anew_counts_again() -> None:
    assert statuses(SOON, GONE, notice(starts=after(hours=48), at=after(minutes=1))) == ["announced"]


def test_an_event_that_aws_moves_is_another_and_remembers_when_it_was() -> None:
    known = answered(noted((), (SOON,), NOW), ["scheduledChange@" + SOON.starts.isoformat("T", "minutes")], NO)  # type: ignore[union-attr]
    assert events_of(known)[0].answer == NO
    (event,) = events_of(noted(known, (MOVED,), NOW))
    assert (event.starts, event.moved_from, event.answer) == (MOVED.starts, SOON.starts, None)


def test_an_older_word_does_not_move_it_back() -> None:
    (event,) = events_of(noted((), (MOVED, SOON), NOW))
    assert event.starts == MOVED.starts


def test_a_node_that_is_ready_since_it_was_stopped_is_stopped_no_more() -> None:
    stopped = noted((), (notice("instanceStopping"), SOON), NOW)
    assert settled(stopped, None) == settled(stopped, before(minutes=5)) == stopped
    back = settled(stopped, before(minutes=4))
    assert [one.status for one in events_of(back)] == ["over", "announced"]
    assert noted(back, (notice("instanceStopping"),), NOW) == back, "a repeat changes nothing"


def test_a_second_stop_is_counted_from_when_it_was_heard_of() -> None:
    back = settled(noted((), (notice("instanceStopping"),), before(minutes=5)), before(minutes=4))
    (event,) = events_of(noted(back, (notice("instanceStopping", id="again", at=before(minutes=1)),), NOW))
    assert (event.status, event.heard) == ("announced", NOW)


def test_a_check_that_fails_again_is_another_event() -> None:
    first = notice("instanceStatus", source="status", at=before(hours=1))
    over = first.model_copy(update={"status": "over", "at": before(minutes=30)})
    again = first.model_copy(update={"at": NOW})
    (event,) = events_of(noted(noted((), (first, over), before(minutes=30)), (again,), NOW))
    assert (event.status, event.heard) == ("announced", NOW)


def test_what_aws_took_back_is_forgotten_before_what_still_holds() -> None:
    known = noted((), (SOON, notice(id="old", starts=after(hours=1), status="withdrawn")), NOW)
    many = [notice(id=f"n-{number}", starts=after(days=number)) for number in range(3, MOST + 2)]
    kept = noted(known, many, NOW)
    assert len(kept) == MOST
    assert "old" not in {one.notice.id for one in kept} and SOON in {one.notice for one in kept}


def test_what_is_written_down_is_read_again_without_aws_s_prose() -> None:
    known = answered(noted((), (SOON.model_copy(update={"text": "Dear customer"}),), NOW), [], YES)
    assert "Dear" not in written(known)
    assert events_of(read(written(known))) == events_of(noted((), (SOON,), NOW))


def test_what_is_over_is_not_written_down() -> None:
    assert written(noted((), (SOON, GONE), NOW)) == ""


@pytest.mark.parametrize("text", ["", "soon", "{}", '[{"notice": 1}]'])
def test_an_annotation_that_nobody_wrote_tells_of_nothing(text: str) -> None:
    assert read(text) == ()


def test_a_life_begun_anew_joins_what_was_written_with_what_it_heard_since() -> None:
    before_ = noted((), (SOON,), before(hours=3))
    (event,) = events_of(recalled(written(before_), noted((), (MOVED,), NOW)))
    assert (event.starts, event.heard) == (MOVED.starts, before(hours=3))


def test_a_withdrawal_without_a_time_is_of_the_time_that_was_known() -> None:
    (event,) = events_of(noted(noted((), (SOON,), NOW), (GONE,), NOW + timedelta(hours=1)))
    assert event.starts == SOON.starts
