"""Requirements: truth tables for pairs of operators, bounds, compatibility, and conversion to expressions."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.apis.labels import CAPACITY_TYPE, INSTANCE_CPU, WELL_KNOWN, ZONE
from tenure.model.facts import Expression
from tenure.model.requirements import Requirement, RequirementError, Requirements, one_of, parse_requirement

KEY = "example.com/key"


def req(operator: str, *values: str, key: str = KEY, minimum: int | None = None) -> Requirement:
    return parse_requirement(Expression(key=key, operator=operator, values=values, min_values=minimum))


def reqs(*written: str) -> Requirements:
    """Requirements from texts such as `key operator value value`."""
    parts = (text.split() for text in written)
    return Requirements.from_expressions(Expression(key=p[0], operator=p[1], values=tuple(p[2:])) for p in parts)


@pytest.mark.parametrize(
    ("operator", "values", "within", "without"),
    [
        ("In", ("a", "b"), ("a", "b"), ("c", "")),
        ("NotIn", ("a",), ("b", "1"), ("a",)),
        ("Exists", (), ("a", "1"), ()),
        ("DoesNotExist", (), (), ("a", "1")),
        ("Gt", ("4",), ("5", "100"), ("4", "3", "a", "4.5", "")),
        ("Lt", ("4",), ("3", "0", "-1"), ("4", "5", "a")),
        ("Gte", ("4",), ("4", "5"), ("3", "x")),
        ("Lte", ("4",), ("4", "0"), ("5", "x")),
    ],
)
def test_operator_accepts_matching_values_only(
    operator: str, values: tuple[str, ...], within: tuple[str, ...], without: tuple[str, ...]
) -> None:
    one = req(operator, *values)
    assert all(one.has(value) for value in within)
    assert not any(one.has(value) for value in without)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("In a b", "In b c", "In b"),
        ("In a", "In b", "DoesNotExist"),
        ("In a b", "NotIn b", "In a"),
        ("In a", "NotIn a", "DoesNotExist"),
        ("In a b", "Exists", "In a b"),
        ("In a", "DoesNotExist", "DoesNotExist"),
        ("NotIn a", "NotIn b", "NotIn a b"),
        ("NotIn a", "DoesNotExist", "DoesNotExist"),
        ("Exists", "Exists", "Exists"),
        ("Exists", "DoesNotExist", "DoesNotExist"),
        ("Gt 1", "Lt 9", "Gte 2, Lte 8"),
        ("Gte 3", "Gt 5", "Gte 6"),
        ("Lte 3", "Lt 2", "Lte 1"),
        ("Gt 5", "Lt 6", "DoesNotExist"),
        ("Gte 6", "Lte 5", "DoesNotExist"),
        ("Gte 5", "Lte 5", "Gte 5, Lte 5"),
        ("In 1 5 9 a", "Gt 4", "In 5 9"),
        ("In a", "Gt 4", "DoesNotExist"),
        ("NotIn 1 7", "Gt 4", "Gte 5, NotIn 7"),
        ("Gt 4", "Exists", "Gte 5"),
    ],
)
def test_intersection_of_two_requirements(left: str, right: str, expected: str) -> None:
    one, other = (req(text.split()[0], *text.split()[1:]) for text in (left, right))
    for both in (one.intersection(other), other.intersection(one)):
        formatted = ", ".join(" ".join((e.operator, *e.values)) for e in both.expressions())
        assert formatted == expected


@pytest.mark.parametrize(
    ("left", "right", "conflict"),
    [
        ("In a", "In a", False),
        ("In a", "In b", True),
        ("In a", "NotIn a", True),
        ("In a", "DoesNotExist", True),
        ("NotIn a", "NotIn b", False),
        ("NotIn a", "DoesNotExist", False),
        ("DoesNotExist", "DoesNotExist", False),
        ("Exists", "DoesNotExist", True),
        ("Exists", "NotIn a", False),
        ("Gt 5", "Lt 3", True),
        ("Gt 5", "DoesNotExist", True),
        ("In 1 2", "Gt 2", True),
    ],
)
def test_conflict_between_two_requirements(left: str, right: str, conflict: bool) -> None:
    one, other = (req(text.split()[0], *text.split()[1:]) for text in (left, right))
    assert one.conflicts(other) is conflict
    assert other.conflicts(one) is conflict


def test_intersection_keeps_the_larger_min_values() -> None:
    both = req("In", "a", "b", "c", minimum=2).intersection(req("Exists", minimum=3))
    assert both.min_values == 3
    assert [e.min_values for e in both.expressions()] == [3]


def test_existing_node_must_have_the_labels_that_a_pod_requires() -> None:
    node = Requirements.from_labels({ZONE: "a"})
    assert node.is_strictly_compatible(reqs(f"{ZONE} In a b"))
    assert not node.is_strictly_compatible(reqs(f"{CAPACITY_TYPE} In spot"))
    assert not node.is_strictly_compatible(reqs("team Exists"))
    assert node.is_strictly_compatible(reqs("team NotIn red", "gpu DoesNotExist"))


def test_new_node_may_leave_only_well_known_labels_open() -> None:
    node = Requirements.from_labels({ZONE: "a"})
    assert node.is_compatible(reqs(f"{CAPACITY_TYPE} In spot"))
    assert not node.is_compatible(reqs("team In red"))
    assert not node.is_compatible(reqs(f"{ZONE} In b"))


def test_node_without_the_label_does_not_satisfy_exists_with_notin() -> None:
    assert not reqs("disk In ssd").is_strictly_compatible(reqs("team Exists", "team NotIn red"))
    assert not reqs("team DoesNotExist").is_strictly_compatible(reqs("team Gt 4", "team NotIn 7"))


def test_contradictory_requirements_fit_no_node() -> None:
    impossible = reqs("team In red", "team In blue")
    assert not reqs().is_strictly_compatible(impossible)
    assert not reqs("team DoesNotExist").is_strictly_compatible(impossible)


def test_deprecated_label_keys_are_equal_to_current_keys() -> None:
    assert reqs("failure-domain.beta.kubernetes.io/zone In a") == reqs(f"{ZONE} In a")


def test_misspelt_label_reason_suggests_the_known_label() -> None:
    reason = reqs().explain_incompatibility(reqs("karpenter.sh/capacity-typ In spot"))
    assert "karpenter.sh/capacity-typ In [spot]" in reason
    assert f"is {CAPACITY_TYPE} meant?" in reason


def test_incompatibility_reason_names_both_requirements() -> None:
    reason = reqs(f"{ZONE} In a").explain_incompatibility(reqs(f"{ZONE} In b"))
    assert reason == f"{ZONE} In [b] is required, {ZONE} In [a] is offered"


def test_incompatibility_reason_lists_few_of_many_labels() -> None:
    many = reqs(*(f"example.com/k{number} Exists" for number in range(5_000)), f"{ZONE} In b")
    reason = reqs(f"{ZONE} In a").explain_incompatibility(many)
    assert reason.count("is required") == 6 and reason.endswith("; and 4995 more labels")


def test_long_key_is_not_compared_with_known_labels() -> None:
    """A comparison with `difflib` takes quadratic time."""
    key = f"karpenter.sh/capacity-typ{'e' * 100_000}"
    began = time.thread_time()
    assert "meant" not in reqs().explain_incompatibility(reqs(f"{key} In a"))
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        *(("In", ()), ("Near", ("a",)), ("Gt", ("a",)), ("Lt", ("1", "2")), ("Gte", ("1.5",))),
        *((operator, (digits,)) for operator in ("Gt", "Lt") for digits in ("9" * 4301, str(2**63), "\u0663")),
    ],
)
def test_invalid_expression_is_rejected(operator: str, values: tuple[str, ...]) -> None:
    with pytest.raises(RequirementError, match=KEY):
        req(operator, *values)


def test_custom_labels_have_one_value_and_provider_labels_are_omitted() -> None:
    labels = reqs(
        "team In red blue",
        "size Gte 4",
        "size NotIn 4",
        f"{INSTANCE_CPU} Gt 4",
        "gone DoesNotExist",
        "a Lt 2",
        "b NotIn x",
    )
    assert labels.custom_labels() == {"team": "blue", "size": "5", "a": "0"}


@pytest.mark.parametrize(
    "expression", ["a Lt 0", "a Lte -5", f"a Gt {2**63 - 1}", "a In -1 -2", f"a In {'x' * 64}", "a In +1"]
)
def test_custom_label_never_has_an_invalid_value(expression: str) -> None:
    assert reqs(expression).custom_labels() == {}


@pytest.mark.parametrize("expression", ["a Lt 0", "a Lte -5", f"a Gt {2**63 - 1}"])
def test_bound_that_no_label_value_satisfies_conflicts_with_every_value(expression: str) -> None:
    assert reqs("a Exists").conflicts(reqs(expression)) == ("a",)


def test_negative_lower_bound_means_any_whole_number() -> None:
    assert reqs("a Gt -5").custom_labels() == {"a": "0"}
    assert not reqs("a Exists").conflicts(reqs("a Gt -5")) and reqs("a In x").conflicts(reqs("a Gt -5"))


def test_requirements_from_choices_mark_other_well_known_labels_as_absent() -> None:
    kind = Requirements.from_choices({ZONE: ("a", "b")}, absent=WELL_KNOWN)
    assert kind.is_strictly_compatible(reqs(f"{ZONE} In b"))
    assert not kind.is_strictly_compatible(reqs("karpenter.k8s.aws/instance-gpu-count Exists"))
    assert kind.is_strictly_compatible(reqs("karpenter.k8s.aws/instance-gpu-count DoesNotExist"))


# --- properties ------------------------------------------------------------------------------------------------------
LABEL_VALUES = ["a", "b", "0", "3", "4", "5", "9"]
single = st.one_of(
    st.builds(lambda vs: req("In", *vs), st.sets(st.sampled_from(LABEL_VALUES), min_size=1)),
    st.builds(lambda vs: req("NotIn", *vs), st.sets(st.sampled_from(LABEL_VALUES), min_size=1)),
    st.sampled_from([req("Exists"), req("DoesNotExist")]),
    st.builds(lambda op, n: req(op, str(n)), st.sampled_from(["Gt", "Lt", "Gte", "Lte"]), st.integers(0, 9)),
)


def is_satisfied(one: Requirement, value: str | None) -> bool:
    return not one.present and (one.complement or not one.values) if value is None else one.has(value)


@given(single, single)
def test_intersection_accepts_exactly_the_common_values(left: Requirement, right: Requirement) -> None:
    both = left.intersection(right)
    for value in [*LABEL_VALUES, None]:
        assert is_satisfied(both, value) == (is_satisfied(left, value) and is_satisfied(right, value))


@given(single, single, single)
def test_intersection_is_independent_of_order(a: Requirement, b: Requirement, c: Requirement) -> None:
    assert Requirements([a, b, c]) == Requirements([c, b, a])


@given(single, single)
def test_expressions_are_read_back_as_the_same_requirements(left: Requirement, right: Requirement) -> None:
    both = Requirements([left, right])
    if is_satisfied(both[KEY], None) or any(both[KEY].has(value) for value in LABEL_VALUES):
        assert Requirements.from_expressions(both.expressions()) == both


@given(single, single)
def test_implied_requirement_is_satisfied_by_the_same_labels(left: Requirement, right: Requirement) -> None:
    if left.implies(right):
        assert all(is_satisfied(right, value) for value in [*LABEL_VALUES, None] if is_satisfied(left, value))
    assert left.intersection(right).implies(left)


@given(single)
def test_example_satisfies_the_requirement(one: Requirement) -> None:
    example = one.example()
    assert one.has(example) if example else one.operator == "DoesNotExist"


def test_one_of_without_values_is_does_not_exist() -> None:
    assert one_of(KEY).operator == "DoesNotExist"


def test_nodes_with_equal_labels_share_their_requirements() -> None:
    first, second = (Requirements.from_labels({ZONE: "a", KEY: "b"}) for _ in range(2))
    assert all(first[key] is second[key] for key in (ZONE, KEY))
