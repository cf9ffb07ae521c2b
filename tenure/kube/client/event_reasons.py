"""Reasons of Kubernetes events. docs/reference/events.md is generated from `event_reasons.toml`."""

import tomllib
from importlib.resources import files
from typing import Final

from tenure.model.base import Value


class EventReason(Value):
    warning: bool = False
    repeat_after_seconds: float = 120
    """An event with the same object, reason and message is not repeated within this time."""
    objects: str = ""
    """Kinds of its objects."""
    description: str = ""
    todo: str = "nothing"
    """The remedy, in Markdown with links relative to docs/reference/."""
    since: str = "0.1.0"
    example: str = ""
    """Example of a message."""


EVENT_REASONS: Final = {
    name: EventReason(**entry)
    for name, entry in tomllib.loads(files(__package__).joinpath("event_reasons.toml").read_text()).items()
}
UNLISTED: Final = EventReason()
"""For reasons that are not in the table: condition types, and reasons of drift."""
