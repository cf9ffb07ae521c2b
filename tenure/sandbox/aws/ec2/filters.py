"""EC2's filters and pagination.

The values of a filter are alternatives; all filters must match, also two of the same name; `*` and `?` are wildcards.
A page token names the last returned item instead of a position, so that pages stay correct when items change.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tenure.sandbox.aws.wire.responses import AwsError, invalid_value, missing_parameter

Facts = Mapping[str, Sequence[str]]
Test = Callable[[str], bool]
Filter = tuple[str, Test]


def compile_filters(filters: Iterable[dict[str, Any]] | None, known: frozenset[str]) -> list[Filter]:
    """Raises InvalidParameterValue for a filter that this action does not support, or without values."""
    compiled = []
    for one in filters or ():
        name = one.get("Name")
        if not name:
            raise missing_parameter("filter.name")
        if name not in known and not (name.startswith("tag:") and "tag-key" in known):
            raise invalid_value(f"The filter '{name}' is invalid")
        if not one.get("Values"):
            raise invalid_value("The filter 'null' is invalid")
        compiled.append((name, _make_test(one["Values"])))
    return compiled


def matches_filters(filters: list[Filter], facts: Facts) -> bool:
    return all(any(map(test, facts.get(name, ()))) for name, test in filters)


def tag_facts(tags: Mapping[str, str]) -> dict[str, list[str]]:
    facts = {f"tag:{key}": [value] for key, value in tags.items()}
    facts["tag-key"] = list(tags)
    facts["tag-value"] = list(tags.values())
    return facts


def _make_test(values: Sequence[str]) -> Test:
    exact = frozenset(v for v in values if not _is_wild(v))
    patterns = [_compile_pattern(v) for v in values if _is_wild(v)]
    if not patterns:
        return exact.__contains__
    return lambda value: value in exact or any(p.fullmatch(value) for p in patterns)


def _is_wild(value: str) -> bool:
    return any(char in value for char in "*?\\")


def _compile_pattern(value: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", value, re.DOTALL)
    translate = {"*": ".*", "?": "."}
    return re.compile("".join(translate.get(p) or re.escape(p[-1]) for p in parts), re.DOTALL)


T = TypeVar("T")


def paginate(
    items: Sequence[T],
    request: dict[str, Any],
    key: Callable[[T], Any],
    *,
    low: int = 5,
    high: int = 1000,
    unpaged: int | None = None,
) -> tuple[list[T], str | None]:
    """The items of the requested page and the token of the next page. `items` must be sorted by `key`."""
    size = request.get("MaxResults")
    if size is not None and not low <= size <= high:
        raise invalid_value(
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between {low} and {high}."
        )
    token = request.get("NextToken")
    rest = list(items) if not token else _items_after(items, _read(token), key)
    limit = size if size is not None else unpaged
    if limit is None or len(rest) <= limit:
        return rest, None
    return rest[:limit], _write(key(rest[limit - 1]))


def _items_after(items: Sequence[T], last: Any, key: Callable[[T], Any]) -> list[T]:
    try:
        return [item for item in items if key(item) > last]
    except TypeError:
        raise _bad_token() from None


def _write(last: Any) -> str:
    return base64.b64encode(json.dumps(last).encode()).decode()


def _read(token: str) -> Any:
    try:
        value = json.loads(base64.b64decode(token, validate=True))
    except (binascii.Error, ValueError):
        raise _bad_token() from None
    return tuple(value) if isinstance(value, list) else value


def _bad_token() -> AwsError:
    return invalid_value("The token is not valid")
