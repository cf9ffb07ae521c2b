"""The record by which rates count what went."""

from datetime import timedelta

import pytest

from tenure.model.disruption.decision import PastDisruption
from tenure.policy.disruption.permits import MAX_RECORDED, merge_records, parse_record, serialize_record
from tests.unit.policy.builders import NOW


def went(uid: str, minutes_ago: float) -> PastDisruption:
    return PastDisruption(pool="web", reason="Drifted", at=NOW - timedelta(minutes=minutes_ago), uid=uid)


def test_what_two_records_tell_of_counts_once_and_only_as_far_back_as_rates_look() -> None:
    nameless = went("", 5)
    one, other = [went("a", 9), went("b", 3), nameless, nameless], [went("b", 3), went("c", 1), nameless, went("d", 99)]
    found = merge_records(one, other, since=NOW - timedelta(hours=1))
    assert [entry.uid for entry in found] == ["a", "", "", "b", "c"]


def test_it_is_read_as_it_was_written() -> None:
    record = (went("a", 9), went("b", 0.001))
    assert parse_record(serialize_record(record), "web") == record
    assert serialize_record(()) == "" and parse_record("", "web") == ()


def test_of_very_many_the_newest_are_written() -> None:
    record = tuple(went(f"{number}", MAX_RECORDED + 5 - number) for number in range(MAX_RECORDED + 5))
    text = serialize_record(record)
    assert parse_record(text, "web") == record[5:] and len(text) < 100_000


@pytest.mark.parametrize(
    "text", ["{", "7", '[["Expired","2026-01-01T00:00:00Z","u"]]', '[["Drifted","soon","u"]]', "[[1]]"]
)
def test_what_a_person_wrote_there_counts_as_nothing(text: str) -> None:
    assert parse_record(text, "web") == ()
