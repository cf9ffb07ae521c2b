"""What AWS takes back by announcement: nodes that are leaving before anybody deleted them, and pools that are short.

`noticing.py` tells the nodes' workflows, which delete their NodeClaims one after the other. Here all of it is known as
soon as it is read: so one plan replaces the nodes of a storm, and none is bought where they were taken from.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from controller.caches import Caches
from model.catalogue import UnavailableOffering
from model.facts import ClaimFact
from model.interruptions import EventKind, Notice
from model.kinds import LifecycleRules
from model.marks import mark_of_taken
from model.observations import MarksSeen
from policy.interruption_rules import rules_of

log = structlog.get_logger(__name__)

TAKES: Final[frozenset[EventKind]] = frozenset({"spotInterruption", "capacityReservationInterruption"})
"""Kinds by which AWS takes capacity back: Karpenter marks pools for these (reference 5.3)."""
LEAVES_WITHIN: Final = timedelta(minutes=5)
"""AWS gives two minutes. What stands for longer is there to stay, whatever was said."""
ANEW_AFTER: Final = timedelta(seconds=30)
"""A pool is marked once for many interruptions, and anew when more of them come for longer than that."""

_Pool = tuple[str, str, str, str]


class TakenBack:
    """`rules` are those of LifecyclePolicies by NodePool; `tell` hands marks to the Provisioning workflow."""

    def __init__(
        self,
        caches: Caches,
        rules: Callable[[str], LifecycleRules | None],
        tell: Callable[[MarksSeen], None],
        now: Callable[[], datetime],
    ) -> None:
        self._caches, self._rules, self._tell, self._now = caches, rules, tell, now
        self._marks: dict[_Pool, UnavailableOffering] = {}
        self._until: dict[str, datetime] = {}
        """By NodeClaim, until when it is taken to be leaving."""

    def hear(self, claim: ClaimFact, notices: Sequence[Notice]) -> None:
        """Repeats are harmless, and what comes too late is nothing."""
        now = self._now()
        for one in notices:
            said = min(one.at, now)
            if one.kind in TAKES and one.status == "announced" and now < said + LEAVES_WITHIN:
                self._mark(claim, said, now)
                self._take(claim, one.kind, said + LEAVES_WITHIN)

    def marks(self, now: datetime) -> Sequence[UnavailableOffering]:
        """Of the last minutes."""
        return [one for one in self._marks.values() if now < one.until]

    @property
    def next(self) -> datetime | None:
        """When to look again though nothing changed."""
        return min(self._until.values(), default=None)

    def look(self, now: datetime) -> None:
        """What AWS left standing is as it was before."""
        for name in [name for name, until in self._until.items() if until <= now or name not in self._caches.going]:
            del self._until[name]
            self._caches.take_back(name, taken=False)

    def _take(self, claim: ClaimFact, kind: EventKind, until: datetime) -> None:
        """Unless its NodePool takes no orders from AWS for this."""
        if claim.deleting or claim.name in self._until or rules_of(self._rules(claim.pool), kind).action == "ignore":
            return
        self._until[claim.name] = until
        self._caches.take_back(claim.name, taken=True)

    def _mark(self, claim: ClaimFact, said: datetime, now: datetime) -> None:
        """The pool is short whatever becomes of the node."""
        mark = mark_of_taken(claim.labels, said)
        if mark is None or mark.until <= now:
            return
        pool = (mark.instance_type, mark.zone, mark.capacity_type, mark.reservation_id)
        known = self._marks.get(pool)
        if known is not None and mark.until < known.until + ANEW_AFTER:
            return
        self._marks[pool] = mark
        live = tuple(self.marks(now))
        self._marks = {key: one for key, one in self._marks.items() if one in live}
        log.info("capacity pool marked: AWS takes back from it", type=mark.instance_type, zone=mark.zone)
        self._tell(MarksSeen(unavailable=live))
