"""CEL selectors of DRA devices, as kube-scheduler evaluates them.

Supported: comparisons of `device.driver`, attributes and capacities, with `quantity` and `semver`. Quantities and
versions are maps with one key, so that they equal neither strings nor numbers. Other functions do not compile.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tenure.apis.cel import MAX_QUOTED, compile_expression
from tenure.apis.durations import quote
from tenure.apis.quantity import NANO, parse

if TYPE_CHECKING:
    from cel_expr_python import cel

_MAX_CACHED: Final = 1024
"""Number of compiled expressions; each takes some kilobytes."""
_MACRO: Final = re.compile(r"\.\s*(all|exists|exists_one|existsOne|map|filter|transformList|transformMap)\s*\(")
"""Loops, whose time is not bounded by the length of the expression."""
_SEMVER: Final = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})", re.ASCII)
_QUANTITY_KEY: Final = "quantity"
_VERSION_KEY: Final = "version"


class SelectorError(ValueError):
    """A selector is not supported, or fails for a device; the message quotes it."""


class DeviceSelector:
    """A compiled expression. Evaluation takes some microseconds."""

    def __init__(self, text: str) -> None:
        """Raises SelectorError."""
        self._text = quote(text, MAX_QUOTED)
        if _MACRO.search(text):
            raise SelectorError(f"{self._text}: Tenure does not support macros that loop, such as all and exists")
        self._compiled = compile_expression(_environment(), text, SelectorError)

    def matches(self, device: Mapping[str, Any]) -> bool:
        """`device`: from `build_variables`. Raises SelectorError, for example for a missing attribute."""
        try:
            found = self._compiled.eval(data={"device": device}).value()
        except Exception as error:
            found = error
        if not isinstance(found, bool):
            raise SelectorError(f"{self._text}: {str(found)[:MAX_QUOTED]}, expected true or false")
        return found


@lru_cache(maxsize=_MAX_CACHED)
def compile_selector(text: str) -> DeviceSelector:
    """Raises SelectorError."""
    return DeviceSelector(text)


def parse_capacity(text: str | float) -> dict[str, Any]:
    """The form of a quantity in expressions. Raises QuantityError."""
    return {_QUANTITY_KEY: list(divmod(parse(text).nano, NANO))}


def parse_version(text: str) -> dict[str, Any]:
    """The form of a version in expressions. Raises ValueError for a version with a pre-release or build."""
    match = _SEMVER.fullmatch(text)
    if not match:
        raise ValueError(f"{quote(text, MAX_QUOTED)}: Tenure supports only versions such as 1.2.3")
    return {_VERSION_KEY: [int(one) for one in match.groups()]}


@lru_cache(maxsize=1)
def _environment() -> "cel.Env":
    from cel_expr_python import cel  # noqa: PLC0415 - the library takes 5 MB, and few clusters have device selectors

    text, amount, number, boolean = cel.Type.STRING, cel.Type.MAP, cel.Type.INT, cel.Type.BOOL

    def declare(name: str, result: "cel.Type", call: Callable[..., Any]) -> "cel.FunctionDecl":
        return cel.FunctionDecl(name, [cel.Overload(f"{name}_amount", result, [amount, amount], True, call)])

    return cel.NewEnv(
        variables={"device": cel.Type.DYN},
        functions=[
            cel.FunctionDecl("quantity", [cel.Overload("quantity_text", amount, [text], False, parse_capacity)]),
            cel.FunctionDecl("semver", [cel.Overload("semver_text", amount, [text], False, parse_version)]),
            declare("compareTo", number, _compare),
            declare("isGreaterThan", boolean, lambda left, right: _compare(left, right) > 0),
            declare("isLessThan", boolean, lambda left, right: _compare(left, right) < 0),
        ],
    )


def _compare(left: Mapping[str, Any], right: Mapping[str, Any]) -> int:
    """-1, 0 or 1. Raises ValueError unless both are quantities or both are versions."""
    for key in (_QUANTITY_KEY, _VERSION_KEY):
        if left.keys() == right.keys() == {key}:
            return int(left[key] > right[key]) - int(left[key] < right[key])
    raise ValueError("two quantities or two versions can be compared")
