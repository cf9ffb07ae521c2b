"""Disruption budgets: how many nodes of a pool may be disrupted now, and the arithmetic behind it.

Karpenter's rules (reference 4.4): percentages round up, so a budget of 10 % always lets one node of a small pool
go; nodes that are NotReady or going already use the budget up; the strictest active budget counts; one budget that
cannot be read closes the pool.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from model.base import Message
from model.coordination import PoolCount
from model.disruption import Room, ZonesAtOnce
from model.kinds import Budget
from policy.windows import is_open


class Asking(Message):
    """A NodeClaim that may go, as its permit is decided by."""

    zone: str = ""
    created: datetime | None = None
    paused: str = ""
    """In words: its annotation holds it."""


class Allowance(Message):
    """How many more nodes may be disrupted for one reason."""

    allowed: int
    count: PoolCount = PoolCount()
    read: bool = True
    """False where the pool could not be looked at, so that `count` says nothing."""
    why: str = ""
    """The arithmetic in words, for the node and the pool that are blocked by it."""
    unreadable: bool = False
    """A budget cannot be read, and `why` says which and what to write."""
    zones: dict[str, Room] = {}
    """What is left in each zone; what is not mentioned is not limited, here and in what follows."""
    zones_at_once: ZonesAtOnce | None = None
    cluster: Room | None = None
    """Of all NodePools together."""
    youngest: timedelta | None = None
    """How old a node has to be."""
    fixed: bool = False
    """Nothing goes whatever nodes do: only time, or another spec, lets any go."""
    opens: datetime | None = None
    """When time alone may let more go than now; None for never."""
    asking: dict[str, Asking] = {}
    """By UID: the NodeClaims that were asked about and stand."""


def decide_allowance(budgets: Sequence[Budget], count: PoolCount, *, reason: str, now: datetime) -> Allowance:
    """The strictest active budget, less what is consumed. No active budget for the reason: no limit."""
    limits: list[tuple[int, str]] = []
    for budget in budgets:
        try:
            limit, active = nodes_of(budget, count.total), is_active(budget, now)
            if active and _covers(budget, reason):
                limits.append((limit, budget.nodes))
        except ValueError as error:
            why = f"budget {budget.nodes!r} cannot be read: {error}"
            return Allowance(allowed=0, count=count, why=why, unreadable=True)
    if not limits:
        return _answer(count.total, count, "no active budget limits this reason")
    limit, written = min(limits)
    used = len(count.consuming)
    words = f"budget {written} of {count.total} nodes allows {limit}, {used} in use (NotReady or going)"
    return _answer(max(0, limit - used), count, words)


def is_closed(budgets: Sequence[Budget], *, reason: str, now: datetime) -> bool:
    """Whether they let nothing go, however many nodes there are: one of `0` or `0%` holds, or cannot be read."""
    try:
        return any(_covers(one, reason) and share_of(one.nodes, 1) <= 0 and is_active(one, now) for one in budgets)
    except ValueError:
        return True


def _answer(allowed: int, count: PoolCount, why: str) -> Allowance:
    return Allowance(allowed=allowed, count=count, why=why)


def _covers(budget: Budget, reason: str) -> bool:
    return not budget.reasons or reason in budget.reasons


def nodes_of(budget: Budget, total: int) -> int:
    """`10%` of 3 nodes is 1; a plain number is itself. Raises ValueError for anything else."""
    return share_of(budget.nodes, total)


def share_of(text: str, total: int) -> int:
    """The same for a text. Raises ValueError."""
    if text.endswith("%"):
        return math.ceil(int(text[:-1]) * total / 100)
    return int(text)


def read_count(text: str) -> int:
    """The same of 100 nodes, of what a person wrote. Raises ValueError which says what to write."""
    try:
        return share_of(text, 100)
    except ValueError as error:
        raise ValueError(f"{text!r} is no number of nodes: write one such as '5', or a share such as '10%'") from error


def is_active(budget: Budget, now: datetime) -> bool:
    """A budget without a schedule always is; another is while `duration` has not passed since the last hit, UTC.

    Raises ValueError."""
    return not budget.schedule or is_open(budget.schedule, budget.duration or "0s", now)
