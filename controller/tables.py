"""Small steps on dicts that `caches.py` keeps its facts and indices in."""

from typing import TypeVar

T = TypeVar("T")


def put(table: dict[str, T], key: str, value: T | None) -> None:
    """None takes it out."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def discard(index: dict[str, set[str]], key: str, value: str) -> None:
    """A key whose last member goes, goes too."""
    members = index.get(key)
    if members is not None:
        members.discard(value)
        if not members:
            del index[key]
