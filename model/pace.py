"""How long a node's start-up is expected to take, as others have taken."""

from datetime import timedelta

from model.base import Message


class PhaseTimes(Message):
    """None where nothing is known."""

    launch: timedelta | None = None
    registration: timedelta | None = None
    initialization: timedelta | None = None


class Expected(Message):
    """By instance type, or for any other."""

    by_type: dict[str, PhaseTimes] = {}
    otherwise: PhaseTimes = PhaseTimes()
