"""Pods that need a node and that no earlier plan has answered: pure, over the caches and the nominations.

`host.py` tells the Provisioning workflow of them; what the planner itself places is decided in `scheduling/`.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Final

from controller.away import Away
from controller.caches import Caches
from controller.leaving import leaving
from controller.nominations import Nominations
from model.facts import PodFact
from scheduling.demand import is_reschedulable, provisionable, shuns_pools

OPEN: Final = datetime.max.replace(tzinfo=UTC)
"""No end in sight."""


def unanswered(caches: Caches, nominations: Nominations, away: Away, now: datetime) -> list[PodFact]:
    """Pods the kube-scheduler found no place for, and those on nodes that are being removed, less the answered."""
    return told_apart(caches, nominations, away, now)[0]


def told_apart(caches: Caches, nominations: Nominations, away: Away, now: datetime) -> tuple[list[PodFact], set[str]]:
    """Those that are demand, and the UIDs of those that wait for the place that they were given."""
    demand, waiting = list[PodFact](), set[str]()
    for pod in wanting(caches, now):
        if answered(pod, caches, nominations, away, now):
            waiting.add(pod.uid)
        else:
            demand.append(pod)
    return demand, waiting


def wanting(caches: Caches, now: datetime) -> Iterator[PodFact]:
    yield from (pod for pod in provisionable(caches.pending.values()) if not shuns_pools(pod))
    for node in leaving(caches):
        yield from (pod for pod in caches.occupancy.pods(node).values() if is_reschedulable(pod, now))


def waiting_for(caches: Caches, volume_claims: Collection[str]) -> list[str]:
    """UIDs of the pods without a node that use one of these PersistentVolumeClaims (`namespace/name`)."""
    if not volume_claims:
        return []
    return [
        uid
        for uid, pod in caches.pending.items()
        if any(f"{pod.namespace}/{name}" in volume_claims for name in pod.volumes)
    ]


def answered(pod: PodFact, caches: Caches, nominations: Nominations, away: Away, now: datetime) -> bool:
    """A plan gave it a place that is still there, and that it still has time to take."""
    lapses = _answer_lapses(pod, caches, nominations, away, now)
    return lapses is not None and now < lapses


def next_lapse(caches: Caches, nominations: Nominations, away: Away, now: datetime) -> datetime | None:
    """When the next pod that waits at an answered place is demand again, if nothing changes until then."""
    lapses = (_answer_lapses(pod, caches, nominations, away, now) for pod in wanting(caches, now))
    return min((one for one in lapses if one is not None and now < one < OPEN), default=None)


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
