"""Reasons of Kubernetes events. docs/reference/events.md is generated from `event_reasons.toml`."""

import tomllib
from importlib.resources import files
from typing import Final

from tenure.model.base import Value


class EventReason(Value):
    warning: bool = False
    repeat_after_seconds: float = 120
    """The same event about the same object is not repeated within this time."""
    objects: str = ""
    """Kinds that it is published about."""
    description: str = ""
    todo: str = "nothing"
    """The remedy, in Markdown with links relative to docs/reference/."""
    since: str = "0.1.0"
    example: str = ""
    """A message."""


EVENT_REASONS: Final = {
    name: EventReason(**entry)
    for name, entry in tomllib.loads(files(__package__).joinpath("event_reasons.toml").read_text()).items()
}
UNLISTED: Final = EventReason()
"""Reasons that come from elsewhere: types of conditions, and reasons of drift."""
