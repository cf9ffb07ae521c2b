"""Changes of one entry in tables and in indexes, whose values are sets."""

from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def set_or_remove(table: dict[K, T], key: K, value: T | None) -> None:
    """None removes the key."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def discard_member(index: dict[K, set[str]], key: K, value: str) -> None:
    """Removes a key together with its last member."""
    members = index.get(key)
    if members is not None:
        members.discard(value)
        if not members:
            del index[key]
