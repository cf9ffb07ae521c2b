"""Pod classes: grouping, order, and constraint alternatives in the order in which preferences are dropped."""

import numpy as np
import pytest

from tenure.model.facts import PodFact, PreferredTerm
from tenure.scheduling.packing.planning_budget import PlanningBudget
from tenure.scheduling.packing.pod_classes import build_pod_classes, merge_equal_shapes, pod_granularity
from tenure.scheduling.packing.pod_requirements import build_pod_shape
from tenure.scheduling.packing.topology_rules import ConstraintAlternative, TopologyGroups
from tenure.scheduling.pods import IGNORE, RESPECT
from tests.unit.scheduling.builders import expressions, pod, taint, toleration

AVAILABLE = {"cpu", "memory", "pods"}


def constraint_alternatives(one: PodFact, policy: str = RESPECT) -> list[ConstraintAlternative]:
    topology_groups, shape = TopologyGroups(), build_pod_shape(one)
    topology_groups.add_shape(shape)
    return list(topology_groups.constraint_alternatives(shape, one, policy))


def describe_alternatives(one: PodFact, policy: str = RESPECT) -> list[str]:
    return [str(alternative.variant.requirements) for alternative in constraint_alternatives(one, policy)]


def test_equal_pods_form_one_class_and_large_pods_come_first() -> None:
    small, old_small, large, large_memory = (
        pod("b", cpu=1),
        pod("a", cpu=1, age=9),
        pod("c", cpu=4),
        pod("d", cpu=1, memory=9),
    )
    found = build_pod_classes(
        [(build_pod_shape(one), one) for one in (small, old_small, large, large_memory)],
        TopologyGroups(),
        RESPECT,
        PlanningBudget(),
        AVAILABLE,
    )
    assert [[one.name for one in pod_class.pods] for pod_class in found] == [["c"], ["d"], ["a", "b"]]


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
def test_pods_with_different_constraints_have_different_shapes(other: PodFact) -> None:
    assert build_pod_shape(other) != build_pod_shape(pod())


def test_tolerations_without_a_matching_taint_are_left_out() -> None:
    loads = [pod(), pod(tolerations=(toleration("other"),)), pod(tolerations=(toleration("team"), toleration("other")))]
    shaped = merge_equal_shapes([(build_pod_shape(one), one) for one in loads], [taint("team")])
    plain, merged, tolerating = [shape for shape, _ in shaped]
    assert merged is plain
    assert [one.key for one in tolerating.constraints.tolerations] == ["team"]


def test_last_step_is_left_out_without_prefer_no_schedule_taints() -> None:
    one = pod(preferred={"disk In ssd": 1})
    topology_groups, shape = TopologyGroups(prefer_no_schedule=False), build_pod_shape(one)
    found = [*topology_groups.constraint_alternatives(shape, one, RESPECT)]
    assert [str(alternative.variant.requirements) for alternative in found] == ["disk In [ssd]", ""]
    assert not any(alternative.variant.tolerate_preferences for alternative in found)


def test_higher_priority_precedes_larger_pod() -> None:
    found = build_pod_classes(
        [(build_pod_shape(one), one) for one in (pod("a", cpu=4), pod("b", priority=5))],
        TopologyGroups(),
        RESPECT,
        PlanningBudget(),
        AVAILABLE,
    )
    assert [pod_class.pods[0].name for pod_class in found] == ["b", "a"]


def test_granularity_is_the_size_of_the_relevant_small_pods() -> None:
    vectors = np.array([[4_000, 0], [500, 0], [100, 0]])
    assert pod_granularity(vectors, np.array([10, 4, 1])).tolist() == [500, 0]


def test_preferences_are_dropped_by_weight_after_all_alternatives() -> None:
    one = pod(
        selector={"os": "x"},
        terms=(expressions("zone In a"), expressions("zone In b")),
        preferred={"disk In ssd": 1, "cpu In new": 9},
    )
    assert describe_alternatives(one) == [
        "cpu In [new], os In [x], zone In [a]",
        "cpu In [new], os In [x], zone In [b]",
        "disk In [ssd], os In [x], zone In [a]",
        "disk In [ssd], os In [x], zone In [b]",
        "os In [x], zone In [a]",
        "os In [x], zone In [b]",
        "os In [x], zone In [a]",
        "os In [x], zone In [b]",
    ]
    assert [alternative.variant.tolerate_preferences for alternative in constraint_alternatives(one)] == [False] * 6 + [
        True,
        True,
    ]


def test_preferences_can_be_ignored_from_the_start() -> None:
    one = pod(preferred={"disk In ssd": 1})
    assert describe_alternatives(one, IGNORE) == ["", ""]


def test_preference_with_several_expressions_applies_as_a_whole() -> None:
    term = PreferredTerm(weight=1, expressions=expressions("disk In ssd", "cpu Gt 4"))
    one = pod(preferred_terms=(term,))
    assert describe_alternatives(one)[0] == "cpu Gte [5], disk In [ssd]"
