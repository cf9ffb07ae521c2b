"""EC2's filters: the values of one are alternatives, all filters must hold (also two of one name), `*` and `?` are
wild.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sandbox.aws.wire.errors import invalid_value, missing_parameter

Facts = Mapping[str, Sequence[str]]
Test = Callable[[str], bool]
Filter = tuple[str, Test]


def compile_filters(filters: Iterable[dict[str, Any]] | None, known: frozenset[str]) -> list[Filter]:
    """Raises InvalidParameterValue for a name that this action does not know, and for one without values."""
    compiled = []
    for one in filters or ():
        name = one.get("Name")
        if not name:
            raise missing_parameter("filter.name")
        if name not in known and not (name.startswith("tag:") and "tag-key" in known):
            raise invalid_value(f"The filter '{name}' is invalid")
        if not one.get("Values"):
            raise invalid_value("The filter 'null' is invalid")
        compiled.append((name, _test(one["Values"])))
    return compiled


def accepts(filters: list[Filter], facts: Facts) -> bool:
    return all(any(map(test, facts.get(name, ()))) for name, test in filters)


def tag_facts(tags: Mapping[str, str]) -> dict[str, list[str]]:
    facts = {f"tag:{key}": [value] for key, value in tags.items()}
    facts["tag-key"] = list(tags)
    facts["tag-value"] = list(tags.values())
    return facts


def _test(values: Sequence[str]) -> Test:
    exact = frozenset(v for v in values if not _is_wild(v))
    patterns = [_pattern(v) for v in values if _is_wild(v)]
    if not patterns:
        return exact.__contains__
    return lambda value: value in exact or any(p.fullmatch(value) for p in patterns)


def _is_wild(value: str) -> bool:
    return any(char in value for char in "*?\\")


def _pattern(value: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", value, re.DOTALL)
    translate = {"*": ".*", "?": "."}
    return re.compile("".join(translate.get(p) or re.escape(p[-1]) for p in parts), re.DOTALL)
