"""Moments as annotations have them."""

from datetime import datetime


def read_moment(text: str) -> datetime | None:
    """None for what is no moment with a time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
