"""A finding: a field of an object that the API server or the worker rejects, with the remedy."""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from tenure.model.base import Value

Path = tuple[str | int, ...]
_MAX_VALUE_LENGTH: Final = 60
"""Characters of a value in text."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_REMEDY: Final = re.compile(
    r"(?:; |[,:] )((?:add|choose|create|did you mean|e\.g\.|expected|leave|move|must be|remove|restore|select|set|to "
    r"|use|write)\b.*)$"
)


class Finding(Value):
    field: str
    """Path of the field, e.g. `spec.template.spec.requirements[0].operator`; empty for the whole object."""
    value: Any = None
    """As in the file; None if it is missing."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        value = "" if self.value is None else f" {_abbreviate(self.value)}:"
        remedy = f"; {self.remedy}" if self.remedy != self.problem else ""
        return f"{self.field}:{value} {self.problem}{remedy}".removeprefix(":").strip()


def make_finding(path: Path, value: Any, problem: str, remedy: str) -> Finding:
    return Finding(field=format_path(path), value=value, problem=problem, remedy=remedy)


def from_message(field: str, value: Any, message: str) -> Finding:
    """A message that contains its remedy, as rules of the CRDs and checks of the worker have."""
    found = _REMEDY.search(message)
    if not found:
        return Finding(field=field, value=value, problem=message, remedy=message)
    return Finding(field=field, value=value, problem=message[: found.start()], remedy=found[1])


def format_path(path: Iterable[str | int]) -> str:
    """`a.b[0]`; keys that are no identifiers are in brackets."""
    parts = (f".{one}" if isinstance(one, str) and _IDENTIFIER.fullmatch(one) else f"[{one}]" for one in path)
    return "".join(parts).removeprefix(".")


def _abbreviate(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 3] + "..."
