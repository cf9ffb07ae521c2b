"""Pages that stay honest while things come and go: a token names the last item given out, not a position."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sandbox.aws.wire.errors import AwsError, invalid_value

T = TypeVar("T")


def page(
    items: Sequence[T],
    request: dict[str, Any],
    key: Callable[[T], Any],
    *,
    low: int = 5,
    high: int = 1000,
    unpaged: int | None = None,
) -> tuple[list[T], str | None]:
    """The items of this request's page and the token of the next. `items` must be sorted by `key`."""
    size = request.get("MaxResults")
    if size is not None and not low <= size <= high:
        raise invalid_value(
            f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value between {low} and {high}."
        )
    token = request.get("NextToken")
    rest = list(items) if not token else _after(items, _read(token), key)
    limit = size if size is not None else unpaged
    if limit is None or len(rest) <= limit:
        return rest, None
    return rest[:limit], _write(key(rest[limit - 1]))


def _after(items: Sequence[T], last: Any, key: Callable[[T], Any]) -> list[T]:
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
