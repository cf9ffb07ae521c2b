"""The record of when a node was away: how it grows, what is forgotten, and how it is written."""

from datetime import UTC, datetime, timedelta

from tenure.model.node_health import MOST, Absence, begun, ended, lasting, merged, read, written

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def stretch(since: float, until: float | None = None) -> Absence:
    return Absence(since=at(since), until=None if until is None else at(until))


def test_a_stretch_begins_once_and_ends_once() -> None:
    record = begun((), at(0))
    assert begun(record, at(5)) == record and lasting(record) == at(0)
    over = ended(record, at(10))
    assert over == (stretch(0, 10),) == ended(over, at(20)) and lasting(over) is None


def test_a_stretch_ends_no_sooner_and_begins_no_sooner_than_it_can() -> None:
    assert ended((stretch(5),), at(0)) == (stretch(5, 5),)
    assert begun((stretch(0, 10),), at(8)) == (stretch(0, 10), stretch(10))


def test_what_is_a_day_old_and_what_is_too_much_is_forgotten() -> None:
    day = 24 * 3600
    assert ended((stretch(0, 10), stretch(day)), at(day + 10)) == (stretch(day, day + 10),)
    record: tuple[Absence, ...] = ()
    for number in range(MOST + 5):
        record = ended(begun(record, at(10 * number)), at(10 * number + 1))
    assert len(record) == MOST and record[0] == stretch(50, 51)


def test_it_is_read_as_it_was_written_and_strange_words_are_nobodys() -> None:
    record = (stretch(0, 50), stretch(100))
    assert written(record) == "2026-01-01T12:00:00Z/2026-01-01T12:00:50Z 2026-01-01T12:01:40Z/"
    assert read(written(record)) == record
    assert read("yesterday 2026-01-01T12:00:00Z/soon 2026-01-01T12:01:40Z/") == (stretch(100),)
    assert read("") == () and written(()) == ""


def test_a_workflow_that_was_rebuilt_adds_to_what_is_on_record() -> None:
    assert merged((stretch(0, 10),), (stretch(20, 30),)) == (stretch(0, 10), stretch(20, 30))
    assert merged((stretch(0, 10), stretch(20)), (stretch(20, 30),)) == (stretch(0, 10), stretch(20, 30))
    assert merged((stretch(0),), (stretch(20),)) == (stretch(0, 20), stretch(20)), "nobody saw the end of the first"
    assert merged((stretch(0, 10),), ()) == (stretch(0, 10),)
