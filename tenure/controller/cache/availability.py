"""Which nodes of ours are away, and whether they are expected back: the rule of
`tenure/scheduling/not_ready_grace.py` over the caches.

A pod that is expected on such a node waits for it, and the node is not empty, until its grace is over.

Nodes that were emptied since AWS takes them back (`taken_back.py`), by whichever worker.

Their workflows hear why when the message of AWS's is handled, by the next worker where this one cannot; until then they
look empty, and are not to go for that.

What people hold up by the annotation tenure.sh/pause: the cluster, NodePools and nodes, as the caches have it.

Which Nodes are on their way out, and which of their pods wait for the place that they were given.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.labels import EVACUATED, PAUSE, REPLACES
from tenure.controller.cache.cluster_cache import Caches
from tenure.controller.cache.nominations import ANSWERED_WITHIN, VALID, Nomination, Nominations
from tenure.controller.cluster_pause import ClusterBrake
from tenure.controller.interruption import LEAVES_WITHIN
from tenure.model.base import read_moment
from tenure.model.disruption.commands import Hold
from tenure.model.facts import ClaimFact, NodeFact
from tenure.policy.lifecycle.pauses import hold_of
from tenure.scheduling.not_ready_grace import Grace
from tenure.scheduling.pods import is_reschedulable

_AHEAD: Final = timedelta(minutes=1)
"""By which another worker's clock may be before this one."""


def evacuated_until(nodes: Iterable[NodeFact], now: datetime) -> datetime | None:
    """Of the Nodes of one NodeClaim; None where that is over, or where pods may go there again."""
    said = [at for one in nodes if one.being_disrupted and (at := read_moment(one.annotations.get(EVACUATED, "")))]
    return max((at + LEAVES_WITHIN for at in said if now - LEAVES_WITHIN < at <= now + _AHEAD), default=None)


def holds(caches: Caches, now: datetime) -> Sequence[Hold]:
    """Which nodes are not proposed until then."""
    standing = (one for one in caches.claims.values() if not one.deleting)
    ends = {one.name: evacuated_until(caches.nodes_of(one), now) for one in standing}
    why = "its pods were told to go, since AWS takes it back"
    return [Hold(scope="node", name=name, why=why, until=until) for name, until in ends.items() if until]


class Holding:
    def __init__(self, caches: Caches, brake: ClusterBrake) -> None:
        self._caches, self._brake = caches, brake

    def __call__(self, now: datetime) -> tuple[Hold, ...]:
        """Those that hold at this moment. One that nobody can read holds too (docs/pause.md)."""
        return tuple(one for one in self._all(now) if one is not None)

    def _all(self, now: datetime) -> Iterator[Hold | None]:
        yield hold_of("cluster", "", self._brake.text, now)
        for name, pool in self._caches.pools.items():
            yield hold_of("pool", name, pool.pause, now)
        for claim in self._caches.claims.values():
            nodes = self._caches.nodes_of(claim)
            for marks in (claim.annotations, *(node.annotations for node in nodes)):
                yield hold_of("node", claim.name, marks.get(PAUSE, ""), now)


COMMANDS_LAST: Final = timedelta(hours=2)
"""From what they buy to their end, at most (`tenure/policy/disruption/commands.py`); marks of one that was
terminated stand longer."""


def leaving(caches: Caches) -> Iterable[str]:
    """Our Nodes that are on their way out, or whose instance AWS takes back."""
    return (name for name in caches.nodes if is_leaving(caches, name))


def is_leaving(caches: Caches, name: str) -> bool:
    node, claim = caches.nodes.get(name), caches.claims.get(caches.claim_of(name))
    return node is not None and claim is not None and (node.deleting or claim.deleting or claim.name in caches.going)


def still_runs(caches: Caches, uid: str, now: datetime) -> bool:
    """The pod is on a Node that is on its way out, and its place elsewhere is for later."""
    pod = caches.pods.get(uid)
    return pod is not None and is_reschedulable(pod, now) and is_leaving(caches, pod.node_name)


def is_settled(caches: Caches, uid: str) -> bool:
    """Whatever a plan says of it, the pod is no more, or is on a Node that stays."""
    pod = caches.pods.get(uid)
    if pod is None or not pod.alive:
        return True
    node, claim = caches.nodes.get(pod.node_name), caches.claims.get(caches.claim_of(pod.node_name))
    if claim is not None and (claim.deleting or claim.instance_terminating or claim.name in caches.going):
        return False
    return bool(pod.node_name) and not (node is not None and node.deleting)


def is_replacing(caches: Caches, claim: ClaimFact, now: datetime) -> bool:
    """The command that it was bought for has not let its nodes go, or so lately that no plan has said what becomes of
    their pods. To be read from the cluster: what was expected is known to the process that bought it."""
    command = claim.annotations.get(REPLACES)
    if not command or now >= claim.created + COMMANDS_LAST:
        return False
    return any(
        one.disrupted_by == command and (one.deletion is None or now < one.deletion + ANSWERED_WITHIN)
        for one in caches.claims.values()
    )


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
