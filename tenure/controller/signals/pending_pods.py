"""When to tell the Provisioning workflow of pods that need a node: at once for new ones, ever more slowly for the same.

Pure apart from what it remembers; `host.py` asks it after every change and whenever it said it wants to be asked.

Pods that need a node and that no earlier plan has answered: pure, over the caches and the nominations.

`host.py` tells the Provisioning workflow of them; what the planner itself places is decided in `scheduling/`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tenure.controller.cache.availability import Away, leaving
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import Nominations
from tenure.model.facts import PodFact
from tenure.model.observations import DemandSeen
from tenure.scheduling.pods import is_reschedulable, provisionable, shuns_pools

PAUSE: Final = timedelta(milliseconds=400)
"""Between signals while pods keep coming; below the idle time that closes a batch."""
RENEW_FIRST: Final = timedelta(seconds=10)
PROMPT_LOSSES: Final = 3
"""So often a pod that loses its place is demand again at once."""
RENEW_SLOWEST: Final = timedelta(seconds=60)
"""Demand that stays is said again after so long, at first and at last."""


class Calls:
    def __init__(self) -> None:
        self._first_seen: dict[str, datetime] = {}
        self._answered: set[str] = set()
        """Pods that wait for the place that a plan gave them."""
        self._losses: dict[str, int] = {}
        """How often each has lost its place."""
        self._held: dict[str, datetime] = {}
        self._told: set[str] = set()
        self._told_at: datetime | None = None
        self._interval = RENEW_FIRST
        self.again: datetime | None = None
        """When to ask again though nothing changed; None while there is no demand."""

    def decide(self, unanswered: Sequence[PodFact], now: datetime, answered: Collection[str] = ()) -> DemandSeen | None:
        """What to say now, without its number; None for nothing. `answered` wait for the place that they were given.

        Where pods still run on nodes that go, theirs is the batch: those that are made in the place of such as were
        evicted meanwhile do not hold it open. A pod that loses its place keeps its turn: it is demand since it first
        was, and no batch is waited for."""
        everyone = {pod.uid for pod in unanswered}
        self._lose(self._answered & everyone, now)
        lost = self._answered & everyone
        self._answered = set(answered)
        self._forget_others(everyone | self._answered, now)
        uids = {uid for uid in everyone if self._held.get(uid, now) <= now}
        lost &= uids
        self._told &= uids - lost
        if not uids:
            self.again, self._interval = self._released(everyone), RENEW_FIRST
            return None
        due = now if lost else self._due(bool(uids - self._told), now)
        if now < due:
            self.again = due
            return None
        self._interval = RENEW_FIRST if uids - self._told else min(RENEW_SLOWEST, self._interval * 2)
        self._told, self._told_at = uids, now
        self.again = now + self._interval
        running = {pod.uid for pod in unanswered if pod.node_name} & uids
        newest = max(self._first_seen[uid] for uid in running or uids)
        return DemandSeen(pods=len(uids), newest=newest, at_once=bool(lost))

    def renew(self, uids: Collection[str]) -> None:
        """Something changed for these pods, so that they are told of anew, as if they had just come."""
        self._told -= set(uids)

    def _lose(self, lost: Collection[str], now: datetime) -> None:
        """What goes round and round finds no place for now: it is demand again only after a while, ever longer."""
        for uid in lost:
            times = self._losses[uid] = self._losses.get(uid, 0) + 1
            if times > PROMPT_LOSSES:
                self._held[uid] = now + min(RENEW_SLOWEST, RENEW_FIRST * (1 << min(times - PROMPT_LOSSES - 1, 5)))

    def _forget_others(self, uids: Collection[str], now: datetime) -> None:
        self._first_seen = {uid: self._first_seen.get(uid, now) for uid in uids}
        self._losses = {uid: times for uid, times in self._losses.items() if uid in uids}
        self._held = {uid: until for uid, until in self._held.items() if uid in uids}

    def _released(self, uids: Collection[str]) -> datetime | None:
        return min((self._held[uid] for uid in uids), default=None)

    def _due(self, fresh: bool, now: datetime) -> datetime:
        if self._told_at is None:
            return now
        return self._told_at + (PAUSE if fresh else self._interval)


OPEN: Final = datetime.max.replace(tzinfo=UTC)
"""No end in sight."""


def unanswered(caches: Caches, nominations: Nominations, away: Away, now: datetime) -> list[PodFact]:
    """Pods the kube-scheduler found no place for, and those on nodes that are being removed, less the answered."""
    return list(told_apart(caches, nominations, away, now).demand)


@dataclass(frozen=True, slots=True)
class Wants:
    """What pods without a place, or that lose theirs, come to."""

    demand: Sequence[PodFact]
    waiting: Collection[str]
    """UIDs of those that wait for the place that they were given."""
    lapse: datetime | None
    """When the next of those is demand again, if nothing changes until then."""


def told_apart(caches: Caches, nominations: Nominations, away: Away, now: datetime) -> Wants:
    """Each pod is looked at once: a storm has hundreds, at every burst of changes."""
    demand, waiting, lapse = list[PodFact](), set[str](), OPEN
    for pod in wanting(caches, now):
        lapses = _answer_lapses(pod, caches, nominations, away, now)
        if lapses is None or lapses <= now:
            demand.append(pod)
        else:
            waiting.add(pod.uid)
            lapse = min(lapse, lapses)
    return Wants(demand, waiting, lapse if lapse < OPEN else None)


def wanting(caches: Caches, now: datetime) -> Iterator[PodFact]:
    yield from (pod for pod in provisionable(caches.pending.values()) if not shuns_pools(pod))
    for node in leaving(caches):
        yield from (pod for pod in caches.occupancy.pods(node).values() if is_reschedulable(pod, now))


def wants_a_plan(caches: Caches, now: datetime) -> bool:
    """Before the first: a pod has no place, also one that kube-scheduler has not come to yet, or loses its own."""
    untried = (pod for pod in caches.pending.values() if pod.untried and not (pod.daemonset or shuns_pools(pod)))
    return any(untried) or any(wanting(caches, now))


def waiting_for(caches: Caches, volume_claims: Collection[str]) -> list[str]:
    """UIDs of the pods without a node that use one of these PersistentVolumeClaims (`namespace/name`)."""
    if not volume_claims:
        return []
    return [
        uid
        for uid, pod in caches.pending.items()
        if any(f"{pod.namespace}/{name}" in volume_claims for name in pod.volumes)
    ]


def _answer_lapses(
    pod: PodFact, caches: Caches, nominations: Nominations, away: Away, now: datetime
) -> datetime | None:
    """`OPEN` while the place is still coming; None for a pod without an answer, or with one that is void."""
    nomination = nominations.of(pod.uid)
    if nomination is None:
        return None
    claim = caches.claims.get(nomination.target)
    if claim is not None:
        if claim.deleting or claim.name in caches.going:
            return None
        return away.holds(claim, nominations, nomination, now) if claim.initialized_at else OPEN
    node = caches.nodes.get(nomination.target)
    return nominations.lapses(nomination, nomination.at) if node is not None and not node.deleting else None


def place_of(target: str, caches: Caches) -> str:
    """A plan may name a Node; what belongs to a NodeClaim is kept under the claim's name, which does not change."""
    return caches.claim_of(target) or target
