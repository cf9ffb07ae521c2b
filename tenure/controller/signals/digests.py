"""What a workflow is told of its object: pure functions from the caches' facts to observations.

Only what the phase that a NodeClaim is in decides on may differ, so that an undisturbed node costs few signals: it
exists; its Node came; it is ready and nothing holds it up; it emptied; it is being deleted.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tenure.apis import labels, resources
from tenure.apis.durations import parse_duration
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION
from tenure.apis.lifecyclepolicy import LifecycleRules
from tenure.apis.meta import Taint
from tenure.model.base import Message
from tenure.model.facts import ClaimFact, NodeFact, PoolFact
from tenure.model.node_health import Unhealthy
from tenure.model.observations import UNCOMPARED, ClaimSeen, NodeClassSeen, PoolSeen
from tenure.model.operator_requests import ALL_READ, Unread
from tenure.policy.disruption.drift import Drift
from tenure.policy.lifecycle.initialization import decide_waiting_for
from tenure.policy.lifecycle.repair import counted
from tenure.scheduling.not_ready_grace import Grace

SETTLE: Final = timedelta(seconds=10)
"""What holds up a node that just became Ready is not worth a signal before it has held for so long."""

AWAITED_FOR: Final = timedelta(minutes=1)
"""A node that is up waits so long for its pods before it is worth a signal."""

UNHEALTHY_FOR: Final = timedelta(minutes=1)
"""So long, or for half of what is tolerated, a node that starts may be unhealthy before it is worth a signal."""


@dataclass(frozen=True)
class View:
    """Everything about a NodeClaim that its digest may depend on."""

    claim: ClaimFact
    nodes: tuple[NodeFact, ...] = ()
    policy: str = ""
    occupied: bool = True
    """Pods are there that would need a place elsewhere, or it is not known yet."""
    expected: bool = False
    """Pods are nominated to it."""
    expected_until: datetime | None = None
    """When the last nomination ends, or ended; None with `expected` means no end in sight."""
    awaits: str = ""
    """Which pods those are."""
    awaits_since: datetime | None = None
    """Since when they could be there."""
    vacant_since: datetime | None = None
    """The latest moment at which the last such pod can have left."""
    drift: Drift | None = None
    unseen: bool = False
    """Nobody saw it leave: `vacant_since` is when the watch began."""
    kept_for: str = ""
    """The CapacityBuffer that needs the room there."""
    away: Grace | None = None
    """What an initialized node has used of its grace."""
    rules: LifecycleRules | None = None
    """What LifecyclePolicies say of its NodePool's nodes."""
    event_policies: dict[str, str] = field(default_factory=dict)
    """Which of them say something of AWS's events, by kind."""
    events_unread: str = ""
    """What of that nobody can read."""
    repaired: bool = False
    """The gate NodeRepair is on."""


@dataclass(frozen=True)
class Digest:
    """What to say, and when time alone may change it."""

    seen: ClaimSeen
    again: datetime | None = None


def claim_digest(view: View, now: datetime) -> Digest:
    """The observation without its number."""
    claim, nodes = view.claim, view.nodes
    if claim.deleting or any(node.deleting for node in nodes):
        return Digest(_bare(view).model_copy(update={"deleting": True, "disruption": claim.disruption}))
    drift = view.drift
    found = {"drift": drift.reason, "drift_message": drift.message} if drift else {}
    bare = _bare(view).model_copy(update=found)
    if not nodes:
        return Digest(bare)
    node = {"provider_id": claim.provider_id, "node_name": nodes[0].name, "node_count": len(nodes)}
    joined = bare.model_copy(update=node)
    if not claim.registered:
        return Digest(joined)
    digest = (_running if claim.initialized else _starting)(view, joined, nodes[0], now)
    return _with_health(digest, view, nodes[0], now) if view.repaired else digest


def _bare(view: View) -> ClaimSeen:
    return ClaimSeen(
        rules=view.rules,
        event_policies=view.event_policies,
        events_unread=view.events_unread,
        pause=_pause(view),
    )


def _pause(view: View) -> str:
    """The NodeClaim's annotation, or else that of its Node."""
    said = (view.claim.annotations.get(labels.PAUSE), *(one.annotations.get(labels.PAUSE) for one in view.nodes))
    return next((one for one in said if one), "")


def _starting(view: View, joined: ClaimSeen, node: NodeFact, now: datetime) -> Digest:
    """Not Ready says nothing yet; Ready and held up is said once it has lasted; Ready for good is said at once."""
    waiting = waiting_for(view.claim, node)
    if not waiting:
        return Digest(_ready(view, joined, node))
    settled = (node.ready_changed or now) + SETTLE
    if not node.ready or now >= settled:
        return Digest(joined.model_copy(update={"node_ready": node.ready, "waiting_for": _reasons(node, waiting)}))
    return Digest(joined, again=settled)


def _running(view: View, joined: ClaimSeen, node: NodeFact, now: datetime) -> Digest:
    seen = _ready(view, joined, node)
    waiting = waiting_for(view.claim, node)
    if waiting:
        seen = seen.model_copy(update={"node_ready": node.ready, "waiting_for": _reasons(node, waiting)})
    if view.away and view.away.away_since:
        seen = seen.model_copy(update={"away_since": view.away.away_since, "away_for": view.away.why})
    if view.occupied:
        return Digest(seen)
    if view.kept_for:
        return Digest(seen.model_copy(update={"kept_for": view.kept_for}))
    if view.expected and (view.expected_until is None or now < view.expected_until):
        return _awaiting(view, seen, now)
    moments = (view.vacant_since, view.claim.initialized_at, view.expected_until)
    since = max((moment for moment in moments if moment), default=now)
    unseen = view.unseen and since == view.vacant_since
    return Digest(seen.model_copy(update={"empty": True, "empty_since": since, "empty_since_unseen": unseen}))


def _awaiting(view: View, seen: ClaimSeen, now: datetime) -> Digest:
    """Pods are expected there. One that is away says that instead."""
    told = view.awaits_since + AWAITED_FOR if view.awaits_since and not seen.away_since else None
    if told is None or now < told:
        moments = (view.expected_until, told)
        return Digest(seen, again=min((one for one in moments if one), default=None))
    return Digest(seen.model_copy(update={"awaits": view.awaits}), again=view.expected_until)


def _with_health(digest: Digest, view: View, node: NodeFact, now: datetime) -> Digest:
    """A node that starts is NotReady for a while, which is nothing to tell of before it has lasted."""
    tolerations: dict[tuple[str, str], str] = {(one.type, one.status): one.toleration for one in counted(view.rules)}
    unhealthy = [
        Unhealthy(type=one.type, status=one.status, since=one.since)
        for one in node.conditions
        if one.since and (one.type, one.status) in tolerations
    ]
    if not unhealthy:
        return digest
    if not view.claim.initialized:
        told = min(one.since + _unsaid(tolerations[one.type, one.status]) for one in unhealthy)
        if now < told:
            return Digest(digest.seen, again=min(digest.again or told, told))
    return Digest(digest.seen.model_copy(update={"unhealthy": tuple(unhealthy)}), digest.again)


def _unsaid(toleration: str) -> timedelta:
    return min(UNHEALTHY_FOR, (parse_duration(toleration) or UNHEALTHY_FOR) / 2)


def _ready(view: View, joined: ClaimSeen, node: NodeFact) -> ClaimSeen:
    return joined.model_copy(
        update={
            "node_ready": True,
            "ready_since": node.ready_changed,
            "boot_id": node.boot_id,
            "policy": view.policy,
            "do_not_disrupt": node.annotations.get(labels.DO_NOT_DISRUPT) == "true",
        }
    )


def waiting_for(claim: ClaimFact, node: NodeFact) -> tuple[str, ...]:
    """What still holds up initialization, as the activity that performs it will judge."""
    return decide_waiting_for(
        ready=node.ready,
        taints=[Taint(key=one.key, value=one.value, effect=one.effect) for one in node.taints],
        startup_taints=[Taint(key=one.key, value=one.value, effect=one.effect) for one in claim.startup_taints],
        allocatable=node.allocatable,
        requests=claim.requests,
    )


def _reasons(node: NodeFact, waiting: tuple[str, ...]) -> tuple[str, ...]:
    """Nothing beside NotReady: what else there is goes with it, mostly, and would only be noise."""
    return waiting if node.ready else ()


def pool_digest(
    pool: PoolFact,
    claims: Iterable[ClaimFact],
    node_class: EC2NodeClass | None,
    *,
    static_capacity: bool = False,
    healthy_at: tuple[int, int] | None = None,
    pauses: tuple[str, str] = ("", ""),
    rules: LifecycleRules | None = None,
    freed: int = 0,
    unread: Unread = ALL_READ,
) -> PoolSeen:
    """What the pool's status shows, in short; of a static pool, what its number of NodeClaims is decided by. `pauses`:
    its own annotation, and the cluster's; `freed`: from `rooms.py`."""
    claims = tuple(claims)
    launched = [claim for claim in claims if claim.provider_id]
    used = resources.total(claim.capacity for claim in launched)
    generation = node_class.metadata.generation if node_class else 0
    said = f"{len(launched)} " + " ".join(f"{key}={amount}" for key, amount in sorted(used.items()))
    return PoolSeen(
        generation=pool.generation,
        usage=short(said),
        node_class=pool.node_class,
        node_class_ready=_readiness(node_class),
        class_generation=generation,
        registered=0 if healthy_at == (pool.generation, generation) else sum(one.registered for one in claims),
        stamps=foreign_stamps(pool.hash_version, claims, labels.NODEPOOL_HASH_VERSION),
        deleting=pool.deleting,
        pause=pauses[0],
        cluster_pause=pauses[1],
        rules=rules.disruption if rules else None,
        rollout=rules.rollout if rules else None,
        freed=freed,
        unread=unread,
        **_static(pool, claims, static_capacity),
    )


def _static(pool: PoolFact, claims: tuple[ClaimFact, ...], gate: bool) -> dict[str, Any]:
    if not pool.static:
        return {}
    if not gate:
        return {"static": "off"}
    going = sum(claim.deleting for claim in claims)
    return {"static": "on", "replicas": pool.replicas, "standing": len(claims) - going, "going": going}


def node_class_digest(node_class: EC2NodeClass, claims: Iterable[ClaimFact]) -> NodeClassSeen:
    """The number of its NodeClaims is told only while the class is going, since only then somebody waits for it."""
    claims, meta = tuple(claims), node_class.metadata
    own = meta.annotations.get(labels.NODECLASS_HASH_VERSION, "")
    return NodeClassSeen(
        generation=meta.generation,
        deleting=meta.deleting,
        claims=len(claims) if meta.deleting else 0,
        stamps="" if meta.deleting else foreign_stamps(own, claims, labels.NODECLASS_HASH_VERSION),
    )


def foreign_stamps(own: str, claims: Iterable[ClaimFact], annotation: str) -> str:
    """The versions of the static hash that are not ours, on an object and the NodeClaims made from it."""
    versions = {own, *(one.annotations.get(annotation, "") for one in claims if not one.deleting)}
    return ", ".join(sorted(versions - {"", HASH_VERSION}))[:60]


def fingerprint(seen: Message) -> str:
    """A short hash of an observation, less what is not compared; equal for equal digests."""
    return short(seen.model_dump_json(exclude=UNCOMPARED))


def short(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _readiness(node_class: EC2NodeClass | None) -> str:
    if node_class is None:
        return "NotFound"
    if node_class.metadata.deleting:
        return "Terminating"
    ready = node_class.condition(labels.READY)
    return f"{ready.status} {ready.reason} {ready.message}".strip()[:100] if ready else "Unknown"
