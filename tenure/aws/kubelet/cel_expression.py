"""Compiles, type-checks and evaluates a CEL expression."""

import math
from collections.abc import Callable
from functools import lru_cache

from cel_expr_python import cel

from tenure.apis.cel import MAX_QUOTED, compile_expression
from tenure.apis.durations import quote
from tenure.aws.kubelet.expressions import ExpressionError, Variables

_INT, _DOUBLE = cel.Type.INT, cel.Type.DOUBLE


class Expression:
    """A compiled expression. Evaluation takes some microseconds."""

    def __init__(self, text: str) -> None:
        """Raises ExpressionError for an invalid expression, or one without a numeric result."""
        self._text = quote(text, MAX_QUOTED)
        self._made = compile_expression(_environment(), text, ExpressionError)
        kind = self._made.return_type()
        if kind not in (_INT, _DOUBLE, cel.Type.DYN):
            raise ExpressionError(f"{self._text} returns a {kind.name().lower()}, expected an int or a double")

    def evaluate(self, variables: Variables) -> int:
        """The result, truncated to an integer. Raises ExpressionError if it is negative or not a finite number."""
        found = self._made.eval(data=variables)
        number, where = found.value(), f"{self._text} for {variables['instance_type']}"
        if found.type() == cel.Type.ERROR:
            raise ExpressionError(f"{where}: {str(number).partition(': ')[2] or number}")
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ExpressionError(f"{where} returns {number!r}, expected an int or a double")
        if not math.isfinite(number):
            raise ExpressionError(f"{where} returns {number}, expected a finite number")
        if number < 0:
            raise ExpressionError(f"{where} returns {number}, expected zero or more")
        return int(number)


@lru_cache(maxsize=1)
def _environment() -> cel.Env:
    """CEL's standard functions, `max` and `min` of two numbers, and the variables."""
    names: dict[str, cel.Type] = dict.fromkeys(Variables.__annotations__, _INT)
    return cel.NewEnv(
        variables=names | {"instance_type": cel.Type.STRING},
        functions=[_declare_function("max", max), _declare_function("min", min)],
    )


def _declare_function(name: str, choose: Callable[[float, float], float]) -> cel.FunctionDecl:
    pairs = ((_INT, _INT), (_DOUBLE, _DOUBLE), (_INT, _DOUBLE), (_DOUBLE, _INT))
    return cel.FunctionDecl(name, [_make_overload(name, left, right, choose) for left, right in pairs])


def _make_overload(name: str, left: cel.Type, right: cel.Type, choose: Callable[[float, float], float]) -> cel.Overload:
    """The result is an int for two ints, else a double."""
    is_int = left == right == _INT
    return cel.Overload(
        f"{name}_{left.name()}_{right.name()}".lower(),
        _INT if is_int else _DOUBLE,
        [left, right],
        False,
        choose if is_int else lambda a, b: float(choose(a, b)),
    )
