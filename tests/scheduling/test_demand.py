"""Which pods want a node, which are alike, and in which order preferences are given up."""

from datetime import timedelta

import pytest

from model.facts import PodFact, PreferredTerm
from model.labels import NODEPOOL
from scheduling.demand import IGNORE, RESPECT, Variant, invalid, is_provisionable, is_reschedulable, shuns_pools
from scheduling.priced.classes import classes_of
from scheduling.priced.demand import shape_of
from scheduling.priced.rules import Book
from tests.scheduling.builders import NOW, expressions, pod, toleration


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (pod(), True),
        (pod(unschedulable=False), False),
        (pod(node="n", unschedulable=True), False),
        (pod(nominated_node="n"), False),
        (pod(daemonset=True), False),
        (pod(mirror=True), False),
        (pod(deleting=True), False),
        (pod(phase="Failed"), False),
    ],
)
def test_pods_that_need_a_node(one: PodFact, counts: bool) -> None:
    assert is_provisionable(one) is counts


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (pod(node="n"), True),
        (pod(node="n", daemonset=True), False),
        (pod(node="n", mirror=True), False),
        (pod(node="n", phase="Succeeded"), False),
        (pod(node="n", deleting=True), False),
        (pod(node="n", deleting=True, owner_kind="StatefulSet"), True),
        (pod(node="n", do_not_disrupt="true"), False),
        (pod(node="n", do_not_disrupt="false"), True),
        (pod(node="n", do_not_disrupt="1h", age=60), False),
        (pod(node="n", do_not_disrupt="1m", age=61), True),
    ],
)
def test_pods_that_leave_a_node_and_come_back(one: PodFact, counts: bool) -> None:
    assert is_reschedulable(one, NOW) is counts


def variants_of(one: PodFact, policy: str = RESPECT) -> list[Variant]:
    return [reading.variant for reading in Book().readings(shape_of(one), one, policy)]


def test_a_pod_that_shuns_every_pool_is_left_alone() -> None:
    shunning = expressions(f"{NODEPOOL} DoesNotExist")
    assert shuns_pools(pod(terms=(shunning,)))
    assert not shuns_pools(pod(terms=(shunning, expressions("team In red"))))
    assert not shuns_pools(pod())


def test_a_pod_that_cannot_be_planned_says_why() -> None:
    assert "matchFields" in invalid(pod(uses_match_fields=True))
    assert "team" in invalid(pod(terms=(expressions("team Near red"),)))
    assert "no expressions" in invalid(pod(terms=((),)))
    assert invalid(pod(terms=((), expressions("team In red")))) == ""


def test_pods_that_differ_only_in_name_are_one_group_and_large_ones_come_first() -> None:
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


def test_the_heaviest_preference_goes_last_to_first_and_alternatives_before_it() -> None:
    one = pod(
        selector={"os": "x"},
        terms=(expressions("zone In a"), expressions("zone In b")),
        preferred={"disk In ssd": 1, "cpu In new": 9},
    )
    read = [str(variant.requirements) for variant in variants_of(one)]
    assert read == [
        "cpu In [new], os In [x], zone In [a]",
        "cpu In [new], os In [x], zone In [b]",
        "disk In [ssd], os In [x], zone In [a]",
        "disk In [ssd], os In [x], zone In [b]",
        "os In [x], zone In [a]",
        "os In [x], zone In [b]",
        "os In [x], zone In [a]",
        "os In [x], zone In [b]",
    ]
    assert [variant.tolerate_preferences for variant in variants_of(one)] == [False] * 6 + [
        True,
        True,
    ]


def test_preferences_can_be_ignored_from_the_start() -> None:
    one = pod(preferred={"disk In ssd": 1})
    assert [str(v.requirements) for v in variants_of(one, IGNORE)] == ["", ""]


def test_a_preference_with_several_expressions_holds_as_a_whole() -> None:
    term = PreferredTerm(weight=1, expressions=expressions("disk In ssd", "cpu Gt 4"))
    one = pod(preferred_terms=(term,))
    assert str(variants_of(one)[0].requirements) == "cpu Gte [5], disk In [ssd]"


def test_do_not_disrupt_lasts_from_the_pods_creation() -> None:
    one = pod(node="n", do_not_disrupt="10m", age=0)
    assert not is_reschedulable(one, NOW + timedelta(minutes=9))
    assert is_reschedulable(one, NOW + timedelta(minutes=10))
