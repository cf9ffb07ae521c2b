"""Pods that need a node and that no earlier plan has answered: pure, over the caches and the nominations.

`host.py` tells the Provisioning workflow of them; what the planner itself places is decided in `scheduling/`.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from controller.caches import Caches
from controller.nominations import Nominations
from model.facts import PodFact
from scheduling.demand import is_provisionable, is_reschedulable, shuns_pools


def unanswered(caches: Caches, nominations: Nominations, now: datetime) -> list[PodFact]:
    """Pods the kube-scheduler found no place for, and those on nodes that are being removed, less the answered."""
    return [pod for pod in wanting(caches, now) if not answered(pod, caches, nominations, now)]


def wanting(caches: Caches, now: datetime) -> Iterator[PodFact]:
    yield from (pod for pod in caches.pending.values() if is_provisionable(pod) and not shuns_pools(pod))
    for node in leaving(caches):
        yield from (pod for pod in caches.occupancy.pods(node).values() if is_reschedulable(pod, now))


def leaving(caches: Caches) -> Iterable[str]:
    """Our Nodes that are on their way out."""
    for name, node in caches.nodes.items():
        claim = caches.claims.get(caches.claim_of(name))
        if claim is not None and (node.deleting or claim.deleting):
            yield name


def answered(pod: PodFact, caches: Caches, nominations: Nominations, now: datetime) -> bool:
    """A plan gave it a place that is still there, and that it still has time to take."""
    nomination = nominations.of(pod.uid)
    if nomination is None:
        return False
    claim = caches.claims.get(nomination.target)
    if claim is not None:
        if claim.deleting:
            return False
        return claim.initialized_at is None or now < nominations.lapses(nomination, claim.initialized_at)
    node = caches.nodes.get(nomination.target)
    return node is not None and not node.deleting and now < nominations.lapses(nomination, nomination.at)


def place_of(target: str, caches: Caches) -> str:
    """A plan may name a Node; what belongs to a NodeClaim is kept under the claim's name, which does not change."""
    return caches.claim_of(target) or target
