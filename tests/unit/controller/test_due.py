"""Times to look again."""

from tenure.controller.cache.dirty import Due
from tests.support.controller.builders import at


def test_a_key_is_due_once_at_the_time_set_last() -> None:
    due = Due()
    due.set("a", at(1))
    due.set("a", at(5))
    due.set("b", at(3))
    assert due.take(at(2)) == [] and due.next() == at(3)
    assert due.take(at(4)) == ["b"] and due.next() == at(5)
    assert due.take(at(9)) == ["a"] and due.next() is None


def test_a_key_can_be_taken_back_or_moved_forward() -> None:
    due = Due()
    due.set("a", at(5))
    due.set("b", at(6))
    due.set("a", None)
    due.set("b", at(1))
    assert due.take(at(10)) == ["b"] and due.next() is None
