"""What AWS takes back by announcement: nodes that are leaving before anybody deleted them, and pools that are short.

`noticing.py` tells the nodes' workflows, which delete their NodeClaims one after the other. Here all of it is known as
soon as it is read: so one plan replaces the nodes of a storm, and none is bought where they were taken from, and pods
that nothing holds are told to go before any workflow is.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from activities.interruption_ports import Leaving
from controller.caches import Caches
from controller.storm import ANEW_AFTER, Storm
from kube.drain import first_out
from model.catalogue import UnavailableOffering
from model.facts import ClaimFact
from model.interruptions import EventKind, Notice
from model.kinds import LifecycleRules
from model.marks import mark_of_taken
from model.observations import MarksSeen
from policy.interruption import leaves_at_once
from policy.interruption_rules import TAKES, rules_of

log = structlog.get_logger(__name__)

LEAVES_WITHIN: Final = timedelta(minutes=5)
"""AWS gives two minutes. What stands for longer is there to stay, whatever was said."""

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
        self.storm = Storm()
        self._marks: dict[_Pool, UnavailableOffering] = {}
        self._until: dict[str, datetime] = {}
        """By NodeClaim, until when it is taken to be leaving."""
        self._evacuated: dict[str, datetime] = {}
        """Likewise, those whose pods were told to go before their workflows."""

    def hear(self, claim: ClaimFact, notices: Sequence[Notice]) -> None:
        """Repeats are harmless, and what comes too late is nothing."""
        now = self._now()
        for one in self._heed(claim, notices, now):
            self._take(claim, one.kind, min(one.at, now) + LEAVES_WITHIN)

    def leaving(self, claim: ClaimFact, notices: Sequence[Notice]) -> Leaving | None:
        """Whose pods have to go now, without asking anybody; from here on nobody is told that it is empty."""
        now, rules = self._now(), self._rules(claim.pool)
        heard = self._heed(claim, notices, now)
        if claim.deleting or not claim.initialized or not any(leaves_at_once(rules, one.kind) for one in heard):
            return None
        nodes = self._caches.nodes_of(claim)
        if len(nodes) != 1 or nodes[0].deleting:
            return None
        (node,) = nodes
        pods = first_out(self._caches.occupancy.pods(node.name).values(), now)
        if not pods:
            return None
        self._evacuated[claim.name] = now + LEAVES_WITHIN
        self._caches.evacuate(claim.name, evacuated=True)
        return Leaving(node=node.name, uid=node.uid, tainted=bool(node.taints), pods=pods)

    def marks(self, now: datetime) -> Sequence[UnavailableOffering]:
        """Of the last minutes."""
        return [one for one in self._marks.values() if now < one.until]

    @property
    def next(self) -> datetime | None:
        """When to look again though nothing changed."""
        return min((*self._until.values(), *self._evacuated.values()), default=None)

    def look(self, now: datetime) -> None:
        """What AWS left standing is as it was before."""
        for name in [name for name, until in self._until.items() if until <= now or name not in self._caches.going]:
            del self._until[name]
            self._caches.take_back(name, taken=False)
        for name in [name for name, until in self._evacuated.items() if until <= now]:
            del self._evacuated[name]
            self._caches.evacuate(name, evacuated=False)

    def _take(self, claim: ClaimFact, kind: EventKind, until: datetime) -> None:
        """Unless its NodePool takes no orders from AWS for this."""
        if claim.deleting or claim.name in self._until or self._ignores(claim, kind):
            return
        self._until[claim.name] = until
        self._caches.take_back(claim.name, taken=True)

    def _ignores(self, claim: ClaimFact, kind: EventKind) -> bool:
        return rules_of(self._rules(claim.pool), kind).action == "ignore"

    def _heed(self, claim: ClaimFact, notices: Sequence[Notice], now: datetime) -> list[Notice]:
        """What takes its capacity back; pools that are short by that, and storms, are told of."""
        found = _takes(notices, now)
        for one in found:
            said = min(one.at, now)
            if not self._ignores(claim, one.kind):
                self.storm.count(claim.uid, said + LEAVES_WITHIN)
            is_marked = self._mark(claim, said, now)
            if self.storm.is_news(now) or is_marked:
                self._tell(MarksSeen(unavailable=tuple(self.marks(now)), storm=self.storm.until(now)))
        return found

    def _mark(self, claim: ClaimFact, said: datetime, now: datetime) -> bool:
        """The pool is short whatever becomes of the node. False where that is no news."""
        mark = mark_of_taken(claim.labels, said)
        if mark is None or mark.until <= now:
            return False
        pool = (mark.instance_type, mark.zone, mark.capacity_type, mark.reservation_id)
        known = self._marks.get(pool)
        if known is not None and mark.until < known.until + ANEW_AFTER:
            return False
        self._marks[pool] = mark
        live = tuple(self.marks(now))
        self._marks = {key: one for key, one in self._marks.items() if one in live}
        log.info("capacity pool marked: AWS takes back from it", type=mark.instance_type, zone=mark.zone)
        return True


def _takes(notices: Sequence[Notice], now: datetime) -> list[Notice]:
    """What takes capacity back, and may still come true."""
    announced = (one for one in notices if one.kind in TAKES and one.status == "announced")
    return [one for one in announced if now < min(one.at, now) + LEAVES_WITHIN]
