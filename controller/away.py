"""Which nodes of ours are away, and whether they are expected back: the rule of `scheduling/grace.py` over the caches.

A pod that is expected on such a node waits for it, and the node is not empty, until its grace is over.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from controller.caches import Caches
from controller.leaving import still_runs
from controller.nominations import VALID, Nomination, Nominations
from model.facts import ClaimFact
from scheduling.grace import Grace


class Away:
    """`grace_of` says by NodePool how long a node that is away is expected back."""

    def __init__(self, caches: Caches, grace_of: Callable[[str], timedelta]) -> None:
        self._caches, self._grace_of = caches, grace_of

    def of(self, claim: ClaimFact) -> Grace | None:
        """None for a claim whose node is not initialized, or not there."""
        nodes = self._caches.nodes_of(claim) if claim.initialized else ()
        return Grace(nodes[0], self._grace_of(claim.pool), claim) if nodes else None

    def holds(self, claim: ClaimFact, nominations: Nominations, nomination: Nomination, now: datetime) -> datetime:
        """Until when a pod waits for this claim's initialized node; a moment that is past: no more."""
        found = self.of(claim)
        match found.standing(now) if found else "here":
            case "expected" if found:
                return found.ends(now)
            case "lost":
                return now
            case _:
                return nominations.lapses(nomination, self.up_since(claim) or nomination.at)

    def lapse(self, claim: ClaimFact, nominations: Nominations, now: datetime) -> datetime | None:
        """When the last expectation on this claim ends, or ended; None when there is none, or no end in sight. None
        ends while its pod still runs on a node that goes, however long a budget holds it there."""
        lapse = nominations.lapse(claim.name, self.up_since(claim))
        if lapse and any(still_runs(self._caches, uid, now) for uid in nominations.waiting(claim.name)):
            lapse = max(lapse, now + VALID)
        found = self.of(claim) if lapse and nominations.expected(claim.name) else None
        if found is None or lapse is None or found.standing(now) != "expected":
            return lapse
        return max(lapse, found.ends(now))

    def up_since(self, claim: ClaimFact) -> datetime | None:
        """When its node was initialized, or came back since."""
        if claim.initialized_at is None:
            return None
        ready = [node.ready_changed for node in self._caches.nodes_of(claim) if node.ready and node.ready_changed]
        return max([claim.initialized_at, *ready])
