"""Whether a resource's policy lets EventBridge do something with it: a queue's, or a key's. Pure.

No simulator judges resource policies for services, so that the few conditions that such policies have are judged here.
A condition that is not known here is taken as met by what allows and as not met by what denies.
"""

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

SERVICE: Final = "events.amazonaws.com"
Statement = Mapping[str, Any]


def statements_of(policy: str) -> list[Statement]:
    """None where there is no policy, or none that can be read."""
    try:
        said = json.loads(policy).get("Statement", []) if policy else []
    except (ValueError, AttributeError):
        return []
    return [one for one in (said if isinstance(said, list) else [said]) if isinstance(one, dict)]


def refusal(statements: list[Statement], action: str, resource: str, context: Mapping[str, str]) -> str:
    """Why EventBridge may not; empty when it may. `context`: the request's keys, in lower case."""
    spoken = [one for one in statements if _is_about(one, action, resource)]
    for one in spoken:
        if one.get("Effect") == "Deny" and _is_met(one, context, unknown=False):
            return f"the statement {one.get('Sid') or 'without a Sid'} denies it"
    allowing = [one for one in spoken if one.get("Effect") == "Allow"]
    if any(_is_met(one, context, unknown=True) for one in allowing):
        return ""
    if allowing:
        return f"the condition of {', '.join(one.get('Sid') or 'a statement' for one in allowing)} is not met"
    return f"no statement allows {SERVICE} {action}"


def open_to_all(statements: list[Statement], action: str) -> bool:
    """Whether anybody may do it."""
    return any(
        one.get("Effect") == "Allow" and _everybody(one) and not one.get("Condition") and _covers(one, "Action", action)
        for one in statements
    )


def _is_about(statement: Statement, action: str, resource: str) -> bool:
    services = _principals(statement, "Service")
    concerned = _everybody(statement) or SERVICE in services
    return concerned and _covers(statement, "Action", action) and _covers(statement, "Resource", resource)


def _everybody(statement: Statement) -> bool:
    return statement.get("Principal") == "*" or "*" in _principals(statement, "AWS")


def _principals(statement: Statement, kind: str) -> list[str]:
    principal = statement.get("Principal")
    return _listed(principal.get(kind, [])) if isinstance(principal, dict) else []


def _covers(statement: Statement, field: str, wanted: str) -> bool:
    """A queue's policy may leave the resource out: it is the queue."""
    said = _listed(statement.get(field, "*" if field == "Resource" else []))
    return any(fnmatchcase(wanted.lower(), one.lower()) for one in said)


def _is_met(statement: Statement, context: Mapping[str, str], *, unknown: bool) -> bool:
    return all(
        _condition(operator, context.get(key.lower()), values, unknown=unknown)
        for operator, key, values in _conditions(statement)
    )


def _conditions(statement: Statement) -> Iterator[tuple[str, str, list[str]]]:
    for operator, keys in (statement.get("Condition") or {}).items():
        for key, values in keys.items():
            yield operator.removesuffix("IfExists"), key, _listed(values)


def _condition(operator: str, value: str | None, wanted: list[str], *, unknown: bool) -> bool:
    if value is None:
        return unknown
    match operator:
        case "StringEquals":
            return value in wanted
        case "StringLike" | "ArnLike" | "ArnEquals":
            return any(fnmatchcase(value, one) for one in wanted)
        case "Bool":
            return value in [one.lower() for one in wanted]
        case _:
            return unknown


def _listed(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]
