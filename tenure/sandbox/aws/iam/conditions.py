"""IAM's condition operators, by the rules of the IAM reference: missing keys, `IfExists`, `ForAllValues`,
`ForAnyValue`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

Context = Mapping[str, Sequence[str]]
Compare = Callable[[str, str], bool]


@cache
def wildcard(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """`*` stands for any run of characters, `?` for one."""
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def like(pattern: str, value: str) -> bool:
    return wildcard(pattern).fullmatch(value) is not None


def _arn_like(pattern: str, value: str) -> bool:
    """Each of an ARN's six parts is matched by itself, so that `*` does not cross a colon."""
    patterns, parts = pattern.split(":", 5), value.split(":", 5)
    return len(patterns) == len(parts) == 6 and all(map(like, patterns, parts))


def _same(wanted: str, value: str) -> bool:
    return wanted == value


def _same_ignoring_case(wanted: str, value: str) -> bool:
    return wanted.lower() == value.lower()


POSITIVE: dict[str, Compare] = {
    "StringEquals": _same,
    "StringEqualsIgnoreCase": _same_ignoring_case,
    "StringLike": like,
    "ArnEquals": _arn_like,
    "ArnLike": _arn_like,
    "Bool": _same_ignoring_case,
    "NumericEquals": lambda wanted, value: float(value) == float(wanted),
    "NumericLessThan": lambda wanted, value: float(value) < float(wanted),
    "NumericLessThanEquals": lambda wanted, value: float(value) <= float(wanted),
    "NumericGreaterThan": lambda wanted, value: float(value) > float(wanted),
    "NumericGreaterThanEquals": lambda wanted, value: float(value) >= float(wanted),
}
NEGATIVE: dict[str, Compare] = {
    "StringNotEquals": _same,
    "StringNotEqualsIgnoreCase": _same_ignoring_case,
    "StringNotLike": like,
    "ArnNotEquals": _arn_like,
    "ArnNotLike": _arn_like,
    "NumericNotEquals": POSITIVE["NumericEquals"],
}


def check_operator(operator: str) -> None:
    """Raises ValueError for an operator that this evaluator does not know: silence would let things pass."""
    base = _base(operator)[1]
    if base != "Null" and base not in POSITIVE and base not in NEGATIVE:
        raise ValueError(f"unknown condition operator: {operator}")


def holds(operator: str, key: str, wanted: Sequence[str], context: Context) -> bool:
    """Does one condition hold? `context` has its keys in lower case; keys of conditions are case-insensitive."""
    quantifier, base, if_exists = _base(operator)
    values = context.get(key.lower())
    if base == "Null":
        return (values is None) == (wanted[0].lower() == "true")
    if values is None:
        return if_exists or quantifier == "ForAllValues" or (base in NEGATIVE and not quantifier)
    if base in NEGATIVE:
        compare = NEGATIVE[base]
        tests = [not any(compare(want, value) for want in wanted) for value in values]
    else:
        compare = POSITIVE[base]
        tests = [any(compare(want, value) for want in wanted) for value in values]
    if quantifier == "ForAllValues":
        return all(tests)
    if quantifier == "ForAnyValue" or base in POSITIVE:
        return any(tests)
    return all(tests)


@cache
def _base(operator: str) -> tuple[str, str, bool]:
    quantifier, _, rest = operator.rpartition(":")
    return quantifier, rest.removesuffix("IfExists"), rest.endswith("IfExists")
