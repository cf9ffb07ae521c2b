from tenure.controller.signals.delaying_queue import DelayingQueue
from tests.support.controller.builders import at


def test_key_is_due_once_at_the_time_scheduled_last() -> None:
    due = DelayingQueue()
    due.schedule("a", at(1))
    due.schedule("a", at(5))
    due.schedule("b", at(3))
    assert due.pop_due(at(2)) == [] and due.next_due_at() == at(3)
    assert due.pop_due(at(4)) == ["b"] and due.next_due_at() == at(5)
    assert due.pop_due(at(9)) == ["a"] and due.next_due_at() is None


def test_key_can_be_removed_or_scheduled_earlier() -> None:
    due = DelayingQueue()
    due.schedule("a", at(5))
    due.schedule("b", at(6))
    due.schedule("a", None)
    due.schedule("b", at(1))
    assert due.pop_due(at(10)) == ["b"] and due.next_due_at() is None


def test_outdated_times_are_dropped() -> None:
    due = DelayingQueue()
    for number in range(1000):
        due.schedule("a", at(10_000 + number))
        due.schedule("b", at(20_000 - number))
    assert len(due._heap) <= 104
    assert due.pop_due(at(10_998)) == [] and due.pop_due(at(20_000)) == ["a", "b"]
