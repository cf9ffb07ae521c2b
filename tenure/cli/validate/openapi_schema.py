"""OpenAPI schemas and CEL rules of CustomResourceDefinitions, applied to objects as by the API server.

Unknown fields are errors, as with `kubectl apply`. Keywords are those of JSON Schema, except for the patterns in RE2
and Kubernetes' keyword for lists without duplicates. Of the formats, only `date-time` is binding.

`self` of a rule (`x-kubernetes-validations`) has no static type here, because the API server has checked the types of
the rules that `deploy/` ships. Rules about a change (`oldSelf`) do not apply to a new object.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import date
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings
from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

from tenure.apis import crd_schema
from tenure.cli.validate.findings import Finding, Path, format_path, from_message, make_finding

Schema = Mapping[str, Any]
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_MAX_EXACT: Final = 2**53
"""Larger floating-point numbers are not integers in JSON."""
_TIME: Final = re.compile(r"(\d{2}):(\d{2}):(\d{2})(\.\d+)?(z|[+-]\d{2}:\d{2})", re.ASCII)
EXPECTED_FORMS: Final = {
    crd_schema.QUANTITY_PATTERN: "a quantity, e.g. 500m or 2Gi",
    crd_schema.QUALIFIED_NAME: "a qualified name, e.g. example.com/team",
    crd_schema.LABEL_VALUE: "a label value of letters, digits, '-', '_' and '.'",
    crd_schema.DURATION: "a duration in h, m and s, e.g. 1h30m",
    crd_schema.DURATION_OR_NEVER: "a duration in h, m and s, e.g. 1h30m, or Never",
    crd_schema.CRON: "five cron fields or a macro, e.g. '0 9 * * 1-5' or '@daily'",
    r"^((100|[0-9]{1,2})%|[0-9]+)$": "a number of nodes or a percentage of 0% to 100%, e.g. 10%",
    r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$": "a duration of hours and minutes, e.g. 1h30m",
}
"""Expected forms by pattern."""


def apply_defaults(schema: Schema, value: Any, path: Path = ()) -> Iterator[Finding]:
    """Remove null fields and set defaults in `value`; yields the unknown fields."""
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from apply_defaults(schema.get("items", {}), one, (*path, index))
    elif isinstance(value, dict):
        fields = schema.get("properties", {})
        others = schema.get("additionalProperties", {} if schema.get(_PRESERVE) else None)
        for key in [key for key, one in value.items() if one is None and (key in fields or others)]:
            del value[key]
        for key, one in fields.items():
            if "default" in one and key not in value:
                value[key] = deepcopy(one["default"])
        for key, one in value.items():
            if key in fields or others:
                yield from apply_defaults(fields.get(key, others), one, (*path, key))
            elif others is None:
                near = next(iter(get_close_matches(key, fields, n=1, cutoff=0.75)), "")
                remedy = f"did you mean {near}?" if near else "remove it"
                yield make_finding((*path, key), one, "unknown field", remedy)


def check_schema(schema: Schema, value: Any) -> Iterator[Finding]:
    """All violations, in the order of their paths."""
    errors = _Validator(schema, format_checker=_FORMATS).iter_errors(value)
    for one in sorted(errors, key=lambda error: [str(part) for part in error.absolute_path]):
        yield _to_finding(one)


def _is_integer(_: Any, value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer() and abs(value) <= _MAX_EXACT
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _check_pattern(_: Any, pattern: str, value: object, schema: Schema) -> Iterator[ValidationError]:
    if isinstance(value, str) and not matches_pattern(value, pattern):
        yield ValidationError("")


def _check_list_type(_: Any, list_type: str, value: object, schema: Schema) -> Iterator[ValidationError]:
    if list_type == "set" and isinstance(value, list) and any(one in value[:index] for index, one in enumerate(value)):
        yield ValidationError("")


_Validator: Final = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {"pattern": _check_pattern, _LIST_TYPE: _check_list_type},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)
_FORMATS: Final = FormatChecker(formats=())


@_FORMATS.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    """The form of Go's strfmt, which accepts no leap second."""
    if not isinstance(value, str):
        return True
    day, _, time = value.lower().partition("t")
    date.fromisoformat(day)
    found = _TIME.fullmatch(time)
    return len(day) == len("2026-01-01") and bool(found and found[1] <= "23" and found[2] <= "59" and found[3] <= "59")


def _to_finding(error: ValidationError) -> Finding:
    expected: Any = error.validator_value
    path = tuple(error.absolute_path)
    value: Any = error.instance
    schema: Any = error.schema
    match str(error.validator):
        case "required":
            missing = next(one for one in expected if one not in value and f"'{one}'" in error.message)
            return make_finding((*path, missing), None, "required field is missing", "add it")
        case "type":
            return make_finding(path, value, "wrong type", f"expected {_article(str(expected))}")
        case "anyOf":
            return make_finding(path, value, "wrong type", "expected an integer or a string")
        case "enum":
            return make_finding(path, value, "unsupported value", f"expected one of {', '.join(expected)}")
        case "pattern":
            form = schema.get("title") or EXPECTED_FORMS.get(expected, f"text that matches {expected}")
            return make_finding(path, value, "invalid value", f"expected {form}")
        case "format":
            return make_finding(path, value, "invalid value", "expected a time, e.g. 2026-06-01T18:00:00Z")
        case "x-kubernetes-list-type":
            return make_finding(path, value, "duplicate value", "remove the duplicate")
    limit, _, unit = _LIMITS[str(error.validator)].partition(" ")
    problem = "too small" if limit == "least" else "too large"
    return make_finding(path, value, problem, f"expected at {limit} {expected} {unit}".rstrip())


_LIMITS: Final = {
    "minimum": "least",
    "maximum": "most",
    "minLength": "least characters",
    "maxLength": "most characters",
    "minItems": "least items",
    "maxItems": "most items",
    "minProperties": "least keys",
    "maxProperties": "most keys",
}


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {'list' if kind == 'array' else kind}".replace("an list", "a list")


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
