"""What people are shown of voluntary disruption: `tenure plan`, and why a node or a pod stays where it is.

Asked of the process that hosts the watch, by a workflow that lives for one question.
"""

from datetime import datetime

from model.base import Message, Value
from model.verdicts import Method, NodeVerdict


class ShowAsked(Message):
    cluster: str
    name: str = ""
    """Of a NodeClaim, a Node or a pod, that as `namespace/name` or by name alone; empty: all that would be done."""


class ShownCommand(Value):
    """What would be done now."""

    reason: Method
    nodes: tuple[str, ...]
    replacements: tuple[str, ...] = ()
    """Of each the NodePool and what it may be."""
    pods: int = 0
    """That would move."""
    price_before: float = 0.0
    """US dollars an hour."""
    price_after: float = 0.0
    why: str = ""


class Shown(Message):
    at: datetime | None = None
    blocked: str = ""
    """Why nothing can be said now."""
    commands: tuple[ShownCommand, ...] = ()
    more: int = 0
    """Commands that are not named."""
    nodes: int = 0
    eligible: int = 0
    kept: dict[str, int] = {}
    """By cause how many nodes stay."""
    verdicts: tuple[NodeVerdict, ...] = ()
    """Of what was named."""
    pod: str = ""
    """Where a pod was named: `namespace/name`, and then where it runs and would go."""
    said: tuple[str, ...] = ()
