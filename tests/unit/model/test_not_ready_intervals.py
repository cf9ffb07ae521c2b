"""The record of a node's NotReady intervals: begin and end, limits, format and merge."""

from datetime import UTC, datetime, timedelta

from tenure.model.node_health import (
    MAX_INTERVALS,
    NotReadyInterval,
    begin_interval,
    end_interval,
    format_intervals,
    merge_intervals,
    ongoing_since,
    parse_intervals,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def interval(since: float, until: float | None = None) -> NotReadyInterval:
    return NotReadyInterval(since=at(since), until=None if until is None else at(until))


def test_interval_begins_once_and_ends_once() -> None:
    record = begin_interval((), at(0))
    assert begin_interval(record, at(5)) == record and ongoing_since(record) == at(0)
    over = end_interval(record, at(10))
    assert over == (interval(0, 10),) == end_interval(over, at(20)) and ongoing_since(over) is None


def test_interval_times_are_clamped_to_their_predecessors() -> None:
    assert end_interval((interval(5),), at(0)) == (interval(5, 5),)
    assert begin_interval((interval(0, 10),), at(8)) == (interval(0, 10), interval(10))


def test_old_and_surplus_intervals_are_dropped() -> None:
    day = 24 * 3600
    assert end_interval((interval(0, 10), interval(day)), at(day + 10)) == (interval(day, day + 10),)
    record: tuple[NotReadyInterval, ...] = ()
    for number in range(MAX_INTERVALS + 5):
        record = end_interval(begin_interval(record, at(10 * number)), at(10 * number + 1))
    assert len(record) == MAX_INTERVALS and record[0] == interval(50, 51)


def test_record_is_parsed_as_formatted_and_invalid_text_is_ignored() -> None:
    record = (interval(0, 50), interval(100))
    assert format_intervals(record) == "2026-01-01T12:00:00Z/2026-01-01T12:00:50Z 2026-01-01T12:01:40Z/"
    assert parse_intervals(format_intervals(record)) == record
    assert parse_intervals("yesterday 2026-01-01T12:00:00Z/soon 2026-01-01T12:01:40Z/") == (interval(100),)
    assert parse_intervals("") == () and format_intervals(()) == ""


def test_intervals_of_a_rebuilt_workflow_are_merged_with_the_record() -> None:
    assert merge_intervals((interval(0, 10),), (interval(20, 30),)) == (interval(0, 10), interval(20, 30))
    assert merge_intervals((interval(0, 10), interval(20)), (interval(20, 30),)) == (interval(0, 10), interval(20, 30))
    assert merge_intervals((interval(0),), (interval(20),)) == (interval(0, 20), interval(20)), (
        "the end of the first was not observed"
    )
    assert merge_intervals((interval(0, 10),), ()) == (interval(0, 10),)
