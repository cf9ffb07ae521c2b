"""IAM's condition operators with missing keys, `IfExists`, `ForAllValues` and `ForAnyValue` (IAM reference)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

Context = Mapping[str, Sequence[str]]
Compare = Callable[[str, str], bool]


@cache
def wildcard_pattern(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """`*` matches any characters, `?` one character."""
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def matches_wildcard(pattern: str, value: str) -> bool:
    return wildcard_pattern(pattern).fullmatch(value) is not None


def _arn_like(pattern: str, value: str) -> bool:
    """Match each of the six parts of an ARN separately, so that `*` does not match a colon."""
    patterns, parts = pattern.split(":", 5), value.split(":", 5)
    return len(patterns) == len(parts) == 6 and all(map(matches_wildcard, patterns, parts))


def _equals(expected: str, value: str) -> bool:
    return expected == value


def _equals_ignoring_case(expected: str, value: str) -> bool:
    return expected.lower() == value.lower()


POSITIVE: dict[str, Compare] = {
    "StringEquals": _equals,
    "StringEqualsIgnoreCase": _equals_ignoring_case,
    "StringLike": matches_wildcard,
    "ArnEquals": _arn_like,
    "ArnLike": _arn_like,
    "Bool": _equals_ignoring_case,
    "NumericEquals": lambda expected, value: float(value) == float(expected),
    "NumericLessThan": lambda expected, value: float(value) < float(expected),
    "NumericLessThanEquals": lambda expected, value: float(value) <= float(expected),
    "NumericGreaterThan": lambda expected, value: float(value) > float(expected),
    "NumericGreaterThanEquals": lambda expected, value: float(value) >= float(expected),
}
NEGATIVE: dict[str, Compare] = {
    "StringNotEquals": _equals,
    "StringNotEqualsIgnoreCase": _equals_ignoring_case,
    "StringNotLike": matches_wildcard,
    "ArnNotEquals": _arn_like,
    "ArnNotLike": _arn_like,
    "NumericNotEquals": POSITIVE["NumericEquals"],
}


def check_operator(operator: str) -> None:
    """Raises ValueError for an unsupported operator, because ignoring it could allow an action."""
    base = _split_operator(operator)[1]
    if base != "Null" and base not in POSITIVE and base not in NEGATIVE:
        raise ValueError(f"unknown condition operator: {operator}")


def condition_holds(operator: str, key: str, expected: Sequence[str], context: Context) -> bool:
    """Whether a condition is met. `context` has lower-case keys; condition keys are case-insensitive."""
    quantifier, base, if_exists = _split_operator(operator)
    values = context.get(key.lower())
    if base == "Null":
        return (values is None) == (expected[0].lower() == "true")
    if values is None:
        return if_exists or quantifier == "ForAllValues" or (base in NEGATIVE and not quantifier)
    if base in NEGATIVE:
        compare = NEGATIVE[base]
        tests = [not any(compare(want, value) for want in expected) for value in values]
    else:
        compare = POSITIVE[base]
        tests = [any(compare(want, value) for want in expected) for value in values]
    if quantifier == "ForAllValues":
        return all(tests)
    if quantifier == "ForAnyValue" or base in POSITIVE:
        return any(tests)
    return all(tests)


@cache
def _split_operator(operator: str) -> tuple[str, str, bool]:
    quantifier, _, rest = operator.rpartition(":")
    return quantifier, rest.removesuffix("IfExists"), rest.endswith("IfExists")
