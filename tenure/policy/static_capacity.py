"""Static NodePools: missing NodeClaims, deletion order of surplus ones, and backoff.

Karpenter's rules (core reference 2.19): limits.nodes limits creation, and budgets do not limit deletion. A terminating
NodeClaim counts against the limit, since its instance still exists. Nodes that a disruption command replaces count
with their replacements only up to spec.replicas, so that neither more nodes are created nor others deleted meanwhile.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from tenure.model.base import Value
from tenure.model.extra_capacity import MovedPod, NodeLoad
from tenure.policy.backoff import backoff

MAX_CREATED_PER_PASS: Final = 500
"""NodeClaims created per pass; they form one launch group."""
MAX_DELETED_PER_PASS: Final = 100
"""NodeClaims deleted per pass, since each is checked individually before its deletion."""
RECENT: Final = timedelta(minutes=15)
"""If NodeClaims are missing again within this time, the last ones did not last."""
PAUSE: Final = timedelta(seconds=10)
MAX_PAUSE: Final = timedelta(minutes=3)
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


def count_nodes(desired: int, *, active: int, replaced: int) -> int:
    """Nodes to compare with spec.replicas. `active`: NodeClaims that are neither terminating nor being replaced by a
    disruption command; `replaced`: those being replaced."""
    return active + min(replaced, max(0, desired - active))


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
    """Deletion order: not launched; empty; without do-not-disrupt, lowest disruption cost first; protected."""
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
    """The disruption cost of one pod (reference 4.3)."""
    return min(10.0, max(-10.0, 1 + pod.deletion_cost / 2**27 + pod.priority / 2**25))


def remaining_lifetime_share(created: datetime | None, expires: datetime | None, now: datetime) -> float:
    """Remaining share of a node's lifetime; 1 if it never expires."""
    if created is None or expires is None or expires <= created:
        return 1.0
    return min(1.0, max(0.0, (expires - now) / (expires - created)))


def pause_after(in_a_row: int) -> timedelta:
    """Delay before new NodeClaims replace those that did not last. A single loss is replaced without delay."""
    return backoff(PAUSE, MAX_PAUSE, in_a_row - 2) if in_a_row >= 2 else timedelta(0)
