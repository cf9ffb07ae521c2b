"""Cached nodes that are NotReady, interrupted, paused or terminating, and whether pods wait for them.

Pods that are expected on a NotReady node wait for it until its grace period ends, and the node does not count as empty
(`tenure/scheduling/not_ready_grace.py`). A node that is evicted early, before AWS reclaims it, looks empty until its
workflow receives the message, possibly from the next worker. It must not be disrupted as an empty node."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from tenure.apis.labels import EARLY_EVICTED_AT, PAUSE, REPLACES
from tenure.controller.cache.cluster_cache import ClusterCache
from tenure.controller.cache.nominations import NOMINATION_TTL, REPLAN_WITHIN, Nomination, Nominations
from tenure.controller.cluster_pause import ClusterPause
from tenure.controller.interruption.notifier import INTERRUPTION_WINDOW
from tenure.model.base import instance_id_of, parse_timestamp
from tenure.model.disruption.commands import ActivePause
from tenure.model.facts import NodeClaimFact, NodeFact
from tenure.policy.lifecycle.pauses import pause_blocker
from tenure.scheduling.not_ready_grace import NotReadyGrace, has_grace
from tenure.scheduling.pods import is_reschedulable

_CLOCK_SKEW: Final = timedelta(minutes=1)
"""By which another worker's clock may be ahead of this one's."""


def early_eviction_until(nodes: Iterable[NodeFact], now: datetime) -> datetime | None:
    """`nodes`: of one NodeClaim. None when the eviction is over, or the Nodes accept pods again."""
    evicted_at = [
        at
        for one in nodes
        if one.being_disrupted and (at := parse_timestamp(one.annotations.get(EARLY_EVICTED_AT, "")))
    ]
    return max(
        (at + INTERRUPTION_WINDOW for at in evicted_at if now - INTERRUPTION_WINDOW < at <= now + _CLOCK_SKEW),
        default=None,
    )


def early_eviction_holds(cache: ClusterCache, now: datetime) -> Sequence[ActivePause]:
    existing = (one for one in cache.nodeclaims.values() if not one.deleting)
    ends = {one.name: early_eviction_until(cache.nodes_of(one), now) for one in existing}
    why = "its pods are being evicted, because AWS reclaims its instance"
    return [ActivePause(scope="node", name=name, why=why, until=until) for name, until in ends.items() if until]


class ActivePauses:
    def __init__(self, cache: ClusterCache, cluster_pause: ClusterPause) -> None:
        self._cache, self._cluster_pause = cache, cluster_pause

    def __call__(self, now: datetime) -> tuple[ActivePause, ...]:
        """The pauses active at `now`. An unreadable pause is active too (docs/disruption/pause.md)."""
        return tuple(one for one in self._iter_pauses(now) if one is not None)

    def _iter_pauses(self, now: datetime) -> Iterator[ActivePause | None]:
        yield pause_blocker("cluster", "", self._cluster_pause.text, now)
        for name, pool in self._cache.nodepools.items():
            yield pause_blocker("pool", name, pool.pause, now)
        for claim in self._cache.nodeclaims.values():
            nodes = self._cache.nodes_of(claim)
            for annotations in (claim.annotations, *(node.annotations for node in nodes)):
                yield pause_blocker("node", claim.name, annotations.get(PAUSE, ""), now)


COMMAND_MAX_DURATION: Final = timedelta(hours=2)
"""Longest time from the launch of replacements to the end of a command (`tenure/policy/disruption/commands.py`). The
annotations of a command whose workflow was terminated stay longer."""


def terminating_nodes(cache: ClusterCache) -> Iterable[str]:
    """Nodes of NodeClaims that are being deleted, or whose instance AWS reclaims."""
    ending_instances = {
        instance_id_of(one.provider_id)
        for one in cache.nodeclaims.values()
        if one.deleting or one.name in cache.interrupted
    }
    return (
        name
        for name, node in cache.nodes.items()
        if (node.deleting or (ending_instances and instance_id_of(node.provider_id) in ending_instances))
        and is_terminating(cache, name)
    )


def is_terminating(cache: ClusterCache, name: str) -> bool:
    node, claim = cache.nodes.get(name), cache.nodeclaims.get(cache.nodeclaim_name_of(name))
    return (
        node is not None and claim is not None and (node.deleting or claim.deleting or claim.name in cache.interrupted)
    )


def still_runs(cache: ClusterCache, uid: str, now: datetime) -> bool:
    """Whether the pod runs on a terminating Node. Its replacement needs capacity only later."""
    pod = cache.pods.get(uid)
    return pod is not None and is_reschedulable(pod, now) and is_terminating(cache, pod.node_name)


def is_settled(cache: ClusterCache, uid: str) -> bool:
    """Whether the pod is gone or runs on a Node that stays. A plan for such a pod is outdated."""
    pod = cache.pods.get(uid)
    if pod is None or not pod.is_alive:
        return True
    node, claim = cache.nodes.get(pod.node_name), cache.nodeclaims.get(cache.nodeclaim_name_of(pod.node_name))
    if claim is not None and (claim.deleting or claim.instance_terminating or claim.name in cache.interrupted):
        return False
    return bool(pod.node_name) and not (node is not None and node.deleting)


def is_replacing(cache: ClusterCache, claim: NodeClaimFact, now: datetime) -> bool:
    """Whether the command that launched this NodeClaim still has nodes to delete, or released them since the last plan.
    It is read from the cluster, since only the process that launched the NodeClaim has its expected pods."""
    command = claim.annotations.get(REPLACES)
    if not command or now >= claim.created + COMMAND_MAX_DURATION:
        return False
    return any(
        one.disrupted_by == command and (one.deletion is None or now < one.deletion + REPLAN_WITHIN)
        for one in cache.nodeclaims.values()
    )


class NotReadyTracker:
    """`grace_of`: by NodePool, how long pods wait for a NotReady node."""

    def __init__(self, cache: ClusterCache, grace_of: Callable[[str], timedelta]) -> None:
        self._cache, self._grace_of = cache, grace_of

    def grace_for(self, claim: NodeClaimFact) -> NotReadyGrace | None:
        """None for a claim whose node is not initialized, unless its Node disappeared."""
        missing_since = self._cache.node_missing_since(claim)
        if missing_since:
            claim = claim.model_copy(update={"node_missing_since": missing_since})
        if not has_grace(claim):
            return None
        return NotReadyGrace(self._cache.identify_node(claim).node, self._grace_of(claim.pool), claim)

    def pod_expected_until(
        self, claim: NodeClaimFact, nominations: Nominations, nomination: Nomination, now: datetime
    ) -> datetime:
        """The time until which a pod waits for this NodeClaim's initialized node; at or before `now` it does not."""
        found = self.grace_for(claim)
        match found.presence(now) if found else "here":
            case "expected" if found:
                return found.earliest_end(now)
            case "lost":
                return now
            case _:
                return nominations.expires_at(nomination, self.up_since(claim) or nomination.at)

    def last_expiry(self, claim: NodeClaimFact, nominations: Nominations, now: datetime) -> datetime | None:
        """When the last nomination to this claim ends or ended; None without nominations or without a known end.

        A nomination does not end while its pod runs on a terminating node, however long a budget blocks the eviction.
        """
        expiry = nominations.last_expiry(claim.name, self.up_since(claim))
        if expiry and any(still_runs(self._cache, uid, now) for uid in nominations.pods_expected_on(claim.name)):
            expiry = max(expiry, now + NOMINATION_TTL)
        found = self.grace_for(claim) if expiry and nominations.is_expecting(claim.name) else None
        if found is None or expiry is None or found.presence(now) != "expected":
            return expiry
        return max(expiry, found.earliest_end(now))

    def up_since(self, claim: NodeClaimFact) -> datetime | None:
        """When its node was initialized, or last became Ready since."""
        if claim.initialized_at is None:
            return None
        ready = [node.ready_changed for node in self._cache.nodes_of(claim) if node.ready and node.ready_changed]
        return max([claim.initialized_at, *ready])
