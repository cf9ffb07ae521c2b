"""JSON from the API server, of any depth."""

import re
from typing import Any, Final

from pydantic_core import from_json

MAX_DEPTH: Final = 100
"""Deeper values are read as null. The parser has a limit of about 200, and the API server one of 10,000, so that one
object could make a list unreadable."""
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def parse_json(body: bytes) -> Any:
    """Raises ValueError for invalid JSON."""
    try:
        return from_json(body)
    except ValueError:
        shallow = _cut_deep_values(body)
        if shallow == body:
            raise
        return from_json(shallow)


def _cut_deep_values(body: bytes) -> bytes:
    """Linear and without recursion. The body itself if no value is too deep."""
    parts, depth, copied_until, cut_from = [], 0, 0, -1
    for token in _TOKEN.finditer(body):
        character = token[0][:1]
        if character in b"[{":
            depth += 1
            if depth == MAX_DEPTH + 1:
                cut_from = token.start()
        elif character in b"]}":
            if depth == MAX_DEPTH + 1:
                parts += [body[copied_until:cut_from], b"null"]
                copied_until = token.end()
            depth -= 1
    return b"".join([*parts, body[copied_until:]]) if parts else body
