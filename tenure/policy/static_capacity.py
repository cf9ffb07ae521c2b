"""Static pools: missing NodeClaims, deletion order of surplus ones, and backoff.

Karpenter's rules (core reference 2.19): limits.nodes bounds creation, budgets do not bound deletion. A terminating
NodeClaim counts against the limit, since its instance still exists.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from tenure.model.base import Value
from tenure.model.extra_capacity import MovedPod, NodeLoad
from tenure.policy.backoff import backoff

MOST_MADE: Final = 500
"""In one step; the members of one launch group."""
MOST_DELETED: Final = 100
"""In one step: each has a last look of its own."""
RECENT: Final = timedelta(minutes=15)
"""NodeClaims that are missing again so soon did not last."""
PAUSE: Final = timedelta(seconds=10)
LONGEST_PAUSE: Final = timedelta(minutes=3)
"""The same as the retention of unavailable offerings."""


class Missing(Value):
    create: int
    waits_for: str = ""


class Candidate(Value):
    name: str
    uid: str
    node_name: str = ""
    launched: bool = True
    do_not_disrupt: bool = False
    load: NodeLoad = NodeLoad()
    remaining_lifetime_share: float = 1.0

    @property
    def is_empty(self) -> bool:
        return not self.load.moved

    @property
    def is_protected(self) -> bool:
        return self.do_not_disrupt or self.load.protected


def decide_missing(pool: str, *, desired: int, existing: int, terminating: int, limit: int | None) -> Missing:
    missing = max(0, desired - existing)
    headroom = missing if limit is None else max(0, limit - existing - terminating)
    if missing <= headroom:
        return Missing(create=missing)
    suffix = f", {terminating} of them terminating" if terminating else ""
    why = (
        f"limits.nodes={limit} of NodePool {pool}: {existing + terminating + headroom} NodeClaims{suffix}, "
        f"{desired} wanted"
    )
    return Missing(create=headroom, waits_for=why)


def sort_for_deletion(candidates: Iterable[Candidate]) -> list[Candidate]:
    """First to go first: not launched; empty; without do-not-disrupt, the cheapest to move first; the others."""
    return sorted(candidates, key=lambda one: (_class_of(one), _cost_of(one), one.remaining_lifetime_share, one.name))


def _class_of(one: Candidate) -> int:
    if not one.launched:
        return 0
    if one.is_protected:
        return 3
    return 1 if one.is_empty else 2


def _cost_of(one: Candidate) -> float:
    return sum(max(0.0, eviction_cost(pod)) for pod in one.load.moved) * one.remaining_lifetime_share


def eviction_cost(pod: MovedPod) -> float:
    """Reference 4.3."""
    return min(10.0, max(-10.0, 1 + pod.deletion_cost / 2**27 + pod.priority / 2**25))


def remaining_lifetime_share(created: datetime | None, expires: datetime | None, now: datetime) -> float:
    """Share of its life that is left to a node; 1 for one that never expires."""
    if created is None or expires is None or expires <= created:
        return 1.0
    return min(1.0, max(0.0, (expires - now) / (expires - created)))


def pause_after(in_a_row: int) -> timedelta:
    """Before NodeClaims are made again for those that did not last; a single loss is replaced at once."""
    return backoff(PAUSE, LONGEST_PAUSE, in_a_row - 2) if in_a_row >= 2 else timedelta(0)
