"""Requirements on labels: allowed values of one label, intersections, and sets of requirements.

The rules are Karpenter's, so a pod has the same meaning in both.
"""

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from tenure.apis.crd_schema import MAX_LABEL_KEY, is_label_value
from tenure.apis.durations import quote
from tenure.apis.labels import WELL_KNOWN, is_injected_elsewhere, normalize_label_key
from tenure.model.facts import Expression

__all__ = ["Requirement", "RequirementError", "Requirements", "one_of", "parse_requirement"]


IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GT: Final = "Gt"
LT: Final = "Lt"
GTE: Final = "Gte"
LTE: Final = "Lte"
BOUNDS: Final = (GT, LT, GTE, LTE)
OPERATORS: Final = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST, *BOUNDS)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_MAX_INTEGER: Final = 2**63 - 1
_MAX_VALUES: Final = 6
_MAX_REASONS: Final = 6
"""A pod may require thousands of labels, and is compared with every node and NodePool."""


class RequirementError(ValueError):
    """An invalid expression; the message names key, operator and value."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """Allowed values of one label: a set or the complement of a set, within inclusive bounds.

    `present`: the label must exist, as In, Exists and every bound require. A node without the label then fails Exists
    combined with NotIn, as in kube-scheduler.
    """

    key: str
    complement: bool
    values: frozenset[str]
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None
    present: bool = False

    @property
    def operator(self) -> str:
        """In, NotIn, Exists or DoesNotExist; only bounds count as Exists."""
        if self.complement:
            return NOT_IN if self.values else EXISTS
        return IN if self.values else DOES_NOT_EXIST

    def has(self, value: str) -> bool:
        return (value in self.values) != self.complement and self._is_within_bounds(value)

    def intersection(self, other: "Requirement") -> "Requirement":
        """The values that satisfy both. Crossed bounds allow no value; a result that is a set has no bounds left."""
        return _intersect(self, other)

    def intersects(self, other: "Requirement") -> bool:
        both = _intersect(self, other)
        return both.complement or bool(both.values)

    def conflicts(self, other: "Requirement") -> bool:
        """Neither a value nor the absence of the label satisfies both."""
        return (self.present or other.present) and not self.intersects(other)

    def implies(self, other: "Requirement") -> bool:
        """Whether every value that satisfies this requirement satisfies the other."""
        if other.present and not self.present:
            return False
        if not self.complement:
            return all(other.has(value) for value in self.values)
        return other.complement and self._bounds_inside(other) and not any(self.has(value) for value in other.values)

    def example(self) -> str:
        """An allowed value, always the same; empty if the label must be absent, or no label can have such a value."""
        if not self.complement:
            return min(filter(is_label_value, self.values), default="")
        number = max(0, self.gte or 0)
        while str(number) in self.values:
            number += 1
        return str(number) if self._is_within_bounds(str(number)) else ""

    def expressions(self) -> tuple[Expression, ...]:
        """In the form of the API: bounds as Gte and Lte, values sorted."""
        written: list[tuple[str, tuple[str, ...]]] = []
        if self.gte is not None:
            written.append((GTE, (str(self.gte),)))
        if self.lte is not None:
            written.append((LTE, (str(self.lte),)))
        if self.complement and self.present and not written:
            written.append((EXISTS, ()))
        if self.values or not written:
            written.append((self.operator, tuple(sorted(self.values))))
        return tuple(
            Expression(key=self.key, operator=operator, values=values, min_values=self.min_values)
            for operator, values in written
        )

    def __str__(self) -> str:
        """Such as `zone In [a b]`; long lists are shortened."""
        return " and ".join(_format_expression(expression) for expression in self.expressions())

    def _is_within_bounds(self, value: str) -> bool:
        if self.gte is None and self.lte is None:
            return True
        number = _parse_integer(value)
        return number is not None and _is_between(number, self.gte, self.lte)

    def _bounds_inside(self, other: "Requirement") -> bool:
        low = other.gte is None or (self.gte is not None and self.gte >= other.gte)
        return low and (other.lte is None or (self.lte is not None and self.lte <= other.lte))


@lru_cache(maxsize=1 << 16)
def parse_requirement(expression: Expression) -> Requirement:
    """Translates deprecated label names.

    Raises RequirementError for an unknown operator, In without values, or a bound that is not one integer.
    """
    key, operator = normalize_label_key(expression.key), expression.operator
    values = frozenset(expression.values)
    if operator in BOUNDS:
        return _bounded_requirement(key, operator, expression)
    if operator == IN and not values:
        raise RequirementError(f"{key} In needs at least one value")
    if operator in (IN, NOT_IN):
        return Requirement(key, operator == NOT_IN, values, min_values=expression.min_values, present=operator == IN)
    if operator in (EXISTS, DOES_NOT_EXIST):
        there = operator == EXISTS
        return Requirement(key, there, frozenset(), min_values=expression.min_values, present=there)
    raise RequirementError(f"{key}: operator '{operator}' is none of {', '.join(OPERATORS)}")


def one_of(key: str, *values: str) -> Requirement:
    """The label has one of these values; without values, the label is absent."""
    return Requirement(normalize_label_key(key), False, frozenset(values), present=bool(values))


@lru_cache(maxsize=1 << 16)
def _label_requirement(key: str, value: str) -> Requirement:
    """Every plan reads the labels of thousands of nodes again."""
    return one_of(key, value)


@lru_cache(maxsize=1 << 16)
def _intersect(left: Requirement, right: Requirement) -> Requirement:
    gte, lte = _max_defined(left.gte, right.gte), _min_defined(left.lte, right.lte)
    min_values = _max_defined(left.min_values, right.min_values)
    present = left.present or right.present
    if _are_crossed(gte, lte):
        return Requirement(left.key, False, frozenset(), min_values=min_values, present=present)
    values = _combine_values(left, right)
    if gte is not None or lte is not None:
        values = frozenset(v for v in values if (n := _parse_integer(v)) is not None and _is_between(n, gte, lte))
    if left.complement and right.complement:
        return Requirement(left.key, True, values, gte, lte, min_values, present)
    return Requirement(left.key, False, values, min_values=min_values, present=present)


REQUIREMENT_CACHES: Final = (parse_requirement, _label_requirement, _intersect)


def _combine_values(left: Requirement, right: Requirement) -> frozenset[str]:
    if left.complement and right.complement:
        return left.values | right.values
    if left.complement:
        return right.values - left.values
    return left.values - right.values if right.complement else left.values & right.values


def _bounded_requirement(key: str, operator: str, expression: Expression) -> Requirement:
    number = _parse_integer(expression.values[0]) if len(expression.values) == 1 else None
    if number is None:
        raise RequirementError(f"{key} {operator} needs exactly one integer, not {quote(str(list(expression.values)))}")
    low = {GT: number + 1, GTE: number}.get(operator)
    high = {LT: number - 1, LTE: number}.get(operator)
    return Requirement(key, True, frozenset(), low, high, expression.min_values, present=True)


def _parse_integer(value: str) -> int | None:
    """None if the value is not an integer of at most 64 bits, as in Go."""
    number = int(value) if _INTEGER.fullmatch(value) else None
    return number if number is not None and -_MAX_INTEGER - 1 <= number <= _MAX_INTEGER else None


def _are_crossed(gte: int | None, lte: int | None) -> bool:
    """Whether no label satisfies these bounds. A label value cannot be negative, since it starts with no sign."""
    return max(0, gte or 0) > (_MAX_INTEGER if lte is None else min(lte, _MAX_INTEGER))


def _is_between(number: int, gte: int | None, lte: int | None) -> bool:
    return (gte is None or number >= gte) and (lte is None or number <= lte)


def _max_defined(left: int | None, right: int | None) -> int | None:
    return max((n for n in (left, right) if n is not None), default=None)


def _min_defined(left: int | None, right: int | None) -> int | None:
    return min((n for n in (left, right) if n is not None), default=None)


def _format_expression(expression: Expression) -> str:
    if not expression.values:
        return f"{expression.key} {expression.operator}"
    values = " ".join(expression.values[:_MAX_VALUES])
    more = len(expression.values) - _MAX_VALUES
    return f"{expression.key} {expression.operator} [{values}{f' and {more} more' if more > 0 else ''}]"


class Requirements(Mapping[str, Requirement]):
    """Requirements that must all hold, one per key. Immutable and hashable."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        for one in requirements:
            known = by_key.get(one.key)
            by_key[one.key] = one if known is None else known.intersection(one)
        self._by_key = by_key
        self._hash: int | None = None

    @classmethod
    def from_expressions(cls, expressions: Iterable[Expression]) -> "Requirements":
        """Raises RequirementError."""
        return cls(parse_requirement(expression) for expression in expressions)

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> "Requirements":
        return cls(_label_requirement(key, value) for key, value in labels.items())

    @classmethod
    def from_choices(cls, labels: Mapping[str, Iterable[str]], absent: Iterable[str] = ()) -> "Requirements":
        """Each label has one of its values, as for an instance type. Keys only in `absent` do not exist."""
        defined = [one_of(key, *values) for key, values in labels.items()]
        known = {one.key for one in defined}
        return cls([*defined, *(one_of(key) for key in absent if key not in known)])

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def items(self) -> ItemsView[str, Requirement]:
        return self._by_key.items()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._by_key.values()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def __repr__(self) -> str:
        return f"Requirements({self})"

    def __str__(self) -> str:
        return ", ".join(str(self[key]) for key in sorted(self))

    def intersection(self, *others: "Requirements") -> "Requirements":
        if not any(others):
            return self
        return Requirements([*self.values(), *(one for other in others for one in other.values())])

    def without(self, *keys: str) -> "Requirements":
        return Requirements(one for key, one in self.items() if key not in keys)

    def conflicts(self, other: "Requirements") -> tuple[str, ...]:
        """The common keys whose requirements conflict, sorted."""
        small, large = (self, other) if len(self) <= len(other) else (other, self)
        return tuple(sorted(key for key in small if key in large and small[key].conflicts(large[key])))

    def undefined_keys(self, required: "Requirements", allowed: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """The keys that must exist for `required` and that are not defined here, sorted."""
        return tuple(sorted(self._iterate_undefined(required, allowed)))

    def _iterate_undefined(self, required: "Requirements", allowed: frozenset[str]) -> Iterator[str]:
        defined = self._by_key
        return (key for key, one in required.items() if one.present and key not in defined and key not in allowed)

    def is_compatible(self, required: "Requirements", allow_undefined: frozenset[str] = WELL_KNOWN) -> bool:
        """Whether a node with these requirements can satisfy `required`, for a node that is not launched yet.

        Keys in `allow_undefined` may be undefined here. All other keys that must exist for `required` must be defined.
        """
        undefined = next(self._iterate_undefined(required, allow_undefined), None)
        return undefined is None and not self.conflicts(required)

    def is_strictly_compatible(self, required: "Requirements") -> bool:
        """`is_compatible` with complete labels: for an existing node, or the image of an instance type."""
        return self.is_compatible(required, frozenset())

    def implies(self, required: "Requirements") -> bool:
        """Whether every node that satisfies these requirements satisfies `required`."""
        return all(
            self[key].implies(one) if key in self else not one.present and key not in WELL_KNOWN
            for key, one in required.items()
        )

    def explain_incompatibility(self, required: "Requirements", allow_undefined: frozenset[str] = WELL_KNOWN) -> str:
        """The first _MAX_REASONS reasons why `is_compatible` is false; empty if it is true."""
        undefined, conflicting = self.undefined_keys(required, allow_undefined), self.conflicts(required)
        reasons = [
            f"{required[key]} is required and not defined{self._suggest_label(key)}" for key in undefined[:_MAX_REASONS]
        ]
        reasons += [
            f"{required[key]} is required, {self[key]} is offered" for key in conflicting[: _MAX_REASONS - len(reasons)]
        ]
        more = len(undefined) + len(conflicting) - len(reasons)
        return "; ".join([*reasons, f"and {more} more labels"] if more else reasons)

    def expressions(self) -> tuple[Expression, ...]:
        """In the form of the API, sorted by key."""
        return tuple(expression for key in sorted(self) for expression in self[key].expressions())

    def custom_labels(self) -> dict[str, str]:
        """An allowed value for each key that must exist, and that is neither restricted nor set by the provider at
        launch. A pod may exclude values of hundreds of other labels, which would not fit into the user data."""
        examples = {
            key: self[key].example() for key in sorted(self) if self[key].present and not is_injected_elsewhere(key)
        }
        return {key: value for key, value in examples.items() if value}

    def _suggest_label(self, key: str) -> str:
        if key in WELL_KNOWN or len(key) > MAX_LABEL_KEY:
            return ""
        near = _find_similar(key, WELL_KNOWN.union(self))
        return f" (is {near} meant?)" if near else ""


@lru_cache(maxsize=1 << 10)
def _find_similar(key: str, known: frozenset[str]) -> str:
    """The most similar known key; empty if none is similar."""
    return next(iter(get_close_matches(key, sorted(known), n=1, cutoff=0.85)), "")
