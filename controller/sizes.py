"""Nodes that turn out to be smaller than what was planned onto them: their pods are planned anew at once.

Without it a pod would wait at a node that never takes it until the nomination lapses. The planner knows the real room,
so that what still fits is promised the same place again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from controller.caches import Caches
from controller.learning import Learning
from controller.nominations import Nominations
from model.facts import ClaimFact
from model.labels import INSTANCE_TYPE
from model.resources import MEMORY, Resources, largest, total
from scheduling.learnt import claim_as_learnt


@dataclass(frozen=True)
class Shortfall:
    """Amounts are in the units of `model.resources`."""

    claim: str
    uid: str
    resource: str
    wanted: int
    has: int
    place: str
    """The Node, or the instance type as which the NodeClaim was launched."""


class Sizes:
    """Each NodeClaim is measured twice at most: by what others of its kind have shown, and by its own Node."""

    def __init__(self, caches: Caches, nominations: Nominations, learning: Learning, *, began: datetime) -> None:
        self._caches, self._nominations, self._learning, self._began = caches, nominations, learning, began
        self._learnt = learning.learnt
        self._judged: set[tuple[str, bool]] = set()
        self._found: list[Shortfall] = []

    def release(self, claims: Iterable[str]) -> bool:
        """Void the nominations to those of these NodeClaims that are too small; True when there was any."""
        short = [found for name in sorted({*claims, *self._coming()}) if (found := self._short(name))]
        released = [one for one in short if self._nominations.forget(one.claim)]
        self._found += released
        return bool(released)

    def take(self) -> list[Shortfall]:
        """What was found since the last call, to be told."""
        found, self._found = self._found, []
        return found

    def forget(self, uids: Iterable[str]) -> None:
        """These NodeClaims are gone."""
        self._judged -= {(uid, registered) for uid in uids for registered in (True, False)}

    def _coming(self) -> set[str]:
        """When something was learnt: the NodeClaims whose Nodes are not there to be measured yet."""
        if self._learning.learnt is self._learnt:
            return set()
        self._learnt = self._learning.learnt
        return {name for name, claim in self._caches.claims.items() if claim.launched and not claim.registered}

    def _short(self, name: str) -> Shortfall | None:
        claim = self._caches.claims.get(name)
        measured = self._measure(claim) if claim and not claim.deleting else None
        if claim is None or measured is None or (claim.uid, claim.registered) in self._judged:
            return None
        self._judged.add((claim.uid, claim.registered))
        self._learn(claim)
        place, room = measured
        for resource, wanted in sorted(self._wanted(claim).items()):
            # What is not there at all is still to come, as devices are.
            if wanted > room.get(resource, 0) > 0:
                return Shortfall(name, claim.uid, resource, wanted, room[resource], place)
        return None

    def _measure(self, claim: ClaimFact) -> tuple[str, Resources] | None:
        """A place and its room; None while there is no better measure than the one that was planned with."""
        if claim.registered:
            node = next(iter(self._caches.nodes_of(claim)), None)
            return (node.name, node.allocatable) if node and node.allocatable.get(MEMORY) else None
        learnt = claim_as_learnt(claim, self._learning.learnt)
        return None if learnt is claim else (claim.labels[INSTANCE_TYPE], learnt.allocatable)

    def _learn(self, claim: ClaimFact) -> None:
        """Only of nodes that came up meanwhile: on older ones others may have taken of the room since."""
        came = claim.registered and (claim.initialized_at is None or claim.initialized_at >= self._began)
        for node in self._caches.nodes_of(claim)[:1] if came else ():
            self._learning.miss(claim, node)

    def _wanted(self, claim: ClaimFact) -> Resources:
        """What the NodeClaim was bought for, or what has come to it since, whichever is more; of each resource."""
        pods = [self._caches.pods[uid] for uid in self._nominations.waiting(claim.name) if uid in self._caches.pods]
        for node in self._caches.nodes_of(claim):
            pods += self._caches.occupancy.pods(node.name).values()
        return largest(claim.requests, total(pod.requests for pod in pods))
