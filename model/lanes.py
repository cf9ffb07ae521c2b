"""Whose request it is, for those who send them at a pace: what comes by the hundred waits among its own.

An activity says it of itself; what it calls has it too.
"""

from contextvars import ContextVar
from typing import Final, Literal

Lane = Literal["", "crowd"]

LANE: Final[ContextVar[Lane]] = ContextVar("LANE", default="")
