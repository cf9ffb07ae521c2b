"""Pods as classes with readings: which are alike, what comes first, and in which order preferences are given up."""

import pytest

from tenure.model.facts import PodFact, PreferredTerm
from tenure.scheduling.packing.pod_classes import classes_of, grain
from tenure.scheduling.packing.pod_requirements import shape_of
from tenure.scheduling.packing.topology_rules import Book, Reading
from tenure.scheduling.pods import IGNORE, RESPECT
from tests.unit.scheduling.builders import expressions, pod, toleration


def readings(one: PodFact, policy: str = RESPECT) -> list[Reading]:
    book, shape = Book(), shape_of(one)
    book.enter(shape)
    return list(book.readings(shape, one, policy))


def read(one: PodFact, policy: str = RESPECT) -> list[str]:
    return [str(reading.variant.requirements) for reading in readings(one, policy)]


def test_pods_that_differ_only_in_name_are_one_class_and_large_ones_come_first() -> None:
    small, old_small, large, roomy = pod("b", cpu=1), pod("a", cpu=1, age=9), pod("c", cpu=4), pod("d", cpu=1, memory=9)
    found = classes_of([(shape_of(one), one) for one in (small, old_small, large, roomy)], Book(), RESPECT)
    assert [[one.name for one in alike.pods] for alike in found] == [["c"], ["d"], ["a", "b"]]


@pytest.mark.parametrize(
    "other",
    [
        pod(cpu=2),
        pod(selector={"team": "red"}),
        pod(terms=(expressions("team In red"),)),
        pod(preferred={"team In red": 1}),
        pod(tolerations=(toleration("team"),)),
        pod(extra={"nvidia.com/gpu": 1}),
    ],
)
def test_pods_that_ask_for_different_things_are_not_alike(other: PodFact) -> None:
    assert shape_of(other) != shape_of(pod())


def test_a_higher_priority_comes_before_a_larger_pod() -> None:
    found = classes_of([(shape_of(one), one) for one in (pod("a", cpu=4), pod("b", priority=5))], Book(), RESPECT)
    assert [alike.pods[0].name for alike in found] == ["b", "a"]


def test_the_grain_is_the_size_of_the_small_pods_that_matter() -> None:
    load = [*(pod(cpu=4) for _ in range(10)), *(pod(cpu=0.5) for _ in range(4)), pod(cpu=0.1)]
    found = classes_of([(shape_of(one), one) for one in load], Book(), RESPECT)
    assert (grain(found, "cpu"), grain(found, "nvidia.com/gpu")) == (500, 0)


def test_the_heaviest_preference_goes_last_to_first_and_alternatives_before_it() -> None:
    one = pod(
        selector={"os": "x"},
        terms=(expressions("zone In a"), expressions("zone In b")),
        preferred={"disk In ssd": 1, "cpu In new": 9},
    )
    assert read(one) == [
        "cpu In [new], os In [x], zone In [a]",
        "cpu In [new], os In [x], zone In [b]",
        "disk In [ssd], os In [x], zone In [a]",
        "disk In [ssd], os In [x], zone In [b]",
        "os In [x], zone In [a]",
        "os In [x], zone In [b]",
        "os In [x], zone In [a]",
        "os In [x], zone In [b]",
    ]
    assert [reading.variant.tolerate_preferences for reading in readings(one)] == [False] * 6 + [True, True]


def test_preferences_can_be_ignored_from_the_start() -> None:
    one = pod(preferred={"disk In ssd": 1})
    assert read(one, IGNORE) == ["", ""]


def test_a_preference_with_several_expressions_holds_as_a_whole() -> None:
    term = PreferredTerm(weight=1, expressions=expressions("disk In ssd", "cpu Gt 4"))
    one = pod(preferred_terms=(term,))
    assert read(one)[0] == "cpu Gte [5], disk In [ssd]"
