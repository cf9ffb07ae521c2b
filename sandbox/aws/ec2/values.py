"""Reads values out of a described thing by a dotted path, as filters compare them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sandbox.aws.wire.xml import iso


def values_at(view: Any, path: str) -> list[str]:
    """All values at a dotted path, through lists, written as filters write them."""
    found = [view]
    for step in path.split("."):
        following = []
        for node in found:
            inner = node.get(step) if isinstance(node, dict) else None
            following.extend(inner if isinstance(inner, list) else [] if inner is None else [inner])
        found = following
    return [_written(value) for value in found]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return iso(value) if isinstance(value, dt.datetime) else str(value)
