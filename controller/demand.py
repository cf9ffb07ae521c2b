"""Pods that need a node and that no earlier plan has answered: pure, over the caches and the nominations.

`host.py` tells the Provisioning workflow of them; what the planner itself places is decided in `scheduling/`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
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
