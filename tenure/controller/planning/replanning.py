"""Nodes that turn out to be smaller than what was planned onto them: their pods are planned anew at once.

Without it a pod would wait at a node that never takes it until the nomination lapses. The planner knows the real room,
so that what still fits is promised the same place again.

For how long a new host of the watch believes that pods without a place may be on their way to nodes that look empty.

What earlier plans said is known to the process that made them. Instance types have to be known before the first plan
here, and AWS may be slow.

Says of nodes why new ones are bought beside them: their grace is over, or they carry a taint that nobody declared.

`planning.py` asks for it after each plan; events that repeat themselves are left out by whoever sends them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from activities.ports.core import Events
from tenure.apis.labels import INSTANCE_TYPE
from tenure.apis.meta import Taint
from tenure.apis.resources import MEMORY, Resources, largest, total
from tenure.controller.cache.availability import Away
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import ANSWERED_WITHIN, Nominations
from tenure.controller.planning.discovered_capacity import Learning
from tenure.controller.signals.pending_pods import wants_a_plan
from tenure.model.facts import ClaimFact, NodeFact
from tenure.policy.lifecycle.initialization import decide_undeclared, undeclared_message
from tenure.scheduling.not_ready_grace import WINDOW, Grace
from tenure.scheduling.snapshot import claim_as_learnt


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


UNPLANNED: Final = ANSWERED_WITHIN
"""From when it is known which nodes look empty."""


class Unplanned:
    """`planned`: there was a plan; `unsure`: what CapacityBuffers need is not known yet."""

    def __init__(self, caches: Caches, *, planned: Callable[[], bool], unsure: Callable[[], bool]) -> None:
        self._caches, self._planned, self._unsure = caches, planned, unsure
        self._synced_at: datetime | None = None

    def until(self, now: datetime, *, synced: bool) -> datetime | None:
        """None where nothing is on its way, or is given up. `synced`: NodeClaims, Nodes, pods and NodePools are."""
        self._synced_at = self._synced_at or (now if synced else None)
        until = (self._synced_at or now) + UNPLANNED
        if now >= until:
            return None
        return until if self._unsure() or (not self._planned() and wants_a_plan(self._caches, now)) else None


GRACE_OVER: Final = "NotReadyGraceOver"
NEWS_FOR: Final = timedelta(minutes=30)
"""A taint that is there for longer is the business of whoever set it."""


class Overruled:
    def __init__(self, caches: Caches, away: Away, events: Events) -> None:
        self._caches, self._away, self._events = caches, away, events

    async def say(self, pools: Iterable[str], left: Iterable[str], now: datetime) -> None:
        """`pools` are those that were bought from, `left` the NodeClaims whose pods were planned elsewhere."""
        bought = {claim.name for pool in pools for claim in self._caches.claims_of_pool(pool)}
        for name in sorted(bought | set(left)):
            claim = self._caches.claims.get(name)
            if claim is None or claim.deleting or not claim.initialized:
                continue
            for node in self._caches.nodes_of(claim)[:1]:
                if not node.deleting:
                    await self._say(claim, node, now, bought=name in bought)

    async def _say(self, claim: ClaimFact, node: NodeFact, now: datetime, *, bought: bool) -> None:
        found = self._away.of(claim)
        if found is not None and found.standing(now) == "lost":
            await self._publish(claim, GRACE_OVER, over(node, found, now))
        lately = {name for name, since in node.tainted.items() if now - since < NEWS_FOR}
        strange = [name for name in undeclared(claim, node) if bought and name in lately]
        if strange:
            await self._publish(claim, "UndeclaredTaint", undeclared_message(node.name, strange))

    async def _publish(self, claim: ClaimFact, reason: str, message: str) -> None:
        await self._events.publish(
            kind="NodeClaim", name=claim.name, uid=claim.uid, reason=reason, message=message, warning=True
        )


def over(node: NodeFact, grace: Grace, now: datetime) -> str:
    """The arithmetic of a grace that is used up, for people."""
    times = grace.stretches(now)
    used, length = _seconds(grace.used(now)), _seconds(grace.length)
    since = f"{grace.away_since:%Y-%m-%d %H:%M:%S} UTC"
    often = f", {used} s of the last {_seconds(WINDOW * grace.length)} s in {times} stretches" if times > 1 else ""
    return (
        f"Node {node.name} is away since {since} ({grace.why}){often}, longer than the grace of {length} s: "
        "its room does not count any more, and its pods are planned anew"
    )


def undeclared(claim: ClaimFact, node: NodeFact) -> tuple[str, ...]:
    declared = (*claim.taints, *claim.startup_taints)
    return decide_undeclared(
        [Taint(key=one.key, value=one.value, effect=one.effect) for one in node.taints],
        [Taint(key=one.key, value=one.value, effect=one.effect) for one in declared],
    )


def _seconds(lasting: timedelta) -> str:
    return f"{lasting.total_seconds():.0f}"
