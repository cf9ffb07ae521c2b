"""CEL rules of CustomResourceDefinitions (`x-kubernetes-validations`) and RE2 patterns, evaluated as by the API server.

`self` has no static type here, because the API server has checked the types of the rules that `deploy/` ships.
Rules about a change (`oldSelf`) do not apply to a new object.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from tenure.cli.validate.findings import Finding, Path, format_path, from_message

RULES: Final = "x-kubernetes-validations"
_ABOUT_CHANGE: Final = re.compile(r"\boldSelf\b")
_FOR_EACH: Final = re.compile(r"self\.all\((\w+), (.+)\)", re.DOTALL)
_BUDGET: Final = "Iteration budget exceeded"
"""The library allows 10,000 iterations in one evaluation. Larger lists are evaluated item by item."""


def check_rules(schema: Mapping[str, Any], value: Any, path: Path = ()) -> Iterator[Finding]:
    """The rules that a valid value of the schema violates, at every level."""
    for one in schema.get(RULES, ()):
        if not _ABOUT_CHANGE.search(one["rule"]) and not is_satisfied(one["rule"], value):
            yield from_message(format_path(path), value, one["message"])
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from check_rules(schema.get("items", {}), item, (*path, index))
    elif isinstance(value, dict):
        fields, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key, item in value.items():
            yield from check_rules(fields.get(key, others), item, (*path, key))


def is_satisfied(rule: str, value: Any) -> bool:
    """False also if the rule has no result for the value, e.g. `int(self)` of a word."""
    try:
        return _is_true(compile_rule(rule), {"self": value})
    except RuntimeError as error:
        each = _FOR_EACH.fullmatch(rule)
        if each is None or _BUDGET not in str(error):
            raise
        name, condition = each.groups()
        compiled = compile_rule(condition, name)
        return all(_is_true(compiled, {"self": value, name: one}) for one in value)


def _is_true(compiled: cel.Expression, variables: Mapping[str, Any]) -> bool:
    found = compiled.eval(data=variables)
    return found.type() == cel.Type.BOOL and bool(found.value())


def matches_pattern(text: str, pattern: str) -> bool:
    """Whether a part of the text matches in the syntax of RE2, which differs from Python's."""
    return _is_true(compile_rule("self.matches(pattern)", "pattern"), {"self": text, "pattern": pattern})


@cache
def compile_rule(rule: str, *names: str) -> cel.Expression:
    """`names`: variables of the rule besides `self` and `oldSelf`. Raises RuntimeError for an invalid rule."""
    return _environment(*names).compile(rule)


@cache
def _environment(*names: str) -> cel.Env:
    """CEL with Kubernetes' string functions. The rules that `deploy/` ships need no other function of Kubernetes."""
    variables = dict.fromkeys(("self", "oldSelf", *names), cel.Type.DYN)
    return cel.NewEnv(variables=variables, extensions=[ext_strings.ExtStrings()])
