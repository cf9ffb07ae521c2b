"""Counts the entries of all containers that an object of Tenure holds, at any depth."""

import asyncio
import functools
import types
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

_PACKAGES: Final = ("tenure", "activities", "workflows", "worker", "cachetools")
_CONTAINERS: Final = (dict, set, frozenset, list, tuple, deque)


def count_entries(root: object) -> Counter[str]:
    """Number of entries by attribute path. Immutable models do not count as containers."""
    counts: Counter[str] = Counter()
    visited = {id(root)}
    pending: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while pending:
        path, thing = pending.pop()
        if isinstance(thing, (*_CONTAINERS, Mapping)) and not isinstance(thing, tuple | frozenset):
            counts[path] += sum(1 for one in thing.values() if one != 0) if isinstance(thing, Mapping) else len(thing)
        elif isinstance(thing, asyncio.Queue):
            counts[path] += thing.qsize()
        for name, value in _children(thing):
            if id(value) not in visited and not isinstance(value, str | bytes | int | float | type | None):
                visited.add(id(value))
                pending.append((f"{path}{name}", value))
    return counts


def _children(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        yield from (("[]", one) for one in thing.values())
    elif isinstance(thing, _CONTAINERS):
        yield from (("[]", one) for one in thing)
    elif isinstance(thing, functools.partial):
        yield from (("()", one) for one in (thing.func, *thing.args, *thing.keywords.values()))
    elif isinstance(thing, types.MethodType):
        yield "", thing.__self__
    elif isinstance(thing, types.FunctionType):
        yield from (("()", one.cell_contents) for one in thing.__closure__ or () if _is_set(one))
    elif type(thing).__module__.partition(".")[0] in _PACKAGES and not isinstance(thing, BaseModel):
        names = {*getattr(thing, "__dict__", ()), *getattr(type(thing), "__slots__", ())}
        yield from ((f".{name}", getattr(thing, name)) for name in sorted(names) if hasattr(thing, name))


def _is_set(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises for an empty cell
    except ValueError:
        return False
    return True
