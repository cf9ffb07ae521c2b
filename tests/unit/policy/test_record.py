"""The record by which rates count what went."""

from datetime import timedelta

import pytest

from tenure.model.disruption.planning import Disrupted
from tenure.policy.disruption.permits import MOST, merged, read, written
from tests.unit.policy.builders import NOW


def went(uid: str, minutes_ago: float) -> Disrupted:
    return Disrupted(pool="web", reason="Drifted", at=NOW - timedelta(minutes=minutes_ago), uid=uid)


def test_what_two_records_tell_of_counts_once_and_only_as_far_back_as_rates_look() -> None:
    nameless = went("", 5)
    one, other = [went("a", 9), went("b", 3), nameless, nameless], [went("b", 3), went("c", 1), nameless, went("d", 99)]
    found = merged(one, other, since=NOW - timedelta(hours=1))
    assert [entry.uid for entry in found] == ["a", "", "", "b", "c"]


def test_it_is_read_as_it_was_written() -> None:
    record = (went("a", 9), went("b", 0.001))
    assert read(written(record), "web") == record
    assert written(()) == "" and read("", "web") == ()


def test_of_very_many_the_newest_are_written() -> None:
    record = tuple(went(f"{number}", MOST + 5 - number) for number in range(MOST + 5))
    text = written(record)
    assert read(text, "web") == record[5:] and len(text) < 100_000


@pytest.mark.parametrize(
    "text", ["{", "7", '[["Expired","2026-01-01T00:00:00Z","u"]]', '[["Drifted","soon","u"]]', "[[1]]"]
)
def test_what_a_person_wrote_there_counts_as_nothing(text: str) -> None:
    assert read(text, "web") == ()
