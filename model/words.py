"""Lists in sentences."""

from collections.abc import Sequence


def few(names: Sequence[str], most: int = 3) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
